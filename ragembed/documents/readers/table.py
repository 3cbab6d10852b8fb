"""Read files of records: each row of a csv or tsv file, and each line of a JSON lines file, is one document."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, repeat
from typing import Any

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.records import DEEPEST, has_long_paths, is_deep, leaf_lines, leaves
from ragembed.documents.readers.structure import well_formed
from ragembed.errors import ConfigError, DocumentError

DELIMITERS = ",;\t|"
HEADER_WITHIN = 20
"""The header is one of this number of first rows."""
EXCEL_HINT = re.compile(r"\s*sep=(.)[ \t]*\n", re.IGNORECASE)
"""The line that tells Excel the delimiter."""
TEXT_KEYS = ("text", "content", "body", "document", "abstract")
LONGEST_METADATA = 1_000
"""The lists and objects of a text of at most this number of characters are metadata too."""
MOST_NAMED = 50
"""Number of columns that an error names."""
_FIELD_LIMIT_LOCK = threading.Lock()


def parse_delimited(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a csv or tsv file: a document per row below the header, and one for the rows above it, such as a title."""
    text = file.text
    delimiter = "\t" if file.suffix in (".tsv", ".tab") else _delimiter(text, file.options)
    rows = _rows(text, delimiter)
    first = list(islice(rows, HEADER_WITHIN))
    if EXCEL_HINT.match(text):
        del first[0]
    at = _header_position(first, file.options) or 0
    if not first or not any(first[at][1]):
        raise DocumentError("no header in its first line: expected column names")
    above = {line: text for line, cells in first[:at] if (text := " | ".join(filter(None, map(str.strip, cells))))}
    if document := _document([*above.values()], [*above], None, {}):
        yield document
    header = header_names(first[at][1])
    check_columns(file.options, header)
    labelled = has_labels(header, file.options)
    too_long = 0
    for line, cells in chain(first[at + 1 :], rows):
        too_long += len(cells) > len(header)
        document = row_document(zip(header, cells, strict=False), line, file.options, labelled=labelled)
        if document is not None:
            yield document
    if too_long:
        file.options.warn(f"{too_long} rows have more cells than the header; the extra cells are ignored")


