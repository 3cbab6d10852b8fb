"""Find the files below the given roots that are read, and the reason why each other file is skipped.

The walk is streamed: it keeps only the entries of the folders between a root and the current file in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ragembed.config.fields import setting
from ragembed.documents.decoding import is_binary
from ragembed.documents.ignore import IgnoreScope, Rule, command_line_rules
from ragembed.documents.places import Place, RemotePath, absolute, exists, from_absolute
from ragembed.documents.readers.registry import TAR_SUFFIXES, named_reader, unread_reason
from ragembed.documents.trees import Entry, LocalTree, RemoteTree, Status, Tree, link_reason, shown
from ragembed.errors import ConfigError
from ragembed.files import open_regular

_NEVER_READ = frozenset({".git", ".hg", ".svn", ".ragembed", "node_modules", "__pycache__", ".venv"})
BINARY_SUFFIXES = frozenset(
    {
        *(".pdf", ".epub", ".docx", ".docm", ".pptx", ".pptm", ".ppsx", ".xlsx", ".xlsm", ".xls"),
        *(".odt", ".ott", ".odp", ".otp", ".ods", ".ots", ".doc", ".ppt", ".rtf"),
        *(".eml", ".mbox", ".msg", ".zip", *TAR_SUFFIXES),
    }
)
"""Suffixes of formats that are not text, and have a reader."""


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """Options that select the files below a root."""

    exclude: tuple[str, ...] = setting(
        (),
        "Skip matching files, such as 'tmp*'.",
        *("--exclude", "GLOB"),
        default="none",
        more="The syntax is that of `.gitignore`, relative to each path.",
    )
    include: tuple[str, ...] = setting(
        (), "Read only matching files, such as 'README*'.", "--include", "GLOB", default="all files"
    )
    max_bytes: int = setting(
        20 * 1024 * 1024,
        "Skip files larger than this, such as 500K or 20M.",
        *("--max-size", "SIZE"),
        default="20M",
    )
    hidden: bool = setting(
        False,
        "Read files and folders whose names begin with a dot, or skip them.",
        "--hidden/--no-hidden",
        default="--no-hidden",
    )


@dataclass(frozen=True, slots=True)
class FileCandidate:
    """A file below ``root``, or a folder that the walk does not enter.

    ``skipped`` is the reason why the file is not read, or None; ``ignored`` is true if that is a rule, and ``unseen``
    if the file cannot be accessed now. ``mtime_ns`` is None if nothing tells versions of the file apart.
    """

    path: Place
    root: Place
    size: int
    mtime_ns: int | None
    skipped: str | None = None
    is_dir: bool = False
    ignored: bool = False
    unseen: bool = False

    def read(self) -> tuple[bytes, int | None]:
        """Return the content and the current ``mtime_ns`` of a file, no link. Raises :class:`OSError`."""
        if isinstance(self.path, RemotePath) or isinstance(self.root, RemotePath):
            return self.path.read_bytes(), self.mtime_ns
        with open_regular(self.path, self.root) as file:
            # Read the time before the content: if the file changes in between, the next run reads it again.
            mtime_ns = os.fstat(file.fileno()).st_mtime_ns
            return file.read(), mtime_ns

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values. Paths are absolute, so a process in another folder can use them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "path": absolute(self.path), "root": absolute(self.root)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FileCandidate:
        """Create a candidate from the output of :meth:`to_dict`. Its paths are absolute."""
        return cls(**{**values, "path": from_absolute(values["path"]), "root": from_absolute(values["root"])})


def discover(
    paths: Sequence[Place], options: DiscoveryOptions | None = None, *, pruned: bool = False
) -> Iterator[FileCandidate]:
    """Yield every file below ``paths``, in the order of ``paths`` and sorted by name below each.

    The given paths are read even if they are links, hidden, ignored or generated, and a path inside another is a root
    of its own. Folders that a rule excludes are yielded only with ``pruned``. :class:`ConfigError` comes before the
    first file.
    """
    walks = _walks(paths, options or DiscoveryOptions())
    return (
        found.candidate
        for walk in walks
        for found in walk.run()
        if pruned or found.failed or not found.candidate.is_dir
    )


def why(path: Place, paths: Sequence[Place], options: DiscoveryOptions | None = None) -> str:
    """Return one sentence that says whether ``path`` is read, and which rule decides it."""
    name = shown(path)
    walks = _walks(paths, options or DiscoveryOptions())
    innermost = _innermost(path, walks)
    if not exists(path):
        return f"{name} does not exist"
    if innermost is None:
        return f"{name} is not read: it is outside {', '.join(shown(walk.tree.root) for walk in walks)}"
    parts, walk = innermost
    found = next(walk.run(only=parts), None)
    if found is None:
        return f"{name} is a folder that is searched"
    candidate = found.candidate
    if candidate.skipped is None:
        return f"{name} is read" + (f": re-included by {shown(found.rule)}" if found.rule else "")
    if candidate.path != walk.tree.place("/".join(parts)):
        return f"{name} is not read, because {shown(candidate.path)} is not read: {candidate.skipped}"
    return f"{name} is not read: {candidate.skipped}"


def exclusions(paths: Sequence[Place], options: DiscoveryOptions | None = None) -> Callable[[Path], Path | None]:
    """Return a function that finds the rule-excluded file or folder that is, or contains, an existing path, or None."""
    walks = _walks(paths, options or DiscoveryOptions())

    def excluded(path: Path) -> Path | None:
        innermost = _innermost(path, walks)
        found = None if innermost is None else next(innermost[1].run(only=innermost[0]), None)
        place = found.candidate.path if found is not None and found.candidate.ignored else None
        return place if isinstance(place, Path) else None

    return excluded


def member_rules(options: DiscoveryOptions) -> Callable[[str], bool]:
    """Return the function that says whether ``--exclude`` or a hidden name ignores a member of an archive or mail."""
    exclude = command_line_rules("--exclude", options.exclude)

    def ignores(path: str) -> bool:
        folders = [folder.as_posix() for folder in PurePosixPath(path).parents if folder.name]
        if any(_name_reason(part, options.hidden) for part in path.split("/")):
            return True
        # As on disk, nothing in an excluded folder can be included again.
        for relative, is_dir in [*((folder, True) for folder in reversed(folders)), (path, False)]:
            rule = exclude.deciding(relative, is_dir)
            if rule is not None and not rule.negated:
                return True
        return False

    return ignores


def _walks(paths: Sequence[Place], options: DiscoveryOptions) -> list[_Walk]:
    roots: dict[Place, tuple[Place, Status]] = {}
    for path in paths:
        status = _look_up(path)
        roots.setdefault(path if isinstance(path, RemotePath) else path.resolve(), (path, status))
    others: Set[Place] = roots.keys() if len(roots) > 1 else frozenset()
    trees: list[Tree] = [
        RemoteTree(root, status, others) if isinstance(root, RemotePath) else LocalTree(root, status, others)
        for root, status in roots.values()
    ]
    return [_Walk(tree, options) for tree in trees]


def _innermost(path: Place, walks: Sequence[_Walk]) -> tuple[tuple[str, ...], _Walk] | None:
    """Return the walk with the root nearest to ``path``, and the names of the path below this root."""
    places = [(parts, walk) for walk in walks if (parts := walk.tree.parts_of(path)) is not None]
    return min(places, key=lambda place: len(place[0]), default=None)


def _look_up(path: Place) -> Status:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        link = isinstance(path, Path) and path.is_symlink()
        problem = "is a broken symbolic link" if link else "does not exist"
        raise ConfigError(f"{shown(path)} {problem}: give a file or folder to read") from error
    except OSError as error:
        raise ConfigError(f"{shown(path)} cannot be accessed: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Decision:
    """A candidate, the rule that decided on it, and whether it is skipped because it cannot be read."""

    candidate: FileCandidate
    rule: Rule | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder being walked: its path below the root ("" or "a/b/"), its rules and its remaining entries."""

    below: str
    scope: IgnoreScope
    entries: Iterator[Entry]


