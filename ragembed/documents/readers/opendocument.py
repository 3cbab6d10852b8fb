"""Read OpenDocument files: odt, odp and ods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.package import ZipPackage, attribute, whole_number
from ragembed.documents.readers.properties import core_properties, with_properties
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.spreadsheet import MOST_COLUMNS, SheetRow, number_text, sheet_documents
from ragembed.documents.readers.structure import LimitExceededError, OutlineBuilder, comment_label
from ragembed.errors import DocumentError

CONTENT = "content.xml"
MANIFEST = "META-INF/manifest.xml"
ROW_GROUPS = frozenset({"table-header-rows", "table-rows", "table-row-group"})
TEXT = ROW_GROUPS | {"document-content", "automatic-styles", "body", "text", "section", "table"}
"""Elements whose children are read one by one."""
SLIDES = frozenset({"document-content", "body", "presentation"})
SHEETS = ROW_GROUPS | {"document-content", "body", "spreadsheet", "table"}
FURNITURE = frozenset({"page-number", "date-time", "footer", "header", "page"})
"""Classes of frames for dates, footers and numbers, which repeat on each slide."""
CELLS = frozenset({"table-cell", "covered-table-cell"})
SPACE = re.compile(r"[ \t\r\n]+")
MOST_SPACES = 100


def parse_odt(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a text document: headings, paragraphs, lists, tables, text boxes, notes and comments.

    Notes and comments follow the paragraph or table that refers to them. Tracked deletions and indexes, such as the
    table of contents, are left out. The document has no line and page numbers.
    """
    package = _open(file.data)
    builder = OutlineBuilder()
    parents: dict[str, str] = {}
    for piece in package.pieces(CONTENT, TEXT):
        if piece.tag == "style":
            parents[attribute(piece, "name")] = attribute(piece, "parent-style-name")
        elif piece.tag == "p" and "Title" in (name := attribute(piece, "style-name"), parents.get(name)):
            builder.add_heading(0, _inline(piece, builder))
        else:
            _add(builder, piece)
    builder.finish()
    properties = _properties(package, file.options)
    title = builder.title or properties.get("title")
    yield with_properties(ParsedDocument(builder.text, builder.blocks, title, page_numbers=()), properties)


