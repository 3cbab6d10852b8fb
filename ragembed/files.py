"""File access: create files with the user's umask, read and hash only regular files, do not follow symbolic links.

What a later step depends on is written with :func:`replace_file`, :func:`publish` and :func:`make_folders`. A power
failure after they have returned does not undo them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Flag of ``os.open`` that refuses a symbolic link, on systems that have it; otherwise 0."""

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Flags for reading; opening a named pipe or a device with them does not block."""
_LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_HAS_DIR_FD = os.open in os.supports_dir_fd and os.listdir in os.supports_fd

_BLOCK_BYTES = 1 << 20
_REMEMBERED_BYTES = 1 << 20
"""Smallest size of a file whose hash is cached; a smaller file is faster to read than the cache."""
_MOST_CACHE = 16 << 20
"""Largest cache that is read."""
_FILE_MODE, FOLDER_MODE = 0o664, 0o775


class NotRegularFileError(OSError):
    """The path is a folder, a named pipe, a socket or a device, not a regular file."""


class FileTooLargeError(OSError):
    """The file has more bytes than a file of its kind may have."""


def open_regular(path: Path, root: Path | None = None) -> BinaryIO:
    """Open a regular file for reading; raise :class:`NotRegularFileError` for another one. A named pipe does not block.

    Below ``root``, a symbolic link raises :class:`OSError`, for the file and for the folders above it. Windows cannot
    open a path folder by folder, so it follows links to folders. ``root`` itself may be a link, and so may ``path`` if
    there is no ``root``, because the user named them.
    """
    try:
        descriptor = _open_below(path, root, _READ)
    except ValueError as error:  # The path contains U+0000 or a character that the system cannot encode.
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularFileError(errno.EINVAL, "it is not a regular file", str(path))
        return open(descriptor, "rb")  # noqa: PTH123  a descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most_bytes: int, root: Path | None = None) -> bytes:
    """Return the content of a file that the user did not name: a regular file, with the rules of :func:`open_regular`.

    Raises :class:`FileTooLargeError` if it has more than ``most_bytes``, and the errors of :func:`open_regular`.
    """
    with open_regular(path, root) as file:
        data = bytearray()
        while len(data) <= most_bytes and (block := file.read(_BLOCK_BYTES)):  # One read would reserve the limit.
            data += block
    if len(data) > most_bytes:
        raise FileTooLargeError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
    return bytes(data)


def list_folder(path: Path, root: Path) -> list[str]:
    """Return the names in a folder, with the same rules for symbolic links as :func:`open_regular`."""
    if not _HAS_DIR_FD:
        return os.listdir(path)  # noqa: PTH208  names, not paths
    descriptor = _open_below(path, root, _LIST)
    try:
        return os.listdir(descriptor)  # noqa: PTH208  a descriptor
    finally:
        os.close(descriptor)


def _open_below(path: Path, root: Path | None, flags: int) -> int:
    """Open ``path`` without following symbolic links below ``root``."""
    if root is None or path == root:
        return os.open(path, flags)
    if not _HAS_DIR_FD:
        return os.open(path, flags | NO_LINK)
    *above, name = path.relative_to(root).parts
    folder = None
    try:
        if not above:
            return os.open(path, flags | NO_LINK)  # only the name itself can be a link below the root
        folder = os.open(root, _LIST)
        for step in above:
            inner = os.open(step, _LIST | NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, flags | NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "it is a symbolic link or below one, and links are not followed"
            raise OSError(error.errno, reason, str(path)) from error
        raise
    finally:
        if folder is not None:
            os.close(folder)


def create_file(path: Path) -> BinaryIO:
    """Open ``path``, which must not be a link, for writing and truncate it.

    Only :func:`publish` forces it to disk.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | NO_LINK
    return open(os.open(path, flags, _FILE_MODE), "wb")  # noqa: PTH123  a descriptor, for the mode


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write ``data`` as the whole content of ``path``, which must not be a link.

    Only :func:`publish` forces it to disk.
    """
    with create_file(path) as file:
        file.write(data)


def is_own(status: os.stat_result) -> bool:
    """Return whether a file with this status belongs to the user: of the process, or, for root, of sudo."""
    if not hasattr(os, "geteuid"):
        return True
    user = os.geteuid()
    return status.st_uid == user or (user == 0 and str(status.st_uid) == os.environ.get("SUDO_UID"))


def user_folder() -> Path:
    """Return ``$XDG_CONFIG_HOME/ragembed`` or ``~/.config/ragembed``, the user's settings; it may not exist yet."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  Path.home() raises if there is none
    return Path(folder) / "ragembed"


