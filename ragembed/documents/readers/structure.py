"""Helpers for readers: heading paths, blocks of lines, and texts built line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any

from ragembed.documents.decoding import decode, is_binary
from ragembed.documents.model import Block, BlockKind, ParsedDocument
from ragembed.documents.readers.blobs import without_blobs
from ragembed.documents.readers.formulas import scripts
from ragembed.errors import DocumentError

OLE_MAGIC = b"\xd0\xcf\x11\xe0"
"""The first bytes of an OLE container: an Office file from before 2007, an encrypted Office file or an Outlook mail."""
MOST_SHORT_LINES, SHORT_LINE = 1_000_000, 16
"""A file with more lines, of fewer characters on average, is refused: it is no text, and needs much time and memory."""
MOST_MARKS = 2_000_000
"""Maximum number of marks of a markup. A file with more is read as plain text, because of its time and memory."""


DEEPEST_INDENT = 16
"""Levels of a list with an indent of their own. The text of a deeper list would be longer than its file."""


class HeadingPath:
    """The open headings at a position in a document. Lower levels are outer headings."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self.headings: tuple[str, ...] = ()
        """The open headings, outermost first, without headings that repeat the one above."""

    def enter(self, level: int, title: str) -> tuple[str, ...]:
        """Close all headings at ``level`` or deeper, open ``title`` at ``level``, and return the new path."""
        self._set([*(heading for heading in self._open if heading[0] < level), (level, title)])
        return self.headings

    def leave(self, level: int) -> None:
        """Close all headings at ``level`` or deeper."""
        self._set([heading for heading in self._open if heading[0] < level])

    def _set(self, headings: list[tuple[int, str]]) -> None:
        self._open = headings
        self.headings = tuple(title for title, _ in groupby(title for _, title in headings))

    def copy(self) -> HeadingPath:
        """Return a path with the same open headings."""
        path = HeadingPath()
        path._set(self._open)
        return path


