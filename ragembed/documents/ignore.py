"""Ignore rules, with the semantics of git (``man gitignore``), in which the last matching pattern decides.

The sources, from weakest to strongest, are ``.git/info/exclude``, the ``.gitignore`` files from the root of the
repository down, the ``.ragembedignore`` files, and ``--exclude``. :mod:`pathspec` translates single patterns; it can
combine them only for complete paths (``*`` followed by ``!*/`` excludes every folder), so this module combines them.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.documents.places import Place, RemotePath
from ragembed.errors import ConfigError
from ragembed.files import FileTooLargeError, NotRegularFileError, read_regular

IGNORE_FILES = (".gitignore", ".ragembedignore")
MOST_BYTES, MOST_PATTERNS, LONGEST_PATTERN = 1_000_000, 10_000, 4_096
"""Maximum size, number of patterns and characters of a pattern of an ignore file."""
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
"""The errors for a path that leads to no file."""
_PARENT = "ps_d"
"""Name of the group in pathspec's regular expressions that captures a match of a parent folder."""
_ONE, _STAR, _FOLDERS = "[^/]", "[^/]*", "(?:/.+)?"
"""What pathspec's regular expressions have for ``?``, for ``*``, and for ``/**`` between two steps."""
_FEWEST, _FEWEST_FOLDERS = "[^/]*?", "(?:/.+?)??"
_POSIX_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": " \t\v\f",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of a line, from 1, of an ignore file, or of the command line. ``negated`` ones re-include files."""

    source: str
    line: int | None
    pattern: str
    negated: bool
    folders_only: bool
    regex: re.Pattern[str]

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}:"
        return f"{place} {self.pattern}"

    def matches(self, path: str, is_dir: bool) -> bool:
        """Return whether the pattern matches ``path`` itself (relative to its ignore file), not a parent folder."""
        if self.folders_only and not is_dir:
            return False
        match = self.regex.search(path)
        return match is not None and match.groupdict().get(_PARENT) is None


@dataclass(frozen=True, slots=True)
class RuleList:
    """The rules of one ignore file, last first, and the position of the file relative to the walk's root.

    ``below`` is the folder of the file relative to the root, with a trailing slash, or an empty string. If the file is
    above the root, ``above`` is the root relative to the folder of the file, in the same form.
    """

    rules: tuple[Rule, ...]
    below: str = ""
    above: str = ""

    def deciding(self, relative: str, is_dir: bool) -> Rule | None:
        """Return the last rule that matches ``relative``, a path below the walk's root."""
        path = self.above + relative.removeprefix(self.below)
        return next((rule for rule in self.rules if rule.matches(path, is_dir)), None)


@dataclass(frozen=True, slots=True)
class IgnoreScope:
    """The ignore rules that apply to the entries of one folder, strongest first."""

    command_line: RuleList
    own: tuple[RuleList, ...] = ()
    git: tuple[RuleList, ...] = ()

    def deciding(self, relative: str, is_dir: bool) -> Rule | None:
        """Return the rule that decides on ``relative``, if any. The path is ignored unless the rule is ``negated``."""
        for rules in (self.command_line, *self.own, *self.git):
            if rule := rules.deciding(relative, is_dir):
                return rule
        return None

    def enter(self, folder: Place, relative: str, names: Iterable[str]) -> IgnoreScope:
        """Return the scope for the entries ``names`` of a folder; a nested repository has only its own git rules."""
        below = f"{relative}/" if relative else ""
        held = {".git", ".gitignore", ".ragembedignore"}.intersection(names)
        git = (_repository_rules(folder, below=below),) if ".git" in held and relative else self.git
        if ".gitignore" in held:
            git = (RuleList(_read_rules(folder / ".gitignore"), below=below), *git)
        own = self.own
        if ".ragembedignore" in held:
            own = (RuleList(_read_rules(folder / ".ragembedignore"), below=below), *own)
        return IgnoreScope(self.command_line, own, git)


def scope_above(root: Path, exclude: Sequence[str]) -> IgnoreScope:
    """Return the rules from outside ``root``: the globs of ``exclude`` and those of the enclosing git repository."""
    own: tuple[RuleList, ...] = ()
    git: tuple[RuleList, ...] = ()
    real = root.resolve()
    repository, folders = _repository_of(real)
    if repository is not None:
        git = (_repository_rules(repository, above=_above(repository, real)),)
        for folder in folders:
            above = _above(folder, real)
            git = (RuleList(_read_rules(folder / ".gitignore"), above=above), *git)
            own = (RuleList(_read_rules(folder / ".ragembedignore"), above=above), *own)
    return IgnoreScope(command_line_rules("--exclude", exclude), own, git)


def files_above(root: Path) -> list[Place]:
    """Return the ignore files from outside ``root`` that apply to it, if they exist, and those of its repository."""
    repository, folders = _repository_of(root.resolve())
    if repository is None:
        return []
    return [_exclude_file(repository), *(folder / name for folder in folders for name in IGNORE_FILES)]


def _repository_of(real: Path) -> tuple[Path | None, list[Path]]:
    """Return the git repository that contains a folder, and the folders from the repository down to its parent."""
    repository = next((folder for folder in (real, *real.parents) if os.path.lexists(folder / ".git")), None)
    if repository is None:
        return None, []
    return repository, [parent for parent in reversed(real.parents) if parent.is_relative_to(repository)]


