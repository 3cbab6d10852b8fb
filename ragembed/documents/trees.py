"""What lies below a root: a folder or file of this machine, or what a URL names.

A :class:`Tree` lists folders, opens files and knows its own places; which of them are read is decided by the walk over
it (:mod:`discovery`), for all trees alike. Places below a root are given by the way to them, ``"a/b"``, ``""`` for the
root itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ragembed.documents import remote
from ragembed.documents.ignore import IgnoreScope, command_line_rules, scope_above
from ragembed.documents.places import Place, RemotePath
from ragembed.documents.readers.registry import named_reader
from ragembed.files import list_folder, open_regular

SNIFFED_BYTES = 8192
"""How much of a file tells text from binary."""


class Status(Protocol):
    """What is known of a place that is not opened: :class:`os.stat_result` and :class:`remote.RemoteStatus`."""

    @property
    def st_mode(self) -> int:
        """Whether it is a file or a folder."""
        ...

    @property
    def st_size(self) -> int:
        """Its bytes."""
        ...

    @property
    def st_mtime_ns(self) -> int | None:
        """What changes with the content; None where nothing does."""
        ...


class Entry(Protocol):
    """A file or folder in a folder: :class:`LocalEntry` and :class:`remote.RemoteEntry`."""

    @property
    def name(self) -> str:
        """Its name in the folder."""
        ...

    def lstat(self) -> Status:
        """Look it up without following a symbolic link; raises :class:`OSError`."""
        ...


class Tree(Protocol):
    """A root and what lies below it."""

    @property
    def root(self) -> Place:
        """The root as it was given."""
        ...

    @property
    def status(self) -> Status:
        """What was known of the root when it was looked up."""
        ...

    def place(self, relative: str) -> Place:
        """Return a place below the root."""
        ...

    def parts_of(self, place: Place) -> tuple[str, ...] | None:
        """Return the names that lead from the root to ``place``; None if it lies elsewhere."""
        ...

    def is_other_root(self, relative: str) -> bool:
        """Tell whether the place is a root of its own, which is left to its own walk."""
        ...

    def scope(self, exclude: Sequence[str]) -> IgnoreScope:
        """Return what holds for the root before its own ignore files; raises :class:`ConfigError`."""
        ...

    def entries(self, relative: str) -> Sequence[Entry]:
        """List a folder in the order of names; raises :class:`OSError`."""
        ...

    def sample(self, relative: str, size: int) -> bytes | None:
        """Return the first bytes of a file of ``size`` bytes; None if reading it is to tell what it is.

        Raises :class:`OSError`.
        """
        ...

    def link_reason(self, relative: str) -> str:
        """Tell why a symbolic link is not read."""
        ...


@dataclass(frozen=True, slots=True)
class LocalEntry:
    """A name in a folder of this machine.

    It is looked up by its path: if the folder becomes a link meanwhile, a foreign file is seen, but cannot be opened.
    """

    name: str
    folder: Path

    def lstat(self) -> os.stat_result:
        """See :class:`Entry`."""
        return (self.folder / self.name).lstat()


class LocalTree:
    """A root on this machine; ``roots`` are the real paths of all, where there are others."""

    def __init__(self, root: Path, status: Status, roots: Set[Place]) -> None:
        self.root = root
        self.status = status
        self._real = root.resolve()
        self._roots = roots

    def place(self, relative: str) -> Path:
        """See :class:`Tree`."""
        return self.root / relative

    def parts_of(self, place: Place) -> tuple[str, ...] | None:
        """See :class:`Tree`; by name or by where links lead."""
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
        """See :class:`Tree`."""
        return bool(self._roots) and self._real / relative in self._roots

    def scope(self, exclude: Sequence[str]) -> IgnoreScope:
        """See :class:`Tree`."""
        return scope_above(self.root, exclude)

    def entries(self, relative: str) -> Sequence[Entry]:
        """See :class:`Tree`."""
        folder = self.place(relative)
        return [LocalEntry(name, folder) for name in sorted(list_folder(folder, self.root))]

    def sample(self, relative: str, size: int) -> bytes:  # noqa: ARG002  some file systems tell no sizes
        """See :class:`Tree`."""
        with open_regular(self.place(relative), self.root) as file:
            return file.read(SNIFFED_BYTES)

    def link_reason(self, relative: str) -> str:
        """See :class:`Tree`."""
        path = self.place(relative)
        try:
            path.stat()
        except FileNotFoundError:
            return "symbolic link to nothing"
        except OSError as error:
            return f"symbolic link that cannot be followed: {error.strerror}"
        target = path.resolve()
        if not target.is_relative_to(self._real):
            return f"symbolic link that leaves the folder, to {shown(target)}"
        return f"symbolic link to {shown(self.root / target.relative_to(self._real))}, which has its own entry"


class RemoteTree:
    """A root that a URL names; ``roots`` are all, where there are others."""

    def __init__(self, root: RemotePath, status: Status, roots: Set[Place]) -> None:
        self.root = root
        self.status = status
        self._roots = roots

    def place(self, relative: str) -> RemotePath:
        """See :class:`Tree`."""
        return self.root / relative if relative else self.root

    def parts_of(self, place: Place) -> tuple[str, ...] | None:
        """See :class:`Tree`."""
        if not isinstance(place, RemotePath):
            return None
        if place == self.root:
            return ()
        folder = str(self.root / "")
        return tuple(place.url.removeprefix(folder).split("/")) if place.url.startswith(folder) else None

    def is_other_root(self, relative: str) -> bool:
        """See :class:`Tree`."""
        return bool(self._roots) and self.place(relative) in self._roots

    def scope(self, exclude: Sequence[str]) -> IgnoreScope:
        """See :class:`Tree`; nothing above a URL is looked at."""
        return IgnoreScope(command_line_rules("--exclude", exclude))

    def entries(self, relative: str) -> Sequence[Entry]:
        """See :class:`Tree`."""
        return remote.entries(self.place(relative).url)

    def sample(self, relative: str, size: int) -> bytes | None:
        """See :class:`Tree`; a request is worth it only where the name does not tell the format."""
        place = self.place(relative)
        return None if size == 0 or named_reader(place.name) else remote.read(place.url, SNIFFED_BYTES)

    def link_reason(self, relative: str) -> str:  # noqa: ARG002  of a link, drivers tell no more
        """See :class:`Tree`."""
        return "symbolic link, which is not followed below a URL"


def shown(place: object) -> str:
    """Write a path or rule so that it can be printed whatever bytes its name has."""
    return str(place).encode("utf-8", "backslashreplace").decode("utf-8")
