"""Globs: patterns with wildcards for texts and paths, and the SQL functions that match them.

``*`` matches any characters, ``?`` one character, ``[a-z]`` one character of a set, ``[!a-z]`` one character outside a
set. All other characters match themselves, with case. In paths, ``*`` and ``?`` match within one step of the path, and
the step ``**`` matches any number of steps. A pattern without ``/`` matches the name of the file.

These are not the patterns of ignore files, where ``docs`` also matches everything below it and ``!``, ``#`` and
backslashes are special. pathspec, which reads ignore files, needs exponential time for a pattern with many stars.
"""

from __future__ import annotations

import fnmatch
import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from ragembed.errors import ConfigError

# A "]" at the start of a class is a member of the class.
_CLASS = re.compile(r"\[(?P<negated>[!^]?)(?P<members>\]?[^\]]*)(?P<end>\]?)")
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


def register(connection: sqlite3.Connection) -> None:
    """Register the SQL functions for globs on a connection."""
    connection.create_function("ragembed_glob", 2, _on_bytes(glob_matches), deterministic=True)
    connection.create_function("ragembed_path_glob", 2, _on_bytes(path_glob_matches), deterministic=True)


def _on_bytes(matches: Callable[[str, str], bool]) -> Callable[[bytes | None, str], bool]:
    """Wrap ``matches`` to take bytes: SQLite's JSON can produce lone surrogates, which Python cannot decode as text."""
    return lambda data, pattern: data is not None and matches(data.decode("utf-8", "replace"), pattern)


@lru_cache(maxsize=256)
def _steps(pattern: str) -> tuple[_Step, ...]:
    if "/" not in pattern:
        return (_expression(pattern),)
    names = pattern.split("/")
    _, scheme, rest = pattern.partition("://")
    if "" in (rest.removeprefix("/").split("/") if scheme else names[1:]):
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
    return re.compile(fnmatch.translate(_CLASS.sub(_with_exclamation_mark, pattern)))


def _with_exclamation_mark(match: re.Match[str]) -> str:
    return f"[{'!' if match['negated'] else ''}{match['members']}]"
