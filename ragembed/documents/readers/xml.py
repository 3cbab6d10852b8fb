"""Read XML: documents such as DocBook, JATS and TEI by their structure, other files as an outline of their elements.

Namespaces are ignored. Nothing outside the file is read. Entities that the file declares are replaced only by plain
text, so they cannot grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.entities import html5
from xml.parsers import expat

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import html, source
from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, FormulaBuilder
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import Paragraphs, add_to_listing, indent, one_line
from ragembed.errors import DocumentError

DEEPEST = 500
MOST_PARTS = 500_000
"""Maximum number of elements and references. A file with more is data, and is read as plain text."""
BUFFER_CHARACTERS = 1 << 16
LONGEST_ENTITY, MOST_ENTITY_CHARACTERS = 1_000, 1_000_000
"""Longest entity that is replaced by its text, and maximum number of characters that entities add to a file."""
HTML_ROOT = re.compile(r"<html[\s>]", re.IGNORECASE)
REFERENCE = re.compile(r"&(\w[\w.-]*);")
TAG_START = re.compile(r"<[A-Za-z_]")

DOCUMENT_ROOTS = frozenset((
    "book", "article", "part", "chapter", "appendix", "preface", "glossary", "reference", "refentry", "refsection",
    "section", "sect1", "sect2", "set", "qandaset", "book-part-wrapper", "TEI", "TEI.2", "teiCorpus", "topic",
    "concept", "task", "dita", "page", "guide",
))  # fmt: skip
"""Root elements of DocBook, JATS, TEI, DITA and Mallard."""
SECTIONS = DOCUMENT_ROOTS | {
    "sect3", "sect4", "sect5", "simplesect", "refsect1", "refsect2", "refsect3", "bibliography", "index", "colophon",
    "dedication", "sec", "abstract", "trans-abstract", "ack", "app", "ref-list", "book-part", "sub-article", "div",
    "div1", "div2", "div3", "div4", "div5", "div6", "div7",
}  # fmt: skip
DEFAULT_TITLES = {"abstract": "Abstract", "ack": "Acknowledgements"}
TITLES = frozenset(("title", "head", "article-title", "book-title", "refentrytitle", "titlePart"))
TITLED = frozenset((
    "figure", "table", "example", "note", "warning", "tip", "caution", "important", "formalpara", "sidebar",
    "blockquote", "procedure", "step", "variablelist", "itemizedlist", "orderedlist", "caption", "boxed-text", "list",
    "fig", "steps", "legalnotice", "revhistory", "abstract", "synopsis", "equation", "qandadiv", "ref-list",
))  # fmt: skip
"""Elements whose title, if it is no heading, has its own line. A title in a citation is part of the text."""
TITLE_WRAPPERS = frozenset((
    "info", "title-group", "book-title-group", "article-meta", "book-meta", "front", "titlepage", "titlePage",
    "docTitle", "teiHeader", "fileDesc", "titleStmt", "refmeta", "blockinfo", "bookinfo", "articleinfo", "partinfo",
    "chapterinfo", "appendixinfo", "prefaceinfo", "sectioninfo", "sect1info", "sect2info", "sect3info",
    "referenceinfo", "setinfo", "bibliographyinfo", "glossaryinfo", "text", "body",
))  # fmt: skip
"""Elements between a section and its title."""
LISTINGS = frozenset((
    "programlisting", "screen", "literallayout", "synopsis", "funcsynopsisinfo", "classsynopsisinfo", "preformat",
    "codeblock", "eg", "egXML",
))  # fmt: skip
ITEMS = frozenset(("listitem", "list-item", "item", "li", "step", "member"))
TOGETHER = frozenset((
    "itemizedlist", "orderedlist", "simplelist", "procedure", "calloutlist", "varlistentry", "glossentry", "def-item",
    "list", "steps", "ul", "ol", "dlentry", "table", "informaltable", "table-wrap", "simpletable", "biblioentry",
    "bibliomixed", "ref", "bibl", "biblStruct", "lg", "contrib", "author", "qandaentry", "kwd-group",
    "keywordset", "segmentedlist",
))  # fmt: skip
"""Elements whose text is best kept in one block."""
TABLES = frozenset(("table", "informaltable", "simpletable", "segmentedlist"))
DEFINITIONS = frozenset(("varlistentry", "glossentry", "def-item"))
ROWS = frozenset(("row", "tr", "strow", "sthead", "seglistitem"))
CELLS = frozenset(("entry", "td", "th", "cell", "stentry", "seg"))
LINKS = frozenset(("ulink", "link", "ext-link", "uri", "ptr", "ref", "xref"))
PARAGRAPHS = frozenset((
    "para", "simpara", "p", "ab", "formalpara", "bridgehead", "blockquote", "note", "warning", "caution", "important",
    "tip", "figure", "fig", "example", "mediaobject", "caption", "term", "refnamediv", "refname", "refpurpose",
    "refmeta", "cmdsynopsis", "funcprototype", "authorgroup", "contrib-group", "aff", "copyright", "permissions",
    "legalnotice", "license", "revision", "revhistory", "pubdate", "pub-date", "keyword", "kwd", "subject",
    "mixed-citation", "element-citation", "l", "sp", "speaker", "stage", "opener", "closer", "dateline", "salute",
    "signed", "epigraph", "front", "body", "back", "text", "publicationStmt", "sourceDesc", "respStmt", "publisher",
    "shortdesc", "desc", "glossterm", "glossdef", "def", "question", "answer", "info", "journal-meta", "article-meta",
    "article-id", "title-group", "subtitle", "releaseinfo", "edition", "dt", "dd", "disp-formula", "disp-quote",
    "funding-group", "fn", "footnote", "label", "trans", "quote", "cit", "variablelist", "callout", "titleStmt",
    "dlterm", "cmd", "context", "prereq", "result", "links",
)) - {"quote", "label"}  # fmt: skip
HIDDEN = frozenset(("indexterm", "object-id", "graphic", "inline-graphic"))
CLOSE_UP = {"sub": LOWERED, "subscript": LOWERED, "sup": RAISED, "superscript": RAISED}
PICTURES = frozenset(("svg",))
"""Root elements of files without text apart from that of their elements."""
UNSEEN = frozenset(("style", "script", "metadata"))
"""Elements of pictures whose text is not shown."""
TAGS = re.compile(r"<(style|script)\b[^<>]*>[^<]*</\1\s*>|<[^<>]*>")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read an XML file. A file that is not well-formed is read as plain text, with a warning."""
    text = html.decode_html(file.data)
    if HTML_ROOT.search(text[: html.HEAD_BYTES]):
        yield from html.parse(file)
        return
    reading = _Reading()
    try:
        reading.run(text)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)  # expat.errors.messages lacks some in Python 3.10
        if "amplification" in reason:
            raise DocumentError(f"its entities grow too much: {reason}") from error
        if "<svg" in text[: html.HEAD_BYTES]:
            before, _, after = text.partition("<metadata")
            text = f"{before}<{after.partition('</metadata')[2] or after}"
            text = TAGS.sub(lambda markup: " " + "\n" * markup[0].count("\n"), text)
            file = replace(file, data=text.encode("utf-8", "replace"))
        if TAG_START.search(text):
            file.options.warn(f"not well-formed XML at line {error.lineno} ({reason}): read as plain text")
        yield from source.parse_plain(file)
        return
    except _TooManyPartsError:
        file.options.warn(f"more than {MOST_PARTS:,} XML elements: read as plain text")
        yield from source.parse_plain(file)
        return
    yield reading.content.document()


