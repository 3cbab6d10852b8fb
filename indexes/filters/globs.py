"""Paths, globs (patterns with wildcards for texts and paths), regular expressions, and the SQL functions of them.

``*`` matches any characters, ``?`` one character, ``[a-z]`` one character of a set, ``[!a-z]`` one character outside a
set. All other characters match themselves, with case. In paths, ``*`` and ``?`` match within one step of the path, and
the step ``**`` matches any number of steps. A pattern without ``/`` matches the name of the file. A pattern for the
files of a store may be absolute, or have the steps ``.`` and ``..``; :func:`path_in_store` removes them.

These are not the patterns of ignore files, where ``docs`` also matches everything below it and ``!``, ``#`` and
backslashes are special. pathspec, which reads ignore files, needs exponential time for a pattern with many stars.
"""

from __future__ import annotations

import fnmatch
import math
import os
import posixpath
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from ragembed.documents.places import is_url
from ragembed.errors import ConfigError

# A "]" at the start of a class is a member of the class.
_CLASS = re.compile(r"\[(?P<negated>[!^]?)(?P<members>\]?[^\]]*)(?P<end>\]?)")
_REGEX_SECONDS, MOST_SECONDS = 0.5, 60.0
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)

_Step: TypeAlias = re.Pattern[str] | None  # None is "**"


def check_glob(pattern: str, *, path: bool) -> None:
    """Raise :class:`ConfigError` if ``pattern`` is not a valid glob for texts, or for paths if ``path`` is true."""
    _steps(pattern) if path else _expression(pattern)


def glob_matches(text: str, pattern: str) -> bool:
    """Return whether a glob matches a whole text."""
    return _expression(pattern).fullmatch(text) is not None


def path_glob_matches(path: str, pattern: str) -> bool:
    """Return whether a glob matches a path, or only the file name if ``pattern`` has no ``/``."""
    steps = _steps(pattern)
    if "/" not in pattern:
        path = path.rpartition("/")[2]
    return _match_steps(path.split("/"), steps)


def file_glob_matches(name: str, pattern: str, root: Path | None) -> bool:
    """Return whether a glob matches the name of a file in a store; see :func:`path_in_store`."""
    if path_glob_matches(name, pattern):
        return True
    resolved = path_in_store(pattern, root)
    return resolved != pattern and _match_steps(name.split("/"), _steps(resolved))


def file_is_at(name: str, place: str, root: Path | None) -> bool:
    """Return whether the name of a file in a store is ``place``, lies below that folder, or matches it as a glob."""
    above = path_in_store(place, root)
    if above == ".":
        return not (is_url(name) or name.startswith(("../", "/")))
    return name == above or name.startswith(f"{above}/") or file_glob_matches(name, place, root)


@lru_cache(maxsize=256)
def regular_expression(pattern: str) -> Any:
    """Return a compiled regular expression; raise :class:`ConfigError` for an invalid one."""
    import regex  # unlike re, it can end a search that takes too long

    try:
        return regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"the regular expression {pattern[:60]!r} is invalid: {error}; write a backslash before a character that "
            "stands for itself, as in \\("
        ) from None


def regex_matches(text: str, pattern: str) -> bool:
    """Return whether a regular expression matches somewhere in a text; raise TimeoutError if that takes too long."""
    if (left := _DEADLINE.get() - time.monotonic()) <= 0:
        raise TimeoutError
    return regular_expression(pattern).search(text, timeout=min(left, _REGEX_SECONDS)) is not None


@contextmanager
def limited_time(seconds: float | None = None) -> Iterator[None]:
    """Raise :class:`ConfigError` if a regular expression takes too long in the body, which runs SQL.

    It may take half a second for a text, and ``seconds`` for all, which a generator must not limit.
    """
    before = None if seconds is None else _DEADLINE.set(time.monotonic() + seconds)
    try:
        yield
    except sqlite3.OperationalError as error:
        if "user-defined function" not in str(error):
            raise
        raise ConfigError(
            f"the regular expression of the filter takes more than {_REGEX_SECONDS:g} s for the text of a chunk, or "
            f"{MOST_SECONDS:g} s for all: leave out repetitions inside repetitions, as in (a+)+"
        ) from error
    finally:
        if before is not None:
            _DEADLINE.reset(before)


@lru_cache(maxsize=256)
def path_in_store(path: str, root: Path | None) -> str:
    """Return a path or glob that a user wrote in the form of the names in a store, which are relative to ``root``.

    The steps ``.`` and ``..`` are removed. Without ``root``, absolute paths are kept, and URLs always.
    """
    if is_url(path):
        return path
    if root is not None and Path(path).is_absolute():
        relative = _relative(path, root)
        if relative.startswith("../"):  # one of the two may go through a symbolic link
            real = _relative(os.path.realpath(path), Path(os.path.realpath(root)))
            relative = relative if real.startswith("../") else real
        return relative
    return posixpath.normpath(path) if {".", ".."} & set(path.split("/")) else path


def _relative(path: str, root: Path) -> str:
    try:
        return Path(os.path.relpath(path, root)).as_posix()
    except ValueError:  # on another drive
        return Path(path).as_posix()


@lru_cache(maxsize=256)
def _steps(pattern: str) -> tuple[_Step, ...]:
    if "/" not in pattern:
        return (_expression(pattern),)
    names = pattern.split("/")
    _, scheme, address = pattern.partition("://")
    if "" in (address.removeprefix("/").split("/") if scheme else names[1:]):
        raise ConfigError(
            f"the glob {pattern[:60]!r} has nothing after a '/' and matches no file: "
            "to match everything below a folder, write 'docs/**'"
        )
    if names[-1] == "**":  # match everything below a folder, but not the folder itself
        names.append("*")
    return tuple(None if name == "**" else _expression(name) for name in names)


def _match_steps(names: list[str], steps: tuple[_Step, ...]) -> bool:
    """Match from the left. On a mismatch, the last ``**`` takes one more name; earlier ones could not do better."""
    name = step = 0
    resume: tuple[int, int] | None = None
    while name < len(names):
        expression = steps[step] if step < len(steps) else None
        if step < len(steps) and expression is None:
            step += 1
            resume = (name, step)
        elif expression is not None and expression.fullmatch(names[name]):
            name, step = name + 1, step + 1
        elif resume is not None:
            resume = (resume[0] + 1, resume[1])
            name, step = resume
        else:
            return False
    return all(expression is None for expression in steps[step:])


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; :mod:`fnmatch` generates one without exponential backtracking."""
    for match in _CLASS.finditer(pattern):
        if not match["end"]:
            raise ConfigError(
                f"the glob {pattern[:60]!r} has a '[' without a ']': to match the character itself, write [[]"
            )
        for low, high in _RANGE.findall(match["members"]):
            if low > high:
                raise ConfigError(f"the glob {pattern[:60]!r} has the range {low}-{high}: expected the lower end first")
    marked = _CLASS.sub(lambda match: f"[{'!' if match['negated'] else ''}{match['members']}]", pattern)
    return re.compile(fnmatch.translate(marked))