def parse_json_lines(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a file with one JSON object per line. A list or string with text is read like an object with ``text``."""
    bad: list[int] = []
    columns: dict[str, None] = {}
    for number, line in enumerate(file.text.split("\n"), 1):
        if not line.strip():
            continue
        record = _json_object(line)
        if record is None:
            bad.append(number)
            continue
        columns.update(dict.fromkeys(record))
        document = _record_document(record, number, file.options)
        if document is not None:
            yield document
    if not columns:
        raise DocumentError(f"no line is a JSON object of at most {DEEPEST} levels")
    check_columns(file.options, columns)
    if bad:
        file.options.warn(f"{len(bad)} lines are not JSON objects of at most {DEEPEST} levels (first: line {bad[0]})")


def _delimiter(text: str, options: ReadOptions) -> str:
    """Return the delimiter that is most frequent in the first line, or below it if that line is no header with it."""
    if hint := EXCEL_HINT.match(text):
        return hint[1]
    header = text.lstrip("\n").split("\n", 1)[0]
    usual = max(DELIMITERS, key=header.count)
    best, longest = usual, (0, 0)
    for delimiter in (usual, *DELIMITERS):
        rows = list(islice(_rows(text, delimiter), HEADER_WITHIN))
        if delimiter == usual and header.count(usual) and _header_position(rows, options) == 0:
            return usual
        widths = [(len(list(run)), width) for width, run in groupby(len(cells) for _, cells in rows) if width > 1]
        if widths and max(widths) > longest:
            best, longest = delimiter, max(widths)
    return best


def _header_position(rows: Sequence[tuple[int, list[str]]], options: ReadOptions) -> int | None:
    """Return the index of the row with the named columns, else of the first one above rows with as many cells."""
    named = set(options.named_columns())
    for at, (_, cells) in enumerate(rows):
        if named and named <= set(header_names(cells)):
            return at
    sizes = [sum(map(bool, map(str.strip, cells))) for _, cells in rows]
    width = max((size for size in sizes if sizes.count(size) > 1), default=0)
    for at, (_, cells) in enumerate(rows[:-1]):
        fitting = sum(len(below) == len(cells) for _, below in rows[at:])
        if 3 * sizes[at] >= 2 * width and 5 * fitting >= 4 * (len(rows) - at):
            return at
    return None


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each non-blank row with its first line number. Cells may have any length."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    while True:
        line = reader.line_num + 1
        try:
            with _FIELD_LIMIT_LOCK:
                limit = csv.field_size_limit(max(len(text), 1))
                try:
                    cells = next(reader)
                finally:
                    csv.field_size_limit(limit)
        except StopIteration:
            return
        except csv.Error as error:
            raise DocumentError(f"invalid table at line {line}: {error}") from error
        if cells:
            yield line, cells


def header_names(names: list[str]) -> list[str]:
    """Return one-line column names. An empty or repeated name gets the column number as a suffix."""
    header: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        name = " ".join(part.strip() for part in name.split("\n")).strip() or "column"
        if name == "column":
            name = f"column {number}"
        while name in header:
            name = f"{name} {number}"
        header[name] = None
    return list(header)


def check_columns(options: ReadOptions, columns: Iterable[str]) -> None:
    """Raise :class:`ConfigError` if a column named in the options is not in ``columns``."""
    known = dict.fromkeys(columns)
    for name in options.named_columns():
        if name not in known:
            more = ", …" if len(known) > MOST_NAMED else ""
            raise ConfigError(f"unknown column {name!r}: expected one of {', '.join([*known][:MOST_NAMED])}{more}")


def has_labels(header: Sequence[str], options: ReadOptions) -> bool:
    """Return whether the text of a row has the names of its columns, because more than one makes the text."""
    return len(options.text_columns or [name for name in header if name != options.title_column]) > 1


def row_document(
    cells: Iterable[tuple[str, str]], line: int, options: ReadOptions, *, labelled: bool
) -> ParsedDocument | None:
    """Return the document of a row that begins at ``line``, or None if its text columns are empty.

    ``cells`` are the names and the texts of its cells, and ``labelled`` is the result of :func:`has_labels`.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, cell in cells:
        found[name] = line, cell
        line += cell.count("\n")
    wanted = options.text_columns or tuple(name for name in found if name != options.title_column)
    lines: list[str] = []
    numbers: list[int] = []
    for name in wanted:
        first, cell = found.get(name, (line, ""))
        if text := cell.strip():
            first += cell[: cell.index(text)].count("\n")
            lines += f"{name}: {text}".split("\n") if labelled else text.split("\n")
            numbers += range(first, first + text.count("\n") + 1)
    used = {*wanted, options.title_column}
    metadata = {name: cell for name, (_, cell) in found.items() if name not in used}
    title = found.get(options.title_column or "", (0, ""))[1].strip() or None
    return _document(lines, numbers, title, metadata)


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if is_deep(record):
        return None
    if isinstance(record, (list, str)) and _has_text(record):
        record = {"text": record}
    if not isinstance(record, dict) or has_long_paths(record, len(line)):
        return None
    return json.loads(well_formed(json.dumps(record, ensure_ascii=False))) if "\\u" in line else record


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


def _record_document(record: dict[str, Any], number: int, options: ReadOptions) -> ParsedDocument | None:
    title_key = options.title_column or "title"
    wanted = options.text_columns or _text_keys(record, title_key)
    labelled = len(wanted) > 1
    lines: list[str] = []
    nested: set[str] = set()
    for key in wanted:
        value = record.get(key)
        if isinstance(value, (list, dict)) and _has_text(value):
            nested.add(key)
            lines += [line for line, _ in leaf_lines(leaves(value, key if labelled else "", number, repeat(number)))]
        elif value is not None and str(value).strip():
            value = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines += (f"{key}: {value}" if labelled else value).split("\n")
    title = record.get(title_key)
    title = title.strip() if isinstance(title, str) else None
    used = {title_key, *wanted}
    if not options.text_columns and sum(map(len, lines)) <= LONGEST_METADATA:
        used -= nested
    metadata = {key: value for key, value in record.items() if key not in used}
    return _document(lines, [number] * len(lines), title or None, metadata)


def _text_keys(record: dict[str, Any], title_key: str) -> tuple[str, ...]:
    texts = [key for key, value in record.items() if key != title_key and _has_text(value)]
    preferred = next((key for key in TEXT_KEYS if key in texts), None)
    return (preferred,) if preferred else tuple(texts)


def _has_text(value: Any) -> bool:
    """Return whether a value is a string that is not blank, or contains one."""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, (list, dict)) and any(map(_has_text, value.values() if isinstance(value, dict) else value))


def _document(
    lines: list[str], numbers: list[int], title: str | None, metadata: dict[str, Any]
) -> ParsedDocument | None:
    """Return a document with one block for the record, or None if it has no text."""
    text = "\n".join(line.rstrip() for line in lines).replace("\r", " ")
    if not text.strip():
        return None
    return ParsedDocument(text, [Block(0, len(text))], title, line_numbers=numbers, metadata=metadata)