def command_line_rules(option: str, globs: Sequence[str]) -> RuleList:
    """Parse the patterns, relative to the root, of a command-line option; raise :class:`ConfigError` for a bad one."""
    rules = []
    for glob in globs:
        rule = _parse(glob, option, None)
        if rule is None:
            raise ConfigError(f"{option} {glob!r} is not a pattern: see 'man gitignore' for the syntax")
        rules.append(rule)
    return RuleList(tuple(reversed(rules)))


def _above(folder: Path, root: Path) -> str:
    relative = root.relative_to(folder).as_posix()
    return "" if relative == "." else f"{relative}/"


def _repository_rules(repository: Place, below: str = "", above: str = "") -> RuleList:
    return RuleList(_read_rules(_exclude_file(repository)), below, above)


def _exclude_file(repository: Place) -> Place:
    return _git_folder(repository / ".git") / "info" / "exclude"


def _git_folder(dot_git: Place) -> Place:
    """Return the git folder of a repository, which a file can name; a file that names none is returned itself."""
    try:
        if isinstance(dot_git, RemotePath) or dot_git.is_dir():
            return dot_git
        own = dot_git.parent / _content(dot_git).decode().removeprefix("gitdir:").strip()
        common = own / "commondir"
        folder = own / _content(common).decode().strip() if common.exists() else own
        return folder if folder.is_dir() else dot_git
    except (OSError, ValueError):
        return dot_git


def _read_rules(path: Place) -> tuple[Rule, ...]:
    """Read the rules of an ignore file, last first, if it exists. One that cannot be read is an error."""
    try:
        data = _content(path)
    except NotRegularFileError:
        return ()
    except OSError as error:
        if error.errno in _ABSENT:
            return ()
        raise ConfigError(f"the ignore file {path} cannot be read ({error.strerror}): correct or remove it") from error
    lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n")
    if len(lines) - lines.count("") > MOST_PATTERNS or max(map(len, lines)) > LONGEST_PATTERN:
        raise ConfigError(
            f"the ignore file {path} has more than {MOST_PATTERNS:,} lines, or one of more than {LONGEST_PATTERN:,} "
            "characters: shorten it"
        )
    source = path.as_posix()
    rules = (_parse(line, source, number) for number, line in enumerate(lines, start=1))
    return tuple(reversed([rule for rule in rules if rule is not None]))


def _content(path: Place) -> bytes:
    """Read an ignore file. It may be a symbolic link, because rules add no text to a store."""
    if not isinstance(path, RemotePath):
        return read_regular(path, MOST_BYTES)
    data = path.read_bytes(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise FileTooLargeError(errno.EFBIG, f"it has more than {MOST_BYTES:,} bytes")
    return data


def _parse(line: str, source: str, number: int | None) -> Rule | None:
    """Parse one line. Return None for blank lines, comments and patterns that match nothing in git either."""
    pattern = re.sub(r"(?<!\\) +$", "", line.removesuffix("\r"))
    if pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    body = pattern[negated:]
    folders_only = body.endswith("/")
    body = body[: -1 if folders_only else None]
    if negated and body.startswith(("!", "#")):
        body = "\\" + body
    regex = _compile(body) if body else None
    return regex and Rule(source, number, pattern, negated, folders_only, regex)


def _compile(body: str) -> re.Pattern[str] | None:
    from pathspec.patterns.gitignore import GitIgnorePatternError
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    for name, characters in _POSIX_CLASSES.items():
        body = body.replace(name, characters)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            regex = GitIgnoreSpecPattern(body).regex
            return regex and re.compile(_without_backtracking(regex.pattern))
    except (GitIgnorePatternError, re.error):
        return None


def _without_backtracking(expression: str) -> str:
    """Rewrite a regular expression of pathspec to need no exponential time for many ``*`` or ``**``.

    A wildcard takes the first place at which the text up to the next wildcard matches: if the rest does not match after
    it, it does not match after a later place either. This does not hold for the last wildcard before a fixed end.
    """
    numbers = itertools.count()
    first, *others = (_steps_without_backtracking(part, numbers) for part in expression.split(_FOLDERS))
    if not others:
        return first
    between = [_first_match(_FEWEST_FOLDERS, part, "(?=/)", numbers) for part in others[:-1]]
    return "".join([first, *between, _FOLDERS, others[-1]])


def _steps_without_backtracking(expression: str, numbers: Iterator[int]) -> str:
    first, *others = expression.split(_STAR)
    if not others:
        return first
    between = [
        _STAR + part if "/" in part.replace(_ONE, "") else _first_match(_FEWEST, part, "", numbers)
        for part in others[:-1]
    ]
    return "".join([first, *between, _STAR, others[-1]])


def _first_match(wildcard: str, expression: str, ahead: str, numbers: Iterator[int]) -> str:
    """Return an expression for the first match. A lookahead is not entered again; Python 3.10 has no atomic groups."""
    name = f"first{next(numbers)}"
    return f"(?=(?P<{name}>{wildcard}{expression}){ahead})(?P={name})"
