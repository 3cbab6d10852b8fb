"""Globs: patterns with wildcards, for texts and for paths, and the SQL functions that match them.

In both ``*`` is any run of characters, ``?`` one character, ``[a-z]`` one of those, ``[!a-z]`` one that is not;
everything else is itself, with case. A path is matched step by step: ``*`` and ``?`` stay within one step, a step that
is ``**`` stands for any number of steps, and a pattern without ``/`` is matched against the last step, the file's name.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from ragembed.errors import ConfigError

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
    """Return a glob as a regular expression that never looks again for what it found between two stars."""
    first, *others = (_fixed(pattern, part) for part in _between_stars(pattern))
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?=(?P<part{at}>.*?{part}))(?P=part{at})" for at, part in enumerate(others[:-1]))
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def _between_stars(pattern: str) -> list[str]:
    """Split at runs of stars that are not in a ``[class]``."""
    parts, at, begin = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "*":
            parts.append(pattern[begin:at])
            while pattern[at : at + 1] == "*":
                at += 1
            begin = at
        else:
            at = _class_end(pattern, at) if pattern[at] == "[" else at + 1
    return [*parts, pattern[begin:]]


def _fixed(pattern: str, part: str) -> str:
    """Return a part without stars as a regular expression."""
    found, at = [], 0
    while at < len(part):
        if part[at] == "[":
            end = _class_end(part, at)
            found.append(_class(pattern, part[at + 1 : end - 1]))
            at = end
        else:
            found.append("." if part[at] == "?" else re.escape(part[at]))
            at += 1
    return "".join(found)


def _class_end(pattern: str, begin: int) -> int:
    """Return the position after the class that begins at ``begin``; a ``]`` that comes first in it is a member."""
    members = begin + 1 + (pattern[begin + 1 : begin + 2] in ("!", "^"))
    end = pattern.find("]", members + 1)
    if end < 0:
        raise ConfigError(f"the glob {pattern[:60]!r} has a '[' without its ']': the character itself is written [[]")
    return end + 1


def _class(pattern: str, members: str) -> str:
    negated = members[0] in "!^"
    rest, ranges = members[negated:], []
    while rest:
        low, high, rest = (
            (rest[0], rest[2], rest[3:]) if rest[1:2] == "-" and len(rest) > 2 else (rest[0], rest[0], rest[1:])
        )
        if low > high:
            raise ConfigError(f"the glob {pattern[:60]!r} has the range {low}-{high}: expected the lower end first")
        ranges.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
    return f"[{'^' if negated else ''}{''.join(ranges)}]"
