"""What readers give and chunkers make: documents with structure, and chunks with places.

A reader turns one file into one or more :class:`ParsedDocument`; the chunker turns each into
:class:`Chunk` objects. Lines and pages are 1-based and refer to the *file*, so that
``sed -n 'start,endp' file`` shows what a chunk was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

BlockKind = Literal["text", "heading", "code", "table"]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of a document's text that is best kept together.

    ``start`` and ``end`` are character offsets into :attr:`ParsedDocument.text` (``end`` exclusive).
    Blocks are in order and do not overlap; only white space lies between them. ``headings`` is the path of
    headings above the block, outermost first; a heading block carries itself as the last entry.
    """

    start: int
    end: int
    kind: BlockKind = "text"
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    r"""The text of one document with its structure and its place in the file.

    ``line_numbers[i]`` is the 1-based line of the file from which line ``i`` of ``text`` came (lines are
    ended by ``\n``); None stands for ``1, 2, 3, …``, the text being the file's own. Where the text was built, the
    blank line after a block has the line at which the block ends in the file. ``page_numbers[i]`` is the page (or
    slide) instead, for formats without lines; it is empty where a format has neither. ``metadata`` holds JSON
    values only.
    """

    text: str
    blocks: Sequence[Block]
    title: str | None = None
    line_numbers: Sequence[int] | None = None
    page_numbers: Sequence[int] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The unit that is embedded and found: a run of a document's text, and where it stands.

    ``start_line``/``end_line`` (inclusive) and ``page`` are 1-based and None where the format has none.
    ``tokens`` counts the model's tokens of :attr:`embedded_text` without special tokens. ``searched`` is the part of
    the text that search goes by, by meaning and by words; None stands for all of it. Where it is ``""``, no search
    finds the chunk. Lone surrogates, which no encoding of Unicode holds, become question marks.
    """

    text: str
    headings: tuple[str, ...] = ()
    title: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    page: int | None = None
    tokens: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    searched: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _encodable(self.text))
        object.__setattr__(self, "headings", tuple(_encodable(heading) for heading in self.headings))
        for name in ("title", "searched"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else _encodable(value))

    @property
    def embedded_text(self) -> str:
        """The text that is given to the model: the chunk, or its part that search goes by, below title and headings."""
        return embedded_text(self.searched or self.text, self.headings, self.title)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def embedded_text(text: str, headings: Sequence[str], title: str | None) -> str:
    """Put the title and the heading path that ``text`` does not itself begin with above ``text``."""
    context = list(headings)
    if title and title not in context:
        context.insert(0, title)
    first_line = text.split("\n", 1)[0]
    if context and context[-1] in first_line:
        context.pop()
    return "\n".join((" > ".join(context), text)) if context else text
