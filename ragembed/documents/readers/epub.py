"""Read EPUB books: the HTML reader parses the chapters, in reading order."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from urllib.parse import unquote

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers.html import decode_html, parse_page
from ragembed.documents.readers.package import ZipPackage
from ragembed.documents.readers.properties import with_properties
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import OutlineBuilder, one_line
from ragembed.errors import DocumentError

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
CHAPTER_TYPES = ("application/xhtml+xml", "text/html")
PROPERTIES = {
    "title": "title",
    "creator": "author",
    "date": "date",
    "language": "language",
    "publisher": "publisher",
    "subject": "subject",
    "description": "description",
}
"""Elements of Dublin Core, with the names of their properties."""
LISTS = ("author", "subject")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a book as one document without line and page numbers."""
    archive = ZipPackage(file.data, "EPUB")
    package_paths = _Elements(archive, CONTAINER).all("rootfile", "full-path")
    if not package_paths or not package_paths[0]:
        raise DocumentError(f"broken EPUB: {CONTAINER} lists no package file")
    package = _Elements(archive, package_paths[0])
    found = {name: texts for tag, name in PROPERTIES.items() if (texts := package.texts(tag))}
    properties = {name: ", ".join(texts if name in LISTS else texts[:1]) for name, texts in found.items()}
    chapters = _chapter_paths(package, posixpath.dirname(package_paths[0]))
    if ENCRYPTION in archive:
        locked = {unquote(uri) for uri in _Elements(archive, ENCRYPTION).all("cipherreference", "uri")}
        if not locked.isdisjoint(chapters):
            raise DocumentError("encrypted EPUB (copy protection)")
    # Headers, footers and asides of a book are parts of its text.
    pages = [parse_page(decode_html(archive.read(chapter)), menu_tags={"nav"}) for chapter in chapters]
    title = properties.get("title")
    builder = OutlineBuilder()
    for page in pages:
        builder.add_blocks(page.text, _under_chapter(page, title), [0] * len(page.line_numbers or ()))
    yield with_properties(builder.paged(title), properties)


def _chapter_paths(package: _Elements, folder: str) -> list[str]:
    """Return the paths of the XHTML chapters in the archive, in reading order (the order of the spine)."""
    items = {attributes.get("id", ""): attributes for attributes in package.found.get("item", [])}
    spine = [items[name] for name in package.all("itemref", "idref") if name in items]
    chapters = [item.get("href", "") for item in spine if item.get("media-type") in CHAPTER_TYPES]
    if not chapters:
        raise DocumentError("broken EPUB: its package file lists no chapters")
    paths = [posixpath.normpath(posixpath.join(folder, unquote(href))) for href in chapters]
    return list(dict.fromkeys(paths))  # a chapter belongs to the spine once; repeated, it could fill the memory


def _under_chapter(page: ParsedDocument, book_title: str | None) -> Sequence[Block]:
    """Add the page title as a heading to a chapter without headings, unless it is the title of the book."""
    if any(block.kind == "heading" for block in page.blocks) or page.title in (None, book_title):
        return page.blocks
    return [Block(b.start, b.end, b.kind, (page.title, *b.headings)) for b in page.blocks if page.title]


class _Elements(HTMLParser):
    """The elements of an XML file by local name. The HTML parser that finds them expands and loads nothing."""

    def __init__(self, archive: ZipPackage, name: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, list[dict[str, str]]] = {}
        self._texts: dict[str, list[str]] = {}
        self._tag = ""
        try:
            self.feed(decode_html(archive.read(name)))
            self.close()
        except AssertionError as error:
            raise DocumentError(f"broken EPUB: {name!r} is malformed") from error

    def all(self, tag: str, attribute: str) -> list[str]:
        """Return the values of ``attribute`` of all elements ``tag`` that have it."""
        return [found[attribute] for found in self.found.get(tag, []) if attribute in found]

    def texts(self, tag: str) -> list[str]:
        """Return the distinct texts of all elements ``tag``."""
        return list(dict.fromkeys(filter(None, map(one_line, self._texts.get(tag, [])))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag.split(":")[-1]
        self.found.setdefault(self._tag, []).append({name: value or "" for name, value in attrs})
        self._texts.setdefault(self._tag, []).append("")

    def handle_endtag(self, _tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag:
            self._texts[self._tag][-1] += data
