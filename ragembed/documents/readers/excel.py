"""Read Excel files: xlsx from its XML, xls with olefile and xlrd."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice, product
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.documents.decoding import is_binary
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import xml
from ragembed.documents.readers.ooxml import (
    NAMESPACES,
    frame_text,
    graphic_texts,
    main_part,
    optional,
    properties_of,
    shapes_of,
    text_of,
)
from ragembed.documents.readers.package import ZipPackage, whole_number
from ragembed.documents.readers.properties import with_metadata
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.spreadsheet import (
    MOST_COLUMNS,
    WHOLE,
    SheetRow,
    date_text,
    format_kind,
    number_text,
    rows_of_sheets,
    sheet_documents,
    shown_number,
)
from ragembed.documents.readers.structure import LONGEST_TEXT, OLE_MAGIC, LimitExceededError
from ragembed.documents.readers.table import parse_delimited
from ragembed.errors import DocumentError
from ragembed.extras import needed_for

DIGITS = "0123456789"
RANGE = re.compile(r"([A-Z]{1,3})(\d+):([A-Z]{1,3})(\d+)")
ZIP_MAGIC = b"PK\x03\x04"
WHITE = b"\xef\xbb\xbf \t\r\n"
"""What can be in front of the first tag of a web page."""
XLRD_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, OSError, TypeError, ValueError)
"""Errors that xlrd raises for a damaged file, besides its own and ``struct.error``."""


def parse_xlsx(file: RawFile) -> Iterator[ParsedDocument]:
    """Read the sheets of an xlsx file, formulas as their saved values. A sheet that cannot be read is a warning."""
    package = ZipPackage(file.data, "Excel file", NAMESPACES)
    rows = rows_of_sheets(_Workbook(package, file.options).sheets(), file.options)
    yield from with_metadata(sheet_documents(rows, file.options), properties_of(package, file.options))


def parse_xls(file: RawFile) -> Iterator[ParsedDocument]:
    """Read the sheets of an xls file, or an xlsx file, a web page, XML or a text table with that name."""
    if file.data.startswith(ZIP_MAGIC):
        yield from parse_xlsx(file)
    elif not is_binary(file.data) and file.data.strip():
        yield from (xml.parse if file.data.lstrip(WHITE)[:1] == b"<" else parse_delimited)(file)
    else:
        yield from sheet_documents(rows_of_sheets(_xls_sheets(file.data), file.options), file.options)


class _Workbook:
    """The parts of an xlsx file."""

    def __init__(self, package: ZipPackage, options: ReadOptions) -> None:
        self._package = package
        self._options = options
        self._main = main_part(package, "xl/workbook.xml")
        root = package.tree(self._main)
        relations = package.relations(self._main)
        self._sheets: list[tuple[str, str]] = []
        for sheet in root.iter("sheet"):
            key = next((value for name, value in sheet.items() if name.endswith("}id")), "")
            if key in relations and relations[key].kind in ("worksheet", "chartsheet"):
                hidden = " (hidden sheet)" if sheet.get("state", "visible") != "visible" else ""
                self._sheets.append((sheet.get("name", "") + hidden, relations[key].target))
        self._epoch_1904 = any(found.get("date1904") in ("1", "true") for found in root.iter("workbookPr"))
        self._formats = self._number_formats()
        self._strings = self._shared_strings()

    def sheets(self) -> Iterator[tuple[str, Iterator[SheetRow]]]:
        """Yield the name and the rows of each sheet."""
        for number, (name, part) in enumerate(self._sheets, 1):
            yield name, self._sheet_rows(number, name, part)

    def _related(self, kind: str) -> str:
        return next(iter(self._package.related(self._main, kind)), "")

    def _number_formats(self) -> dict[str, tuple[str, int]]:
        """Return the code and the number of the formats of cells that do not show a number with its digits alone."""
        part = self._related("styles")
        if not part:
            return {}
        codes: dict[int, str] = {}
        styles: list[int] = []
        for piece in self._package.pieces(part, ("styleSheet", "numFmts", "cellXfs")):
            if piece.tag == "numFmt":
                codes[whole_number(piece.get("numFmtId", ""))] = piece.get("formatCode", "")
            elif piece.tag == "cellXfs":
                styles = []
            elif piece.tag == "xf":
                styles.append(whole_number(piece.get("numFmtId", "")))
        formats = {number: codes.get(number, "") for number in set(styles)}
        used = {number: (code, number) for number, code in formats.items() if format_kind(code, number)}
        return {str(at): used[number] for at, number in enumerate(styles) if number in used}

    def _shared_strings(self) -> list[str]:
        part = self._related("sharedStrings")
        strings: list[str] = []
        length = 0
        for piece in self._package.pieces(part, ("sst",)) if part else ():
            if piece.tag == "si":
                strings.append(_rich_text(piece))
                length += len(strings[-1])
            if length > LONGEST_TEXT:
                raise LimitExceededError(f"longer than {LONGEST_TEXT:,} characters")
        return strings

    def _sheet_rows(self, sheet: int, name: str, part: str) -> Iterator[SheetRow]:
        columns = _columns()
        comments = self._comments(part)
        number = 0
        for piece in self._package.pieces(part, ("worksheet", "sheetData", "mergeCells")):
            if piece.tag == "mergeCell" and (match := RANGE.fullmatch(piece.get("ref", ""))):
                left, right = columns.get(match[1], 0), columns.get(match[3], 0)
                merged = ((whole_number(match[2]), whole_number(match[4]), left, right),)
                yield SheetRow(sheet, name, number, merged=merged)
            if piece.tag != "row":
                continue
            number = whole_number(piece.get("r", ""), number + 1)
            if not len(piece) and number not in comments:
                continue
            row = SheetRow(sheet, name, number, comments=comments.pop(number, {}))
            column = -1
            for cell in piece:
                if cell.tag == "c":
                    reference = cell.get("r")
                    column = columns.get(reference.rstrip(DIGITS), column + 1) if reference else column + 1
                    self._add_cell(row, column, cell)
            yield row
        for number, texts in sorted(comments.items()):
            yield SheetRow(sheet, name, number, comments=texts)
        for drawing in self._package.related(part, "drawing"):
            for root in optional(self._package, [drawing], self._options):
                for anchor in root:
                    shown = [*map(frame_text, shapes_of(anchor))]
                    shown += graphic_texts(anchor, self._package, drawing, self._options)
                    at = 1 + whole_number(anchor.findtext("from/row", ""), number - 1)
                    yield SheetRow(sheet, name, at, drawings=tuple(filter(None, shown)))

    def _add_cell(self, row: SheetRow, column: int, cell: Element) -> None:
        kind = cell.get("t", "n")
        value = cell.findtext("v", "")
        if kind == "n":
            style = self._formats.get(cell.get("s", "0"))
            if style is None:
                row.add(column, value if WHOLE.fullmatch(value) else shown_number(value), is_number=True)
            else:
                text = shown_number(value, *style, epoch_1904=self._epoch_1904)
                row.add(column, text, is_number=format_kind(*style) not in ("date", "duration"))
        elif kind == "s":
            at = whole_number(value, -1)
            row.add(column, self._strings[at] if 0 <= at < len(self._strings) else "")
        elif kind == "inlineStr":
            inline = cell.find("is")
            row.add(column, "" if inline is None else _rich_text(inline))
        elif kind == "b":
            row.add(column, "TRUE" if value == "1" else "FALSE", is_number=True)
        elif kind == "d":
            row.add(column, value.replace("T", " "))
        else:
            row.add(column, value)

    def _comments(self, part: str) -> dict[int, dict[int, str]]:
        """Return the comments of a sheet by row and column. Threads of comments replace their copies in old form."""
        texts: dict[str, list[str]] = {}
        for kind, tag in (("threadedComment", "threadedComment"), ("comments", "comment")):
            threaded = frozenset(texts)
            for target in self._package.related(part, kind):
                for comment in self._package.tree(target).iter(tag):
                    reference = comment.get("ref", "")
                    if reference not in threaded:
                        texts.setdefault(reference, []).append(_rich_text(comment).strip())
        columns = _columns()
        found: dict[int, dict[int, str]] = {}
        for reference, parts in texts.items():
            letters = reference.rstrip(DIGITS)
            row = whole_number(reference[len(letters) :])
            found.setdefault(row, {})[columns.get(letters, 0)] = "\n".join(filter(None, parts))
        return found


@cache
def _columns() -> dict[str, int]:
    """Return the columns, from 0, by their letters: A to XFD."""
    alphabet = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    letters = chain.from_iterable(product(alphabet, repeat=length) for length in (1, 2, 3))
    return {"".join(name): column for column, name in enumerate(islice(letters, MOST_COLUMNS))}


def _rich_text(element: Element) -> str:
    """Return the text of a string or comment, without the pronunciation that East Asian strings can have."""
    if len(element) == 1 and element[0].tag == "t":
        return element[0].text or ""
    return text_of(
        element,
        lambda child: (
            "" if child.tag == "rPh" else (child.text or "") if child.tag == "text" and not len(child) else None
        ),
    )


def _xls_sheets(data: bytes) -> Iterator[tuple[str, Iterator[SheetRow]]]:
    with needed_for("reading xls files"):
        import olefile
        import xlrd
    with _document_errors(xlrd):
        if data.startswith(OLE_MAGIC):
            # xlrd does not end for a container whose sectors form a loop.
            with olefile.OleFileIO(io.BytesIO(data)) as container:
                name = next((name for name in ("Workbook", "Book") if container.exists(name)), None)
                if name is None:
                    raise DocumentError("no workbook in this Office file: it may be encrypted, or not an Excel file")
                data = container.openstream(name).read()
        options = {"file_contents": data, "logfile": io.StringIO(), "on_demand": True, "ragged_rows": True}
        try:
            book = xlrd.open_workbook(formatting_info=True, **options)  # which merged cells are part of
        except (xlrd.XLRDError, struct.error, *XLRD_ERRORS):
            book = xlrd.open_workbook(**options)
        names = book.sheet_names()
    for number, name in enumerate(names, 1):
        yield name, _xls_sheet_rows(xlrd, book, number, name)
        book.unload_sheet(number - 1)


@contextmanager
def _document_errors(xlrd: Any) -> Iterator[None]:
    """Convert the errors that xlrd raises for a damaged or encrypted file."""
    try:
        yield
    except (xlrd.XLRDError, xlrd.compdoc.CompDocError, struct.error, *XLRD_ERRORS) as error:
        if "encrypted" in str(error):
            raise DocumentError("encrypted Excel file") from error
        raise DocumentError(f"corrupt Excel file: {error or type(error).__name__}") from error


def _xls_sheet_rows(xlrd: Any, book: Any, number: int, name: str) -> Iterator[SheetRow]:
    with _document_errors(xlrd):
        sheet = book.sheet_by_index(number - 1)
    name += " (hidden sheet)" if sheet.visibility else ""
    comments: dict[int, dict[int, str]] = {}
    for (at, column), note in sheet.cell_note_map.items():
        comments.setdefault(at, {})[column] = note.text.strip()
    merged = tuple((top + 1, bottom, left, right - 1) for top, bottom, left, right in sheet.merged_cells)
    if merged:
        yield SheetRow(number, name, 0, merged=merged)
    for at in range(sheet.nrows):
        row = SheetRow(number, name, at + 1, comments=comments.pop(at, {}))
        for column, (kind, value) in enumerate(zip(sheet.row_types(at), sheet.row_values(at), strict=True)):
            if kind == xlrd.XL_CELL_TEXT:
                row.add(column, value)
            elif kind == xlrd.XL_CELL_NUMBER:
                row.add(column, number_text(value), is_number=True)
            elif kind == xlrd.XL_CELL_DATE:
                row.add(column, date_text(value, epoch_1904=book.datemode == 1))
            elif kind == xlrd.XL_CELL_BOOLEAN:
                row.add(column, "TRUE" if value else "FALSE", is_number=True)
            elif kind == xlrd.XL_CELL_ERROR:
                row.add(column, xlrd.error_text_from_code.get(value, ""))
        yield row
