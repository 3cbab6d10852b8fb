"""Read JSON: a document per record of a list, else a block per top-level key or record, with lines ``key: value``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import MOST_MARKS, TextBuilder, has_too_many, one_line, well_formed

DEEPEST = 200
"""Maximum nesting. Python's recursion limit and SQLite's JSON functions allow less than 1,000 levels."""
LARGEST_GROWTH, SMALLEST_GROWN = 10, 1_000_000
"""Maximum length of the paths before all values, as a multiple of the file, and a length that is always allowed."""
LONGEST_LIST_LINE = 500
LONGEST_TITLE = 200
TITLE_KEYS = ("title", "name", "label", "id", "key")
VALUE_START = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|[{\[]|[^\s{}\[\],:"]+', re.DOTALL)


class Members(list[tuple[str, Any]]):
    """The keys and values of a JSON object, with repeated keys."""


Leaf: TypeAlias = tuple[str, str, int]
"""The path of a value below its record, its text and its line."""


def parse_json(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a JSON file. A file that is not valid JSON is read as plain text, with a warning."""
    text = file.text
    try:
        if has_too_many("{[,\\", text):
            raise ValueError(f"more than {MOST_MARKS:,} values and escapes")
        content = json.loads(text, object_pairs_hook=Members, parse_int=str, parse_float=str)
        if is_deep(content):
            raise RecursionError
        if has_long_paths(content, len(text)):
            raise ValueError(f"the paths of the values are more than {LARGEST_GROWTH} times as long as the file")
    except (ValueError, RecursionError) as error:
        problem = f"more than {DEEPEST} levels" if isinstance(error, RecursionError) else str(error)
        if text.strip():
            file.options.warn(f"not readable as JSON ({problem}): read as plain text")
        yield from source.parse_plain(file)
        return
    lines = value_lines(text)
    line = next(lines)
    if _are_records(content):
        for record in content:
            first = next(lines)
            yield _document([*leaves(record, "", first, lines)], _title(record))
    elif isinstance(content, Members):
        yield _by_keys(content, lines)
    else:
        yield _document([*leaves(content, "", line, lines)], None)


def value_lines(text: str) -> Iterator[int]:
    """Yield the line of each value of a valid JSON text, in the order of the text; keys are not values."""
    line, done = 1, 0
    for match in VALUE_START.finditer(text):
        if match[1] is None:
            line += text.count("\n", done, match.start())
            done = match.start()
            yield line


def _are_records(value: Any) -> bool:
    return (
        isinstance(value, list)
        and not isinstance(value, Members)
        and bool(value)
        and all(isinstance(item, Members) for item in value)
    )


def is_deep(content: Any) -> bool:
    """Return whether lists and objects are nested in more than ``DEEPEST`` levels."""
    level = [content] if isinstance(content, (list, dict)) else []
    for _ in range(DEEPEST):
        inner = ([item for _, item in m] if (m := _members(value)) is not None else value for value in level)
        level = [item for items in inner for item in items if isinstance(item, (list, dict))]
    return bool(level)


def has_long_paths(content: Any, size: int) -> bool:
    """Return whether the paths before the values of a text of ``size`` characters would be much longer than it is."""
    total = 0
    pending = [(content, 0)]
    while pending:
        value, above = pending.pop()
        if (members := _members(value)) is not None:
            pending += [(inner, above + len(key) + 1) for key, inner in members]
            continue
        if isinstance(value, list):
            pending += [(inner, above) for inner in value if isinstance(inner, (list, dict))]
        total += above
    return total > max(SMALLEST_GROWN, LARGEST_GROWTH * size)


def _members(value: Any) -> Iterable[tuple[str, Any]] | None:
    return value if isinstance(value, Members) else value.items() if isinstance(value, dict) else None


def leaves(value: Any, path: str, line: int, lines: Iterator[int]) -> Iterator[Leaf]:
    """Yield the scalars below ``value``, which starts at ``line``. ``lines`` has the lines of the values below it."""
    if (members := _members(value)) is not None:
        for key, inner in members:
            yield from leaves(inner, f"{path}.{key}" if path else key, next(lines), lines)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path, next(lines), lines)
    else:
        yield path, _scalar(value), line


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return well_formed(value).strip()
    return "" if value is None else json.dumps(value)


def leaf_lines(values: Iterable[Leaf]) -> list[tuple[str, int]]:
    """Return a line ``path: value`` per value. The short values of a list share a line."""
    written: list[tuple[str, int]] = []
    last = None
    for path, value, line in values:
        if not value:
            continue
        first, *rest = value.replace("\r", " ").split("\n")
        if path == last and not rest and len(written[-1][0]) + len(first) < LONGEST_LIST_LINE:
            written[-1] = (f"{written[-1][0]}, {first}", written[-1][1])
        else:
            written += [(f"{path}: {first}" if path else first, line), *((more, line) for more in rest)]
        last = None if rest else path
    return written


def _title(record: Members) -> str | None:
    values = {key.lower(): value for key, value in reversed(record) if isinstance(value, str) and value.strip()}
    title = next((values[key] for key in TITLE_KEYS if key in values), None)
    is_name = title and len(title) <= LONGEST_TITLE and any(map(str.isalpha, title))
    return well_formed(one_line(title)) if title and is_name else None


def _document(values: list[Leaf], title: str | None) -> ParsedDocument:
    builder = TextBuilder()
    builder.add(leaf_lines(values), "table", (), values[-1][2] if values else 0)
    return builder.document(title)


def _by_keys(content: Members, lines: Iterator[int]) -> ParsedDocument:
    """Return a document with a block per scalar group, per key with values below it, and per record in a list."""
    builder = TextBuilder()
    pending: list[Leaf] = []

    def flush(headings: tuple[str, ...] = ()) -> None:
        builder.add(leaf_lines(pending), "table", headings, pending[-1][2] if pending else 0)
        pending.clear()

    for key, value in content:
        line = next(lines)
        if not isinstance(value, list):
            pending.append((key, _scalar(value), line))
            continue
        flush()
        heading = (one_line(well_formed(key)),) if key.strip() else ()
        if _are_records(value):
            for record in value:
                pending += leaves(record, "", next(lines), lines)
                title = _title(record)
                flush((*heading, title) if title else heading)
        else:
            pending += leaves(value, key, line, lines)
            flush(heading)
    flush()
    return builder.document(_title(content))
