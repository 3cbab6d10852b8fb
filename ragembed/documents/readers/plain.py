"""Plain text: paragraphs between blank lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import OwnText, text_of


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a text whose only structure is its blank lines."""
    own = OwnText(text_of(data))
    own.add_paragraphs(0, len(own.lines))
    yield ParsedDocument(own.text, own.blocks)