class _TooManyPartsError(Exception):
    """The file has more than ``MOST_PARTS`` elements and references."""


class _Reading:
    """Passes the elements and the text of a file to an :class:`_Article` or an :class:`_Outline`, by its root."""

    def __init__(self) -> None:
        self.content: _Article | _Outline = _Outline("")
        self._depth = 0
        self._parts = 0
        self._entities: dict[str, str] = {}
        self._room = MOST_ENTITY_CHARACTERS
        self._parser = parser = expat.ParserCreate("utf-8")
        # With a foreign DTD that nobody loads, references to undeclared entities such as &nbsp; are not errors.
        parser.UseForeignDTD(True)
        parser.EntityDeclHandler = self._declare
        parser.SkippedEntityHandler = self._skipped
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = self._comment
        parser.buffer_text = True
        parser.buffer_size = BUFFER_CHARACTERS
        # This handler makes expat report references to entities instead of expanding them.
        parser.DefaultHandler = self._other

    def run(self, text: str) -> None:
        self._parser.Parse(text.encode("utf-8", "replace"), True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count()
        if self._depth >= DEEPEST:
            raise DocumentError(f"its elements are nested more than {DEEPEST} levels deep")
        name = name.rpartition(":")[2]
        if not self._depth:
            self.content = _Article() if name in DOCUMENT_ROOTS else _Outline(name)
        self._depth += 1
        self.content.start(name, attributes, self._parser.CurrentLineNumber)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self.content.end(name.rpartition(":")[2], self._parser.CurrentLineNumber)

    def _text(self, text: str) -> None:
        # The buffered text ends where the parser is.
        self.content.add(text, self._parser.CurrentLineNumber - text.count("\n"))

    def _count(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise _TooManyPartsError

    def _comment(self, text: str) -> None:
        if self._depth and isinstance(self.content, _Outline):  # in documents, it is a note of the author
            self.content.comment(text, self._parser.CurrentLineNumber)

    def _declare(self, name: str, is_parameter: bool, value: str | None, *_: object) -> None:
        if value is None or is_parameter or len(value) > LONGEST_ENTITY:
            return
        # Only entities that were declared above are replaced, and only up to the same length.
        value = REFERENCE.sub(lambda match: self._entities.get(match[1], match[0]), value)
        if len(value) <= LONGEST_ENTITY:
            self._entities.setdefault(name, value)

    def _other(self, data: str) -> None:
        if data.startswith("&") and data.endswith(";"):
            self._skipped(data[1:-1], False)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        """Add the text of an entity: declared as plain text, or known in HTML. Any other reference stays as it is."""
        if is_parameter:
            return
        self._count()
        value = self._entities.get(name)
        if value is None:
            value = html5.get(f"{name};")
        if value is None or "<" in value or REFERENCE.search(value) or len(value) > self._room:
            value = f"&{name};"
        self._room -= len(value)
        self._text(value)


class _Article:
    """Builds the text of a document from its sections, titles, paragraphs, lists, listings and tables."""

    def __init__(self) -> None:
        self._text = Paragraphs()
        self._title: str | None = None
        self._open: list[str] = []
        self._untitled: list[bool] = []
        self._hidden = 0
        self._items = 0
        self._footnotes = 0
        self._together = 0
        self._tables = 0
        self._cells: list[str] | None = None
        self._listing: list[tuple[str, int]] | None = None
        self._adjacent = False
        self._link = ""
        self._formula = FormulaBuilder()

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        if name == "hi":  # in TEI
            kind = attributes.get("rend", "") + attributes.get("rendition", "")
            name = "sup" if "sup" in kind else "sub" if "sub" in kind else name
        elif name == "code" and not self._text.words and self._cells is None:
            name = "programlisting"  # in JATS
        elif name == "footnote" or (name == "note" and self._open[-1:] in (["p"], ["ab"], ["l"])):
            name = "footnote"
        self._open.append(name)
        if name in LINKS:
            self._link = next((value for value in attributes.values() if value.startswith(("http:", "https:"))), "")
        if self._hidden or name in HIDDEN or (name == "tex-math" and self._open[-2:-1] == ["alternatives"]):
            self._hidden += 1
        elif name == "math" or self._formula:
            self._formula.start(name, attributes)
        elif name in CLOSE_UP:
            self.add(CLOSE_UP[name], line)
        elif self._listing is None:
            self._start_block(name, line)

    def _start_block(self, name: str, line: int) -> None:
        if self._adjacent:
            self._text.add(" ", line)
        self._adjacent = False
        if name in SECTIONS:
            self._end_block()
            self._untitled.append(True)
            if name in DEFAULT_TITLES:
                self._text.path.enter(len(self._untitled), DEFAULT_TITLES[name])
        elif name == "footnote":
            self._footnotes += 1
            self._text.add(" (", line)
        elif name in LISTINGS:
            self._break()
            self._listing = [("", line)]
        elif name in ITEMS:
            self._break()
            self._items += 1
            if self._open[-2] not in DEFINITIONS:
                self._text.prefix = indent(self._items - 1) + "- "
        elif name in ROWS:
            self._break()
            self._cells = []
        elif name in TITLES:
            if self._is_heading():
                self._end_block()
        elif name in PARAGRAPHS or name in TOGETHER:
            self._break()
            self._together += name in TOGETHER
            self._tables += name in TABLES

    def end(self, name: str, line: int) -> None:
        name = self._open[-1]
        if self._hidden:
            self._hidden -= 1
        elif self._formula:
            if text := self._formula.end(name):
                self.add(text, line)
        elif name in CLOSE_UP:
            self.add(LEVEL, line)
        elif self._listing is None:
            self._end_element(name, line)
        elif name in LISTINGS:
            self._end_listing()
        self._open.pop()

    def _end_element(self, name: str, line: int) -> None:
        if name in SECTIONS:
            self._end_block()
            self._text.path.leave(len(self._untitled))
            self._untitled.pop()
        elif name in TITLES:
            self._end_title()
        elif name == "footnote":
            self._footnotes -= 1
            words = self._text.words
            start = next((at for at in reversed(range(len(words))) if words[at] == " ("), len(words))
            words[start:] = [f" ({one_line(''.join(words[start + 1 :]))})"] if start < len(words) else []
        elif name == "label" and self._open[-2] in (*ITEMS, "fn"):
            self._text.prefix = f"{indent(self._items - 1)}{self._text.take_words()} "
        elif name in ITEMS:
            self._break()
            self._items -= 1
        elif name in ROWS:
            self._end_row()
        elif name in CELLS and self._cells is not None:
            self._cells.append(self._text.take_words())
        elif name in PARAGRAPHS or name in TOGETHER:
            self._together -= name in TOGETHER
            self._break()
            self._tables -= name in TABLES
        else:
            if self._link and name in LINKS:
                self.add(self._link, line)  # a link without a text of its own
            self._adjacent = bool(self._text.words)

    def add(self, text: str, line: int) -> None:
        if self._hidden:
            return
        if self._formula:
            self._formula.add(text)
            return
        self._adjacent = False
        self._link = ""
        if self._listing is None:
            self._text.add(text, line)
        else:
            add_to_listing(self._listing, text, line)

    def document(self) -> ParsedDocument:
        return self._text.document(self._title)

    def _is_heading(self) -> bool:
        """Return whether the title that was opened last is that of the innermost section."""
        if not self._untitled or not self._untitled[-1]:
            return False
        for name in reversed(self._open[:-1]):
            if name in SECTIONS:
                return True
            if name not in TITLE_WRAPPERS:
                return False
        return False

    def _end_title(self) -> None:
        if not self._is_heading():
            if self._open[-2] in TITLED:
                self._text.end_line()
            self._adjacent = bool(self._text.words)
        elif title := self._text.take_words():
            self._untitled[-1] = False
            self._text.add_heading(len(self._untitled), title)
            self._title = self._title or title

    def _end_row(self) -> None:
        cells, self._cells = self._cells or [], None
        if any(cells):
            self._text.add_line(" | ".join(cells).rstrip(" |"))
        if not self._together:
            self._end_block()

    def _end_listing(self) -> None:
        lines, self._listing = self._listing or [], None
        if not self._together:
            self._text.add_listing(lines)
            return
        for text, line in lines:
            if text.strip():
                self._text.add_line(text, line)

    def _break(self) -> None:
        """End a paragraph: with a space in a cell, a line break in an element that is kept together, else a block."""
        self._adjacent = False
        if self._cells is not None or self._footnotes:
            self._text.add(" ")
        elif self._together:
            self._text.end_line()
        else:
            self._end_block()

    def _end_block(self) -> None:
        self._text.end_block("table" if self._tables else "text")


@dataclass
class _Element:
    """An open element of an outline. ``label`` is empty once it is written; ``record`` is its last child's name."""

    name: str
    label: str
    inline: bool = False
    has_children: bool = False
    record: str = ""


class _Outline:
    """Builds an outline of a file in an unknown vocabulary: a line ``name attribute="value": text`` per element.

    The children of the root start a block, and so do elements that follow a sibling with the same name and children.
    """

    def __init__(self, root: str) -> None:
        self._text = Paragraphs()
        self._title: str | None = None
        self._labelled = root not in PICTURES
        self._unseen = 0
        self._open: list[_Element] = []
        self._depth = 0

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        if self._unseen or (name in UNSEEN and not self._labelled):
            self._unseen += 1
            return
        if self._text.words:
            self._open.append(_Element(name, "", inline=True))
            return
        if self._open:
            above = self._open[-1]
            if above.label:
                self._write(above.label, self._text.line, self._depth - 1)
                above.label = ""
            if self._depth == 1 or name == above.record:
                self._text.end_block("table")
            above.has_children = True
        self._text.line = self._text.last_line = line
        pairs = [(key, one_line(value)) for key, value in attributes.items() if not key.startswith("xmlns")]
        written = "".join(f' {key}="{value}"' for key, value in pairs)
        has_label = self._labelled and (self._open or written)
        self._open.append(_Element(name, f"{name}{written}" if has_label else ""))
        self._depth += 1

    def end(self, name: str, line: int) -> None:
        if self._unseen:
            self._unseen -= 1
            return
        element = self._open.pop()
        if element.inline:
            return
        self._depth -= 1
        text = self._text.take_words()
        if text or element.label:
            self._write(": ".join(filter(None, (element.label, text))), self._text.line, self._depth)
            self._text.last_line = line
        if self._open and element.has_children:
            self._open[-1].record = name
        if name == "title" and self._depth <= 2:
            self._title = self._title or text or None

    def add(self, text: str, line: int) -> None:
        if not self._unseen:
            self._text.add(text, line)

    def comment(self, text: str, line: int) -> None:
        """Keep a comment: in data and settings, it explains what follows."""
        if self._labelled and not self._text.words and text.strip():
            if self._open[-1].label:
                self._write(self._open[-1].label, self._text.line, self._depth - 1)
                self._open[-1].label = ""
            self._write(one_line(text), line, self._depth)

    def document(self) -> ParsedDocument:
        self._text.end_block("table")
        return self._text.document(self._title)

    def _write(self, text: str, line: int, depth: int) -> None:
        self._text.add_line(indent(depth - 1) + text, line)
