"""Turn the rows of spreadsheets into documents: one for each row below a header, like the rows of a csv file."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain, groupby, pairwise

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
MOST_HEADER_ROWS = 3
MOST_PAIRS, LONGEST_VALUE = 40, 40
"""Maximum number of rows with a name and its value, and of characters of values that are all texts."""
DATE = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?\Z")
YEAR = re.compile(r"(19|20)\d\d\Z")
WHOLE = re.compile(r"-?\d{1,40}")
DATE_FORMATS = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
"""Numbers of the built-in formats for dates and times, in all languages."""
DURATION_FORMAT = 46
PERCENT_FORMATS = frozenset({9, 10})
LONGEST_FORMAT = 255
NOT_CODES = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|General', re.IGNORECASE)
DURATION = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
NOTHING = re.compile(r"[-–—?./ ]*|n/?a|tb[ad]|null|nan", re.IGNORECASE)
"""Cells without a value."""
EXCEL_EPOCH = datetime(1899, 12, 30)
MAC_EPOCH = datetime(1904, 1, 1)


@dataclass(slots=True)
class SheetRow:
    """A row of a sheet, with the texts of its cells and comments by column. Rows and sheets count from 1.

    ``numbers`` are the columns whose values are numbers; ``below`` and ``beside`` those with the value of a merged cell
    from above or from the left. ``merged`` has the first and last row, and the first and last column, of merged cells
    anywhere in the sheet. ``drawings`` are texts of shapes, charts and pictures on the sheet.
    """

    sheet: int
    sheet_name: str
    number: int
    cells: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    below: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()
    comments: dict[int, str] = field(default_factory=dict)
    merged: tuple[tuple[int, int, int, int], ...] = ()
    drawings: tuple[str, ...] = ()

    def add(self, column: int, text: str, *, is_number: bool = False) -> None:
        """Set the text of a cell, shortened to the maximum length of a cell in Excel. Blank cells are left out."""
        text = text[:LONGEST_CELL].strip()
        if text and column < MOST_COLUMNS:
            self.cells[column] = text
            if is_number:
                self.numbers.add(column)

    def kind(self, column: int) -> str:
        """Return whether a cell is a number, a date, a text or blank."""
        if column in self.numbers:
            return "number"
        text = self.cells.get(column, "")
        return "" if NOTHING.fullmatch(text) else "date" if DATE.match(text) else "text"

    def has_values(self) -> bool:
        """Return whether the row has numbers, except years, or dates."""
        return any(
            self.kind(column) in ("number", "date") and not YEAR.match(text) for column, text in self.cells.items()
        )

    def part(self, columns: range) -> SheetRow:
        """Return the cells and comments in some columns."""
        return replace(
            self,
            cells={column: text for column, text in self.cells.items() if column in columns},
            comments={column: text for column, text in self.comments.items() if column in columns},
        )


def sheet_documents(rows: Iterable[SheetRow], options: ReadOptions) -> Iterator[ParsedDocument]:
    """Yield a document for each row of the tables of the sheets, and one for the other rows between them."""
    columns: dict[str, None] = {}
    has_rows = False
    for _, group in groupby(_within_limits(rows), key=lambda row: row.sheet):
        sheet = list(group)
        filled = [row for row in sheet if row.cells or row.comments]
        _fill_merged(filled, [merged for row in sheet for merged in row.merged])
        reading = _Sheet(options)
        for region in _regions(filled):
            yield from reading.read(region)
        yield from reading.rest()
        yield from _drawn(sheet)
        columns.update(dict.fromkeys(reading.columns))
        has_rows |= bool(filled)
    if has_rows:
        check_columns(options, columns)


def rows_of_sheets(sheets: Iterable[tuple[str, Iterator[SheetRow]]], options: ReadOptions) -> Iterator[SheetRow]:
    """Yield the rows of pairs of a name and rows. A broken sheet is a warning, unless none is whole."""
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
        if not (row.cells or row.comments or row.drawings or row.merged):
            continue
        length = sum(map(len, chain(row.cells.values(), row.comments.values(), row.drawings)))
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


def _fill_merged(rows: list[SheetRow], merged: list[tuple[int, int, int, int]]) -> None:
    """Repeat the value of merged cells in each of their rows, and in their columns unless nothing is beside them."""
    numbers = [row.number for row in rows]
    used = [column for row in rows for column in row.cells]
    room = MOST_CELLS
    for top, bottom, left, right in merged:
        first, stop = bisect_left(numbers, top), bisect_right(numbers, bottom)
        if first == stop or numbers[first] != top or left not in rows[first].cells:
            continue
        right = min(right, max(used))
        is_title = left == min(used) and all(left <= column <= right for column in rows[first].cells)
        columns = range(left, left + 1 if is_title else right + 1)
        room -= (stop - first) * len(columns)
        if room < 0:
            raise LimitExceededError(f"merged cells for more than {MOST_CELLS:,} values")
        for row in rows[first:stop]:
            for column in columns:
                if column not in row.cells:
                    row.add(column, rows[first].cells[left], is_number=left in rows[first].numbers)
                    row.below |= {column} if row.number > top else frozenset()
                    row.beside |= {column} if row.number == top else frozenset()


def _regions(rows: list[SheetRow]) -> Iterator[list[SheetRow]]:
    """Yield the parts of a sheet between empty rows, and the tables beside each other in them."""
    region: list[SheetRow] = []
    for row in rows:
        if region and row.number > region[-1].number + 1:
            yield from _beside(region)
            region = []
        region.append(row)
    if region:
        yield from _beside(region)


def _beside(rows: list[SheetRow]) -> Iterator[list[SheetRow]]:
    """Yield the tables that an empty column separates: of other rows, of pairs of cells, or with the same names."""
    used = sorted({column for row in rows for column in row.cells})
    gaps = [at for at in range(1, len(used)) if used[at] > used[at - 1] + 1]
    starts = [0, *gaps, len(used)]
    sides = [range(used[first], used[stop - 1] + 1) for first, stop in pairwise(starts)] if gaps else []
    tables = [[part for row in rows if (part := row.part(side)).cells] for side in sides]
    extents = {(table[0].number, table[-1].number) for table in tables if any(len(row.cells) > 1 for row in table)}
    are_wide = all(len(side) > 1 for side in sides)
    are_pairs = all(len(side) == 2 and _is_key_value(table) for side, table in zip(sides, tables, strict=True))
    heads = [set(table[0].cells.values()) for table in tables if table]
    are_apart = len(extents) > 1 or are_pairs or any(above & below for above, below in pairwise(heads))
    if tables and are_wide and are_apart and all(map(_has_keys, tables)):
        yield from tables
    else:
        yield rows


def _has_keys(rows: Sequence[SheetRow]) -> bool:
    """Return whether the first column has texts, so that the rows can be told apart without the columns beside it."""
    first = min(column for row in rows for column in row.cells)
    return 2 * sum(row.kind(first) == "text" for row in rows) >= len(rows) > 1


def _is_key_value(rows: Sequence[SheetRow]) -> bool:
    """Return whether rows are pairs of a name and its value, and not a table: its values would be of one kind."""
    used = sorted({column for row in rows for column in row.cells})
    if len(used) != 2 or len(rows) < 2:
        return False
    keys, values = ([row.cells.get(column, "") for row in rows] for column in used)
    kinds = [kind for row in rows if (kind := row.kind(used[1]))]
    has_names = all(row.kind(used[0]) in ("text", "") for row in rows) and len(set(keys)) == len(keys)
    if not has_names or len(rows) > MOST_PAIRS:
        return False
    if 2 * sum(key.endswith((":", "：")) for key in keys) > len(keys):
        return True
    if rows[0].has_values():
        return "text" in kinds
    below = kinds[1:]
    if "text" not in below:
        return len(set(below)) > 1
    if set(below) == {"text"}:
        return len(rows) > 3 and len(set(map(_shape, values))) > 2 and max(map(len, values)) <= LONGEST_VALUE
    others = len(below) - below.count("text")
    return len(below) < 5 or 5 * others < 4 * len(below)


def _shape(text: str) -> tuple[bool, bool, bool]:
    """Return what tells names of columns from most values: digits, addresses, and a small first letter."""
    return any(map(str.isdigit, text)), "@" in text or "/" in text, text[:1].islower()


class _Sheet:
    """Reads the regions of a sheet in their order: tables, pairs of names and values, and other rows."""

    def __init__(self, options: ReadOptions) -> None:
        self.columns: dict[str, None] = {}
        self._options = options
        self._rest: list[SheetRow] = []
        self._table: _Table | None = None
        self._pair_columns: set[int] = set()

    def read(self, rows: list[SheetRow]) -> Iterator[ParsedDocument]:
        """Yield the documents of a region, after the rows above it that are not part of a table."""
        if self._table is not None and (continues := self._continues(self._table, rows)) is not False:
            if continues:
                yield from self.rest()
                yield from self._table.records(rows, self._options)
            else:
                self._rest += rows
            return
        self._table = None
        at = _header_position(rows[:HEADER_WITHIN], self._options)
        named = self._options.named_columns()
        used = {column for row in rows for column in row.cells}
        if not named and (_is_key_value(rows[at or 0 :]) or used == self._pair_columns):
            self._pair_columns = used
            self._rest += rows[: at or 0]
            yield from self.rest()
            yield from _as_text(rows[at or 0 :], ": ")
        elif at is None:
            self._rest += rows
        else:
            first = _group_row(rows, at)
            self._rest += rows[:first]
            yield from self.rest()
            self._table = _Table(rows, first, at + _rows_of_header(rows, at))
            self.columns.update(dict.fromkeys(self._table.names))
            yield from self._table.records(rows[self._table.stop :], self._options)

    def rest(self) -> Iterator[ParsedDocument]:
        """Yield one document with the rows so far that are not part of a table."""
        yield from _as_text(self._rest)
        self._rest = []

    def _continues(self, table: _Table, rows: Sequence[SheetRow]) -> bool | None:
        """Return whether rows below an empty row belong to the table above it. None means that nobody can tell."""
        if any(column not in table.range for row in rows for column in row.cells):
            return False
        first = next((row for row in rows if len(row.cells) > 1), rows[0])
        if first.cells in table.headers or self._options.named_columns():
            return True
        fits = [first.kind(column) == kind for column, kind in table.kinds.items() if column in first.cells]
        if not fits and any(text in table.values.get(column, ()) for column, text in first.cells.items()):
            return True
        if not fits and any(row.has_values() for row in rows if row is not first):
            return False
        fits = fits or [
            _shape(text) in table.shapes[column] for column, text in first.cells.items() if column in table.shapes
        ]
        return 2 * sum(fits) >= len(fits) if fits else None


@dataclass
class _Table:
    """A table of a sheet: its names, in a header from ``first`` to ``stop``, and what is known of the values below."""

    rows: list[SheetRow]
    first: int
    stop: int

    def __post_init__(self) -> None:
        header = self.rows[self.first : self.stop]
        self.headers = [row.cells for row in header]
        used = [column for row in self.rows[self.first : self.stop + HEADER_WITHIN] for column in row.cells]
        self.range = range(min(used), max(used) + 1)
        self.names = header_names([_name(header, column) for column in self.range])

    @cached_property
    def values(self) -> dict[int, set[str]]:
        """The texts in each column."""
        texts: dict[int, set[str]] = {}
        for row in self.rows[self.stop :]:
            for column, text in row.cells.items():
                texts.setdefault(column, set()).add(text)
        return texts

    @cached_property
    def kinds(self) -> dict[int, str]:
        """The kind of the values in the columns with numbers or dates only."""
        kinds: dict[int, set[str]] = {}
        for row in self.rows[self.stop :]:
            for column in row.cells:
                kinds.setdefault(column, set()).add(row.kind(column))
        return {column: kind.pop() for column, kind in kinds.items() if len(kind) == 1 and "text" not in kind}

    @cached_property
    def shapes(self) -> dict[int, set[tuple[bool, bool, bool]]]:
        """The shapes of the texts in columns whose name looks different from all of them."""
        shapes = {column: set(map(_shape, texts)) for column, texts in self.values.items() if column not in self.kinds}
        return {column: seen for column, seen in shapes.items() if _shape(self.headers[-1].get(column, "")) not in seen}

    def records(self, rows: Iterable[SheetRow], options: ReadOptions) -> Iterator[ParsedDocument]:
        """Yield a document for each row. Copies of the header are left out."""
        names = dict(zip(self.range, self.names, strict=True))
        outside = 0
        missing = set(options.text_columns) - set(self.names)
        labelled = has_labels(self.names, options)
        for row in rows:
            if row.cells in self.headers:
                continue
            outside += any(column not in names for column in row.cells)
            cells = ((names[column], text) for column, text in sorted(row.cells.items()) if column in names)
            document = None if missing else row_document(cells, row.number, options, labelled=labelled)
            comments = {names.get(column, f"column {column + 1}"): text for column, text in row.comments.items()}
            if document is not None:
                yield _placed(document, row, comments)
        if outside:
            options.warn(f"{outside} rows have cells outside the columns of the header; these cells are ignored")


def _header_position(rows: Sequence[SheetRow], options: ReadOptions) -> int | None:
    """Return the index of the header, or None if the rows are not a table of records."""
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


def _group_row(rows: Sequence[SheetRow], at: int) -> int:
    """Return the index of the row with the names of groups of columns above the header ``at``, if there is one."""
    if at == 0:
        return at
    above, header = rows[at - 1], rows[at]
    left = min(header.cells)
    is_group = above.cells and not above.has_values() and set(above.cells) <= set(header.cells) | {left}
    apart = left not in above.cells or left not in header.cells or above.cells[left] == header.cells[left]
    return at - 1 if is_group and apart and above.cells.keys() - {left} else at


def _rows_of_header(rows: Sequence[SheetRow], at: int) -> int:
    """Return the number of rows of the header ``at``: below names of groups or above units there is another one."""
    count = 1
    while count < MOST_HEADER_ROWS and at + count + 1 < len(rows):
        upper, lower = rows[at + count - 1], rows[at + count]
        if not lower.cells or lower.has_values():
            break
        below = rows[at + count + 1 : at + count + 1 + HEADER_WITHIN]
        typed = [column for column in lower.cells if {row.kind(column) for row in below} - {""} == {"number"}]
        grouped = any(column not in upper.cells and column - 1 in upper.cells for column in lower.cells) and bool(typed)
        if not (upper.beside or lower.below or grouped or len(typed) > 1):
            break
        count += 1
    return count


def _name(header: Sequence[SheetRow], column: int) -> str:
    """Return the name of a column: that of its group, which reaches to the next one, and its own."""
    parts: dict[str, None] = {}
    for at, row in enumerate(header):
        text = row.cells.get(column, "")
        if not text and at + 1 < len(header) and column in header[at + 1].cells:
            text = next((row.cells[left] for left in range(column, min(row.cells) - 1, -1) if left in row.cells), "")
        if text:
            parts[text] = None
    return " ".join(parts)


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


def _as_text(rows: Iterable[SheetRow], separator: str = " | ") -> Iterator[ParsedDocument]:
    """Yield one document with a line for each row, if there are rows."""
    builder = TextBuilder()
    lines: list[tuple[str, int]] = []
    headings: tuple[str, ...] = ()
    for row in rows:
        headings = (row.sheet_name,)
        cells = [one_line(row.cells[column]) for column in sorted(row.cells)]
        if separator == ": " and len(cells) > 1:
            cells[0] = cells[0].rstrip(":： ")
        comments = [f"Comment: {one_line(text)}" for text in row.comments.values()]
        lines += [(line, row.number) for line in (separator.join(cells), *comments) if line]
    builder.add(lines, "table", headings)
    if builder.blocks:
        yield builder.document()


def _drawn(rows: Iterable[SheetRow]) -> Iterator[ParsedDocument]:
    """Yield one document with the texts of the drawings on a sheet, if there are some."""
    builder = TextBuilder()
    for row in rows:
        for text in row.drawings:
            builder.add_text(text, row.number, "text", (row.sheet_name,))
    if builder.blocks:
        yield builder.document()


def shown_number(text: str, code: str = "", number: int = 0, *, epoch_1904: bool = False) -> str:
    """Return a number with a format code or built-in format of Excel: a date, duration, percentage or digits."""
    kind = format_kind(code, number)
    if WHOLE.fullmatch(text) and kind in ("", "zeros"):
        return text.zfill(len(code)) if kind else text
    try:
        value = float(text)
    except ValueError:
        return text
    if kind in ("date", "duration") and math.isfinite(value):
        return date_text(value, epoch_1904=epoch_1904, duration=kind == "duration")
    if kind == "percent" and abs(value) < 1e13:
        return f"{number_text(round(value * 100, 10))}%"
    return number_text(value)


@lru_cache(maxsize=1024)
def format_kind(code: str, number: int) -> str:
    """Return what a number format shows: ``date``, ``duration``, ``percent``, ``zeros`` or, for numbers, nothing."""
    if not code:
        if number in PERCENT_FORMATS:
            return "percent"
        return "" if number not in DATE_FORMATS else "duration" if number == DURATION_FORMAT else "date"
    if code.strip("0") == "" and len(code) > 1:
        return "zeros"
    code = NOT_CODES.sub("", code[:LONGEST_FORMAT].split(";")[0])
    if DURATION.search(code):
        return "duration"
    if re.search(r"[dmyhs]", code, re.IGNORECASE):
        return "date"
    return "percent" if code.endswith("%") else ""


def number_text(value: float) -> str:
    """Return a number with up to 15 digits, or with all digits of a whole number, and without a decimal point then."""
    if not value.is_integer() or abs(value) >= 1e21:
        return f"{value:.15g}"
    return f"{value:.0f}" if abs(value) < 1e15 else f"{Decimal(repr(value)):f}"


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
