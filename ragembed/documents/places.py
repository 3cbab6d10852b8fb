"""The location of documents: a local path, or a URL that fsspec reads, such as ``s3://bucket/docs``.

:class:`RemotePath` has the methods of :class:`pathlib.Path` that reading needs, and makes no request before one does.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from ragembed.documents import remote
from ragembed.errors import ConfigError

# A scheme has at least two letters, because C:// is a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SECRET = re.compile(r"[^/:@\[\]]*:(?!\d+(?:/|$))[^@]*@")
_WEB = frozenset({"http", "https"})
_SECRET_FIELDS = frozenset(
    {
        *("access_token", "api_key", "apikey", "awsaccesskeyid", "password", "sig", "signature", "token"),
        *("x-amz-credential", "x-amz-security-token", "x-amz-signature", "x-goog-credential", "x-goog-signature"),
    }
)


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder with the URL ``url``. Use :meth:`parse` for a URL that a user typed."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}{'' if self.url.endswith('/') else '/'}{name}")

    @classmethod
    def parse(cls, text: str) -> RemotePath:
        """Return the path of a URL in normal form. One with a secret, a chain and a relative one are errors."""
        scheme, _, rest = text.partition("://")
        scheme = scheme.lower()
        _require_no_secret(scheme, rest)
        if "::" in rest:
            raise ConfigError(f"{text} is a chain of URLs (::): expected the URL of one file or folder")
        if scheme in _WEB:
            return cls(f"{scheme}://{rest.partition('#')[0]}")
        if scheme in ("file", "local"):
            if not rest.startswith("/"):
                raise ConfigError(f"{text} is relative: expected {scheme}:///, or a path without {scheme}://")
            rest = posixpath.normpath(f"/{rest.lstrip('/')}")
        return cls(f"{scheme}://{rest.rstrip('/') or rest[:1]}")

    def as_posix(self) -> str:
        """Return the URL."""
        return self.url

    @property
    def name(self) -> str:
        """The part after the last slash. For ``http://``, without the query string and percent-decoded."""
        scheme, _, rest = self.url.partition("://")
        if scheme in _WEB:
            return PurePosixPath(unquote(rest.partition("?")[0].partition("/")[2])).name
        return rest.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot, as in :attr:`pathlib.PurePath.suffix`."""
        return PurePosixPath(self.name).suffix

    def stat(self) -> remote.RemoteStatus:
        """Return the status. Raises :class:`FileNotFoundError` if nothing exists, other :class:`OSError` if unknown."""
        return remote.status(self.url)

    def exists(self) -> bool:
        """Return whether the file or folder exists. Raises :class:`OSError` if that cannot be determined."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def read_bytes(self, limit: int | None = None) -> bytes:
        """Read the file, or its first ``limit`` bytes. Raises :class:`OSError`."""
        return remote.read(self.url, limit)


Place: TypeAlias = Path | RemotePath
"""A file or folder. Both types have ``name``, ``suffix``, ``stat``, ``read_bytes`` and the ``/`` operator."""


def is_url(text: str) -> bool:
    """Return whether ``text`` is a URL (``scheme://…``) and not a local path."""
    return _SCHEME.match(text) is not None


def place_of(text: str) -> Place:
    """Convert ``text``, a path or a URL, to a place. Raises :class:`ConfigError` like :meth:`RemotePath.parse`."""
    return RemotePath.parse(text) if is_url(text) else Path(text)


def absolute(place: Place) -> str:
    """Return ``place`` as a string that :func:`from_absolute` converts back in any working directory."""
    return place.url if isinstance(place, RemotePath) else os.path.abspath(place)  # noqa: PTH100  keeps links


def from_absolute(name: str) -> Place:
    """Convert the output of :func:`absolute` back to a place."""
    return RemotePath(name) if is_url(name) else Path(name)


def exists(place: Place) -> bool:
    """Return whether ``place`` exists; a broken link does. Raises :class:`OSError` if a URL cannot be reached."""
    return place.exists() if isinstance(place, RemotePath) else os.path.lexists(place)


def shown_path(place: Place) -> str:
    """Return ``place`` relative to the working directory if that is shorter, else absolute; URLs are unchanged."""
    if isinstance(place, RemotePath):
        return place.url
    path = os.path.abspath(place)  # noqa: PTH100  resolve() would follow symbolic links
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        relative = path
    shown = min(relative, path, key=len)
    return shown.encode("utf-8", "backslashreplace").decode()


def _require_no_secret(scheme: str, rest: str) -> None:
    """Raise :class:`ConfigError` if the URL contains a secret. The message does not repeat the URL."""
    authority = rest.partition("/")[0]
    fields = {name.lower() for name, _ in parse_qsl(rest.partition("?")[2])}
    # github://organisation:repository@branch has the form of a password but is none.
    if scheme != "github" and (_SECRET.match(rest) or (scheme in _WEB and "@" in authority)):
        what = "a user name, password or key before its '@'"
    elif found := sorted(fields & _SECRET_FIELDS):
        what = f"the secret {found[0]!r} in its query"
    else:
        return
    raise ConfigError(
        f"the {scheme}:// URL contains {what}, which would be saved in the store and displayed: remove it from the URL "
        "and set it in the driver's environment variables or in ~/.config/fsspec/"
    )
