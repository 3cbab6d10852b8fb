"""Creating files and folders with the user's umask; reading only regular files, and none behind a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Flag of ``os.open`` that makes an error of a symbolic link, where the system has it."""

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Flags for opening what may be a named pipe or a device by now: neither waits for its other end."""
_LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_HAS_DIR_FD = os.open in os.supports_dir_fd and os.listdir in os.supports_fd

_FILE_MODE, _FOLDER_MODE = 0o664, 0o775


class NotRegularFileError(OSError):
    """What was opened as a file is a folder, a named pipe, a socket or a device."""


def open_regular(path: Path, root: Path | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Below ``root``, no symbolic link is followed: not one in place of the file, nor of a folder on the way. Windows
    cannot open folder by folder, so links to folders are followed there. ``root`` itself may be a link, and without
    ``root`` so may ``path``: a user has named them.

    Raises:
        NotRegularFileError: it is no regular file; a named pipe is not waited for.
        OSError: it cannot be opened, or a symbolic link is in its place or on the way.
    """
    descriptor = _open_below(path, root, _READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularFileError(errno.EINVAL, "it is not a regular file", str(path))
        return open(descriptor, "rb")  # noqa: PTH123  a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def list_folder(path: Path, root: Path) -> list[str]:
    """Return the names in a folder; symbolic links are followed as by :func:`open_regular`.

    Raises :class:`OSError`.
    """
    if not _HAS_DIR_FD:
        return os.listdir(path)  # noqa: PTH208  names, not paths
    descriptor = _open_below(path, root, _LIST)
    try:
        return os.listdir(descriptor)  # noqa: PTH208  a descriptor
    finally:
        os.close(descriptor)


def _open_below(path: Path, root: Path | None, flags: int) -> int:
    if root is None or path == root:
        return os.open(path, flags)
    if not _HAS_DIR_FD:
        return os.open(path, flags | NO_LINK)
    *above, name = path.relative_to(root).parts
    folder = os.open(root, _LIST)
    try:
        for step in above:
            inner = os.open(step, _LIST | NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, flags | NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            told = "a symbolic link, which is not followed, is in its place or above it"
            raise OSError(error.errno, told, str(path)) from error
        raise
    finally:
        os.close(folder)


def create_file(path: Path) -> BinaryIO:
    """Open ``path``, which is no link, for writing it again; on disk only after :func:`sync`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | NO_LINK
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
    """Put ``data`` in place of ``path``, whole or not at all, and wait until it is on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_file(temporary, data)
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)
