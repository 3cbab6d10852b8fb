"""Read Word and PowerPoint files (Office Open XML): docx and pptx.

The XML is read directly, because libraries for these formats leave out text boxes, content controls, notes and inserted
text, and hold a multiple of the file in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.package import ZipPackage, attribute, whole_number
from ragembed.documents.readers.properties import core_properties, with_properties
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.structure import LimitExceededError, OutlineBuilder, comment_label, one_line
from ragembed.errors import DocumentError

HEADING_STYLE = re.compile(r"heading (\d)\Z", re.IGNORECASE)
CONTENTS_STYLE = re.compile(r"toc \d\Z", re.IGNORECASE)
BODY = frozenset({"document", "body", "sdt", "sdtContent", "tbl", "customXml"})
"""Elements whose children are read one by one. In a table, that is its rows."""
DELETED = frozenset({"del", "moveFrom", "rPr", "pPr", "tcPr", "tblPr", "instrText", "delText", "Fallback", "rt"})
"""Elements without text that is shown: tracked deletions, properties, field codes, repeated content, pronunciation."""
BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
FURNITURE = frozenset({"dt", "ftr", "hdr", "sldNum", "sldImg"})
"""Placeholders for dates, footers and numbers, which repeat on each slide."""


def parse_docx(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Word file: headings (recognised by their style), paragraphs, tables, text boxes, notes and comments.

    Footnotes, endnotes and comments follow the paragraph or table that refers to them. Page headers and footers are at
    the end. Tracked deletions and tables of contents are left out. The document has no line and page numbers.
    """
    package = ZipPackage(file.data, "Word file")
    main = _main_part(package, "word/document.xml")
    word = _WordFile(package, main, file.options)
    builder = word.builder
    for piece in package.pieces(main, BODY):
        word.add(piece)
    builder.finish()
    word.add_headers_and_footers()
    properties = core_properties(_optional(package, package.related("", "core-properties"), file.options))
    title = builder.title or properties.get("title")
    yield with_properties(ParsedDocument(builder.text, builder.blocks, title, page_numbers=()), properties)


