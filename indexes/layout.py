"""Names in a store's folder, and finding a store."""

from __future__ import annotations

import os
from pathlib import Path

from ragembed.errors import StoreNotFoundError

STORE_FOLDER = ".ragembed"
STORE_VARIABLE = "RAGEMBED_STORE"

DATABASE = "store.db"
SEGMENTS = "segments"
EMBEDDERS = "embedders"
RAW, INDEX = "raw.f16", "index.faiss"


def choose_store(store: Path | None, start: Path | None = None) -> Path:
    """Return where a store is, or is to be: ``store``, ``$RAGEMBED_STORE``, the nearest above, or here.

    Walks up from ``start`` (the working directory) as git does; where there is none, ``.ragembed`` in ``start``.
    """
    if store is not None:
        return store
    if named := os.environ.get(STORE_VARIABLE):
        return Path(named)
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if is_store(folder / STORE_FOLDER):
            return folder / STORE_FOLDER
    return start / STORE_FOLDER


def is_store(folder: Path) -> bool:
    """Tell whether ``folder`` holds a store."""
    return (folder / DATABASE).is_file()


def require_store(folder: Path) -> Path:
    """Return ``folder``; raises :class:`StoreNotFoundError` with the remedy where it holds no store."""
    if not is_store(folder):
        raise StoreNotFoundError(f"there is no store at {folder}: make one with: ragembed index PATH")
    return folder


def source_path(file: Path, store: Path) -> str:
    """Return the name under which ``file`` is kept: relative to the folder that holds the store, with ``/``.

    A store and its documents can then be moved together. On another drive than the store the name is absolute.
    """
    try:
        relative = os.path.relpath(_absolute(file), _absolute(store).parent)
    except ValueError:
        return _absolute(file).as_posix()
    return Path(relative).as_posix()


def file_path(source: str, store: Path) -> Path:
    """Return the absolute path of the file kept under the name ``source``."""
    return _absolute(_absolute(store).parent / source)


def is_below(source: str, root: str) -> bool:
    """Tell whether the file ``source`` is ``root`` or lies below it; both are names in a store."""
    if root == ".":
        return not source.startswith("../") and not Path(source).is_absolute()
    return source == root or source.startswith(root.rstrip("/") + "/")


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow symbolic links
