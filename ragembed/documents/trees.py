"""A root, which is a local folder or file or a URL, and how its folders are listed and its files are opened.

A place below a root is identified by its relative path, such as ``"a/b"``, or ``""`` for the root itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from ragembed.documents import remote
from ragembed.documents.ignore import IgnoreScope, command_line_rules, scope_above
from ragembed.documents.places import Place, RemotePath
from ragembed.documents.readers.registry import named_reader
from ragembed.files import list_folder, open_regular

SNIFFED_BYTES = 8192
"""Number of bytes read to distinguish text from binary files."""


Status = os.stat_result | remote.RemoteStatus


@dataclass(frozen=True, slots=True)
class LocalEntry:
    """An entry of a local folder. Its status can be that of a file outside, if a link replaces the folder meanwhile."""

    name: str
    folder: Path

    def lstat(self) -> os.stat_result:
        """Return the status, without following a link."""
        return os.lstat(os.path.join(self.folder, self.name))  # noqa: PTH118  a path takes as long as the call


Entry = LocalEntry | remote.RemoteEntry


class LocalTree:
    """A local root, with its status when the tree was made. ``roots`` are the resolved paths of several roots."""

    def __init__(self, root: Path, status: Status, roots: Set[Place]) -> None:
        self.root = root
        self.status = status
        self._real = root.resolve()
        self._roots = roots

    def place(self, relative: str) -> Path:
        """Return a place below the root."""
        return self.root / relative

    def parts_of(self, place: Place) -> tuple[str, ...] | None:
        """Return the names of the path from the root to ``place``, as given or resolved, or None if it is outside."""
        if isinstance(place, RemotePath):
            return None
        by_name = Path(os.path.normpath(place.absolute()))
        by_target = by_name.parent.resolve() / by_name.name
        roots = (Path(os.path.normpath(self.root.absolute())), self._real)
        for path in (by_name, by_target):
            for root in roots:
                if path.is_relative_to(root):
                    return path.relative_to(root).parts
        return None

    def is_other_root(self, relative: str) -> bool:
        """Return whether the place is another root, which has its own walk."""
        return bool(self._roots) and self._real / relative in self._roots

    def scope(self, exclude: Sequence[str]) -> IgnoreScope:
        """Return the ignore rules from outside the root. Raises :class:`ConfigError`."""
        return scope_above(self.root, exclude)

    def entries(self, relative: str) -> Sequence[Entry]:
        """List a folder, sorted by name. Raises :class:`OSError`."""
        folder = self.place(relative)
        return [LocalEntry(name, folder) for name in sorted(list_folder(folder, self.root))]

    def sample(self, relative: str) -> bytes:
        """Return the first bytes of a file. Raises :class:`OSError`."""
        with open_regular(self.place(relative), self.root) as file:
            return file.read(SNIFFED_BYTES)


class RemoteTree:
    """A root given as a URL, with the methods of :class:`LocalTree`. ``roots`` are the URLs of several roots."""

    def __init__(self, root: RemotePath, status: Status, roots: Set[Place]) -> None:
        self.root = root
        self.status = status
        self._roots = roots

    def place(self, relative: str) -> RemotePath:
        """See :class:`LocalTree`."""
        return self.root / relative if relative else self.root

    def parts_of(self, place: Place) -> tuple[str, ...] | None:
        """See :class:`LocalTree`."""
        if not isinstance(place, RemotePath):
            return None
        if place == self.root:
            return ()
        folder = str(self.root / "")
        return tuple(place.url.removeprefix(folder).split("/")) if place.url.startswith(folder) else None

    def is_other_root(self, relative: str) -> bool:
        """See :class:`LocalTree`."""
        return bool(self._roots) and self.place(relative) in self._roots

    def scope(self, exclude: Sequence[str]) -> IgnoreScope:
        """Ignore files above a URL are not read."""
        return IgnoreScope(command_line_rules("--exclude", exclude))

    def entries(self, relative: str) -> Sequence[Entry]:
        """See :class:`LocalTree`."""
        return remote.entries(self.place(relative).url)

    def sample(self, relative: str) -> bytes | None:
        """Return the first bytes of a file, or None if its format is known from the name, without a request."""
        place = self.place(relative)
        return None if named_reader(place.name) else remote.read(place.url, SNIFFED_BYTES)


Tree = LocalTree | RemoteTree


def link_reason(link: Place, root: Place) -> str:
    """Return the reason why a symbolic link below ``root`` is not read."""
    if isinstance(link, RemotePath) or isinstance(root, RemotePath):
        return "symbolic link, which is not followed below a URL"
    try:
        link.stat()
    except FileNotFoundError:
        return "broken symbolic link"
    except OSError as error:
        return f"symbolic link that cannot be followed: {error.strerror}"
    target, real = link.resolve(), root.resolve()
    if not target.is_relative_to(real):
        return f"symbolic link to {shown(target)}, outside the folder"
    return f"symbolic link to {shown(root / target.relative_to(real))}, which is listed separately"


def shown(place: object) -> str:
    """Return a path or rule as a printable string. Bytes that are not valid UTF-8 are escaped."""
    return str(place).encode("utf-8", "backslashreplace").decode("utf-8")
