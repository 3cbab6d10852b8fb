"""Read lines of UTF-8 files, with or without a byte order mark; errors give the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError

_LISTED = 5


def lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, without the line ending (LF or CRLF).

    Raises :class:`ConfigError` if the file cannot be read or is not in ``encoding``, which is UTF-8 or Latin-1.
    """
    number = 1
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                bare = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, bare.decode("utf-8-sig" if number == 1 and encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}, line {number}: not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def filled_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the non-blank :func:`lines`; raise :class:`ConfigError` if there are none."""
    empty = True
    for number, text in lines(path, encoding):
        if text.strip():
            empty = False
            yield number, text
    if empty:
        raise ConfigError(f"{path} is empty: expected at least one line")


def table_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line of a TSV file; raise unless the header is ``columns``."""
    rows = lines(path)
    number, header = next(rows, (1, ""))
    if header.split("\t") != list(columns):
        raise ConfigError(
            f"{path}, line 1: the header is {header[:200]!r}: expected {' '.join(columns)}, separated by tabs"
        )
    for number, line in rows:
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected {len(columns)} ({', '.join(columns)}), "
                "separated by tabs"
            )
        yield number, fields
    if number == 1:
        raise ConfigError(f"{path} has only a header: expected at least one more line")


def json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    """Parse line ``number`` of ``path`` as a JSON object; raise :class:`ConfigError` for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{path}, line {number}: got {type(row).__name__}: expected a JSON object")
    return row


def listed(names: Iterable[str], limit: int = _LISTED) -> str:
    """Return the first ``limit`` of ``names`` and the number of the others, such as ``'a', 'b' and 3 more``."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"