def make_folders(path: Path, mode: int = FOLDER_MODE) -> None:
    """Create the folder ``path`` and its parents with ``mode`` if they do not exist, and force them to disk."""
    for folder in reversed([path, *path.parents]):
        if not folder.is_dir():
            folder.mkdir(mode, exist_ok=True)
            sync(folder.parent)


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot sync a folder
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Force a file, or a folder and all that it contains, to disk."""
    for entry in (*path.rglob("*"), path):
        sync(entry)


def replace_file(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` atomically and force it to disk. A failure leaves the former file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_file(temporary, data)
        publish(temporary, path)
    except BaseException:
        with suppress(OSError):  # The first error is the one to report.
            temporary.unlink(missing_ok=True)
        raise


def publish(temporary: Path, final: Path) -> None:
    """Give a finished file or folder its final name, after forcing it and all that it contains to disk."""
    sync_tree(temporary)
    temporary.replace(final)
    sync(final.parent)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values in TOML; raise :class:`ValueError` for other text."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def is_unwritten(data: bytes) -> bool:
    """Return whether a file with the content ``data`` was created but never written.

    After a power failure, such a file is empty, or holds zeros.
    """
    return not data.strip(b"\0")


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex; for a large file it is cached by path, size and modification time.

    The cache is a JSON file in ``$XDG_CACHE_HOME/ragembed``. If it cannot be written, the file is read each time.
    """
    path = path.resolve()
    stat = path.stat()
    if stat.st_size < _REMEMBERED_BYTES:
        return read_sha256(path)
    version = [stat.st_size, stat.st_mtime_ns]
    cache = cache_folder() / "hashes.json"
    hashes = _read_cache(cache)
    entry = hashes.get(str(path))
    if isinstance(entry, list) and len(entry) == 3 and entry[:2] == version:
        return str(entry[2])
    digest = read_sha256(path)
    hashes = {name: value for name, value in hashes.items() if os.path.exists(name)}  # noqa: PTH110  Path.exists() raises in unreadable folders
    _write_cache(cache, {**hashes, str(path): [*version, digest]})
    return digest


def cache_folder() -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/ragembed`` or ``~/.cache/ragembed``; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "ragembed"  # noqa: PTH111  Path.home() raises if there is none


def read_sha256(path: Path) -> str:
    """Read the whole file, which must be a regular one, and return its sha256 in hex."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_cache(cache: Path) -> dict[str, object]:
    """Return the cached hashes by path; an empty dict if the cache cannot be read."""
    try:
        hashes = json.loads(read_regular(cache, _MOST_CACHE))
    except (OSError, ValueError, RecursionError):
        return {}
    return hashes if isinstance(hashes, dict) else {}


def _write_cache(cache: Path, hashes: dict[str, object]) -> None:
    """Write the cache, if possible."""
    temporary = cache.with_suffix(f".{os.getpid()}.tmp")
    try:
        cache.parent.mkdir(0o700, parents=True, exist_ok=True)
        temporary.write_text(json.dumps(hashes), encoding="utf-8")
        temporary.replace(cache)
    except OSError:
        return  # without a cache, the file is read again next time
