"""Read PDF files with pypdf: paragraphs with their pages."""

from __future__ import annotations

import logging
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import TextBuilder, one_line, well_formed
from ragembed.errors import DocumentError
from ragembed.extras import needed_for

# Errors that pypdf raises for unexpected file structures, besides its own.
STRUCTURE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
WRAPPED = 0.7
"""A line of at least this share of the page's line width continues on the next line."""
HYPHENATED = re.compile(r"(\w*[^\W\d_])[-\u00ad\u2010]\Z")
LEADING_WORD = re.compile(r"[^\W\d_]+")
SENTENCE_END = (".", "!", "?", ":", "。", "！", "？")
BULLET = re.compile(r"(?:[•◦▪‣–*-]|\(?\d{1,3}[.)]|[a-z]\))\s")


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a PDF file. A page that cannot be read is skipped with a warning.

    Raises
    ------
    DocumentError
        If the file is broken, needs a password or contains no text.
    MissingExtraError
        If pypdf is not installed.
    """
    pages, title = _pages(data, options)
    words = {word for page in pages for word in re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*", page.lower())}
    builder = TextBuilder()
    for number, page in enumerate(pages, 1):
        for paragraph in paragraphs(page, words):
            builder.add_text(paragraph, number)
    if not builder.blocks:
        raise DocumentError("contains no text: its pages may be scanned images")
    yield ParsedDocument(builder.text, builder.blocks, title, page_numbers=builder.places)


def paragraphs(page: str, words: set[str]) -> list[str]:
    """Join the lines of a page into paragraphs. ``words`` decides whether a hyphen at the end of a line is kept."""
    lines = [one_line(line) for line in page.split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    width = lengths[len(lengths) * 9 // 10] if lengths else 0
    found: list[str] = []
    above = ""
    for line in lines:
        ends = above.endswith(SENTENCE_END) and len(above) < WRAPPED * width
        if not line or not above or ends:
            found += [line] if line else []
        elif HYPHENATED.search(above) and line[0].islower():
            found[-1] = _without_hyphen(found[-1], line, words)
        elif len(above) < WRAPPED * width or BULLET.match(line):
            found[-1] += f"\n{line}"
        else:
            found[-1] += f" {line}"
        above = line
    return found


def _without_hyphen(text: str, line: str, words: set[str]) -> str:
    """Join a word that is split at the end of a line.

    Keep the hyphen if the document has the word only with a hyphen.
    """
    before, after = HYPHENATED.search(text), LEADING_WORD.match(line)
    if before is None or after is None:
        return text + line
    joined, hyphenated = f"{before[1]}{after[0]}".lower(), f"{before[1]}-{after[0]}".lower()
    keep = joined not in words and hyphenated in words
    return text + line if keep else text[:-1] + line


def _pages(data: bytes, options: ReadOptions) -> tuple[list[str], str | None]:
    with needed_for("reading PDF files"):
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    with _silenced("pypdf"):
        try:
            reader = PdfReader(BytesIO(data))
            if reader.is_encrypted and not reader.decrypt(""):
                raise DocumentError("encrypted PDF: it needs a password")
            count, title = len(reader.pages), _title(reader)
        except DependencyError as error:
            raise DocumentError(f"encrypted PDF: {error}") from error
        except (PyPdfError, *STRUCTURE_ERRORS) as error:
            raise DocumentError(f"corrupt PDF: {error or type(error).__name__}") from error
        pages = [_page_text(reader, number, (PyPdfError, *STRUCTURE_ERRORS)) for number in range(count)]
    broken = [number for number, page in enumerate(pages, 1) if page is None]
    if count and len(broken) == count:
        raise DocumentError("corrupt PDF: none of its pages can be read")
    if broken:
        options.warn(f"{len(broken)} pages cannot be read (first: page {broken[0]})")
    return [page or "" for page in pages], title


def _page_text(reader: Any, number: int, errors: tuple[type[Exception], ...]) -> str | None:
    try:
        return well_formed(reader.pages[number].extract_text())
    except errors:
        return None


def _title(reader: Any) -> str | None:
    title = reader.metadata.title if reader.metadata else None
    return one_line(well_formed(title)) or None if isinstance(title, str) else None


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
