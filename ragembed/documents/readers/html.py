"""HTML files: their character set and title; the text itself is taken out by :mod:`.html_page`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.html_page import HtmlPage, parse_page
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import text_of

DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,200}?\bcharset|\?xml\b[^>]{0,200}?\bencoding)\s*=\s*["']?([\w.:-]+)""", re.I
)
HEAD_BYTES = 4096
SITE_SUFFIX = re.compile(r"\s+(?:[—–|·»-]|::)\s+[^—–|·»]*\bdocumentation$", re.IGNORECASE)
SEPARATORS = "—–|·»:-«\u2022/ "
WIDER_IN_BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252"}
"""What the WHATWG standard reads instead of the declared character set."""


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a web page; ``line_numbers`` holds the source line where each line of its text begins."""
    page = parse_page(decode_html(data))
    yield ParsedDocument(page.text, page.blocks, page_title(page), line_numbers=page.lines)


def decode_html(data: bytes) -> str:
    """Decode a page: UTF-8 if it is that, else what the page declares, else what it looks like.

    Raises:
        DocumentError: the bytes are no text.
    """
    declared = DECLARED.search(data[:HEAD_BYTES])
    if declared and not _is_utf8(data):
        try:
            charset = codecs.lookup(declared[1].decode("ascii")).name
            text = data.decode(WIDER_IN_BROWSERS.get(charset, charset))
        except (LookupError, UnicodeError):
            return text_of(data)
        return text.replace("\r\n", "\n").replace("\r", "\n")
    return text_of(data)


def page_title(page: HtmlPage) -> str | None:
    """Cut the site's name off the head's title: what stands beside the first level-1 heading."""
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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
