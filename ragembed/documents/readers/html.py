"""Read HTML files: their character set, title and text. Each text line has the source line where it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from html.parser import HTMLParser

from ragembed.documents.decoding import declared_text
from ragembed.documents.model import BlockKind, ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.blobs import without_blobs
from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, FormulaBuilder, scripts
from ragembed.documents.readers.numbering import numeral
from ragembed.documents.readers.package import whole_number
from ragembed.documents.readers.properties import with_properties
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import (
    HeadingPath,
    Paragraphs,
    Spans,
    TextBuilder,
    add_to_listing,
    indent,
    one_line,
    text_of,
)
from ragembed.errors import DocumentError
from ragembed.html_elements import OWN_PAGE

Attributes = dict[str, str]

DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,200}?\bcharset|\?xml\b[^>]{0,200}?\bencoding)\s*=\s*["']?([\w.:-]+)""", re.I
)
HEAD_BYTES = 4096
SITE_SUFFIX = re.compile(r"\s+(?:[—–|·»-]|::)\s+[^—–|·»]*\bdocumentation$", re.IGNORECASE)
SEPARATORS = "—–|·»:-«\u2022/ "

NEVER_TEXT = frozenset((
    "script", "style", "noscript", "template", "svg", "select", "button", "textarea", "iframe", "object",
    "canvas", "audio", "video",
))  # fmt: skip
MENU_TAGS = frozenset(("nav", "header", "footer"))
MENU_ROLES = frozenset(("navigation", "search", "banner", "contentinfo"))
MENU_CLASSES = frozenset((
    "sphinxsidebar", "related", "mobile-nav", "footer", "headerlink", "viewcode-link", "linenos",
))  # fmt: skip
QUOTES = frozenset(("gmail_quote", "yahoo_quoted"))
"""Classes of quotes in mails, which other programs mark with ``<blockquote type="cite">``."""
MAIN_TAGS = frozenset(("main", "article"))
VOID_TAGS = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
))  # fmt: skip
HEADING_TAGS = {f"h{level}": level for level in range(1, 7)}
PARAGRAPH_TAGS = frozenset((
    "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "blockquote", "figure",
    "figcaption", "form", "fieldset", "details", "summary", "address", "hr", "body", "html", "center",
    "caption",
))  # fmt: skip
LABEL_CLASS = "admonition-title"
LIST_TAGS = frozenset(("ul", "ol", "menu", "dir"))
FLAT_IN_CELLS = LIST_TAGS | {"li", "dl", "dt", "dd"}
LIST_STYLE = re.compile(r"list-style(?:-type)?:\s*(lower|upper)-(alpha|latin|roman)")
SCRIPTS = {"sup": RAISED, "sub": LOWERED}
ENDS_FORMULA = PARAGRAPH_TAGS | LIST_TAGS | {*HEADING_TAGS, "table", "tr", "td", "th", "li", "dl", "pre"}
LAYOUT_TABLE = frozenset(("highlighttable", "presentation", "none"))
SIGNATURE_LEVEL = 10
"""Lowest heading level of API reference entries. Ordinary headings have levels below it."""
MOST_TAGS = 1_000_000
MOST_META = 100
META = re.compile(
    r"(?:(?:og|dc|dcterms|article|citation)[:._])?(?P<name>author|creator|description|keywords|tag|subject|category|title|"
    r"(?:\w+_)?(?:date|time)|created|modified|issued|language|publisher)",
    re.IGNORECASE,
)
"""Names of properties of pages, as in Dublin Core, Open Graph and Highwire Press. Others are about their display."""
META_NAMES = {"creator": "author", "tag": "tags"}
TEMPLATE = re.compile(r"\{[{%#].*?[}%#]\}|<%.*?%>|<\?.*?\?>", re.DOTALL)
LONGEST_TEMPLATE = 10_000
"""Length of the placeholders from which a file is no template."""
SCRIPT = re.compile(r"<(?:script|style)\b[^>]*>\s*[^\s<]|<template\b|\{[{%#]|<%|<\?(?!xml)", re.IGNORECASE)
SHORTEST_PAGE = 80
"""Minimum number of characters. A page with less text is parsed again with its menus."""


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a web page, with the source line of each text line. A template without text is source code."""
    if file.data.startswith(OWN_PAGE):
        raise DocumentError("a page that ragembed wrote")
    text = decode_html(file.data)
    page = parse_page(text)
    if len(page.text) < LONGEST_TEMPLATE and not TEMPLATE.sub("", page.text).strip() and SCRIPT.search(text):
        yield from source.parse(file)
        return
    yield with_properties(replace(page, title=page_title(page), metadata={}), page.metadata)


def decode_html(data: bytes) -> str:
    """Decode a page: as UTF-8 if it is valid, else with the declared character set, else with the most likely one."""
    declared = DECLARED.search(data[:HEAD_BYTES])
    text = declared_text(data, declared[1].decode("ascii", "replace")) if declared else None
    return text_of(data) if text is None else without_blobs(text)


def page_title(page: ParsedDocument) -> str | None:
    """Return the title of a page without the name of the site, which often stands beside the level-1 heading."""
    top = next((b.headings[0] for b in page.blocks if b.kind == "heading" and len(b.headings) == 1), None)
    if page.title is None:
        return top
    title = SITE_SUFFIX.sub("", page.title)
    if top:
        before, found, after = title.partition(top)
        beside_separators = before.rstrip()[-1:] in SEPARATORS and after.lstrip()[:1] in SEPARATORS
        if found and beside_separators:
            return top
    return title


def parse_page(text: str, *, keep_quotes: bool = True, menu_tags: Set[str] = MENU_TAGS) -> ParsedDocument:
    """Return the text, ``<title>`` and ``<meta>`` of a page, without menus or quotes of mails if it has other text."""
    page = _run(text, menu_tags, keep_quotes=keep_quotes)
    if len(page.text) < SHORTEST_PAGE:
        whole = _run(text, None, keep_quotes=keep_quotes)
        page = whole if len(whole.text) > 2 * len(page.text) else page
    return page if page.blocks or keep_quotes else parse_page(text)


def _run(text: str, menu_tags: Set[str] | None, keep_quotes: bool) -> ParsedDocument:
    tags = text.count("<")
    if tags > MOST_TAGS:
        raise DocumentError(f"{tags:,} tags: expected at most {MOST_TAGS:,}")
    # Python's parser searches the end of a comment or tag again and again if there is none.
    for opening, closing in (("<!--", "-->"), ("<", ">")):
        closed = text.rfind(closing) + 1
        text = text[:closed] + text[closed:].replace(opening, opening.replace("<", "&lt;"))
    parser = _HtmlParser(menu_tags, keep_quotes)
    try:
        parser.feed(text)
        parser.close()
    except AssertionError as error:
        raise DocumentError(f"malformed HTML: {error}") from error
    parser.end_block()
    parser.end_asides()
    meta = {name: values[0] if len(values) == 1 else values for name, values in parser.meta.items()}
    return parser.content.builder.document(one_line("".join(parser.title)) or None, meta)


@dataclass
class _List:
    """An open numbered list: the number of the next item, the format of its numbers, and the step between them."""

    number: int
    kind: str
    step: int


class _Aside:
    """An open ``<aside>`` outside the main text. It is a menu if most of its text is in links, and it is no note."""

    def __init__(self, above: TextBuilder, path: HeadingPath, is_note: bool) -> None:
        self.above, self.path = above, path
        self.is_note, self.linked, self.other = is_note, 0, 0

    def add(self, data: str, in_link: bool) -> None:
        size = len(data.strip())
        self.linked, self.other = self.linked + size * in_link, self.other + size * (not in_link)


def _is_note(attributes: Attributes) -> bool:
    """Return whether an element is a footnote or an endnote, in HTML or EPUB."""
    return any("note" in attributes.get(name, "") for name in ("role", "epub:type", "class"))


class _HtmlParser(HTMLParser):
    """Passes the text of a page to :attr:`content`. ``_dropped`` and ``_main`` are the open tags of the same name."""

    def __init__(self, menu_tags: Set[str] | None, keep_quotes: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.content = Paragraphs()
        self.title: list[str] = []
        self.meta: dict[str, list[str]] = {}
        self._menu_tags = menu_tags
        self._keep_quotes = keep_quotes
        self._dropped: list[str] = []
        self._main: list[str] = []
        self._in_title = False
        self._heading = 0
        self._signature: str | None = None
        self._label = False
        self._anchor = -1
        self._term = self._undefined = False
        self._definitions = 0
        self._lists: list[_List | None] = []
        self._tables: list[Spans | None] = []
        self._cells: list[tuple[str, int, int]] = []
        self._cell_open: tuple[int, int] | None = None
        self._is_header = False
        self._formula = FormulaBuilder()
        self._has_formula = False
        self._row_line = 0
        self._pre: list[tuple[str, int]] | None = None
        self._asides: list[_Aside] = []
        self._in_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropped:
            self._dropped += [tag] * (tag == self._dropped[0])
            return
        attributes = {name: value or "" for name, value in attrs}
        if self._is_dropped(tag, attributes):
            self._dropped = [tag]
            return
        if self._main:
            self._main += [tag] * (tag == self._main[0])
        elif tag in MAIN_TAGS or attributes.get("role") == "main":
            self._main = [tag]
        self._start(tag, attributes)

    def _start(self, tag: str, attributes: Attributes) -> None:
        if self._formula and tag in ENDS_FORMULA:
            self._end_formula("math")
        if tag == "math" or self._formula:
            self._formula.start(tag, attributes)
            self._has_formula = True
        elif tag == "a":
            self._in_link = True
            self._anchor = len(self.content.words) if attributes.get("href", "").startswith("#") else -1
        elif tag == "meta":
            self._add_meta(attributes)
        elif tag == "title":
            self._in_title = not self.title
        elif tag in SCRIPTS:
            self.handle_data(SCRIPTS[tag])
        elif tag == "pre":
            self.end_block()
            self._pre = [("", self.getpos()[0])]
        elif tag == "br":
            self._line_break()
        elif self._pre is None and not self._heading:
            self._start_block(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if tag == self._dropped[0]:
                self._dropped.pop()
            return
        if self._main[:1] == [tag]:
            self._main.pop()
        if self._formula:
            self._end_formula(tag)
        elif tag == "a":
            self._in_link = False
            self._end_anchor()
        elif tag == "title":
            self._in_title = False
        elif tag in SCRIPTS:
            self.handle_data(LEVEL)
        elif tag == "pre":
            self._end_pre()
        elif tag in HEADING_TAGS:
            self._end_heading()
        elif tag == "aside" and self._asides and not self._cell_open:
            self._end_aside()
        elif self._pre is None and not self._heading:
            self._end_element(tag)

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        line = self.getpos()[0]
        if self._asides:
            self._asides[-1].add(data, self._in_link)
        if self._formula:
            self._formula.add(data)
        elif self._in_title:
            self.title.append(data)
        elif self._pre is not None:
            add_to_listing(self._pre, data, line)
        else:
            self.content.add(data, line)

    def _end_anchor(self) -> None:
        """Leave out a sign such as ¶ or § that links to its own place."""
        words = self.content.words
        if 0 <= self._anchor < len(words) and not any(map(str.isalnum, "".join(words[self._anchor :]))):
            words[self._anchor :] = [" "] * bool(self._anchor)
        self._anchor = -1

    def _add_meta(self, attributes: Attributes) -> None:
        match = META.fullmatch(attributes.get("name") or attributes.get("property") or attributes.get("itemprop") or "")
        content = attributes.get("content", "").strip()
        if match and content and len(self.meta) < MOST_META:
            name = match["name"].lower()
            values = self.meta.setdefault(META_NAMES.get(name, name), [])
            values += [content] * (content not in values)

    def end_block(self) -> None:
        """End the current row, line and block."""
        if self._formula:
            self._end_formula("math")
        self._end_row()
        content = self.content
        content.end_line()
        kind: BlockKind = "table" if self._tables and self._tables[-1] else "text"
        headings = content.path.headings
        if self._signature is not None and content.lines:
            name = _api_name(self._signature, content.lines[0][0])
            kind, headings = "heading", content.path.enter(SIGNATURE_LEVEL + self._definitions, name)
        content.builder.add(content.lines, kind, headings, content.last_line)
        content.lines, self._signature, self._term, self._undefined = [], None, False, False

    def _end_formula(self, tag: str) -> None:
        if text := self._formula.end(tag):
            self.handle_data(text)

    def end_asides(self) -> None:
        """End the asides that have no end tag."""
        while self._asides:
            self._end_aside()

    def _end_aside(self) -> None:
        self.end_block()
        aside, inner = self._asides.pop(), self.content.builder
        self.content.builder, self.content.path = aside.above, aside.path
        if aside.is_note or aside.linked <= aside.other:
            aside.above.add_blocks(inner.text, inner.blocks, inner.places)

    def _is_dropped(self, tag: str, attributes: Attributes) -> bool:
        if tag in VOID_TAGS:
            return False
        classes = frozenset(attributes.get("class", "").split())
        if (
            tag in NEVER_TEXT
            or (tag == "a" and "headerlink" in classes)
            or ("katex-html" in classes and self._has_formula)
        ):
            return True
        if not self._keep_quotes and tag == "blockquote" and (attributes.get("type") == "cite" or classes & QUOTES):
            return True
        if self._menu_tags is None:
            return False
        if tag in self._menu_tags and not (self._main and tag != "nav"):
            return True
        return attributes.get("role") in MENU_ROLES or not MENU_CLASSES.isdisjoint(classes)

    def _start_block(self, tag: str, attributes: Attributes) -> None:
        if tag in HEADING_TAGS:
            self.end_block()
            self._heading = HEADING_TAGS[tag]
        elif self._cell_open and tag in FLAT_IN_CELLS:
            self._break()
        elif tag in PARAGRAPH_TAGS:
            self._break()
            if tag == "aside" and self._menu_tags is not None and not self._main and not self._cell_open:
                self.end_block()
                content = self.content
                self._asides.append(_Aside(content.builder, content.path, _is_note(attributes)))
                content.builder, content.path = TextBuilder(), content.path.copy()
            self._label = LABEL_CLASS in attributes.get("class", "").split()
        elif tag in LIST_TAGS:
            self._break()
            self._lists.append(_numbered(attributes) if tag == "ol" else None)
        elif tag == "li":
            self._start_item(attributes)
        elif tag in ("dl", "dt", "dd"):
            self._start_definition(tag, attributes)
        elif tag == "table":
            self.end_block()
            names = {attributes.get("role", ""), *attributes.get("class", "").split()}
            self._tables.append(Spans() if LAYOUT_TABLE.isdisjoint(names) else None)
        elif tag == "tr":
            self._end_row()
        elif tag in ("td", "th"):
            self._start_cell(tag, attributes)

    def _end_element(self, tag: str) -> None:
        if self._cell_open and tag in FLAT_IN_CELLS:
            self._break()
        elif tag in PARAGRAPH_TAGS:
            self._break()
            if tag == "p":
                self._end_paragraph()
        elif tag in LIST_TAGS:
            self._end_item()
            del self._lists[-1:]
            if not self._lists:
                self.end_block()
        elif tag in ("li", "dt"):
            self._end_item()
        elif tag in ("dd", "dl"):
            self.end_block()
            if tag == "dl":
                self.content.path.leave(SIGNATURE_LEVEL + self._definitions)
                self._definitions = max(0, self._definitions - 1)
        elif tag == "table":
            self.end_block()
            del self._tables[-1:]
        elif tag == "tr":
            self._end_row()
        elif tag in ("td", "th"):
            self._end_cell()

    def _start_item(self, attributes: Attributes) -> None:
        self.content.end_line()
        numbers = self._lists[-1] if self._lists else None
        label = "-"
        if numbers is not None:
            number = whole_number(attributes.get("value", ""), numbers.number)
            label = f"{numeral(numbers.kind, number)}."
            numbers.number = number + numbers.step
        self.content.prefix = f"{indent(len(self._lists) - 1)}{label} "

    def _end_item(self) -> None:
        """End the last line of a list item; an empty item has no label."""
        self.content.end_line()
        self.content.prefix = ""

    def _start_definition(self, tag: str, attributes: Attributes) -> None:
        if tag == "dl":
            self.end_block()
            self._definitions += 1
        elif tag == "dd":
            if self._signature is not None:
                self.end_block()
            self._undefined = False
            self.content.end_line()
        elif "sig" in attributes.get("class", "").split() and (self._signature or "id" in attributes):
            if self._signature is None:
                self.end_block()
                self._signature = attributes["id"]
            self.content.end_line()
        elif self._undefined:  # a further term of the same definition
            self.content.end_line()
        else:
            self.end_block()
            self._term = self._undefined = True

    def _end_paragraph(self) -> None:
        """Keep the first paragraph below a term or label in the same block."""
        if self._label:
            self._term, self._label = True, False
        elif self._term and not self._lists:
            self.end_block()

    def _in_table(self) -> bool:
        return bool(self._tables and self._tables[-1])

    def _break(self) -> None:
        """End a paragraph: with a space in a cell, a line break in a list, table or definition, else a new block."""
        if self._cell_open:
            self.content.add(" ")
        elif self._lists or self._term or self._label or self._in_table():
            self.content.end_line()
        else:
            self.end_block()

    def _line_break(self) -> None:
        if self._pre is not None:
            self._pre.append(("", self.getpos()[0]))
        elif self._heading or self._cell_open:
            self.content.add(" ")
        else:
            self.content.end_line()

    def _start_cell(self, tag: str, attributes: Attributes) -> None:
        if self._in_table():
            self._end_cell()
            self._cell_open = 1, 1
            if attributes:
                columns, rows = attributes.get("colspan", ""), attributes.get("rowspan", "")
                self._cell_open = whole_number(columns, 1), whole_number(rows, 1)
            self._is_header = tag == "th" and (self._is_header or not self._cells)
        else:
            self._break()

    def _end_cell(self) -> None:
        if not self._cell_open:
            return
        if self.content.words and not self._row_line:
            self._row_line = self.content.line
        self._cells.append((self.content.take_words(), *self._cell_open))
        self._cell_open = None

    def _end_row(self) -> None:
        self._end_cell()
        spans = self._tables[-1] if self._tables else None
        if self._cells and spans is not None:
            cells = spans.row(self._cells, is_header=self._is_header)
            if self._row_line:
                self.content.add_line(" | ".join(cells).rstrip(" |"), self._row_line)
        self._cells, self._row_line = [], 0

    def _end_heading(self) -> None:
        if not self._heading:
            return  # an end tag without a start tag
        level, self._heading = self._heading, 0
        content = self.content
        content.end_line()
        if content.lines:
            headings = content.path.enter(level, content.lines[0][0])
            content.builder.add(content.lines, "heading", headings, content.last_line)
        content.lines = []

    def _end_pre(self) -> None:
        if self._pre is not None:
            lines = [(scripts(text), line) for text, line in self._pre]
            self.content.builder.add(lines, "code", self.content.path.headings)
        self._pre = None


def _numbered(attributes: Attributes) -> _List:
    style = LIST_STYLE.search(attributes.get("style", "").lower())
    kind = attributes.get("type", "1")
    if style:
        kind = "i" if style[2] == "roman" else "a"
        kind = kind.upper() if style[1] == "upper" else kind
    is_reversed = "reversed" in attributes
    return _List(whole_number(attributes.get("start", ""), 1), kind, -1 if is_reversed else 1)


def _api_name(identifier: str, signature: str) -> str:
    """Return the longest dotted suffix of an anchor that its signature contains, else the signature's first word."""
    parts = identifier.split(".")
    for first in range(len(parts)):
        name = ".".join(parts[first:])
        if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", signature):
            return name
    return signature.split()[0]
