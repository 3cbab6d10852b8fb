"""Read Word files (Office Open XML): docx. Libraries for this format leave out text boxes, controls and notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import rtf
from ragembed.documents.readers.numbering import WordLists
from ragembed.documents.readers.ooxml import (
    NAMESPACES,
    graphic_texts,
    is_on,
    main_part,
    optional,
    properties_of,
    text_of,
)
from ragembed.documents.readers.package import ZipPackage, attribute, value_of, whole_number
from ragembed.documents.readers.properties import with_properties
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.registry import named_reader
from ragembed.documents.readers.structure import LimitExceededError, OutlineBuilder, comment_label
from ragembed.errors import DocumentError

HEADING_STYLE = re.compile(r"heading (\d)\Z", re.IGNORECASE)
CONTENTS_STYLE = re.compile(r"toc \d\Z", re.IGNORECASE)
CONTROLS = frozenset({"sdt", "sdtContent", "customXml"})
BODY = CONTROLS | {"document", "body", "tbl"}
"""Elements whose children are read one by one. In a table, that is its rows."""


def parse_docx(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Word file. Notes and charts follow the paragraph that refers to them; page headers are at the end."""
    yield _document(ZipPackage(file.data, "Word file", NAMESPACES), file.options)


def _document(package: ZipPackage, options: ReadOptions) -> ParsedDocument:
    main = main_part(package, "word/document.xml")
    word = _WordFile(package, main, options)
    builder = word.builder
    for piece in package.pieces(main, BODY):
        word.add(piece)
    builder.finish()
    word.add_headers_and_footers()
    properties = properties_of(package, options)
    return with_properties(builder.paged(properties.get("title")), properties)


@dataclass(frozen=True, slots=True)
class _WordStyle:
    """What a paragraph style says about the role of its paragraphs. ``list_level`` is -1 if the list says it.

    ``chain`` has the ids of the style and of those that it inherits from. The text of characters can be hidden, too.
    """

    name: str = ""
    level: int | None = None
    list_name: str = ""
    list_level: int = -1
    chain: tuple[str, ...] = ()
    is_hidden: bool = False


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
        self._lists = WordLists(self._related("numbering"))
        self._notes = {
            "footnoteReference": self._notes_of("footnotes"),
            "endnoteReference": self._notes_of("endnotes"),
        }
        self._comments = {
            attribute(comment, "id"): (comment_label(attribute(comment, "author")), text_of(comment))
            for root in self._related("comments")
            for comment in root
        }
        self._above: dict[int, str] = {}
        self._boxes: list[Element] = []

    def _related(self, kind: str) -> list[Element]:
        return optional(self.package, self.package.related(self.main, kind), self.options)

    def _notes_of(self, kind: str) -> dict[str, str]:
        return {attribute(note, "id"): text_of(note) for root in self._related(kind) for note in root}

    def add(self, piece: Element) -> None:
        """Add a paragraph, a row of a table or an imported file, or begin a table."""
        tag = piece.tag
        if tag == "p":
            self._add_paragraph(piece)
        elif tag == "tr":
            self._add_row(piece)
        elif tag == "tbl":
            self.builder.end_table()
            self._above = {}
        elif tag == "altChunk":
            self._add_import(attribute(piece, "id"))
        elif tag in ("m-oMathPara", "m-oMath"):
            wrapper = Element("p")
            wrapper.append(piece)
            self.builder.add_paragraph(text_of(wrapper).strip())

    def add_headers_and_footers(self) -> None:
        """Add the text of page headers and footers, each once."""
        texts = [text_of(root).strip() for kind in ("header", "footer") for root in self._related(kind)]
        for text in dict.fromkeys(texts):
            if any(letter.isalpha() for letter in text):
                self.builder.headings.leave(0)
                self.builder.add_paragraph(text)

    def _add_paragraph(self, paragraph: Element) -> None:
        if not len(paragraph):
            return
        text = text_of(paragraph, self._replaced).strip()
        boxes, self._boxes = self._boxes, []
        style = self._style(paragraph)
        if CONTENTS_STYLE.match(style.name) or style.is_hidden:
            text = ""
        label = self._label(style, paragraph)
        if style.level is not None and text:
            self.builder.add_heading(style.level, label.removeprefix("- ") + text)
        else:
            self.builder.add_paragraph(label + text if text else "")
        for box in boxes:
            self._add_box(box)

    def _label(self, style: _WordStyle, paragraph: Element) -> str:
        """Return the number of a paragraph or a dash, if it is an item of a list."""
        if not style.list_name:
            return "- " if style.name.startswith("List") and style.name != "List Paragraph" else ""
        if paragraph.find("pPr/rPr/del") is not None:
            return ""
        level = style.list_level
        return self._lists.label(
            style.list_name, level if level >= 0 else self._lists.level_of(style.list_name, style.chain)
        )

    def _add_box(self, box: Element) -> None:
        """Add the paragraphs and tables of a text box."""
        for piece in _children(box, "p", "tbl", "altChunk"):
            self.add(piece)
            if piece.tag == "tbl":
                for row in _children(piece, "tr"):
                    self.add(row)
                self.builder.end_table()

    def _add_import(self, relation: str) -> None:
        """Add a file in another format that Word shows as part of the document (altChunk)."""
        target = self.package.relations(self.main).get(relation)
        if target is None or target.target not in self.package:
            return
        name = target.target
        data = self.package.read(name)
        try:
            if data.startswith(b"PK") and self.package.outer is None:
                inner = ZipPackage(data, self.package.kind, NAMESPACES, outer=self.package)
                self.builder.add_document(_document(inner, self.options))
                return
            reader = named_reader("a.rtf" if data.startswith(rtf.MAGIC) else name)
            if reader is None or data.startswith(b"PK"):
                raise DocumentError("expected a file in HTML, RTF or plain text")
            for document in reader.parse(RawFile(name, data, self.options)):
                if isinstance(document, ParsedDocument):
                    self.builder.add_document(document)
        except LimitExceededError:
            raise
        except DocumentError as error:
            self.options.warn(f"the imported part {name!r} is not read: {error}")

    def _replaced(self, child: Element) -> str | None:
        """Return the text that stands for an element. Notes, boxes and graphics are kept for later."""
        tag = child.tag
        if tag in self._notes:
            self.builder.add_note(self._notes[tag].get(attribute(child, "id"), ""), "Note")
        elif tag == "commentReference":
            label, text = self._comments.get(attribute(child, "id"), ("", ""))
            self.builder.add_note(text, label)
        elif tag == "txbxContent":
            self._boxes.append(child)
        elif tag in ("drawing", "pict", "object"):
            for text in graphic_texts(child, self.package, self.main, self.options):
                self.builder.add_note(text)
            return None
        elif tag == "r":
            style = self._styles.get(value_of(child.find("rPr"), "rStyle"), NO_STYLE)
            return "" if style.is_hidden else None
        elif tag == "p":  # in a cell
            text = text_of(child, self._replaced)
            return f"{self._label(self._style(child), child)}{text}\n"
        else:
            return None
        return ""

    def _style(self, paragraph: Element) -> _WordStyle:
        properties = paragraph.find("pPr")
        if properties is None:
            return self._styles.get("", NO_STYLE)
        style = self._styles.get(value_of(properties, "pStyle"), NO_STYLE)
        return _with_properties(style, properties)

    def _add_row(self, row: Element) -> None:
        """Add a row of a table. A vertically merged cell is repeated in each of its rows."""
        properties = row.find("trPr")
        if properties is not None and properties.find("del") is not None:
            return
        column = whole_number(value_of(properties, "gridBefore"))
        current: dict[int, str] = {}
        for cell in _children(row, "tc"):
            own = cell.find("tcPr")
            merged = None if own is None else own.find("vMerge")
            continued = merged is not None and attribute(merged, "val", "continue") == "continue"
            text = self._above[column] if continued and column in self._above else ""
            current[column] = text or text_of(cell, self._replaced)
            column += whole_number(value_of(own, "gridSpan"), 1)
        boxes, self._boxes = self._boxes, []
        self.builder.add_row(current.values())
        for box in boxes:
            self.builder.add_note(text_of(box, self._replaced))
        self._above = current


