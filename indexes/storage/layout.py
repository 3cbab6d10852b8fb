"""Names in a store's folder, and how a store is found."""

from __future__ import annotations

import os
import shlex
from pathlib import Path, PurePosixPath

from ragembed.documents.places import Place, RemotePath, is_url
from ragembed.errors import StoreError, StoreNotFoundError
from ragembed.files import is_own, make_folders

STORE_FOLDER = ".ragembed"
STORE_VARIABLE = "RAGEMBED_STORE"

DATABASE = "store.db"
COMMITTED_SUFFIX = "-generation"
"""Suffix of the database's name that gives the file with the number of the last commit."""
APPLICATION_ID = 0x52474531
"""Application id of the SQLite database: "RGE1"."""
SEGMENTS = "segments"
EMBEDDERS = "embedders"
DERIVED = "derived"
WORK = "work"
"""Folder in which the stages of an indexing run exchange files until the run is done."""
RAW, INDEX = "raw.f16", "index.faiss"
PRIVATE = 0o700
"""Mode of the folder of a new store."""
GITIGNORE, GITIGNORE_TEXT = ".gitignore", b"*\n"


def choose_store(store: Path | None, start: Path | None = None) -> Path:
    """Return the path of the store to use, which may not exist yet.

    This is ``store`` if given, else ``$RAGEMBED_STORE``, else the nearest ``.ragembed`` in ``start`` (the working
    directory) or a folder above, else ``.ragembed`` in ``start``.
    """
    if store is not None:
        return store
    if named := os.environ.get(STORE_VARIABLE):
        return Path(named)
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if is_store(folder / STORE_FOLDER):
            return require_owner(folder / STORE_FOLDER)
    return start / STORE_FOLDER


def require_owner(store: Path) -> Path:
    """Return ``store``; raise :class:`StoreError` if it belongs to another user."""
    for path in (store, store / DATABASE):
        for status in (path.lstat(), path.stat()):
            if not is_own(status):
                raise StoreError(
                    f"the store {store} belongs to another user (id {status.st_uid}): to use it, pass "
                    f"--store {store}; to create your own, pass another folder"
                )
    return store


def is_store(folder: Path) -> bool:
    """Return whether ``folder`` holds a store."""
    return os.path.isfile(folder / DATABASE)  # noqa: PTH113  Path.is_file() raises in folders that cannot be read


def require_store(folder: Path) -> Path:
    """Return ``folder``; raises StoreNotFoundError if it holds no store, and StoreError if access is denied."""
    if folder.is_file():
        raise StoreNotFoundError(f"{folder} is a file: expected a folder; create a store with 'ragembed index PATH'")
    if not is_store(folder):
        require_access(folder)
        option = "" if folder.name == STORE_FOLDER else f" --store {shlex.quote(str(folder))}"
        raise StoreNotFoundError(f"no store at {folder}: create one with 'ragembed index PATH{option}'")
    return folder


def require_access(folder: Path) -> None:
    """Raise :class:`StoreError` if you may not enter the folder of a store; there may be none."""
    try:
        (folder / DATABASE).lstat()
    except PermissionError as error:
        raise StoreError(f"cannot open the store {folder}: you have no permission to enter the folder") from error
    except OSError:
        return


def make_folder(store: Path) -> None:
    """Create the folder of a store and its parents; raise :class:`StoreError` if that fails.

    Only the user can enter a new folder. An existing one keeps its mode, which decides who can read the store.
    """
    try:
        make_folders(store.parent)
        make_folders(store, PRIVATE)
    except OSError as error:
        raise StoreError(f"cannot create a store at {store}: {error.strerror or error}") from error


def require_writable(store: Path) -> None:
    """Raise :class:`StoreError` if the folder of a store cannot be created; does not create it."""
    nearest = next(folder for folder in (_absolute(store), *_absolute(store).parents) if folder.exists())
    if not nearest.is_dir():
        raise StoreError(f"cannot create a store at {store}: {nearest} is a file; choose another folder with --store")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(
            f"cannot create a store at {store}: {nearest} is not writable; choose another folder with --store"
        )


def root_of(store: Path) -> Path:
    """Return the folder that the names of the files in a store are relative to."""
    return _absolute(store).parent


def source_path(file: Place, store: Path) -> str:
    r"""Return the name under which ``file`` is kept: relative to the folder that holds the store, with ``/``; or a URL.

    A store and its documents can then be moved together.
    """
    name = file.url if isinstance(file, RemotePath) else _beside(file, store).as_posix()
    return name.encode("utf-8", "backslashreplace").decode()


class NamesInStore:
    """Return :func:`source_path` of many files of one store, computing each folder's part only once."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folders: dict[Path, str] = {}

    def of(self, file: Place) -> str:
        """Return the name in the store of ``file``, which must not be a folder."""
        if isinstance(file, RemotePath):
            return source_path(file, self._store)
        folder = file.parent
        if folder not in self._folders:
            self._folders[folder] = source_path(folder, self._store).rstrip("/")
        before = self._folders[folder]
        name = file.name.encode("utf-8", "backslashreplace").decode()
        return name if before == "." else f"{before}/{name}"


def file_path(source: str, store: Path) -> Place:
    """Return the place of the file with the name ``source`` in the store; paths are absolute."""
    return RemotePath(source) if is_url(source) else _absolute(root_of(store) / source)


def is_below(source: str, root: str) -> bool:
    """Return whether the file ``source`` is ``root`` or lies below it; both are names in a store."""
    if is_url(root) or is_url(source) or Path(root).is_absolute() or Path(source).is_absolute():
        return source == root or source.startswith(root.rstrip("/") + "/")
    steps = [step for step in root.split("/") if step != "."]
    climbed = source.split("/")
    if all(step == ".." for step in steps):  # The folder that holds the store, or one above it.
        return next((i for i, step in enumerate(climbed) if step != ".."), len(climbed)) <= len(steps)
    return climbed[: len(steps)] == steps


def extension(path: str) -> str:
    """Return the extension of a file name in lower case, without the dot; empty if there is none."""
    suffix = RemotePath(path).suffix if is_url(path) else PurePosixPath(path).suffix
    return suffix.removeprefix(".").lower()


def _beside(file: Path, store: Path) -> Path:
    try:
        return Path(os.path.relpath(_absolute(file), root_of(store)))
    except ValueError:
        return _absolute(file)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow symbolic links
