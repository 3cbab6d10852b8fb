"""Names in a store's folder, and finding a store."""

from __future__ import annotations

import os
from pathlib import Path

from ragembed.documents.places import Place, RemotePath, is_url
from ragembed.errors import StoreError, StoreNotFoundError
from ragembed.files import make_folders

STORE_FOLDER = ".ragembed"
STORE_VARIABLE = "RAGEMBED_STORE"

DATABASE = "store.db"
COMMITTED_SUFFIX = "-generation"
"""Added to the database's name: the file with the number of the last commit."""
APPLICATION_ID = 0x52474531
"""Of the database, as SQLite keeps it: "RGE1"."""
SEGMENTS = "segments"
EMBEDDERS = "embedders"
POSTINGS = "postings"
WORK = "work"
"""What the stages of a run leave for one another, until it is done."""
RAW, INDEX = "raw.f16", "index.faiss"
BLOCK = "postings.safetensors"
GITIGNORE, GITIGNORE_TEXT = ".gitignore", b"*\n"


def choose_store(store: Path | None, start: Path | None = None) -> Path:
    """Return where a store is, or is to be: ``store``, ``$RAGEMBED_STORE``, the nearest above, or here.

    Walks up from ``start`` (the working directory) as git does; where there is none, ``.ragembed`` in ``start``. Raises
    :class:`StoreError` for a store that the walk found and that belongs to another user: documents would be written
    into it, and answers read from it.
    """
    if store is not None:
        return store
    if named := os.environ.get(STORE_VARIABLE):
        return Path(named)
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if is_store(folder / STORE_FOLDER):
            return _require_owner(folder / STORE_FOLDER)
    return start / STORE_FOLDER


def _require_owner(store: Path) -> Path:
    if not hasattr(os, "geteuid"):
        return store
    users = {os.geteuid()}
    if users == {0} and (caller := os.environ.get("SUDO_UID", "")).isdigit():
        users.add(int(caller))
    for path in (store, store / DATABASE):
        for status in (path.lstat(), path.stat()):
            if status.st_uid not in users:
                raise StoreError(
                    f"the store {store} belongs to another user (id {status.st_uid}): to use it, name it with "
                    f"--store {store}; to make your own here, give another folder"
                )
    return store


def is_store(folder: Path) -> bool:
    """Tell whether ``folder`` holds a store."""
    return os.path.isfile(folder / DATABASE)  # noqa: PTH113  Path.is_file() raises in folders that cannot be read


def require_store(folder: Path) -> Path:
    """Return ``folder``; raises :class:`StoreNotFoundError` if it holds no store, :class:`StoreError` if it is shut."""
    if folder.is_file():
        raise StoreNotFoundError(f"{folder} is a file: a store is a folder, made with: ragembed index PATH")
    if not is_store(folder):
        if _is_shut(folder):
            raise StoreError(f"the store {folder} cannot be opened: you have no permission to enter the folder")
        raise StoreNotFoundError(f"there is no store at {folder}: make one with: ragembed index PATH")
    return folder


def _is_shut(folder: Path) -> bool:
    try:
        (folder / DATABASE).lstat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def make_folder(store: Path) -> None:
    """Make the folder of a store, and those above it; raises :class:`StoreError` where that cannot be done."""
    try:
        make_folders(store)
    except OSError as error:
        raise StoreError(f"no store can be made at {store}: {error.strerror or error}") from error


def require_writable(store: Path) -> None:
    """Raise :class:`StoreError` where the folder of a store cannot be made, without making it."""
    nearest = next(folder for folder in (_absolute(store), *_absolute(store).parents) if folder.exists())
    if not nearest.is_dir():
        raise StoreError(f"no store can be made at {store}: {nearest} is a file; choose another place with --store")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(f"no store can be made at {store}: {nearest} cannot be written; choose another with --store")


def source_path(file: Place, store: Path) -> str:
    r"""Return the name under which ``file`` is kept: relative to the folder that holds the store, with ``/``; or a URL.

    A store and its documents can then be moved together. On another drive than the store the name is absolute. Bytes
    of a name that are not Unicode are written as ``\udcxx``.
    """
    name = file.url if isinstance(file, RemotePath) else _beside(file, store).as_posix()
    return name.encode("utf-8", "backslashreplace").decode()


class NamesInStore:
    """:func:`source_path` of many files of one store: what their folders have in common is found out once."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folders: dict[Path, str] = {}

    def of(self, file: Place) -> str:
        """Return the name under which ``file``, which is no folder, is kept."""
        if isinstance(file, RemotePath):
            return source_path(file, self._store)
        folder = file.parent
        if folder not in self._folders:
            self._folders[folder] = source_path(folder, self._store).rstrip("/")
        before = self._folders[folder]
        name = file.name.encode("utf-8", "backslashreplace").decode()
        return name if before == "." else f"{before}/{name}"


def file_path(source: str, store: Path) -> Place:
    """Return the place of the file kept under the name ``source``, a path as an absolute one."""
    return RemotePath(source) if is_url(source) else _absolute(_absolute(store).parent / source)


def is_below(source: str, root: str) -> bool:
    """Tell whether the file ``source`` is ``root`` or lies below it; both are names in a store."""
    if is_url(root) or is_url(source) or Path(root).is_absolute() or Path(source).is_absolute():
        return source == root or source.startswith(root.rstrip("/") + "/")
    steps = [step for step in root.split("/") if step != "."]
    climbed = source.split("/")
    if all(step == ".." for step in steps):  # the store's folder, or one above it
        return next((i for i, step in enumerate(climbed) if step != ".."), len(climbed)) <= len(steps)
    return climbed[: len(steps)] == steps


def _beside(file: Path, store: Path) -> Path:
    try:
        return Path(os.path.relpath(_absolute(file), _absolute(store).parent))
    except ValueError:
        return _absolute(file)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow symbolic links