def _children(element: Element, *tags: str) -> Iterator[Element]:
    """Yield the children with these tags, also those inside content controls."""
    for child in element:
        if child.tag in tags:
            yield child
        elif child.tag in CONTROLS:
            yield from _children(child, *tags)


def _word_styles(root: Element) -> dict[str, _WordStyle]:
    """Return the paragraph styles by id, and the default one under an empty id. A style inherits from its base."""
    elements = {attribute(style, "styleId"): style for style in root.iter("style")}
    styles: dict[str, _WordStyle] = {}
    for identifier in elements:
        chain: dict[str, None] = {}
        current = identifier
        while current in elements and current not in styles and current not in chain:
            chain[current] = None
            current = value_of(elements[current], "basedOn")
        style = styles.get(current, NO_STYLE)
        for link in reversed(chain):
            style = styles[link] = _own_style(elements[link], style)
    for identifier, element in elements.items():
        if attribute(element, "type") == "paragraph" and attribute(element, "default") in ("1", "true"):
            styles.setdefault("", styles[identifier])
    return styles


def _own_style(element: Element, base: _WordStyle) -> _WordStyle:
    name = value_of(element, "name")
    heading = HEADING_STYLE.match(name)
    level = int(heading[1]) if heading else 0 if name == "Title" else base.level or None
    style = replace(base, name=name, level=level, chain=(attribute(element, "styleId"), *base.chain))
    characters = element.find("rPr")
    if characters is not None and characters.find("vanish") is not None:
        style = replace(style, is_hidden=is_on(characters, "vanish"))
    properties = element.find("pPr")
    if properties is None:
        return style
    style = _with_properties(style, properties)
    return replace(style, level=level) if heading or name == "Title" else style


def _with_properties(style: _WordStyle, properties: Element) -> _WordStyle:
    """Apply the outline level and the numbering of a paragraph or style."""
    outline = whole_number(value_of(properties, "outlineLvl"), -1)
    if outline >= 0:
        style = replace(style, level=outline + 1 if outline < 9 else None)
    numbering = properties.find("numPr")
    if numbering is None:
        return style
    name = value_of(numbering, "numId", style.list_name)
    level = whole_number(value_of(numbering, "ilvl"), style.list_level)
    return replace(style, list_name="" if name == "0" else name, list_level=level)
