"""Access to URLs through fsspec, which only this module imports.

The exceptions of its drivers become :class:`OSError`, and :class:`FileNotFoundError` only if the server reports that
nothing exists, because deleting missing files from a store must not confuse them with unreachable ones.
"""

from __future__ import annotations

import errno
import hashlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ragembed.errors import MissingExtraError
from ragembed.extras import needed_for
from ragembed.version import pip_install

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "Last-Modified", "modified")
"""Names that drivers use for the time of the last change."""
_VERSIONS = ("ETag", "etag", "md5Hash", "Content-MD5", "content_md5", "Digest", "checksum", "blob_id", "sha", "hex")
"""Names that drivers use for a version or hash of the content."""
_GONE = frozenset({404, 410, "404", "NoSuchKey", "NoSuchBucket"})
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The status of a file or folder, with the attribute names of :class:`os.stat_result`.

    ``st_mtime_ns`` changes when the content changes: a time, completed or replaced by a number from the version (ETag
    or hash), or None if both are unknown.
    """

    st_mode: int
    st_size: int
    st_mtime_ns: int | None


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file or folder inside a folder, with its status from the listing of the folder."""

    name: str
    status: RemoteStatus

    def lstat(self) -> RemoteStatus:
        """Return the status from the listing of the folder."""
        return self.status


def status(url: str) -> RemoteStatus:
    """Return the status of ``url``. Raises :class:`FileNotFoundError` if nothing exists, else :class:`OSError`."""
    with _as_os_error(url):
        system, path = _connect(url)
        system.invalidate_cache()  # a cached listing can be out of date
        return _status(system.info(path), url)


def entries(url: str) -> list[RemoteEntry]:
    """List a folder, sorted by name, a file before a folder of the same name. Raises :class:`OSError`."""
    with _as_os_error(url):
        system, path = _connect(url)
        system.invalidate_cache()  # otherwise the cache grows with every listing
        listed = [(info["name"].rstrip("/"), info) for info in system.ls(path, detail=True)]
        # Some object stores list an object that represents the folder itself.
        own = path.rstrip("/")
        found = [RemoteEntry(name.rpartition("/")[2], _status(info, url)) for name, info in listed if name != own]
    return sorted(found, key=lambda entry: (entry.name, stat.S_ISDIR(entry.status.st_mode)))


def read(url: str, limit: int | None = None) -> bytes:
    """Read a file, or its first ``limit`` bytes. Raises :class:`OSError`."""
    with _as_os_error(url):
        system, path = _connect(url)
        data: bytes = system.cat_file(path) if limit is None else system.cat_file(path, start=0, end=limit)
    return data[:limit]  # a web server may ignore the range and send the whole file


def _connect(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the driver for ``url``, and its path. An unknown scheme or missing driver is an :class:`OSError`."""
    with needed_for(f"reading {url}"):
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class
    if "::" in url:
        raise OSError(errno.EINVAL, "its name contains '::', which fsspec reads as a chain of URLs")
    scheme = url.partition("://")[0]
    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None)
        remedy = f": {pip_install()} {missing.partition('.')[0]}" if missing else ""
        message = f"its driver is not installed{remedy} (fsspec says: {error})"
        raise OSError(errno.EPROTONOSUPPORT, message) from error
    except ValueError as error:
        raise OSError(errno.EPROTONOSUPPORT, f"fsspec does not support {scheme}://") from error
    system, path = url_to_fs(url)
    return system, path


@contextmanager
def _as_os_error(url: str) -> Iterator[None]:
    try:
        yield
    except MissingExtraError:
        raise
    except FileNotFoundError as error:
        if not _is_gone(error):
            raise OSError(errno.EIO, _message(error.__cause__ or error), url) from error
        raise FileNotFoundError(errno.ENOENT, "does not exist", url) from error
    except Exception as error:
        raise OSError(errno.EIO, _message(error), url) from error


def _is_gone(error: FileNotFoundError) -> bool:
    """Return whether nothing exists, as the server says; fsspec raises the same for one that cannot be reached."""
    cause = error.__cause__
    if cause is None or isinstance(cause, FileNotFoundError):
        return True
    response = getattr(cause, "response", None)
    codes = [getattr(cause, name, None) for name in ("status", "status_code")]
    if isinstance(response, Mapping):  # from botocore
        codes.append(response.get("Error", {}).get("Code"))
    return any(code in _GONE for code in codes if isinstance(code, (int, str)))


def _message(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


def _status(info: Mapping[str, Any], url: str) -> RemoteStatus:
    size = info.get("size")
    return RemoteStatus(_mode(info), size if isinstance(size, int) else 0, _version(info, url))


def _mode(info: Mapping[str, Any]) -> int:
    kinds = {"directory": stat.S_IFDIR, "file": stat.S_IFREG, "link": stat.S_IFLNK}
    if (mode := kinds.get(info["type"])) is not None:
        return mode
    return stat.S_IFLNK if info.get("islink") else int(info.get("mode") or 0)


def _version(info: Mapping[str, Any], url: str) -> int | None:
    # Files of memory:// are never modified in place, only replaced, so their creation time is enough.
    names = (*_TIMES, "created") if url.startswith("memory:") else _TIMES
    time = next((found for name in names if (found := _nanoseconds(info.get(name))) is not None), None)
    version = next((f"{name}={info[name]}" for name in _VERSIONS if info.get(name)), None)
    if version is None:
        return time
    hashed = int.from_bytes(hashlib.sha256(version.encode("utf-8", "replace")).digest()[:7], "little")
    if time is None:
        return -1 - hashed
    return time if time % _SECOND else time + hashed % _SECOND


def _nanoseconds(time: object) -> int | None:
    """Convert a time to nanoseconds since 1970, or return None if it is not a time. The default time zone is UTC."""
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        time = (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        return None
    # The database stores 64-bit integers. The comparison also rejects NaN.
    return int(time * _SECOND) if abs(time) < 2**63 / _SECOND else None


def _parsed(time: str) -> datetime | None:
    """Parse a time in ISO 8601 format or in the format of HTTP headers."""
    from email.utils import parsedate_to_datetime

    try:
        if time[:4].isdigit():
            return datetime.fromisoformat(time.replace("Z", "+00:00"))
        return parsedate_to_datetime(time)
    except ValueError:
        return None