def parse_odp(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a presentation. Each slide is a page with its title as heading. Notes and comments follow its text."""
    package = _open(file.data)
    builder = OutlineBuilder()
    for piece in package.pieces(CONTENT, SLIDES):
        if piece.tag == "page":
            builder.place += 1
            _add_slide(builder, piece)
    properties = _properties(package, file.options)
    document = ParsedDocument(builder.text, builder.blocks, properties.get("title"), page_numbers=builder.places)
    yield with_properties(document, properties)


def parse_ods(file: RawFile) -> Iterator[ParsedDocument]:
    """Read the sheets of a spreadsheet. Equal rows that follow each other, which the format joins, are read once."""
    yield from sheet_documents(_sheet_rows(_open(file.data)), file.options)


def _open(data: bytes) -> ZipPackage:
    package = ZipPackage(data, "OpenDocument file")
    if MANIFEST in package and any(True for _ in package.tree(MANIFEST).iter("encryption-data")):
        raise DocumentError("encrypted OpenDocument file")
    return package


def _properties(package: ZipPackage, options: ReadOptions) -> dict[str, str]:
    """Return the document properties. Broken properties are a warning."""
    if "meta.xml" not in package:
        return {}
    try:
        root = package.tree("meta.xml")
    except LimitExceededError:
        raise
    except DocumentError as error:
        options.warn(str(error))
        return {}
    return core_properties([root])


def _add(builder: OutlineBuilder, element: Element, indent: str = "") -> None:
    """Add a heading, paragraph, list, row, frame or group. Other elements, such as tracked changes, have no text."""
    tag = element.tag
    if tag == "h":
        builder.add_heading(whole_number(attribute(element, "outline-level"), 1), _inline(element, builder))
    elif tag == "p":
        text = _inline(element, builder).strip()
        builder.add_paragraph(f"{indent}{text}" if text else "")
    elif tag in ("list", "numbered-paragraph"):
        builder.end_table()
        for item in element:
            _add_all(builder, item, "- ")
    elif tag == "table":
        builder.end_table()
        for row in _rows(element):
            _add_row(builder, row)
        builder.end_table()
    elif tag == "table-row":
        _add_row(builder, element)
    elif tag == "annotation":
        builder.add_note(_plain(element), comment_label(_author(element)))
    elif tag in ("section", "text-box", "g", "frame", "custom-shape", "rect", "ellipse", "bibliography", "index-body"):
        _add_all(builder, element, indent)


def _add_all(builder: OutlineBuilder, element: Element, indent: str) -> None:
    for child in element:
        _add(builder, child, indent)


def _rows(table: Element) -> Iterator[Element]:
    """Yield the rows of a table, but not those of tables in its cells."""
    for child in table:
        if child.tag == "table-row":
            yield child
        elif child.tag in ROW_GROUPS:
            yield from _rows(child)


def _add_row(builder: OutlineBuilder, row: Element) -> None:
    builder.add_row(_inline(cell, builder) for cell in row if cell.tag in CELLS)


def _inline(element: Element, builder: OutlineBuilder | None = None) -> str:
    """Return the text of an element. Notes, comments and text boxes go to the builder, if there is one."""
    parts: list[str] = []
    _collect(element, parts, builder)
    return "".join(parts)


def _plain(element: Element) -> str:
    """Return the paragraphs of a note or comment."""
    return "\n".join(_inline(child) for child in element if child.tag in ("p", "list"))


def _author(annotation: Element) -> str:
    return annotation.findtext("creator", "")


def _collect(element: Element, parts: list[str], builder: OutlineBuilder | None) -> None:
    parts.append(SPACE.sub(" ", element.text or ""))
    for child in element:
        tag = child.tag
        if tag == "s":
            parts.append(" " * min(whole_number(attribute(child, "c"), 1), MOST_SPACES))
        elif tag == "tab":
            parts.append("\t")
        elif tag == "line-break":
            parts.append("\n")
        elif tag in ("note", "annotation", "text-box"):
            if builder is not None:
                _add_note(builder, child)
        elif tag not in ("ruby-text", "title", "desc", "annotation-end", "tracked-changes"):
            _collect(child, parts, builder)
            if tag in ("p", "h"):
                parts.append("\n")
        parts.append(SPACE.sub(" ", child.tail or ""))


def _add_note(builder: OutlineBuilder, element: Element) -> None:
    if element.tag == "annotation":
        builder.add_note(_plain(element), comment_label(_author(element)))
    elif element.tag == "note":
        for body in element.iter("note-body"):
            builder.add_note(_plain(body), "Note")
    else:
        builder.add_note(_inline(element))


def _add_slide(builder: OutlineBuilder, page: Element) -> None:
    builder.headings.leave(0)
    title = next((frame for frame in page.iter("frame") if attribute(frame, "class") == "title"), None)
    if title is not None:
        builder.add_heading(1, _shape_text(title))
    notes = []
    for shape in page:
        if shape.tag == "notes":
            notes.append(shape)
        elif shape is not title:
            _add_shape(builder, shape)
    for note in notes:
        for shape in note:
            if attribute(shape, "class") == "notes":
                _add_shape(builder, shape)
    builder.finish()


def _add_shape(builder: OutlineBuilder, shape: Element) -> None:
    """Add a table, or the text of a shape as one block."""
    if attribute(shape, "class") in FURNITURE:
        return
    if shape.tag in ("g", "a"):
        for child in shape:
            _add_shape(builder, child)
    elif shape.tag in ("annotation", "table"):
        _add(builder, shape)
    elif any(child.tag == "table" for child in shape):
        _add_all(builder, shape, "")
    else:
        builder.add_paragraph(_shape_text(shape))


def _shape_text(shape: Element) -> str:
    boxes = [child for child in shape if child.tag == "text-box"]
    return "\n".join(_inline(box) for box in boxes or [shape]).strip()


def _sheet_rows(package: ZipPackage) -> Iterator[SheetRow]:
    sheet, name, number = 0, "", 1
    for piece in package.pieces(CONTENT, SHEETS):
        if piece.tag == "table":
            sheet, name, number = sheet + 1, attribute(piece, "name"), 1
        elif piece.tag == "table-row":
            row = SheetRow(sheet, name, number)
            column = 0
            for cell in piece:
                if cell.tag in CELLS:
                    column = _add_cell(row, column, cell)
            yield row
            number += max(1, whole_number(attribute(piece, "number-rows-repeated"), 1))


def _add_cell(row: SheetRow, column: int, cell: Element) -> int:
    """Add a cell, which can stand for several equal ones, and return the column after it."""
    after = column + max(1, whole_number(attribute(cell, "number-columns-repeated"), 1))
    kind = attribute(cell, "value-type")
    text, is_number = _cell_text(cell, kind), kind in ("float", "percentage", "currency", "boolean")
    for annotation in cell.iter("annotation"):
        row.comments[column] = _plain(annotation)
    if text.strip():
        for at in range(column, min(after, MOST_COLUMNS)):
            row.add(at, text, is_number=is_number)
    return after


def _cell_text(cell: Element, kind: str) -> str:
    if kind in ("float", "percentage", "currency"):
        value = attribute(cell, "value")
        try:
            return number_text(float(value))
        except (ValueError, OverflowError):
            return value
    if kind == "boolean":
        return attribute(cell, "boolean-value").upper()
    if kind == "date":
        return attribute(cell, "date-value").replace("T", " ")
    return "\n".join(_inline(child) for child in cell if child.tag == "p")