class _Walk:
    """The walk over one tree. Raises :class:`ConfigError` if a glob is not a valid pattern."""

    def __init__(self, tree: Tree, options: DiscoveryOptions) -> None:
        self.tree = tree
        self._options = options
        self._include = command_line_rules("--include", options.include)
        if stat.S_ISDIR(tree.status.st_mode):
            self._scope = tree.scope(options.exclude)

    def run(self, only: tuple[str, ...] | None = None) -> Iterator[_Decision]:
        """Yield the decisions on all entries below the root, or only on those along the path ``only``."""
        root, status = self.tree.root, self.tree.status
        candidate = FileCandidate(root, root, status.st_size, status.st_mtime_ns)
        if not _is_unicode(str(root)):
            yield _Decision(replace(candidate, skipped="its name is not valid Unicode"), failed=True)
            return
        if not stat.S_ISDIR(status.st_mode):
            reason = _kind_reason(status.st_mode)
            yield _Decision(
                replace(candidate, skipped=reason) if reason else self._with_content(candidate, "", given=True)
            )
            return
        folders: list[_Folder] = []
        found: _Decision | _Folder | None = self._enter(replace(candidate, size=0, is_dir=True), "", self._scope)
        while True:
            if isinstance(found, _Folder):
                folders.append(found)
            elif found is not None:
                yield found
            if not folders:
                return
            depth = len(folders) - 1
            entry = next(folders[depth].entries, None)
            if entry is None:
                folders.pop()
                found = None
            elif only is None or only[depth : depth + 1] == (entry.name,):
                found = self._visit(entry, folders[depth])
            else:
                found = None

    def _visit(self, entry: Entry, folder: _Folder) -> _Decision | _Folder | None:
        """Decide on one entry, and enter it if it is a folder to walk. Return None if it belongs to another walk."""
        relative = folder.below + entry.name
        if self.tree.is_other_root(relative):
            return None
        path, root = self.tree.place(relative), self.tree.root
        try:
            status = entry.lstat()
        except OSError as error:
            unseen = f"cannot be accessed: {error.strerror}"
            return _Decision(FileCandidate(path, root, 0, 0, unseen, unseen=True), failed=True)
        is_dir = stat.S_ISDIR(status.st_mode)
        candidate = FileCandidate(path, root, 0 if is_dir else status.st_size, status.st_mtime_ns, is_dir=is_dir)
        if not _is_unicode(entry.name):
            return _Decision(replace(candidate, skipped="its name is not valid Unicode"), failed=True)
        if by_name := _name_reason(entry.name, self._options.hidden):
            return _Decision(replace(candidate, skipped=by_name, ignored=True))
        rule = folder.scope.deciding(relative, is_dir)
        if rule and not rule.negated:
            return _Decision(replace(candidate, skipped=f"ignored by {shown(rule)}", ignored=True), rule)
        if is_dir:
            return self._enter(candidate, relative, folder.scope)
        is_link = stat.S_ISLNK(status.st_mode)
        reason = link_reason(path, root) if is_link else _kind_reason(status.st_mode)
        if reason is None and (by_include := self._include_reason(relative)):
            return _Decision(replace(candidate, skipped=by_include, ignored=True), rule)
        if reason:
            return _Decision(replace(candidate, skipped=reason), rule)
        return _Decision(self._with_content(candidate, relative, given=rule is not None), rule)

    def _enter(self, candidate: FileCandidate, relative: str, scope: IgnoreScope) -> _Folder | _Decision:
        try:
            entries = self.tree.entries(relative)
            names = {entry.name for entry in entries}
            if relative and (reason := _contents_reason(names)):
                return _Decision(replace(candidate, skipped=reason, ignored=True))
            scope = scope.enter(candidate.path, relative, names)
        except OSError as error:
            reason = f"cannot be listed: {error.strerror}"
            return _Decision(replace(candidate, skipped=reason, unseen=True), failed=True)
        except ConfigError as error:
            return _Decision(replace(candidate, skipped=str(error), unseen=True), failed=True)
        return _Folder(f"{relative}/" if relative else "", scope, iter(entries))

    def _include_reason(self, relative: str) -> str | None:
        if not self._include.rules:
            return None
        rule = self._include.deciding(relative, is_dir=False)
        for folder in PurePosixPath(relative).parents[:-1]:
            rule = rule or self._include.deciding(folder.as_posix(), is_dir=True)
        if rule is None:
            return "matches no --include pattern"
        return f"excluded by {rule}" if rule.negated else None

    def _with_content(self, candidate: FileCandidate, relative: str, *, given: bool) -> FileCandidate:
        """Mark the candidate as skipped if it is too large, unreadable or binary, or generated and not ``given``."""
        if reason := size_reason(candidate.size, self._options.max_bytes):
            return replace(candidate, skipped=reason)
        try:
            # Some local file systems report no sizes. A server may refuse to send a part of an empty file.
            is_empty = candidate.size == 0 and isinstance(candidate.path, RemotePath)
            sample = b"" if is_empty else self.tree.sample(relative)
        except OSError as error:
            return replace(candidate, skipped=f"cannot be opened: {error.strerror}", unseen=True)
        readable = candidate.path.suffix.lower() in BINARY_SUFFIXES or not is_binary(sample or b"")
        if not readable:
            return replace(candidate, skipped=unread_reason(candidate.path.name))
        if not given and (reason := generated_reason(candidate.path.name, sample or b"")):
            return replace(candidate, skipped=f"{reason} (the rule !{candidate.path.name} includes it)")
        return candidate


