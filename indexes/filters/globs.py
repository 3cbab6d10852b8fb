"""Globs: patterns with wildcards, for texts and for paths, and the SQL functions that match them.

In both ``*`` is any run of characters, ``?`` one character, ``[a-z]`` one of those, ``[!a-z]`` one that is not;
everything else is itself, with case. A path is matched step by step: ``*`` and ``?`` stay within one step, a step that
is ``**`` stands for any number of steps, and a pattern without ``/`` is matched against the last step, the file's name.

The patterns of ignore files are others: there ``docs`` also matches what is below it, and ``!``, ``#`` and backslashes
have a meaning. pathspec, which reads those, would also need exponential time for a pattern with many stars.
"""

from __future__ import annotations

import fnmatch
import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from ragembed.errors import ConfigError

# A "]" that comes first in a class is a member.
_CLASS = re.compile(r"\[(?P<negated>[!^]?)(?P<members>\]?[^\]]*)(?P<end>\]?)")
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)

_Step: TypeAlias = re.Pattern[str] | None  # None is "**"


def check_glob(pattern: str, *, path: bool) -> None:
    """Raise :class:`ConfigError` where ``pattern`` is no glob for texts, or none for paths."""
    _steps(pattern) if path else _expression(pattern)


def glob_matches(text: str, pattern: str) -> bool:
    """Tell whether a glob matches a whole text."""
    return _expression(pattern).fullmatch(text) is not None


def path_glob_matches(path: str, pattern: str) -> bool:
    """Tell whether a glob matches a path with ``/``, or the name of its file where ``pattern`` has no ``/``."""
    steps = _steps(pattern)
    if "/" not in pattern:
        path = path.rpartition("/")[2]
    return _match_steps(path.split("/"), steps)


def register(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that conditions with globs call."""
    connection.create_function("ragembed_glob", 2, _on_bytes(glob_matches), deterministic=True)
    connection.create_function("ragembed_path_glob", 2, _on_bytes(path_glob_matches), deterministic=True)


def _on_bytes(matches: Callable[[str, str], bool]) -> Callable[[bytes | None, str], bool]:
    """Take bytes: SQLite's JSON makes text of half surrogate pairs, which Python does not decode."""
    return lambda data, pattern: data is not None and matches(data.decode("utf-8", "replace"), pattern)


@lru_cache(maxsize=256)
def _steps(pattern: str) -> tuple[_Step, ...]:
    if "/" not in pattern:
        return (_expression(pattern),)
    names = pattern.split("/")
    _, scheme, rest = pattern.partition("://")
    if "" in (rest.removeprefix("/").split("/") if scheme else names[1:]):
        raise ConfigError(
            f"the glob {pattern[:60]!r} has nothing after a '/', so that no file matches: "
            "everything below a folder is 'docs/**'"
        )
    if names[-1] == "**":  # what is below a folder, not the folder
        names.append("*")
    return tuple(None if name == "**" else _expression(name) for name in names)


def _match_steps(names: list[str], steps: tuple[_Step, ...]) -> bool:
    """Match from the left; what does not fit goes to the last ``**`` met, as an earlier one could do no better."""
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
    """Return a glob as a regular expression; :mod:`fnmatch` makes one that never tries all ways to split a text."""
    for match in _CLASS.finditer(pattern):
        if not match["end"]:
            raise ConfigError(
                f"the glob {pattern[:60]!r} has a '[' without its ']': the character itself is written [[]"
            )
        for low, high in _RANGE.findall(match["members"]):
            if low > high:
                raise ConfigError(f"the glob {pattern[:60]!r} has the range {low}-{high}: expected the lower end first")
    return re.compile(fnmatch.translate(_CLASS.sub(_with_exclamation_mark, pattern)))


def _with_exclamation_mark(match: re.Match[str]) -> str:
    return f"[{'!' if match['negated'] else ''}{match['members']}]"
