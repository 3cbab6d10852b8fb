"""Which files below the given paths are read, and for every other one why not.

The walk streams: it holds the entries of the folders between a root and the current file, never the tree. Entries
come in the order of their names. What a root excludes is decided on the way down by :mod:`ragembed.documents.ignore`;
contents are not looked at beyond the first 8 KB, which tell text from binary.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ragembed.documents.decoding import is_binary
from ragembed.documents.ignore import IgnoreScope, Rule, command_line_rules, scope_above
from ragembed.errors import ConfigError

_NEVER_READ = frozenset({".git", ".hg", ".svn", ".ragembed", "node_modules", "__pycache__", ".venv"})
_SNIFFED_BYTES = 8192


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """What is read below a root.

    ``exclude`` and ``include`` are gitignore patterns relative to the root; if there are ``include`` patterns, only
    files that match one are read. ``max_bytes`` caps the size of a file. ``hidden`` lets files and folders whose name
    begins with a dot be read. Files with one of ``binary_suffixes`` are read although they are not text.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    max_bytes: int = 20 * 1024 * 1024
    hidden: bool = False
    binary_suffixes: frozenset[str] = frozenset({".pdf", ".docx", ".pptx", ".epub"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file (or, where asked for, a folder that is not entered) below ``root``.

    ``path`` begins with ``root`` as it was given, and equals it for a root that is a file. ``skipped`` is None for a
    file to be read, otherwise the reason in words. ``size`` is in bytes; it and ``mtime_ns`` are 0 for what cannot
    be looked up. ``ignored`` tells a file left out by a rule from one that cannot be read; ``unseen`` marks what cannot
    be looked at now, so that nothing is known of what is there.
    """

    path: Path
    root: Path
    size: int
    mtime_ns: int
    skipped: str | None = None
    is_dir: bool = False
    ignored: bool = False
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate, the rule that decided on it, and whether it is skipped because it could not be read."""

    candidate: Candidate
    rule: Rule | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder being walked: its place below the root ("" or "a/b/"), its rules, the entries still to come."""

    path: Path
    below: str
    scope: IgnoreScope
    entries: Iterator[os.DirEntry[str]]


def discover(
    paths: Sequence[Path], options: DiscoveryOptions | None = None, *, pruned: bool = False
) -> Iterator[Candidate]:
    """Yield every file below ``paths``, in the order of ``paths`` and of the names below each.

    A path given is itself followed even if it is a link, hidden or ignored; a file given is skipped only for its
    size or as binary. Where one path lies in another, the inner one's files are its own and come once. Folders that
    a rule excludes are not entered and come only with ``pruned``; folders that cannot be read always come.

    Raises:
        ConfigError: one of ``paths`` does not exist, a glob is no pattern, or an ignore file above a root cannot be
            read. Raised before the first file.
    """
    walks = _walks(paths, options or DiscoveryOptions())
    return (
        found.candidate
        for walk in walks
        for found in walk.run()
        if pruned or found.failed or not found.candidate.is_dir
    )


def why(path: Path, paths: Sequence[Path], options: DiscoveryOptions | None = None) -> str:
    """Tell in one sentence whether :func:`discover` would have ``path`` read, and by which rule.

    Raises:
        ConfigError: as :func:`discover`.
    """
    shown = _shown(path)
    walks = _walks(paths, options or DiscoveryOptions())
    places = [(parts, walk) for walk in walks if (parts := walk.parts_of(path)) is not None]
    if not os.path.lexists(path):
        return f"{shown} does not exist"
    if not places:
        return f"{shown} is not read: it lies outside {', '.join(_shown(walk.root) for walk in walks)}"
    parts, walk = min(places, key=lambda place: len(place[0]))
    found = next(walk.run(only=parts), None)
    if found is None:
        return f"{shown} is a folder that is searched"
    candidate = found.candidate
    if candidate.skipped is None:
        return f"{shown} is read" + (f": taken back in by {_shown(found.rule)}" if found.rule else "")
    if candidate.path != walk.root.joinpath(*parts):
        return f"{shown} is not read, because {_shown(candidate.path)} is not: {candidate.skipped}"
    return f"{shown} is not read: {candidate.skipped}"


def _walks(paths: Sequence[Path], options: DiscoveryOptions) -> list[_Walk]:
    roots: dict[Path, tuple[Path, os.stat_result]] = {}
    for path in paths:
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            link = "is a symbolic link to nothing" if path.is_symlink() else "does not exist"
            raise ConfigError(f"{_shown(path)} {link}: give a file or folder to read") from error
        except OSError as error:
            raise ConfigError(f"{_shown(path)} cannot be looked up: {error.strerror}") from error
        roots.setdefault(path.resolve(), (path, status))
    shared = frozenset(roots) if len(roots) > 1 else frozenset()
    return [_Walk(root, status, real, shared, options) for real, (root, status) in roots.items()]


class _Walk:
    """The walk below one root; ``roots`` are the real paths of all, which are left to their own walks."""

    def __init__(
        self,
        root: Path,
        status: os.stat_result,
        real: Path,
        roots: frozenset[Path],
        options: DiscoveryOptions,
    ) -> None:
        self.root = root
        self._status = status
        self._real = real
        self._roots = roots
        self._options = options
        self._include = command_line_rules("--include", options.include)
        if stat.S_ISDIR(status.st_mode):
            self._scope = scope_above(root, options.exclude)

    def parts_of(self, path: Path) -> tuple[str, ...] | None:
        """Give the names that lead from the root to ``path``; None if it lies elsewhere."""
        by_name = Path(os.path.normpath(path.absolute()))
        by_target = by_name.parent.resolve() / by_name.name
        roots = (Path(os.path.normpath(self.root.absolute())), self._real)
        for place in (by_name, by_target):
            for root in roots:
                if place.is_relative_to(root):
                    return place.relative_to(root).parts
        return None

    def run(self, only: tuple[str, ...] | None = None) -> Iterator[_Found]:
        """Yield what lies below the root; with ``only``, what is met on the way along those names."""
        candidate = Candidate(self.root, self.root, self._status.st_size, self._status.st_mtime_ns)
        if not _is_unicode(str(self.root)):
            yield _Found(replace(candidate, skipped="its name is not valid Unicode"), failed=True)
            return
        if not stat.S_ISDIR(self._status.st_mode):
            reason = _kind_reason(self._status.st_mode)
            yield _Found(replace(candidate, skipped=reason) if reason else self._with_content(candidate))
            return
        folders: list[_Folder] = []
        met: _Found | _Folder | None = self._enter(replace(candidate, size=0, is_dir=True), "", self._scope)
        while True:
            if isinstance(met, _Folder):
                folders.append(met)
            elif met is not None:
                yield met
            if not folders:
                return
            depth = len(folders) - 1
            entry = next(folders[depth].entries, None)
            if entry is None:
                folders.pop()
                met = None
            elif only is None or only[depth : depth + 1] == (entry.name,):
                met = self._visit(entry, folders[depth])
            else:
                met = None

    def _visit(self, entry: os.DirEntry[str], folder: _Folder) -> _Found | _Folder | None:
        """Judge one entry; enter it if it is a folder to be walked. None for what another walk has."""
        path, relative = folder.path / entry.name, folder.below + entry.name
        if self._roots and self._real / relative in self._roots:
            return None
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            unseen = f"cannot be looked up: {error.strerror}"
            return _Found(Candidate(path, self.root, 0, 0, unseen, unseen=True), failed=True)
        is_dir = stat.S_ISDIR(status.st_mode)
        candidate = Candidate(path, self.root, 0 if is_dir else status.st_size, status.st_mtime_ns, is_dir=is_dir)
        if not _is_unicode(entry.name):
            return _Found(replace(candidate, skipped="its name is not valid Unicode"), failed=True)
        if by_name := self._name_reason(entry.name):
            return _Found(replace(candidate, skipped=by_name, ignored=True))
        rule = folder.scope.deciding(relative, is_dir)
        if rule and not rule.negated:
            return _Found(replace(candidate, skipped=f"ignored by {_shown(rule)}", ignored=True), rule)
        if is_dir:
            return self._enter(candidate, relative, folder.scope)
        reason = self._link_reason(path) if stat.S_ISLNK(status.st_mode) else _kind_reason(status.st_mode)
        if reason is None and (by_include := self._include_reason(relative)):
            return _Found(replace(candidate, skipped=by_include, ignored=True), rule)
        return _Found(replace(candidate, skipped=reason) if reason else self._with_content(candidate), rule)

    def _enter(self, candidate: Candidate, relative: str, scope: IgnoreScope) -> _Folder | _Found:
        try:
            with os.scandir(candidate.path) as entries:
                held = sorted(entries, key=lambda entry: entry.name)
            names = {entry.name for entry in held}
            if relative and (reason := _contents_reason(names)):
                return _Found(replace(candidate, skipped=reason, ignored=True))
            scope = scope.enter(candidate.path, relative, names)
        except OSError as error:
            reason = f"cannot be listed: {error.strerror}"
            return _Found(replace(candidate, skipped=reason, unseen=True), failed=True)
        except ConfigError as error:
            return _Found(replace(candidate, skipped=str(error), unseen=True), failed=True)
        return _Folder(candidate.path, f"{relative}/" if relative else "", scope, iter(held))

    def _name_reason(self, name: str) -> str | None:
        if name in _NEVER_READ:
            return f"{name} is never read"
        if name.startswith(".") and not self._options.hidden:
            return "hidden (--hidden reads what begins with a dot)"
        return None

    def _link_reason(self, path: Path) -> str:
        try:
            path.stat()
        except FileNotFoundError:
            return "symbolic link to nothing"
        except OSError as error:
            return f"symbolic link that cannot be followed: {error.strerror}"
        target = path.resolve()
        if not target.is_relative_to(self._real):
            return f"symbolic link that leaves the folder, to {_shown(target)}"
        return f"symbolic link to {_shown(self.root / target.relative_to(self._real))}, which has its own entry"

    def _include_reason(self, relative: str) -> str | None:
        if not self._include.rules:
            return None
        rule = self._include.deciding(relative, is_dir=False)
        for folder in PurePosixPath(relative).parents[:-1]:
            rule = rule or self._include.deciding(folder.as_posix(), is_dir=True)
        if rule is None:
            return "matches no --include pattern"
        return f"left out by {rule}" if rule.negated else None

    def _with_content(self, candidate: Candidate) -> Candidate:
        """Skip the file if its size or its first bytes say so."""
        if candidate.size > self._options.max_bytes:
            return replace(candidate, skipped=_size_reason(candidate.size, self._options.max_bytes))
        try:
            with candidate.path.open("rb") as file:
                sample = file.read(_SNIFFED_BYTES)
        except OSError as error:
            return replace(candidate, skipped=f"cannot be opened: {error.strerror}", unseen=True)
        readable = candidate.path.suffix.lower() in self._options.binary_suffixes or not is_binary(sample)
        return candidate if readable else replace(candidate, skipped="binary")


def _contents_reason(names: Container[str]) -> str | None:
    if "pyvenv.cfg" in names:
        return "a Python virtual environment (holds pyvenv.cfg)"
    if "store.db" in names and "segments" in names:
        return "a ragembed store (holds store.db and segments)"
    return None


def _kind_reason(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return f"{next((kind for test, kind in kinds if test(mode)), 'a device')}, not a file"


def _size_reason(size: int, limit: int) -> str:
    megabyte = 1024 * 1024
    shown = [f"{number / megabyte:.1f} MB" for number in (size, limit)]
    if shown[0] == shown[1] or limit < megabyte:
        shown = [f"{number:,} bytes" for number in (size, limit)]
    return f"{shown[0]} is over the limit of {shown[1]} (--max-size)"


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(place: object) -> str:
    """Write a path or rule so that it can be printed whatever bytes its name has."""
    return str(place).encode("utf-8", "backslashreplace").decode("utf-8")
