"""Read reStructuredText: titles, literal blocks, grid and simple tables. The text of the file is unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, HeadingPath

ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")
CODE_DIRECTIVE = re.compile(r"[ \t]*\.\. (?:code-block|code|sourcecode|parsed-literal|testcode|doctest)::")
SIMPLE_BORDER = re.compile(r"[ \t]*=+(?: +=+)+[ \t]*$")
GRID_BORDER = re.compile(r"[ \t]*\+[-=+]*-[-=+]*\+[ \t]*$")
SHORTEST_TRANSITION = 4


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a reStructuredText file. Its title is the first section title."""
    file_text = FileText(file.text)
    _RstScanner(file_text).scan()
    title = next((block.headings[-1] for block in file_text.blocks if block.kind == "heading"), None)
    yield ParsedDocument(file_text.text, file_text.blocks, title)


class _RstScanner:
    """Scans the lines once. The order in which title styles first appear gives their levels."""

    def __init__(self, file_text: FileText) -> None:
        self.file_text = file_text
        self.lines = file_text.lines
        self.path = HeadingPath()
        self.styles: list[tuple[str, bool]] = []

    def scan(self) -> None:
        number = 0
        while number < len(self.lines):
            if not self.lines[number].strip():
                number += 1
                continue
            number = self._title(number) or self._table(number) or self._code(number) or self._paragraph(number)

    def _title(self, number: int) -> int:
        """Add the section title that starts at line ``number``. Return the line after it, or 0 if there is none."""
        line, below = self.lines[number], self._line(number + 1)
        if ADORNMENT.match(line):
            closing = self._line(number + 2)
            framed = below.strip() and closing.rstrip() == line.rstrip() and not ADORNMENT.match(below)
            if framed and len(line.rstrip()) >= len(below.rstrip()):
                return self._add_title(number, number + 3, below.strip(), (line[0], True))
            return 0
        underlined = not line[0].isspace() and below and ADORNMENT.match(below)
        if underlined and len(below.rstrip()) >= min(len(line.rstrip()), SHORTEST_TRANSITION):
            return self._add_title(number, number + 2, line.strip(), (below[0], False))
        return 0

    def _add_title(self, first: int, stop: int, title: str, style: tuple[str, bool]) -> int:
        if style not in self.styles:
            self.styles.append(style)
        self.file_text.add(first, stop, "heading", self.path.enter(self.styles.index(style), title))
        return stop

    def _table(self, number: int) -> int:
        line, stop = self.lines[number], number + 1
        if GRID_BORDER.match(line):
            while self._line(stop).lstrip()[:1] in ("+", "|"):
                stop += 1
        elif SIMPLE_BORDER.match(line):
            stop = self._simple_table_end(number)
        else:
            return 0
        self.file_text.add(number, stop, "table", self.path.headings)
        return stop

    def _simple_table_end(self, first: int) -> int:
        """Return the line after the first border that a blank line follows. The top border does not count."""
        for number in range(first + 1, len(self.lines)):
            if SIMPLE_BORDER.match(self.lines[number]) and not self._line(number + 1).strip():
                return number + 1
        return len(self.lines)

    def _code(self, number: int) -> int:
        line = self.lines[number]
        if CODE_DIRECTIVE.match(line):
            stop = self._indented_end(number)
        elif line.lstrip().startswith(">>> "):
            stop = self._run_end(number)
        else:
            return 0
        self.file_text.add(number, stop, "code", self.path.headings)
        return stop

    def _paragraph(self, number: int) -> int:
        stop = self._run_end(number)
        self.file_text.add(number, stop, "text", self.path.headings)
        if not self.lines[stop - 1].rstrip().endswith("::"):
            return stop
        literal_end = self._indented_end(stop - 1)
        self.file_text.add(stop, literal_end, "code", self.path.headings)
        return literal_end

    def _run_end(self, first: int) -> int:
        """Return the blank line that ends the run of lines that starts at ``first``."""
        number = first + 1
        while self._line(number).strip():
            number += 1
        return number

    def _indented_end(self, first: int) -> int:
        """Return the end of the block below line ``first`` that is indented more than this line."""
        margin, stop = _indentation(self.lines[first]), first + 1
        for number in range(first + 1, len(self.lines)):
            if self.lines[number].strip():
                if _indentation(self.lines[number]) <= margin:
                    break
                stop = number + 1
        return stop

    def _line(self, number: int) -> str:
        return self.lines[number] if number < len(self.lines) else ""


def _indentation(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())
