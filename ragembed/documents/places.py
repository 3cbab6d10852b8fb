"""Where documents are: a path of this machine, or a URL that fsspec reads, such as ``s3://bucket/docs``.

A :class:`RemotePath` has the part of :class:`pathlib.Path` that reading documents needs, so that most code need not
tell the two apart. The text of the URL is all there is to it: nothing is looked up before it is asked for.
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

# Two letters or more: C:// is a drive.
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
    """A file or folder that ``url`` names; see :meth:`parse` for one that a person has written."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}{'' if self.url.endswith('/') else '/'}{name}")

    @classmethod
    def parse(cls, text: str) -> RemotePath:
        """Return the place of a URL, without what does not change it: a slash at its end, ``..`` in ``file://``.

        Raises:
            ConfigError: it holds a password or another secret, leads through another URL, or is relative.
        """
        scheme, _, rest = text.partition("://")
        scheme = scheme.lower()
        _require_no_secret(scheme, rest)
        if "::" in rest:
            raise ConfigError(f"{text} leads through another URL (::): give the URL of a file or folder that has files")
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
        """What follows the last slash; of ``http://`` without the query, and decoded."""
        scheme, _, rest = self.url.partition("://")
        if scheme in _WEB:
            return PurePosixPath(unquote(rest.partition("?")[0].partition("/")[2])).name
        return rest.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last dot of the name and what follows, as of a path."""
        return PurePosixPath(self.name).suffix

    def stat(self) -> remote.RemoteStatus:
        """Ask what is there; raises :class:`FileNotFoundError` for nothing, another :class:`OSError` for no answer."""
        return remote.status(self.url)

    def exists(self) -> bool:
        """Tell whether something is there; raises :class:`OSError` where that cannot be asked."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def read_bytes(self) -> bytes:
        """Read the file; raises :class:`OSError`."""
        return remote.read(self.url)


Place: TypeAlias = Path | RemotePath
"""A file or folder: both have ``name``, ``suffix``, ``stat``, ``read_bytes``, and ``/`` for what is in a folder."""


def is_url(text: str) -> bool:
    """Tell whether ``text`` is ``scheme://`` and what follows, rather than a path of this machine."""
    return _SCHEME.match(text) is not None


def place_of(text: str) -> Place:
    """Return the place of ``text``, a path or a URL; raises :class:`ConfigError` as :meth:`RemotePath.parse`."""
    return RemotePath.parse(text) if is_url(text) else Path(text)


def absolute(place: Place) -> str:
    """Return the name by which :func:`from_absolute` finds ``place`` from any working directory."""
    return place.url if isinstance(place, RemotePath) else os.path.abspath(place)  # noqa: PTH100  links stay


def from_absolute(name: str) -> Place:
    """Return the place that :func:`absolute` gave ``name`` for."""
    return RemotePath(name) if is_url(name) else Path(name)


def exists(place: Place) -> bool:
    """Tell whether something is there, be it a link to nothing; raises :class:`OSError` where a URL gives no answer."""
    return place.exists() if isinstance(place, RemotePath) else os.path.lexists(place)


def _require_no_secret(scheme: str, rest: str) -> None:
    """Raise :class:`ConfigError`, which does not repeat the URL, where its name would give a secret away."""
    authority = rest.partition("/")[0]
    fields = {name.lower() for name, _ in parse_qsl(rest.partition("?")[2])}
    # github://organisation:repository@branch has the form of a password.
    if scheme != "github" and (_SECRET.match(rest) or (scheme in _WEB and "@" in authority)):
        what = "a user name, password or key before its '@'"
    elif found := sorted(fields & _SECRET_FIELDS):
        what = f"the secret {found[0]!r} in its query"
    else:
        return
    raise ConfigError(
        f"a URL of {scheme}:// has {what}, which would be kept in the store and shown: leave it out, and give it to "
        "the driver by its environment variables or in ~/.config/fsspec/"
    )
