"""Read OpenDocument files: odt, odp and ods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, formula, scripts
from ragembed.documents.readers.numbering import Counters, ListLevel
from ragembed.documents.readers.ooxml import optional, picture_text
from ragembed.documents.readers.package import ZipPackage, attribute, whole_number
from ragembed.documents.readers.properties import core_properties, with_metadata, with_properties
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.spreadsheet import MOST_COLUMNS, SheetRow, sheet_documents, shown_number
from ragembed.documents.readers.structure import OutlineBuilder, Spans, comment_label, one_line
from ragembed.errors import DocumentError

CONTENT = "content.xml"
MANIFEST = "META-INF/manifest.xml"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
NAMESPACES = {
    **{
        _OASIS.format(name): ""
        for name in ("office", "text", "table", "drawing", "presentation", "style", "manifest", "meta")
    },
    "http://openoffice.org/2009/office": "",
    _OASIS.format("svg-compatible"): "svg-",
    _OASIS.format("chart"): "chart-",
    "http://purl.org/dc/elements/1.1/": "",
    "http://www.w3.org/1998/Math/MathML": "math-",
}
ROW_GROUPS = frozenset({"table-rows", "table-row-group"})
ROOT = frozenset({"document-content", "document-styles", "automatic-styles", "styles", "body"})
TEXT = ROW_GROUPS | ROOT | {"text", "section", "table"}
"""Elements whose children are read one by one."""
SLIDES = ROOT | {"presentation"}
SHEETS = ROW_GROUPS | ROOT | {"table-header-rows", "spreadsheet", "table"}
FURNITURE = frozenset({"page-number", "date-time", "footer", "header", "page"})
"""Classes of frames for dates, footers and numbers, which repeat on each slide."""
CELLS = frozenset({"table-cell", "covered-table-cell"})
SHAPES = frozenset({"frame", "custom-shape", "rect", "ellipse", "polygon", "path", "line", "connector", "caption"})
BREAKS = {"s": " ", "tab": "\t", "line-break": "\n"}
UNSEEN = frozenset({"object", "ruby-text", "svg-title", "svg-desc", "annotation-end", "tracked-changes"})
SPACE = re.compile(r"[ \t\r\n]+")
MOST_SPACES = 100


def parse_odt(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a text document. Notes and comments follow the paragraph or table that refers to them."""
    reading = _OpenDocument(file)
    builder = reading.builder
    for piece in reading.pieces(TEXT):
        if piece.tag == "p" and "Title" in (name := attribute(piece, "style-name"), reading.parents.get(name)):
            builder.add_heading(0, reading.inline(piece))
        elif piece.tag == "table":
            reading.begin_table()
        else:
            reading.add(piece)
    builder.finish()
    yield reading.document()