def size_reason(size: int, limit: int) -> str | None:
    """Return the reason to skip a file of ``size`` bytes with the limit ``limit``, or None if it is small enough."""
    if size <= limit:
        return None
    megabyte = 1024 * 1024
    shown_sizes = [f"{number / megabyte:.1f} MB" for number in (size, limit)]
    if shown_sizes[0] == shown_sizes[1] or limit < megabyte:
        shown_sizes = [f"{number:,} bytes" for number in (size, limit)]
    return f"{shown_sizes[0]} is over the limit of {shown_sizes[1]} (--max-size)"


def _contents_reason(names: Container[str]) -> str | None:
    if "pyvenv.cfg" in names:
        return "a Python virtual environment (contains pyvenv.cfg)"
    if "store.db" in names and "segments" in names:
        return "a ragembed store (contains store.db and segments)"
    if "writer.lock" in names and ("writer.pid" in names or "plan.json" in names):
        return "a ragembed work folder (contains writer.lock)"
    return None


def _name_reason(name: str, hidden: bool) -> str | None:
    if name in _NEVER_READ:
        return f"{name} is never read"
    if name.startswith(".") and not hidden:
        return "its name starts with a dot (use --hidden to include it)"
    return None


def _kind_reason(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    kinds = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return f"{next((kind for test, kind in kinds if test(mode)), 'a device')}, not a file"


def _is_unicode(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


LOCK_FILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock", "poetry.lock",
    "pdm.lock", "uv.lock", "pipfile.lock", "cargo.lock", "composer.lock", "gemfile.lock", "mix.lock", "podfile.lock",
    "pubspec.lock", "flake.lock", "go.sum", "gradle.lockfile", "packages.lock.json", ".terraform.lock.hcl",
))  # fmt: skip
SOURCE_MAP = re.compile(r".\.(?:js|mjs|cjs|css|ts)\.map$")
MINIFIED = re.compile(r".[.-]min\.(?:js|mjs|cjs|css)$")
WITH_NOTES = frozenset(("source", "sql", "yaml", "settings"))
"""Readers of files in which a note about their generator counts. Documents such as manual pages are often generated."""
MINIFIED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
LONG_LINE = 1_000
"""Average length of the lines of a minified file, in bytes."""
FIRST_COMMENT = re.compile(rb"\s*/\*.*?\*/", re.DOTALL)
NOTE_BYTES = 1_500
GENERATOR_NOTE = re.compile(
    rb"""^[ \t]*(?:\#|//|/?\*|--|;|<!--|%|"{3}|'{3}|dnl\b)?[^\n"'=]{0,40}?(?:
        @generated\b
      | (?:auto[- ]?)?generated\b[^\n]{0,200}\bdo[ ]not[ ](?:edit|modify|change)\b
      | (?:do[ ]not|don't)[ ](?:edit|modify|change)\b[^\n"']{0,80}(?:\n[^\n"'=]{0,80})?\b(?:auto[- ]?)?generated\b
      | this[ ]file[ ](?:is|was|has[ ]been)[ ](?:auto(?:matically)?[- ]?)generated\b
    )""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def generated_reason(name: str, sample: bytes) -> str | None:
    """Return why a program wrote the file: from its ``name``, without folder, and its first bytes, if there are any."""
    lower = name.lower()
    if lower in LOCK_FILES:
        return "a lock file of a package manager"
    if SOURCE_MAP.search(lower):
        return "a source map"
    if MINIFIED.search(lower):
        return "minified code"
    reader = named_reader(name)
    if reader is None or reader.name not in WITH_NOTES:
        return None
    body = FIRST_COMMENT.sub(b"", sample, count=1)
    if lower.endswith(MINIFIED_SUFFIXES) and len(body) > LONG_LINE * (body.count(b"\n") + 1):
        return "minified code"
    if GENERATOR_NOTE.search(sample[:NOTE_BYTES]):
        return "generated code, as its first lines say"
    return None
