"""Which files the user does not want read: ``.gitignore``, ``.ragembedignore`` and the globs of the command line.

The semantics are git's (``man gitignore``): the last matching pattern decides, ``!`` takes a file back in, a deeper
file overrides one above it, and nothing is taken back in below an excluded folder, because :class:`IgnoreScope` is
asked for each folder on the way down and the walk does not enter an excluded one. From weakest to strongest:
``.git/info/exclude``, the ``.gitignore`` files from the repository's root down, the ``.ragembedignore`` files from
there down, ``--exclude``. Every decision is a :class:`Rule` that names its file, line and pattern.

:mod:`pathspec` translates single patterns. Its way of combining them answers for whole paths only (``*`` followed by
``!*/`` excludes every folder), so the combination is made here.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from ragembed.documents.places import Place, RemotePath
from ragembed.errors import ConfigError
from ragembed.files import NotRegularFileError, open_regular

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
    """One pattern of an ignore file or of the command line, and where it is written.

    ``line`` is 1-based and None for a pattern of the command line. ``negated`` patterns take files back in.
    """

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
        """Whether the pattern is about ``path`` itself (relative to its ignore file), not a folder above it."""
        if self.folders_only and not is_dir:
            return False
        match = self.regex.search(path)
        # The only group in pathspec's regexes stands for a match of a folder above.
        return match is not None and match.lastindex is None


@dataclass(frozen=True, slots=True)
class RuleList:
    """The rules of one file, last first, and how paths below the walk's root become relative to its folder.

    ``below`` is the folder of the file relative to the root, with a slash at its end, or empty; ``above`` is the
    root relative to the folder of the file, likewise, for files above the root.
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
    """The ignore rules that hold for the entries of one folder, strongest first."""

    command_line: RuleList
    own: tuple[RuleList, ...] = ()
    git: tuple[RuleList, ...] = ()

    def deciding(self, relative: str, is_dir: bool) -> Rule | None:
        """Return the rule that decides on ``relative``; it is ignored if there is one that is not ``negated``."""
        for rules in (self.command_line, *self.own, *self.git):
            if rule := rules.deciding(relative, is_dir):
                return rule
        return None

    def enter(self, folder: Place, relative: str, names: Iterable[str]) -> IgnoreScope:
        """Return the scope for the entries of ``folder``, which lies at ``relative`` below the walk's root.

        ``names`` is what the folder holds. A repository inside the tree is judged by its own git rules alone, as
        git does.

        Raises:
            ConfigError: the folder has an ignore file that cannot be read.
        """
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
    """Return what holds for ``root`` before its own ignore files: ``exclude`` and the enclosing git repository.

    Raises:
        ConfigError: an ignore file of the repository cannot be read, or a glob of ``exclude`` means nothing.
    """
    own: tuple[RuleList, ...] = ()
    git: tuple[RuleList, ...] = ()
    real = root.resolve()
    repository = next((folder for folder in (real, *real.parents) if os.path.lexists(folder / ".git")), None)
    if repository is not None:
        git = (_repository_rules(repository, above=_above(repository, real)),)
        for folder in reversed([parent for parent in real.parents if parent.is_relative_to(repository)]):
            above = _above(folder, real)
            git = (RuleList(_read_rules(folder / ".gitignore"), above=above), *git)
            own = (RuleList(_read_rules(folder / ".ragembedignore"), above=above), *own)
    return IgnoreScope(command_line_rules("--exclude", exclude), own, git)


def command_line_rules(option: str, globs: Sequence[str]) -> RuleList:
    """Parse the values of a command-line option that takes patterns relative to the root.

    Raises:
        ConfigError: a value is no pattern.
    """
    rules = []
    for glob in globs:
        rule = _parse(glob, option, None)
        if rule is None:
            raise ConfigError(f"{option} {glob!r} is not a pattern; see `man gitignore` for the syntax")
        rules.append(rule)
    return RuleList(tuple(reversed(rules)))


def _above(folder: Path, root: Path) -> str:
    relative = root.relative_to(folder).as_posix()
    return "" if relative == "." else f"{relative}/"


def _repository_rules(repository: Place, below: str = "", above: str = "") -> RuleList:
    return RuleList(_read_rules(_git_folder(repository / ".git") / "info" / "exclude"), below, above)


def _git_folder(dot_git: Place) -> Place:
    """Find the shared git folder of a repository: a work tree or submodule has a ``.git`` file that points to it."""
    try:
        if isinstance(dot_git, RemotePath) or dot_git.is_dir():
            return dot_git
        own = dot_git.parent / _content(dot_git).decode().removeprefix("gitdir:").strip()
        common = own / "commondir"
        return own / _content(common).decode().strip() if common.exists() else own
    except (OSError, ValueError):
        return dot_git


def _read_rules(path: Place) -> tuple[Rule, ...]:
    """Read the rules of an ignore file, last first; none where there is no such file."""
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError, NotRegularFileError):
        return ()
    except OSError as error:
        raise ConfigError(
            f"its ignore file {path} cannot be read ({error.strerror}): make it readable or remove it"
        ) from error
    lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n")
    source = path.as_posix()
    rules = (_parse(line, source, number) for number, line in enumerate(lines, start=1))
    return tuple(reversed([rule for rule in rules if rule is not None]))


def _content(path: Place) -> bytes:
    """Read a file with rules; it may be a symbolic link, because rules of elsewhere put no text into a store."""
    if isinstance(path, RemotePath):
        return path.read_bytes()
    with open_regular(path) as file:
        return file.read()


def _parse(line: str, source: str, number: int | None) -> Rule | None:
    """Read one line; None for blank lines, comments and patterns that git, too, lets match nothing."""
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
    for name, characters in _POSIX_CLASSES.items():
        body = body.replace(name, characters)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return GitIgnoreSpecPattern(body).regex
    except (GitIgnorePatternError, re.error):
        return None
