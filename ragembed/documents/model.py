"""The data model: documents with their structure, members of containers, and chunks with their positions.

Line and page numbers are 1-based and refer to the *file* (or member), so ``sed -n 'start,endp' file`` prints the source
of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

BlockKind = Literal["text", "heading", "code", "table"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a text, ``text[start:end]``, that is best kept together; only white space lies between blocks.

    ``headings`` is the path of headings above it, outermost first. For a heading block, the last one is itself.
    """

    start: int
    end: int
    kind: BlockKind = "text"
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The text of one document with its structure and its position in the file.

    ``line_numbers`` has the line of the file for each line of ``text``, None if they are the same, and for a blank line
    that where the block above ends. ``page_numbers`` has pages instead, and is empty for formats without both. The
    headings of a source are signatures that its text contains.
    """

    text: str
    blocks: Sequence[Block]
    title: str | None = None
    line_numbers: Sequence[int] | None = None
    page_numbers: Sequence[int] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_source: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside a container, with its path, and its unpacked and packed size as declared.

    ``load`` returns the content, or the documents that only the container's reader can read; call it before that
    continues. ``refused`` is a reason not to read it.
    """

    name: str
    size: int
    load: Callable[[], bytes | Iterator[ParsedDocument | Member]]
    packed: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document's text that is embedded and found as a unit, with its position in the file.

    Lone surrogates in the texts, which UTF-8 cannot represent, are replaced by question marks.

    Parameters
    ----------
    text : str
        The text.
    headings : tuple of str, default ()
        Headings above the chunk, outermost first.
    title : str or None, optional
        Title of the document.
    start_line, end_line : int or None, optional
        First and last line of the chunk in the file, from 1; None if the format has no lines.
    page : int or None, optional
        First page or slide of the chunk, from 1; None if the format has none.
    tokens : int, default 0
        Number of model tokens of :attr:`embedded_text`, without special tokens.
    metadata : mapping of str to object, optional
        JSON values, which filters can select by.
    searched : str or None, optional
        The text that dense and lexical search use: normalised (see :mod:`ragembed.documents.normalisation`). None means
        the text itself.
    later_pages : tuple of (int, int), default ()
        First line in the text, from 0, and number of each further page.

    Examples
    --------
    >>> from ragembed import Chunk
    >>> chunk = Chunk("Use hot water.", headings=("Tea",), title="Drinks", start_line=3, end_line=3)
    >>> print(chunk.embedded_text)
    Drinks > Tea
    Use hot water.
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
    later_pages: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _encodable(self.text))
        object.__setattr__(self, "headings", tuple(_encodable(heading) for heading in self.headings))
        for name in ("title", "searched"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else _encodable(value))
        object.__setattr__(self, "later_pages", tuple((line, page) for line, page in self.later_pages))

    @property
    def end_page(self) -> int | None:
        """Last page or slide of the chunk."""
        return self.later_pages[-1][1] if self.later_pages else self.page

    def page_of(self, line: int) -> int | None:
        """Return the page of a line of the text.

        Parameters
        ----------
        line : int
            Number of the line in the text, from 0.
        """
        return next((page for first, page in reversed(self.later_pages) if first <= line), self.page)

    @property
    def embedded_text(self) -> str:
        """Text that the model receives.

        It is the title and the headings, followed by ``searched``, or by ``text`` if that is not set.
        """
        return embedded_text(self.searched or self.text, self.headings, self.title)


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def embedded_text(text: str, headings: Sequence[str], title: str | None) -> str:
    """Return ``text`` below its title and heading path. A heading that the first line already contains is left out."""
    context = list(headings)
    if title and title not in context:
        context.insert(0, title)
    first_line = text.split("\n", 1)[0]
    if context and context[-1] in first_line:
        context.pop()
    return "\n".join((" > ".join(context), text)) if context else text
