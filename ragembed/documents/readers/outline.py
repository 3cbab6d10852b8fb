"""Build the text of word processor files and presentations: headings, paragraphs, tables and notes, in order."""

from __future__ import annotations

from collections.abc import Iterable

from ragembed.documents.model import BlockKind
from ragembed.documents.readers.package import LimitExceededError
from ragembed.documents.readers.structure import HeadingPath, TextBuilder, one_line

LONGEST_TEXT = 20_000_000
"""Maximum number of characters of a document. Repeated cells make a text longer than the file."""


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
                self.title = title
            self._add_notes(self._take_notes())

    def add_paragraph(self, text: str, kind: BlockKind = "text") -> None:
        """Add a block of text below the open headings, and the notes that belong to it."""
        self.end_table()
        if text := text.strip("\n"):
            self._add(text, kind, self.headings.headings)
        self._add_notes(self._take_notes())

    def add_row(self, cells: Iterable[str]) -> None:
        """Add a row to the current table. The first row begins a table, and any other block ends it."""
        row = " | ".join(one_line(cell) for cell in cells).rstrip(" |")
        self._count(row)
        self._rows.append(row)
        self._table_notes += self._take_notes()

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


def comment_label(author: str) -> str:
    """Return the words before a comment."""
    author = one_line(author)
    return f"Comment by {author}" if author else "Comment"