def parse_odp(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a presentation. Each slide is a page with its title as heading. Notes and comments follow its text."""
    reading = _OpenDocument(file)
    builder = reading.builder
    for piece in reading.pieces(SLIDES):
        if piece.tag == "page":
            builder.place += 1
            reading.add_slide(piece)
    yield reading.document(builder.first_heading)


def parse_ods(file: RawFile) -> Iterator[ParsedDocument]:
    """Read the sheets of a spreadsheet. Equal rows that follow each other, which the format joins, are read once."""
    reading = _OpenDocument(file)
    yield from with_metadata(sheet_documents(_sheet_rows(reading), file.options), reading.properties())


class _OpenDocument:
    """The parts of a file, its styles, and the text that is built from them."""

    def __init__(self, file: RawFile) -> None:
        self.package = ZipPackage(file.data, "OpenDocument file", NAMESPACES)
        if MANIFEST in self.package and any(True for _ in self.package.tree(MANIFEST).iter("encryption-data")):
            raise DocumentError("encrypted OpenDocument file")
        self.builder = OutlineBuilder()
        self.parents: dict[str, str] = {}
        self.hidden_tables: set[str] = set()
        self._options = file.options
        self._marks: dict[str, str] = {}
        self._levels: dict[str, dict[int, ListLevel]] = {}
        self._lists: dict[str, Counters] = {}
        self._outline = Counters({})
        self._spans = Spans()
        for root in self._optional("styles.xml"):
            for group in root:
                if group.tag in ("styles", "automatic-styles"):
                    for style in group:
                        self._add_style(style)

    def _optional(self, part: str) -> list[Element]:
        return optional(self.package, [part] if part in self.package else [], self._options)

    def pieces(self, containers: Iterable[str]) -> Iterator[Element]:
        """Yield the pieces of the content, apart from its styles."""
        for piece in self.package.pieces(CONTENT, frozenset(containers)):
            if piece.tag in ("style", "list-style"):
                self._add_style(piece)
            else:
                yield piece

    def _add_style(self, style: Element) -> None:
        name = attribute(style, "name")
        if style.tag == "style":
            self.parents[name] = attribute(style, "parent-style-name")
            for properties in style:
                position = attribute(properties, "text-position").split(" ")[0]
                if position and position not in ("0%", "0"):
                    self._marks[name] = LOWERED if position == "sub" or position.startswith("-") else RAISED
                if properties.tag == "table-properties" and attribute(properties, "display") == "false":
                    self.hidden_tables.add(name)
        elif style.tag == "list-style":
            self._levels[name] = dict(map(_list_level, style))
        elif style.tag == "outline-style":
            self._outline = Counters(dict(map(_list_level, style)))

    def properties(self) -> dict[str, str]:
        """Return the document properties. Broken properties are a warning."""
        return core_properties(self._optional("meta.xml"))

    def document(self, title: str = "") -> ParsedDocument:
        """Return the text that was built, with the properties; ``title`` is its title if they have none."""
        properties = self.properties()
        return with_properties(self.builder.paged(properties.get("title") or title), properties)

    def add(self, element: Element, label: str = "") -> None:
        """Add a heading, paragraph, list, row, shape or group. Other elements have no text, such as tracked changes."""
        tag = element.tag
        if tag == "h":
            self._add_heading(element, label)
        elif tag == "p":
            text = self.inline(element).strip()
            self.builder.add_paragraph(f"{label}{text}" if text else "")
        elif tag in ("list", "numbered-paragraph"):
            self._add_list(element)
        elif tag in ("table", "table-header-rows"):
            if tag == "table":
                self.begin_table()
            for row, is_header in _rows(element, tag == "table-header-rows"):
                self._add_row(row, is_header)
        elif tag == "table-row":
            self._add_row(element)
        elif tag == "annotation":
            self.builder.add_note(self.plain(element), comment_label(element.findtext("creator", "")))
        elif tag in ("section", "text-box", "g", "bibliography", "index-body") or tag in SHAPES:
            self._add_objects(element)
            for child in element:
                self.add(child)

    def begin_table(self) -> None:
        """End the current table and begin another one."""
        self.builder.end_table()
        self._spans = Spans()

    def _add_heading(self, element: Element, label: str) -> None:
        level = whole_number(attribute(element, "outline-level"), 1)
        if not label and attribute(element, "is-list-header") != "true" and level - 1 in self._outline.levels:
            start = whole_number(attribute(element, "start-value"), -1)
            restarts = attribute(element, "restart-numbering") == "true" and start >= 0
            label = self._outline.label(level - 1, start if restarts else None)
        text = self.inline(element).strip()
        self.builder.add_heading(level, label.removeprefix("- ") + text if text else "")

    def _add_list(self, element: Element, counters: Counters | None = None, level: int = 0) -> None:
        """Add the items of a list with their numbers. A list can continue the one before it."""
        self.builder.end_table()
        if counters is None:
            style = attribute(element, "style-name")
            above = attribute(element, "continue-list")
            key = above if above in self._lists else style
            if key not in self._lists or not (above or attribute(element, "continue-numbering") == "true"):
                self._lists[style] = Counters(self._levels.get(style, {}))
                key = style
            counters = self._lists[attribute(element, "id")] = self._lists[style] = self._lists[key]
        for item in [element] if element.tag == "numbered-paragraph" else element:
            is_labelled = item.tag == "list-header"
            for child in item:
                if child.tag == "list":
                    self._add_list(child, counters, level + 1)
                    continue
                label = ""
                if not is_labelled and child.tag in ("p", "h"):
                    start = attribute(item, "start-value")
                    label = counters.label(level, whole_number(start) if start else None)
                    is_labelled = True
                self.add(child, label)

    def _add_row(self, row: Element, is_header: bool = False) -> None:
        cells = [
            (
                self.inline(cell),
                whole_number(attribute(cell, "number-columns-spanned"), 1),
                whole_number(attribute(cell, "number-rows-spanned"), 1),
            )
            for cell in row
            if cell.tag == "table-cell"
        ]
        self.builder.add_row(self._spans.row(cells, is_header=is_header))

    def _add_objects(self, shape: Element) -> None:
        """Add the alternative text of a shape and the chart in it, after the next paragraph."""
        if alternative := picture_text(shape.findtext("svg-desc", "") or shape.findtext("svg-title", "")):
            self.builder.add_note(alternative)
        for root in self._objects(shape):
            if root.tag != "math-math":
                self.builder.add_note("\n".join(self._chart_lines(root)))

    def _objects(self, shape: Element) -> Iterator[Element]:
        """Yield the roots of the formulas and charts in a shape."""
        for child in shape:
            if child.tag == "object":
                part = f"{attribute(child, 'href').removeprefix('./').rstrip('/')}/{CONTENT}"
                yield from self._optional(part)
                yield from child.iterfind("math-math")

    def _chart_lines(self, root: Element) -> Iterator[str]:
        for kind in ("chart-title", "chart-subtitle"):
            for title in root.iter(kind):
                yield one_line(self.plain(title))
        for table in root.iter("table"):
            for row, _ in _rows(table):
                cells = [one_line(self.plain(cell)) for cell in row if cell.tag in CELLS]
                yield " | ".join(cells).strip(" |")

    def inline(self, element: Element, keeps_notes: bool = True) -> str:
        """Return the text of an element. Its notes, comments, text boxes and charts go to the builder, or nowhere."""
        parts: list[str] = []
        self._collect(element, parts, keeps_notes)
        return scripts("".join(parts))

    def plain(self, element: Element) -> str:
        """Return the paragraphs of a note or comment."""
        return "\n".join(self.inline(child, keeps_notes=False) for child in element if child.tag in ("p", "list"))

    def _collect(self, element: Element, parts: list[str], keeps_notes: bool) -> None:
        parts.append(SPACE.sub(" ", element.text or ""))
        for child in element:
            tag = child.tag
            if tag in BREAKS:
                parts.append(BREAKS[tag] * min(whole_number(attribute(child, "c"), 1), MOST_SPACES))
            elif tag in ("note", "annotation", "text-box"):
                if keeps_notes:
                    self._add_note(child)
            elif tag not in UNSEEN:
                if tag in SHAPES:
                    parts += [f" {formula(root)} " for root in self._objects(child) if root.tag == "math-math"]
                    if keeps_notes:
                        self._add_objects(child)
                mark = self._marks.get(attribute(child, "style-name"), "") if tag == "span" else ""
                parts.append(mark)
                self._collect(child, parts, keeps_notes)
                parts.append(LEVEL if mark else "\n" if tag in ("p", "h") else "")
            parts.append(SPACE.sub(" ", child.tail or ""))

    def _add_note(self, element: Element) -> None:
        if element.tag == "annotation":
            self.add(element)
        elif element.tag == "note":
            for body in element.iter("note-body"):
                self.builder.add_note(self.plain(body), "Note")
        else:
            self.builder.add_note(self.inline(element))

    def add_slide(self, page: Element) -> None:
        """Add the title, the shapes and the notes of a slide."""
        self.builder.headings.leave(0)
        title = next((frame for frame in page.iter("frame") if attribute(frame, "class") == "title"), None)
        if title is not None:
            self.builder.add_heading(1, self._shape_text(title))
        for shape in page:
            if shape is not title and shape.tag != "notes":
                self.add_shape(shape)
        for shape in page.iterfind("notes/"):
            if attribute(shape, "class") == "notes":
                self.add_shape(shape)
        self.builder.finish()

    def add_shape(self, shape: Element) -> None:
        """Add a table, or the text of a shape as one block."""
        if attribute(shape, "class") in FURNITURE:
            return
        if shape.tag in ("g", "a"):
            for child in shape:
                self.add_shape(child)
        elif shape.tag in ("annotation", "table"):
            self.add(shape)
        elif any(child.tag == "table" for child in shape):
            for child in shape:
                self.add(child)
            self.builder.end_table()
        else:
            self._add_objects(shape)
            self.builder.add_paragraph(self._shape_text(shape))

    def _shape_text(self, shape: Element) -> str:
        boxes = [child for child in shape if child.tag == "text-box"]
        formulas = [formula(root) for root in self._objects(shape) if root.tag == "math-math"]
        return "\n".join([*formulas, *(self.inline(box) for box in boxes or [shape])]).strip()


def _list_level(element: Element) -> tuple[int, ListLevel]:
    level = whole_number(attribute(element, "level"), 1)
    if not element.tag.endswith(("number", "outline-level-style")):
        return level - 1, ListLevel("bullet")
    kind = attribute(element, "num-format")
    shown = max(1, min(whole_number(attribute(element, "display-levels"), 1), level))
    numbers = ".".join(f"%{at}" for at in range(level - shown + 1, level + 1)) if kind else ""
    text = f"{attribute(element, 'num-prefix')}{numbers}{attribute(element, 'num-suffix')}"
    return level - 1, ListLevel(kind, text, whole_number(attribute(element, "start-value"), 1))


def _rows(table: Element, is_header: bool = False) -> Iterator[tuple[Element, bool]]:
    """Yield the rows of a table, but not those of tables in its cells, and whether they are its header."""
    for child in table:
        if child.tag == "table-row":
            yield child, is_header
        elif child.tag in ROW_GROUPS or child.tag == "table-header-rows":
            yield from _rows(child, is_header or child.tag == "table-header-rows")


def _sheet_rows(reading: _OpenDocument) -> Iterator[SheetRow]:
    sheet, name, number = 0, "", 1
    for piece in reading.pieces(SHEETS):
        if piece.tag == "table":
            hidden = " (hidden sheet)" if attribute(piece, "style-name") in reading.hidden_tables else ""
            sheet, name, number = sheet + 1, attribute(piece, "name") + hidden, 1
        elif piece.tag == "shapes":
            yield SheetRow(sheet, name, number, drawings=_drawings(reading, piece))
        elif piece.tag == "table-row":
            row = SheetRow(sheet, name, number)
            column = 0
            for cell in piece:
                if cell.tag in CELLS:
                    column = _add_cell(reading, row, column, cell)
            yield row
            number += max(1, whole_number(attribute(piece, "number-rows-repeated"), 1))


def _drawings(reading: _OpenDocument, element: Element) -> tuple[str, ...]:
    """Return the texts of the shapes in a sheet or cell."""
    if not len(element):
        return ()
    reading.builder = OutlineBuilder()
    for shape in element:
        if shape.tag in SHAPES or shape.tag == "g":
            reading.add_shape(shape)
    return tuple(reading.builder.text[block.start : block.end] for block in reading.builder.blocks)


def _add_cell(reading: _OpenDocument, row: SheetRow, column: int, cell: Element) -> int:
    """Add a cell, which can stand for several equal ones, and return the column after it."""
    after = column + max(1, whole_number(attribute(cell, "number-columns-repeated"), 1))
    kind = attribute(cell, "value-type")
    if not kind and not len(cell):
        return after
    text, is_number = _cell_text(reading, cell, kind), kind in ("float", "percentage", "currency", "boolean")
    for annotation in cell.iter("annotation"):
        row.comments[column] = reading.plain(annotation)
    row.drawings += _drawings(reading, cell)
    if text.strip():
        for at in range(column, min(after, MOST_COLUMNS)):
            row.add(at, text, is_number=is_number)
    rows, columns = (whole_number(attribute(cell, f"number-{side}-spanned"), 1) for side in ("rows", "columns"))
    if rows > 1 or columns > 1:
        row.merged += ((row.number, row.number + rows - 1, column, column + columns - 1),)
    return after


def _cell_text(reading: _OpenDocument, cell: Element, kind: str) -> str:
    shown = "\n".join(reading.inline(child, keeps_notes=False) for child in cell if child.tag == "p")
    if kind in ("float", "percentage", "currency"):
        if re.fullmatch("0[0-9]+", shown):
            return shown
        return shown_number(attribute(cell, "value"), "0%" if kind == "percentage" else "")
    if kind == "boolean":
        return attribute(cell, "boolean-value").upper()
    if kind == "date":
        return attribute(cell, "date-value").replace("T", " ")
    return shown