def parse_pptx(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a PowerPoint file. Each slide is a page with its title as heading. Notes and comments follow its text.

    A slide that cannot be read is skipped with a warning.
    """
    package = ZipPackage(file.data, "PowerPoint file")
    main = _main_part(package, "ppt/presentation.xml")
    relations = package.relations(main)
    slides = dict.fromkeys(  # a presentation names a slide once; repeated, it could fill the memory
        relations[key].target
        for entry in package.tree(main).iter("sldId")
        if (key := next((value for name, value in entry.items() if name.endswith("}id")), "")) in relations
    )
    parts = package.related(main, "commentAuthors") + package.related(main, "authors")
    authors = _optional(package, parts, file.options)
    names = {attribute(author, "id"): attribute(author, "name") for root in authors for author in root}
    builder = OutlineBuilder()
    broken: list[str] = []
    for number, slide in enumerate(slides, 1):
        builder.place = number
        try:
            _add_slide(builder, package, slide, names, file.options)
        except LimitExceededError:
            raise
        except DocumentError as error:
            broken.append(f"slide {number}: {error}")
    if broken and not builder.blocks:
        raise DocumentError(broken[0])
    if broken:
        file.options.warn(f"{len(broken)} slides cannot be read ({broken[0]})")
    properties = core_properties(_optional(package, package.related("", "core-properties"), file.options))
    if properties.get("title") == "PowerPoint Presentation":
        del properties["title"]
    document = ParsedDocument(builder.text, builder.blocks, properties.get("title"), page_numbers=builder.places)
    yield with_properties(document, properties)


def _main_part(package: ZipPackage, usual: str) -> str:
    return next(iter(package.related("", "officeDocument")), usual)


def _optional(package: ZipPackage, parts: list[str], options: ReadOptions) -> list[Element]:
    """Return the root elements of parts that the document can do without. A broken part is a warning."""
    roots = []
    for part in parts:
        try:
            roots.append(package.tree(part))
        except LimitExceededError:  # noqa: PERF203
            raise
        except DocumentError as error:
            options.warn(str(error))
    return roots


def _text(element: Element, found: Callable[[Element], bool] = lambda _: False) -> str:
    """Return the text of an element. ``found`` takes the elements that it returns true for out of the text."""
    parts: list[str] = []
    _collect(element, parts, found)
    return "".join(parts)


def _collect(element: Element, parts: list[str], found: Callable[[Element], bool]) -> None:
    for child in element:
        tag = child.tag
        if tag in DELETED or found(child):
            continue
        if tag == "t":
            parts.append(child.text or "")
        elif tag in BREAKS:
            parts.append(BREAKS[tag])
        else:
            _collect(child, parts, found)
            if tag in ("p", "tc"):
                parts.append("\n")


@dataclass(frozen=True, slots=True)
class _WordStyle:
    """What a paragraph style says about the role of its paragraphs."""

    name: str = ""
    level: int | None = None
    numbered: bool = False


NO_STYLE = _WordStyle()


@dataclass
class _WordFile:
    """The parts of a Word file, and the text that is built from them."""

    package: ZipPackage
    main: str
    options: ReadOptions
    builder: OutlineBuilder = field(default_factory=OutlineBuilder)

    def __post_init__(self) -> None:
        self._styles: dict[str, _WordStyle] = {}
        for root in self._related("styles"):
            self._styles = _word_styles(root)
        self._notes = {
            "footnoteReference": self._notes_of("footnotes"),
            "endnoteReference": self._notes_of("endnotes"),
        }
        self._comments = {
            attribute(comment, "id"): (comment_label(attribute(comment, "author")), _text(comment))
            for root in self._related("comments")
            for comment in root
        }
        self._above: dict[int, str] = {}

    def _related(self, kind: str) -> list[Element]:
        return _optional(self.package, self.package.related(self.main, kind), self.options)

    def _notes_of(self, kind: str) -> dict[str, str]:
        return {attribute(note, "id"): _text(note) for root in self._related(kind) for note in root}

    def add(self, piece: Element) -> None:
        """Add a paragraph or a row of a table, or begin a table."""
        if piece.tag == "p":
            self._add_paragraph(piece)
        elif piece.tag == "tr":
            self._add_row(piece)
        elif piece.tag == "tbl":
            self.builder.end_table()
            self._above = {}

    def add_headers_and_footers(self) -> None:
        """Add the text of page headers and footers, each once."""
        texts = [_text(root).strip() for kind in ("header", "footer") for root in self._related(kind)]
        for text in dict.fromkeys(texts):
            if any(letter.isalpha() for letter in text):
                self.builder.headings.leave(0)
                self.builder.add_paragraph(text)

    def _add_paragraph(self, paragraph: Element) -> None:
        if not len(paragraph):
            return
        boxes: list[Element] = []
        text = _text(paragraph, lambda child: self._refers(child, boxes))
        style = self._style(paragraph)
        if CONTENTS_STYLE.match(style.name):
            text = ""
        if style.level is not None and text.strip():
            self.builder.add_heading(style.level, text)
        else:
            listed = style.name.startswith("List") or style.numbered
            text = text.strip()
            self.builder.add_paragraph(f"- {text}" if listed and text else text)
        for box in boxes:
            for piece in box:
                self._add_boxed(piece)

    def _add_boxed(self, piece: Element) -> None:
        """Add a paragraph or table of a text box."""
        if piece.tag == "tbl":
            self.add(piece)
            for row in _children(piece, "tr"):
                self.add(row)
        else:
            self.add(piece)

    def _refers(self, child: Element, boxes: list[Element]) -> bool:
        """Return whether an element is a reference to a note, or a text box. It is kept for later."""
        if child.tag in self._notes:
            self.builder.add_note(self._notes[child.tag].get(attribute(child, "id"), ""), "Note")
        elif child.tag == "commentReference":
            label, text = self._comments.get(attribute(child, "id"), ("", ""))
            self.builder.add_note(text, label)
        elif child.tag == "txbxContent":
            boxes.append(child)
        else:
            return False
        return True

    def _style(self, paragraph: Element) -> _WordStyle:
        properties = paragraph.find("pPr")
        if properties is None:
            return self._styles.get("", NO_STYLE)
        named = properties.find("pStyle")
        style = self._styles.get("" if named is None else attribute(named, "val"), NO_STYLE)
        return _with_properties(style, properties)

    def _add_row(self, row: Element) -> None:
        """Add a row of a table. A vertically merged cell is repeated in each of its rows."""
        boxes: list[Element] = []
        properties = row.find("trPr")
        if properties is not None and properties.find("del") is not None:
            return
        column = _value_of(properties, "gridBefore", 0)
        current: dict[int, str] = {}
        for cell in _children(row, "tc"):
            own = cell.find("tcPr")
            merged = None if own is None else own.find("vMerge")
            continued = merged is not None and attribute(merged, "val", "continue") == "continue"
            text = self._above[column] if continued and column in self._above else ""
            current[column] = text or _text(cell, lambda child: self._refers(child, boxes))
            column += _value_of(own, "gridSpan", 1)
        self.builder.add_row(current.values())
        for box in boxes:
            self.builder.add_note(_text(box))
        self._above = current


def _children(element: Element, tag: str) -> Iterator[Element]:
    """Yield the children with this tag, also those inside content controls."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in ("sdt", "sdtContent", "customXml"):
            yield from _children(child, tag)


def _value_of(properties: Element | None, name: str, default: int) -> int:
    found = None if properties is None else properties.find(name)
    return default if found is None else whole_number(attribute(found, "val"), default)


def _word_styles(root: Element) -> dict[str, _WordStyle]:
    """Return the paragraph styles by id, and the default one under an empty id. A style inherits from its base."""
    elements = {attribute(style, "styleId"): style for style in root.iter("style")}
    styles: dict[str, _WordStyle] = {}
    for identifier in elements:
        chain: dict[str, None] = {}
        current = identifier
        while current in elements and current not in styles and current not in chain:
            chain[current] = None
            base = elements[current].find("basedOn")
            current = "" if base is None else attribute(base, "val")
        style = styles.get(current, NO_STYLE)
        for link in reversed(chain):
            style = styles[link] = _own_style(elements[link], style)
    for identifier, element in elements.items():
        if attribute(element, "type") == "paragraph" and attribute(element, "default") in ("1", "true"):
            styles.setdefault("", styles[identifier])
    return styles


def _own_style(element: Element, base: _WordStyle) -> _WordStyle:
    named = element.find("name")
    name = "" if named is None else attribute(named, "val")
    heading = HEADING_STYLE.match(name)
    level = base.level
    if heading:
        level = int(heading[1])
    elif name == "Title":
        level = 0
    properties = element.find("pPr")
    style = _WordStyle(name, level, base.numbered)
    return style if properties is None or heading or name == "Title" else _with_properties(style, properties)


def _with_properties(style: _WordStyle, properties: Element) -> _WordStyle:
    """Apply the outline level and the numbering of a paragraph or style."""
    level = style.level
    outline = _value_of(properties, "outlineLvl", -1)
    if outline >= 0:
        level = outline + 1 if outline < 9 else None
    numbering = properties.find("numPr")
    numbered = style.numbered if numbering is None else _value_of(numbering, "numId", 1) != 0
    return _WordStyle(style.name, level, numbered)


def _add_slide(
    builder: OutlineBuilder, package: ZipPackage, part: str, authors: dict[str, str], options: ReadOptions
) -> None:
    root = package.tree(part)
    shapes = [shape for tree in root.iter("spTree") for shape in _shapes(tree)]
    titles = [shape for shape in shapes if _placeholder(shape) in ("title", "ctrTitle")]
    title = one_line(_frame_text(titles[0])) if titles else ""
    builder.headings.leave(0)
    if title:
        builder.add_heading(1, title)
    relations = package.relations(part)
    for shape in shapes:
        if shape in titles[:1] or _placeholder(shape) in FURNITURE:
            continue
        if shape.tag == "graphicFrame":
            _add_frame(builder, package, shape, relations={key: found.target for key, found in relations.items()})
        else:
            builder.add_paragraph(_frame_text(shape))
    kinds: dict[str, list[str]] = {}
    for relation in relations.values():
        if relation.target in package:
            kinds.setdefault(relation.kind, []).append(relation.target)
    for notes in _optional(package, kinds.get("notesSlide", []), options):
        for shape in (shape for tree in notes.iter("spTree") for shape in _shapes(tree)):
            if _placeholder(shape) == "body":
                builder.add_paragraph(_frame_text(shape))
    for comments in _optional(package, kinds.get("comments", []), options):
        for comment in comments.iter("cm"):
            text = comment.find("text")
            builder.add_note(
                _text(comment) if text is None else text.text or "",
                comment_label(authors.get(attribute(comment, "authorId"), "")),
            )
    builder.finish()


def _add_frame(builder: OutlineBuilder, package: ZipPackage, frame: Element, relations: dict[str, str]) -> None:
    """Add a table, or the text of a diagram (SmartArt) or chart."""
    table = next(frame.iter("tbl"), None)
    if table is not None:
        builder.end_table()
        for row in _children(table, "tr"):
            builder.add_row(_text(cell) for cell in _children(row, "tc"))
        builder.end_table()
    for element in frame.iter():
        key = {"relIds": "dm", "chart": "id"}.get(element.tag)
        part = relations.get(attribute(element, key), "") if key else ""
        if part in package:
            builder.add_paragraph(_text(package.tree(part)).strip())


def _shapes(tree: Element) -> Iterator[Element]:
    """Yield the shapes of a slide, also those in groups."""
    for shape in tree:
        if shape.tag in ("sp", "graphicFrame"):
            yield shape
        elif shape.tag in ("grpSp", "AlternateContent", "Choice"):
            yield from _shapes(shape)


def _placeholder(shape: Element) -> str:
    """Return the type of the placeholder that a shape fills, or an empty string."""
    for found in shape.iter("ph"):
        return attribute(found, "type", "obj")
    return ""


def _frame_text(shape: Element) -> str:
    return "\n".join(_text(paragraph) for body in shape.iter("txBody") for paragraph in body if paragraph.tag == "p")