class FileText:
    """The text of a file, and its blocks, which are added as ranges of lines. Change a line to leave out its markup."""

    def __init__(self, text: str) -> None:
        self.lines = lines_of(text)
        self._ranges: list[tuple[int, int, BlockKind, tuple[str, ...]]] = []

    @property
    def text(self) -> str:
        """The lines."""
        return "\n".join(self.lines)

    @property
    def blocks(self) -> list[Block]:
        """The blocks in the order in which they were added."""
        starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        return [
            Block(starts[first], starts[stop - 1] + len(self.lines[stop - 1].rstrip()), kind, headings)
            for first, stop, kind, headings in self._ranges
        ]

    def document(self, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> ParsedDocument:
        """Return the text with its blocks."""
        return ParsedDocument(self.text, self.blocks, title, metadata=metadata or {})

    def add(self, first: int, stop: int, kind: BlockKind = "text", headings: tuple[str, ...] = ()) -> None:
        """Add a block for lines ``first`` to ``stop`` (0-based, ``stop`` exclusive), without outer blank lines."""
        lines = self.lines
        while first < stop and (not lines[first] or lines[first].isspace()):
            first += 1
        while first < stop and (not lines[stop - 1] or lines[stop - 1].isspace()):
            stop -= 1
        if first < stop:
            self._ranges.append((first, stop, kind, headings))

    def add_paragraphs(self, first: int, stop: int, kind: BlockKind = "text", headings: tuple[str, ...] = ()) -> None:
        """Add a block for each run of non-blank lines between ``first`` and ``stop``."""
        for start, end in runs(self.lines, first, stop):
            self.add(start, end, kind, headings)


class TextBuilder:
    """Builds a text from blocks of lines. Each line has a place: its line or page in the file.

    One blank line follows each block. Its place is where the block above it *ends* in the file, because one line of
    the text can be several lines of the file.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._lines: list[str] = []
        self._places: list[int] = []
        self._length = 0
        self._last_place = 0

    @property
    def text(self) -> str:
        """All lines so far, each followed by a line break."""
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def places(self) -> list[int]:
        """The place of each line of :attr:`text`, including the empty line at the end."""
        return [*self._places, self._last_place]

    def add(
        self,
        lines: Iterable[tuple[str, int]],
        kind: BlockKind = "text",
        headings: tuple[str, ...] = (),
        last_place: int = 0,
    ) -> None:
        """Add a block of ``(line, place)`` pairs that ends at ``last_place``. Blank blocks are ignored."""
        kept = [(line.rstrip(), place) for line, place in lines]
        while kept and not kept[-1][0]:
            kept.pop()
        while kept and not kept[0][0]:
            kept.pop(0)
        if not kept:
            return
        if self._lines:
            self._append("", self._last_place)
        start = self._length
        for line, place in kept:
            self._append(line, place)
        self._last_place = max(last_place, kept[-1][1])
        self.blocks.append(Block(start, self._length - 1, kind, headings))

    def add_text(self, text: str, place: int, kind: BlockKind = "text", headings: tuple[str, ...] = ()) -> None:
        """Add ``text`` as one block. All its lines have the place ``place``."""
        self.add(((line, place) for line in text.split("\n")), kind, headings)

    def add_blocks(self, text: str, blocks: Sequence[Block], places: Sequence[int]) -> None:
        """Add a text with its blocks and the place of each line. Blank lines at the end are dropped."""
        if not blocks:
            return
        text = text.rstrip("\n")
        if self._lines:
            self._append("", self._last_place)
        shift = self._length
        for line, place in zip(text.split("\n"), places, strict=False):
            self._append(line, place)
        self._last_place = places[-1]
        self.blocks += [Block(b.start + shift, b.end + shift, b.kind, b.headings) for b in blocks]

    def document(self, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> ParsedDocument:
        """Return the text with its blocks. The places are lines of the file."""
        return ParsedDocument(self.text, self.blocks, title, line_numbers=self.places, metadata=metadata or {})

    def _append(self, line: str, place: int) -> None:
        self._lines.append(line)
        self._places.append(place)
        self._length += len(line) + 1


class Paragraphs:
    """Collects words into lines, and lines into blocks. Each line has the line of the file where its words start."""

    def __init__(self) -> None:
        self.builder = TextBuilder()
        self.path = HeadingPath()
        self.prefix = ""
        """The start of the next line, such as the mark of a list item."""
        self.lines: list[tuple[str, int]] = []
        self.words: list[str] = []
        self.line = 0
        self.last_line = 0

    def add(self, text: str, line: int = 0) -> None:
        """Add words, or white space, that start at ``line`` of the file."""
        if words := text.lstrip():
            if not self.words:
                self.line = line + text[: len(text) - len(words)].count("\n")
            self.words.append(text)
            self.last_line = max(self.last_line, line + text.rstrip().count("\n"))
        elif self.words:
            self.words.append(" ")

    def take_words(self) -> str:
        """Return the words of the current line and remove them."""
        text = scripts(one_line("".join(self.words)))
        self.words = []
        return text

    def add_line(self, text: str, line: int | None = None) -> None:
        """Add a line to the current block. By default, it starts where the last words started."""
        self.lines.append((text, self.line if line is None else line))
        self.last_line = max(self.last_line, self.lines[-1][1])

    def end_line(self) -> None:
        """End the current line, if it has words."""
        if text := self.take_words():
            self.add_line(self.prefix + text)
            self.prefix = ""

    def end_block(self, kind: BlockKind = "text") -> None:
        """End the current line and block."""
        self.end_line()
        self.builder.add(self.lines, kind, self.path.headings, self.last_line)
        self.lines, self.prefix = [], ""

    def add_heading(self, level: int, title: str, line: int | None = None) -> None:
        """End the current block and add a heading."""
        self.end_block()
        place = self.line if line is None else line
        self.builder.add([(title, place)], "heading", self.path.enter(level, title), max(place, self.last_line))

    def add_listing(self, lines: Iterable[tuple[str, int]], kind: BlockKind = "code") -> None:
        """End the current block and add a block of lines as they are."""
        self.end_block()
        self.builder.add(lines, kind, self.path.headings)

    def document(self, title: str | None) -> ParsedDocument:
        """End the current block and return the document."""
        self.end_block()
        return self.builder.document(title)


def add_to_listing(lines: list[tuple[str, int]], text: str, line: int) -> None:
    """Add text that starts at ``line`` of the file to the last line of a listing, and the lines below it."""
    first, *rest = text.split("\n")
    above, at = lines[-1]
    lines[-1] = (above + first, at)
    lines += [(more, line + number) for number, more in enumerate(rest, 1)]


def runs(lines: Sequence[str], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first line and the end of each run of lines that are not blank."""
    start = first
    for number in range(first, stop + 1):
        if number == stop or not lines[number].strip():
            if start < number:
                yield start, number
            start = number + 1


def indent(depth: int) -> str:
    """Return the spaces before a line at ``depth``, for the first ``DEEPEST_INDENT`` levels."""
    return "  " * min(max(depth, 0), DEEPEST_INDENT)


def has_too_many(marks: str, text: str) -> bool:
    """Return whether ``text`` has so many of the characters ``marks`` that reading its markup would take too long."""
    return sum(map(text.count, marks)) > MOST_MARKS


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; more than ``MOST_SHORT_LINES`` with hardly anything on them are an error."""
    lines = text.count("\n") + 1
    if lines > MOST_SHORT_LINES and len(text) < SHORT_LINE * lines:
        raise DocumentError(f"{lines:,} lines of {len(text) // lines} characters on average: not a text to search")
    return text.split("\n")


def text_of(data: bytes) -> str:
    """Decode the content of a text file, without encoded data; raise :class:`DocumentError` if it is binary."""
    if is_binary(data):
        raise DocumentError("binary, not text")
    return without_blobs(decode(data))


def well_formed(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD. JSON and PDF files can contain both."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def one_line(text: str) -> str:
    """Collapse each run of white space, including line breaks, to one space."""
    return " ".join(text.split())


MOST_SPANNED = 1_000
"""Maximum number of rows or columns of a cell, as in browsers for columns."""
MOST_REPEATED = 1_000_000
"""Maximum number of characters that are repeated for the cells of a table that span several rows."""
LONGEST_TEXT = 20_000_000
"""Maximum number of characters of a document. Repeated cells make a text longer than the file."""


class LimitExceededError(DocumentError):
    """A file exceeds a limit. No part of it is used, unlike a package in which one part is broken."""


class OutlineBuilder(TextBuilder):
    """A text builder that receives the rows of a table one by one, and notes before the block that refers to them.

    ``place`` is the page or slide of the blocks that follow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headings = HeadingPath()
        self.place = 0
        self.title = ""
        self._characters = 0
        self._rows: list[str] = []
        self._notes: list[str] = []
        self._table_notes: list[str] = []

    def add_heading(self, level: int, text: str) -> None:
        """Add a heading. Level 0 is the title of the document."""
        if title := one_line(text):
            self.end_table()
            self._add(text.strip(), "heading", self.headings.enter(level, title))
            if level == 0:
                self.title = self.title or title
            self._add_notes(self._take_notes())

    def add_paragraph(self, text: str) -> None:
        """Add a block of text below the open headings, and the notes that belong to it."""
        self.end_table()
        if text := text.strip("\n"):
            self._add(text, "text", self.headings.headings)
        self._add_notes(self._take_notes())

    def add_row(self, cells: Iterable[str]) -> None:
        """Add a row to the current table. The first row begins a table, and any other block ends it."""
        row = " | ".join(one_line(cell) for cell in cells).rstrip(" |")
        self._count(row)
        self._rows.append(row)
        self._table_notes += self._take_notes()

    def add_document(self, document: ParsedDocument) -> None:
        """Add the blocks of a document below the open headings."""
        self.end_table()
        for block in document.blocks:
            headings = (*self.headings.headings, *block.headings)
            self._add(document.text[block.start : block.end], block.kind, headings)

    def end_table(self) -> None:
        """Add the table whose rows have been added, if there is one, and the notes that belong to it."""
        if self._rows:
            rows, self._rows = self._rows, []
            self.add_text("\n".join(rows), self.place, "table", self.headings.headings)
        notes, self._table_notes = self._table_notes, []
        self._add_notes(notes)

    def finish(self) -> None:
        """Add the last table and the notes that are left, at the end of a document or slide."""
        self.end_table()
        self._add_notes(self._take_notes())

    @property
    def first_heading(self) -> str:
        """The first heading, or an empty string."""
        return next((block.headings[-1] for block in self.blocks if block.kind == "heading"), "")

    def paged(self, title: str | None) -> ParsedDocument:
        """Return the document with its pages or slides, or without places if it has none."""
        pages = self.places if self.place else ()
        return ParsedDocument(self.text, self.blocks, self.title or title or None, page_numbers=pages)

    def add_note(self, text: str, label: str = "") -> None:
        """Keep a note, comment or text box: it becomes a block after the next paragraph, heading or table."""
        if text := text.strip():
            self._notes.append(f"{label}: {text}" if label else text)

    def _take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def _add_notes(self, notes: Iterable[str]) -> None:
        for note in notes:
            self._add(note, "text", self.headings.headings)

    def _add(self, text: str, kind: BlockKind, headings: tuple[str, ...]) -> None:
        self._count(text)
        self.add_text(text, self.place, kind, headings)

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > LONGEST_TEXT:
            raise LimitExceededError(f"longer than {LONGEST_TEXT:,} characters")


class Spans:
    """Places the cells of a table row by row. A cell that spans rows is repeated in each of them.

    In a header, a cell that spans columns is repeated too, because it belongs to each of them.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, int]] = {}
        self._room = MOST_REPEATED

    def row(self, cells: Sequence[tuple[str, int, int]], *, is_header: bool = False) -> list[str]:
        """Return the texts of a row. ``cells`` are text, columns and rows of the cells that begin in it."""
        if not self._open and all(cell[1] == cell[2] == 1 for cell in cells):
            return [text for text, _, _ in cells]
        texts: dict[int, str] = {}
        column = 0
        below: dict[int, tuple[str, int]] = {}
        for text, columns, rows in cells:
            while column in self._open:
                column += 1
            columns, rows = max(1, min(columns, MOST_SPANNED)), min(rows, MOST_SPANNED)
            for at in range(column, column + columns):
                if at == column or is_header:
                    texts[at] = self._repeated(text, at > column)
                if rows > 1:
                    below[at] = (text if at in texts else "", rows - 1)
            column += columns
        for at, (text, rows) in self._open.items():
            if text:
                texts[at] = self._repeated(text, True)
            if rows > 1:
                below[at] = (text, rows - 1)
        self._open = below
        if len(texts) > 1 and len(set(texts.values())) == 1 and is_header:
            return list(texts.values())[:1]
        return [texts[at] for at in sorted(texts)]

    def _repeated(self, text: str, again: bool) -> str:
        self._room -= len(text) + 1 if again else 0
        return text if self._room >= 0 or not again else ""


def comment_label(author: str) -> str:
    """Return the words before a comment."""
    author = one_line(author)
    return f"Comment by {author}" if author else "Comment"
