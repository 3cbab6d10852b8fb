"""Creating files and folders with the user's umask, and never writable by the whole world."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Flag of ``os.open`` that makes an error of a symbolic link, where the system has it."""

_FILE_MODE, _FOLDER_MODE = 0o664, 0o775


def create_file(path: Path) -> BinaryIO:
    """Open ``path``, which is no link, for writing it anew; on disk only after :func:`sync`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0) | NO_LINK
    return open(os.open(path, flags, _FILE_MODE), "wb")  # noqa: PTH123  a descriptor, for the mode


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write ``data`` as the whole of ``path``, which is no link; on disk only after :func:`sync`."""
    with create_file(path) as file:
        file.write(data)


def make_folders(path: Path) -> None:
    """Make the folder ``path`` and those above it, where they are not there."""
    for folder in reversed([path, *path.parents]):
        if not folder.is_dir():
            folder.mkdir(_FOLDER_MODE, exist_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle for syncing a folder
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``path``, whole or not at all, and wait until it is on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_file(temporary, data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)
