"""Immutable folders of a store: published whole, swept when nothing names them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from ragembed.errors import StoreDamagedError
from ragembed.files import make_folders, sync

SEGMENT_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FINGERPRINT = re.compile(r"[0-9a-f]{32}")


def require_name(what: str, folder: str) -> None:
    """Raise :class:`StoreDamagedError` unless ``folder``, which the database names as ``what``, is called by a UUID."""
    if SEGMENT_NAME.fullmatch(folder) is None:
        raise StoreDamagedError(f"the store's database names {what} {folder!r}, which is no name of ours")


def temporary_folder(final: Path) -> Path:
    """Make and return the folder in which the files of ``final`` are written before they are published."""
    temporary = final.with_name(f".{final.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    make_folders(temporary)
    return temporary


def publish(temporary: Path, final: Path) -> None:
    """Give a finished folder its final name; it and its files are on disk when this returns."""
    for file in temporary.iterdir():
        sync(file)
    sync(temporary)
    temporary.rename(final)
    sync(final.parent)


def sweep(folder: Path, keep: Collection[str], names: re.Pattern[str]) -> None:
    """Remove the folders in ``folder`` that are called like ours and are not in ``keep``.

    They are what writes left that never committed. Raises :class:`StoreDamagedError` where ``folder`` is a symbolic
    link: a store has none, and what lies behind one is not ours to remove.
    """
    if folder.is_symlink():
        raise StoreDamagedError(f"{folder} is a symbolic link, which no store has: put the folder itself in its place")
    for entry in folder.iterdir() if folder.is_dir() else ():
        ours = names.fullmatch(entry.name.removeprefix(".").removesuffix(".tmp")) is not None
        if ours and entry.name not in keep and entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
