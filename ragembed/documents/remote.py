"""What fsspec is asked: what a URL names, what is in a folder, the bytes of a file. The only importer of fsspec.

fsspec's drivers raise whatever their libraries raise. Here that becomes an :class:`OSError` whose ``strerror`` is one
sentence, and :class:`FileNotFoundError` only where the other side has said that there is nothing: who deletes what is
gone must know it from what cannot be reached. Settings and credentials are the drivers' own (environment variables,
``~/.config/fsspec/``).
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

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "Last-Modified", "modified")
_VERSIONS = ("ETag", "etag", "md5Hash", "Content-MD5", "content_md5", "Digest", "checksum", "blob_id", "sha", "hex")
"""What drivers call the time of the last change, and what else changes with the content."""
_GONE = frozenset({404, 410, "404", "NoSuchKey", "NoSuchBucket"})
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """What is known of a file or folder without opening it, called as in :class:`os.stat_result`.

    ``st_size`` is in bytes, 0 where the driver does not tell it. ``st_mtime_ns`` changes with the content: the time of
    the last change in nanoseconds since 1970, its fraction of a second made of the version (ETag, hash) where the time
    has none; a negative number made of the version alone; None where there is neither.
    """

    st_mode: int
    st_size: int
    st_mtime_ns: int | None


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file or folder in a folder, with what the listing of the folder said of it."""

    name: str
    status: RemoteStatus

    def lstat(self) -> RemoteStatus:
        """Return what the listing of the folder said."""
        return self.status


def status(url: str) -> RemoteStatus:
    """Ask what ``url`` names; raises :class:`FileNotFoundError` for nothing, another :class:`OSError` for no answer."""
    with _as_os_error(url):
        system, path = _connect(url)
        system.invalidate_cache()  # what was listed before is not what is there now
        return _status(system.info(path), url)


def entries(url: str) -> list[RemoteEntry]:
    """List a folder in the order of names, a file before a folder of its name; raises :class:`OSError`."""
    with _as_os_error(url):
        system, path = _connect(url)
        system.invalidate_cache()  # nor does memory grow with all that was listed
        listed = [(info["name"].rstrip("/"), info) for info in system.ls(path, detail=True)]
        # Some stores have an object that stands for the folder itself.
        own = path.rstrip("/")
        found = [RemoteEntry(name.rpartition("/")[2], _status(info, url)) for name, info in listed if name != own]
    return sorted(found, key=lambda entry: (entry.name, stat.S_ISDIR(entry.status.st_mode)))


def read(url: str, limit: int | None = None) -> bytes:
    """Read a file, or its first ``limit`` bytes; raises :class:`OSError`."""
    with _as_os_error(url):
        system, path = _connect(url)
        data: bytes = system.cat_file(path) if limit is None else system.cat_file(path, start=0, end=limit)
    return data[:limit]  # a web server may give the whole


def _connect(url: str) -> tuple[AbstractFileSystem, str]:
    """Return the driver for ``url`` and what it calls the place.

    Raises:
        OSError: fsspec does not know the scheme, or the scheme's driver is not installed.
        MissingExtraError: fsspec is not installed.
    """
    with needed_for(f"reading {url}"):
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class
    if "::" in url:
        raise OSError(errno.EINVAL, "its name has '::', which fsspec takes for a chain of URLs")
    scheme = url.partition("://")[0]
    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        missing = getattr(error.__cause__, "name", None)
        remedy = f": pip install {missing.partition('.')[0]}" if missing else ""
        told = f"its driver is not installed{remedy} (fsspec says: {error})"
        raise OSError(errno.EPROTONOSUPPORT, told) from error
    except ValueError as error:
        raise OSError(errno.EPROTONOSUPPORT, f"fsspec knows no {scheme}://") from error
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
            raise OSError(errno.EIO, _told(error.__cause__ or error), url) from error
        raise FileNotFoundError(errno.ENOENT, "does not exist", url) from error
    except Exception as error:
        raise OSError(errno.EIO, _told(error), url) from error


def _is_gone(error: FileNotFoundError) -> bool:
    """Tell whether the other side has said so: fsspec's driver for the web says the same of a server that is away."""
    cause = error.__cause__
    if cause is None or isinstance(cause, FileNotFoundError):
        return True
    response = getattr(cause, "response", None)
    codes = [getattr(cause, name, None) for name in ("status", "status_code")]
    if isinstance(response, Mapping):  # of Amazon's library
        codes.append(response.get("Error", {}).get("Code"))
    return any(code in _GONE for code in codes if isinstance(code, (int, str)))


def _told(error: BaseException) -> str:
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
    # In memory files are replaced, never changed.
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
    """Return a time as nanoseconds since 1970, None for what is no time. Without a time zone it is in UTC."""
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        time = (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        return None
    # 64 bits, as in the database; nor is NaN less than anything.
    return int(time * _SECOND) if abs(time) < 2**63 / _SECOND else None


def _parsed(time: str) -> datetime | None:
    """Read a time as in ISO 8601, or as web servers write it."""
    from email.utils import parsedate_to_datetime

    try:
        if time[:4].isdigit():
            return datetime.fromisoformat(time.replace("Z", "+00:00"))
        return parsedate_to_datetime(time)
    except ValueError:
        return None
