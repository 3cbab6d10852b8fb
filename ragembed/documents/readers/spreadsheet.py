"""Turn the rows of spreadsheets into documents: one for each row below a header, like the rows of a csv file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, groupby, islice

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import LONGEST_TEXT, LimitExceededError, TextBuilder, one_line
from ragembed.documents.readers.table import check_columns, has_labels, header_names, row_document
from ragembed.errors import DocumentError

MOST_ROWS = 200_000
"""Maximum number of rows with content in a file. All chunks of a file are in memory at once."""
MOST_COLUMNS = 16_384
MOST_CELLS = 1_500_000
LONGEST_CELL = 32_767
LONGEST_ROW = 1_000_000
HEADER_WITHIN = 20
"""The header is one of this number of first rows with content."""
YEAR = re.compile(r"(19|20)\d\d\Z")
EXCEL_EPOCH = datetime(1899, 12, 30)
MAC_EPOCH = datetime(1904, 1, 1)


@dataclass(slots=True)
class SheetRow:
    """A row of a sheet, with the texts of its cells and comments by column. Rows and sheets count from 1.

    ``numbers`` are the columns whose values are numbers.
    """

    sheet: int
    sheet_name: str
    number: int
    cells: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    comments: dict[int, str] = field(default_factory=dict)

    def add(self, column: int, text: str, *, is_number: bool = False) -> None:
        """Set the text of a cell, shortened to the maximum length of a cell in Excel. Blank cells are left out."""
        text = text[:LONGEST_CELL].strip()
        if text and column < MOST_COLUMNS:
            self.cells[column] = text
            if is_number:
                self.numbers.add(column)


def sheet_documents(rows: Iterable[SheetRow], options: ReadOptions) -> Iterator[ParsedDocument]:
    """Yield a document for each row of the sheets with a header, and one document for each other sheet.

    The lines of a document are the rows of its sheet. The name of the sheet is its heading. A header is the first row
    that fills most of the columns, if it has no numbers except years. The rows above it are a document of their own.
    """
    columns: dict[str, None] = {}
    headless = 0
    for _, group in groupby(_within_limits(rows), key=lambda row: row.sheet):
        remaining = iter(group)
        first = list(islice(remaining, HEADER_WITHIN))
        at = _header_position(first, options)
        if at is None:
            headless += 1
            yield from _as_text(chain(first, remaining))
            continue
        yield from _as_text(first[:at])
        names, offset = _column_names(first[at:])
        columns.update(dict.fromkeys(names))
        yield from _records(names, offset, chain(first[at:], remaining), options)
    if columns or headless:
        check_columns(options, columns)


def rows_of_sheets(sheets: Iterable[tuple[str, Iterator[SheetRow]]], options: ReadOptions) -> Iterator[SheetRow]:
    """Yield the rows of sheets, which are pairs of name and rows. A sheet that cannot be read is a warning.

    If no sheet can be read to its end, :class:`DocumentError` is raised.
    """
    count = 0
    broken: list[str] = []
    for name, rows in sheets:
        count += 1
        try:
            yield from rows
        except LimitExceededError:
            raise
        except DocumentError as error:
            broken.append(f"sheet {name!r}: {error}")
    if len(broken) == count:
        raise DocumentError(broken[0] if broken else "contains no sheets")
    if broken:
        options.warn(f"{len(broken)} of {count} sheets cannot be read to the end ({broken[0]})")


def _within_limits(rows: Iterable[SheetRow]) -> Iterator[SheetRow]:
    """Yield the rows that are not empty."""
    characters = cells = count = 0
    for row in rows:
        if not row.cells and not row.comments:
            continue
        length = sum(map(len, row.cells.values())) + sum(map(len, row.comments.values()))
        count += 1
        cells += len(row.cells)
        characters += length
        if length > LONGEST_ROW:
            raise LimitExceededError(f"row {row.number} has more than {LONGEST_ROW:,} characters")
        if count > MOST_ROWS or cells > MOST_CELLS or characters > LONGEST_TEXT:
            raise LimitExceededError(
                f"more than {MOST_ROWS:,} rows, {MOST_CELLS:,} cells or {LONGEST_TEXT:,} characters: split it, or save "
                "its sheets as csv"
            )
        yield row


def _header_position(rows: Sequence[SheetRow], options: ReadOptions) -> int | None:
    """Return the index of the header, or None if the sheet is not a table of records."""
    named = set(options.named_columns())
    for at, row in enumerate(rows[:-1]):
        if named and named <= {one_line(cell) for cell in row.cells.values()}:
            return at
    width = max((len(row.cells) for row in rows), default=0)
    for at, row in enumerate(rows[:-1]):
        if len(row.cells) >= max(2, -(-2 * width // 3)):
            has_values = any(not YEAR.match(row.cells[column]) for column in row.numbers)
            return None if has_values else at
    return None


def _column_names(rows: Sequence[SheetRow]) -> tuple[list[str], int]:
    """Return the column names, and the first column that is used. ``rows`` are the header and some rows below it."""
    used = [column for row in rows for column in row.cells]
    first, last = min(used), max(used)
    return header_names([rows[0].cells.get(column, "") for column in range(first, last + 1)]), first


def _records(names: list[str], offset: int, rows: Iterable[SheetRow], options: ReadOptions) -> Iterator[ParsedDocument]:
    """Yield a document for each row below the first one, which is the header. Copies of the header are left out."""
    rows = iter(rows)
    header = next(rows).cells
    outside = 0
    last = offset + len(names)
    missing = set(options.text_columns) - set(names)
    labelled = has_labels(names, options)
    for row in rows:
        if header == row.cells:
            continue
        outside += any(not offset <= column < last for column in row.cells)
        cells = (
            (names[column - offset], text) for column, text in sorted(row.cells.items()) if offset <= column < last
        )
        document = None if missing else row_document(cells, row.number, options, labelled=labelled)
        comments = {
            names[column - offset] if offset <= column < last else f"column {column + 1}": text
            for column, text in row.comments.items()
        }
        if document is not None:
            yield _placed(document, row, comments)
    if outside:
        options.warn(f"{outside} rows have cells outside the columns of the header; these cells are ignored")


def _placed(document: ParsedDocument, row: SheetRow, comments: dict[str, str]) -> ParsedDocument:
    """Set the row and the sheet of a document, and add comments."""
    notes = [f"Comment on {name}: {text}" for name, text in comments.items()]
    text = "\n".join([document.text, *notes])
    return replace(
        document,
        text=text,
        blocks=[Block(0, len(text), "text", (row.sheet_name,))],
        line_numbers=[row.number] * (text.count("\n") + 1),
    )


def _as_text(rows: Iterable[SheetRow]) -> Iterator[ParsedDocument]:
    """Yield one document with a line for each row, if there are rows."""
    builder = TextBuilder()
    lines: list[tuple[str, int]] = []
    headings: tuple[str, ...] = ()
    for row in rows:
        headings = (row.sheet_name,)
        cells = [one_line(row.cells[column]) for column in sorted(row.cells)]
        comments = [f"Comment: {one_line(text)}" for text in row.comments.values()]
        lines += [(line, row.number) for line in (" | ".join(cells), *comments) if line]
    builder.add(lines, "table", headings)
    if builder.blocks:
        yield ParsedDocument(builder.text, builder.blocks, line_numbers=builder.places)


def number_text(value: float) -> str:
    """Return a number with the 15 digits that spreadsheets keep, and without a decimal point if it is whole."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"


def date_text(serial: float, *, epoch_1904: bool = False, duration: bool = False) -> str:
    """Return the ISO date, time or both for the day number of a cell; the number itself if it is out of range."""
    if not abs(serial) < 1e7:
        return number_text(serial)
    seconds = round(serial * 86_400)
    if duration:
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    # Excel counts a 29 February 1900, so that smaller numbers are off by one day.
    days = timedelta(seconds=seconds + (86_400 if 1 <= serial < 60 and not epoch_1904 else 0))
    try:
        moment = (MAC_EPOCH if epoch_1904 else EXCEL_EPOCH) + days
    except OverflowError:
        return number_text(serial)
    if serial < 0:
        return number_text(serial)
    if serial < 1 and not epoch_1904:
        return moment.time().isoformat()
    return moment.date().isoformat() if seconds % 86_400 == 0 else moment.isoformat(" ")
