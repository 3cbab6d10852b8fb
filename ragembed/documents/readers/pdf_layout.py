"""Find the layout of PDF pages: reading order, headings, tables, code and paragraphs.

Lengths are in points of 1/72 inch, from the upper left corner of the page.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ragembed.documents.readers.formulas import scripts
from ragembed.documents.readers.pdf_pages import GAP, IS_BOLD, IS_MONOSPACED, IS_UNMAPPED, STYLES
from ragembed.documents.readers.structure import HeadingPath, TextBuilder, one_line

BULLET = re.compile(
    r"(?:[•◦▪‣–—*·○●■□➢✓-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.):]|\[\d{1,3}\]|\d{1,2}(?:\.\d{1,3})*)\Z"
)
LIST_MARK = re.compile(r"[•◦▪‣–—·○●■□➢✓]")
LEADER = re.compile(r"(?:\s?[.·…‥․]){4,}\s*|(?:\s[_]){4,}\s*")
NUMBERING = re.compile(r"\A(?:[^\W\d_]{3,9}\s+)?(?:\d+|[A-Z])(?:[.-]\d+)*[.:]?\s+")
NO_LETTER = re.compile(r"[\W_]+")
LINE_END_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zß-öø-ÿ])")
"""Headings and cells are one line of text, so their hyphens are removed here."""
EAST_ASIAN = frozenset(
    ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "FULLWIDTH", "HALFWIDTH", "IDEOGRAPHIC", "BOPOMOFO")
)
MOST_SCRIPTS = 2
SENTENCE_END = (".", "!", "?", ":", "。", "！", "？", ".”", ".)", '."', "؟", "۔")
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
LOOK_BACK = 6
"""A cell of a table can stand beside the last lines that are already read, at most this many."""
TALL = 3
"""A line that is higher than this many font sizes is read upwards or downwards, and the page is not."""
LARGER = 1.12
"""A heading's font is at least this many times as large as that of the text."""
BLOCK_GAP = 1.35
"""Lines that are more than this many times as far apart as usual are in different blocks."""
TITLE = 1.3
"""The font of a title is at least this many times as large as that of the text."""
SMALLER = 0.85
"""The font of a bold heading is at least this many times as large as that of the text."""
HEADING_LETTERS = 150
HEADING_LINES = 3

LEAST_SHORT_LINES = 3
"""Number of lines from which columns of short lines are columns of text and no table."""
FULL_SHARE = 0.25
"""Share of the lines of full columns that begin in lower case, so that the columns are no table."""
FIRST_EAST_ASIAN = "\u2e80"
MOST_COLUMNS = 10
"""Number of times that a page is divided into two columns, because each takes linear time."""
MOST_MATCHES = 20
MOST_CUT = 1000
"""Pages with more lines are ordered from top to bottom only, because cutting takes quadratic time."""

OutlineEntry = tuple[int, str, int, "float | None"]
"""Level from 1, title, page from 0, and the distance from the top of the page if it is given."""


@dataclass(slots=True)
class PdfCell:
    """Words of a line that stand together: text, box, font size and style."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    style: int = 0


class PdfLine:
    """A line of a page, with its box. It has several cells if wide gaps separate its words."""

    __slots__ = ("_longest", "bottom", "cells", "left", "page", "right", "size", "style", "text", "top")

    def __init__(self, cells: Iterable[PdfCell], page: int) -> None:
        first, *others = cells
        self.cells, self.page, self.text = [first, *others], page, " ".join(cell.text for cell in (first, *others))
        self.left, self.top, self.right, self.bottom = first.left, first.top, first.right, first.bottom
        self.size, self.style, self._longest = first.size, first.style, len(first.text)
        for cell in others:
            self._include(cell)

    def add(self, cells: Sequence[PdfCell], *, in_front: bool = False) -> None:
        """Add cells behind the others, or in front of them. Cells without a wide gap between them become one."""
        one, other = (cells[-1], self.cells[0]) if in_front else (self.cells[-1], cells[0])
        first, second = (cells, self.cells) if in_front else (self.cells, cells)
        if max(other.left - one.right, one.left - other.right) < GAP * max(one.size, other.size):
            self.cells = [*first[:-1], joined(one, other), *second[1:]]
        else:
            self.cells = [*first, *second]
        added = " ".join(cell.text for cell in cells)
        self.text = f"{added} {self.text}" if in_front else f"{self.text} {added}"
        for cell in cells:
            self._include(cell)

    def _include(self, cell: PdfCell) -> None:
        self.left, self.top = min(self.left, cell.left), min(self.top, cell.top)
        self.right, self.bottom = max(self.right, cell.right), max(self.bottom, cell.bottom)
        self.style &= cell.style
        if len(cell.text) > self._longest:
            self.size, self._longest = cell.size, len(cell.text)


def make_line(segments: Iterable[Sequence[object]], page: int) -> PdfLine:
    """Return a line from the segments of :mod:`.pdf_pages`. A bullet or number joins the segment that follows it."""
    cells: list[PdfCell] = []
    for segment in segments:
        cell = PdfCell(scripts(str(segment[0])), *segment[1:])  # type: ignore[arg-type]
        if cells and BULLET.match(cells[-1].text) and len(cells) == 1:
            cells[-1] = joined(cells[-1], cell)
        else:
            cells.append(cell)
    return PdfLine(cells, page)


def joined(one: PdfCell, other: PdfCell) -> PdfCell:
    """Return two cells of a row as one."""
    longer = max(one, other, key=lambda cell: len(cell.text))
    return PdfCell(
        f"{one.text} {other.text}",
        min(one.left, other.left),
        min(one.top, other.top),
        max(one.right, other.right),
        max(one.bottom, other.bottom),
        longer.size,
        other.style,
    )


# Reading order


def in_reading_order(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Return the lines of a page in reading order, which is mostly that of the file, with the cells of a row joined."""
    rows = _rows(lines)
    for _ in range(MOST_COLUMNS):
        found = _gutter(rows)
        if found is None:
            break
        gutter, first, stop = found
        rows = [*rows[:first], *_columns(rows[first:stop], gutter), *rows[stop:]]
    jumps = sum(below.bottom < above.top and _overlap(above, below) for above, below in pairwise(rows))
    return _cut(rows) if jumps > max(2, len(rows) // 5) else rows


def _overlap(one: PdfLine, other: PdfLine) -> bool:
    return one.left < other.right and other.left < one.right


def _beside(one: PdfLine, other: PdfLine) -> bool:
    """Return whether two lines are on one baseline. A line that is read upwards has no baseline."""
    if max(one.bottom - one.top - TALL * one.size, other.bottom - other.top - TALL * other.size) > 0:
        return False
    height = min(one.bottom - one.top, other.bottom - other.top)
    return min(one.bottom, other.bottom) - max(one.top, other.top) > 0.6 * height


def _rows(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """Join lines that are on one baseline and near each other in the file, such as the cells of a row."""
    rows: list[PdfLine] = []
    for line in lines:
        last = rows[-LOOK_BACK:]
        at = next((at for at in reversed(range(len(last))) if _beside(last[at], line)), None)
        if at is None or _overlap(last[at], line):
            rows.append(line)
            continue
        # Beside a line further up, there is a cell only if all lines since then end on its left.
        if at < len(last) - 1 and any(each.right > line.left for each in last[at:]):
            rows.append(line)
            continue
        row = last[at]
        row.add(line.cells, in_front=line.left < row.left and not RIGHT_TO_LEFT.search(row.text + line.text))
    return rows


def _gutter(rows: Sequence[PdfLine]) -> tuple[float, int, int] | None:
    """Return the middle between the first two columns of text whose lines alternate, and the rows with them."""
    counts = Counter(len(row.cells) for row in rows if len(row.cells) > 1)
    if not counts:
        return None
    width = max(row.right for row in rows) - min(row.left for row in rows)
    (count, _), *_ = counts.most_common(1)
    least = 0.6 / count * width
    wide = [
        cells
        for row in rows
        if len(cells := _from_left(row)) == count and all(c.right - c.left > least and _gaps(c.text) > 2 for c in cells)
    ]
    if len(wide) >= max(5, len(rows) // 3):
        gutter = _middle(wide)
        return None if gutter is None else (gutter, 0, len(rows))
    run = max(_runs(rows, count), key=len)
    lines = [_from_left(rows[at]) for at in run]
    phrases = sum(all(_gaps(cell.text) > 1 for cell in cells) for cells in lines)
    first, stop = run[0], run[-1] + 1
    beside = [row for row in (*rows[max(0, first - 1) : first], *rows[stop : stop + 1]) if len(row.cells) > count]
    is_text = len(run) >= LEAST_SHORT_LINES and 3 * phrases >= 2 * len(run) and not beside
    gutter = _middle(lines) if is_text and _flow([*zip(*lines, strict=True)]) else None
    if gutter is None:
        return None
    last = [lines[-1][0].text, lines[-1][-1].text]
    for row in rows[stop:]:
        side = row.left > gutter
        if len(row.cells) > 1 or _spans(row, gutter) or last[side].endswith(SENTENCE_END):
            break
        last[side] = row.text
        stop += 1
    return gutter, first, stop


def _runs(rows: Sequence[PdfLine], count: int) -> list[list[int]]:
    """Return the numbers of successive rows with ``count`` cells whose second columns begin below each other."""
    runs: list[list[int]] = []
    left = 0.0
    for at, row in enumerate(rows):
        if len(row.cells) == count:
            above, left = left, _from_left(row)[1].left
            if runs and runs[-1][-1] == at - 1 and abs(left - above) < 2 * row.size:
                runs[-1].append(at)
            else:
                runs.append([at])
    return runs


def _from_left(row: PdfLine) -> list[PdfCell]:
    return sorted(row.cells, key=lambda cell: cell.left)


def _middle(lines: Sequence[Sequence[PdfCell]]) -> float | None:
    """Return the middle between the first two cells of all lines, or None if they overlap."""
    left, right = max(cells[0].right for cells in lines), min(cells[1].left for cells in lines)
    return (left + right) / 2 if left < right else None


def _spans(row: PdfLine, gutter: float) -> bool:
    return any(cell.left < gutter < cell.right for cell in row.cells)


def _gaps(text: str) -> int:
    """Return the number of gaps between words. In Chinese and Japanese, they are estimated."""
    return text.count(" ") + sum(letter > FIRST_EAST_ASIAN for letter in text) // 4


def _flow(columns: Sequence[Sequence[PdfCell]]) -> bool:
    """Return whether cells below each other are the lines of texts: they fill their columns, and sentences go on.

    Sentences of fewer lines have to go on if no line has room for the first word of the next one.
    """
    is_full, shares = True, list[float]()
    for cells in columns:
        widths = sorted(cell.right - cell.left for cell in cells)
        if widths[len(widths) // 2] <= 0.75 * widths[-1]:
            return False
        inner = [(above, cell) for above, cell in pairwise(cells) if not above.text.endswith(SENTENCE_END)]
        is_full &= all(above.right - above.left + _first_word(cell) > widths[-1] for above, cell in inner)
        has_case = any(letter.islower() for cell in cells for letter in cell.text)
        goes_on = sum(cell.text[0].islower() for _, cell in inner) / (len(cells) - 1)
        shares.append(goes_on if has_case else FULL_SHARE)
    if len(columns[0]) == LEAST_SHORT_LINES:
        return is_full and min(shares) >= 0.5
    return min(shares) >= 0.5 or (is_full and sum(shares) >= FULL_SHARE * len(shares))


def _first_word(cell: PdfCell) -> float:
    """Return the width of the first word with a space, or of a character in Chinese and Japanese."""
    letters = 1 if cell.text[0] > FIRST_EAST_ASIAN else len(cell.text.partition(" ")[0]) + 1
    return (cell.right - cell.left) / len(cell.text) * letters


def _columns(rows: Sequence[PdfLine], gutter: float) -> list[PdfLine]:
    ordered: list[PdfLine] = []
    sides: tuple[list[PdfLine], list[PdfLine]] = [], []
    rtl = sum(bool(RIGHT_TO_LEFT.search(row.text)) for row in rows) > len(rows) / 2
    for row in rows:
        lowest = max((line.bottom for side in sides for line in side), default=row.top)
        if row.top - lowest > 2 * row.size:  # the text below the columns
            ordered += sides[rtl] + sides[not rtl]
            sides = [], []
        if _spans(row, gutter):
            ordered += sides[rtl] + sides[not rtl] + [row]
            sides = [], []
            continue
        for side, kept in enumerate(sides):
            if cells := [cell for cell in row.cells if (cell.left > gutter) == bool(side)]:
                kept.append(PdfLine(cells, row.page))
    return ordered + sides[rtl] + sides[not rtl]


def _cut(rows: Sequence[PdfLine]) -> list[PdfLine]:
    """Order lines by cutting the page at white space: between columns first, else at the widest horizontal gap."""
    if len(rows) > MOST_CUT:
        return sorted(rows, key=lambda row: (row.top, row.left))
    pending, ordered = [list(rows)], []
    while pending:
        group = pending.pop()
        for parts in (_parts(group, across=True), _parts(group, across=False)):
            if len(parts) > 1:
                pending += reversed(parts)
                break
        else:
            ordered += sorted(group, key=lambda row: (row.top, row.left))
    return ordered


def _parts(rows: list[PdfLine], *, across: bool) -> list[list[PdfLine]]:
    """Split lines at the widest gap, across the page or down. Gaps narrower than a font size do not count."""
    spans = sorted(((r.left, r.right) if across else (r.top, r.bottom), at) for at, r in enumerate(rows))
    widest, cut, end = max(row.size for row in rows) if across else 0.1, 0, spans[0][0][1]
    for number, ((start, stop), _) in enumerate(spans):
        if start - end > widest:
            widest, cut = start - end, number
        end = max(end, stop)
    first, second = ([rows[at] for _, at in part] for part in (spans[:cut], spans[cut:]))
    if not first or (across and min(len(first), len(second)) < 2):
        return [rows]
    return [first, second]


# Headings


@dataclass(slots=True)
class PdfHeading:
    """A heading of ``lines`` lines from the line with the given position. Without lines it is only a place."""

    level: int
    title: str
    lines: int


Headings = dict[tuple[int, int], list[PdfHeading]]
"""Headings by page and number of the line in the page, both from 0."""


def outline_headings(pages: Sequence[Sequence[PdfLine]], outline: Sequence[OutlineEntry]) -> Headings:
    """Find the lines of the entries of an outline. An entry whose title is not on its page is only a place."""
    found: Headings = defaultdict(list)
    titles: dict[int, dict[str, list[tuple[int, int]]]] = {}
    taken: set[tuple[int, int]] = set()
    for level, title, page, top in outline:
        if not 0 <= page < len(pages) or not (key := _key(title)):
            continue
        if page not in titles:
            titles[page] = _titles(pages[page])
        lines = pages[page]
        matches = [
            (abs(lines[at].top - top) if top is not None else 0.0, at, count)
            for at, count in titles[page].get(key, ())[:MOST_MATCHES]
            if (page, at) not in taken
        ]
        if matches:
            _, at, count = min(matches)
            taken |= {(page, at + below) for below in range(count)}
            found[page, at].append(PdfHeading(level, one_line(title), count))
        else:
            at = next((at for at, line in enumerate(lines) if top is not None and line.bottom > top), 0)
            found[page, at].append(PdfHeading(level, one_line(title), 0))
    return found


def _titles(lines: Sequence[PdfLine]) -> dict[str, list[tuple[int, int]]]:
    """Return the first line and the number of lines of each text that can be a heading, with and without its number."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at in range(len(lines)):
        for count in range(1, min(HEADING_LINES, len(lines) - at) + 1):
            text = " ".join(line.text for line in lines[at : at + count])
            if len(text) > HEADING_LETTERS:
                break
            for key in {_key(text), _key(NUMBERING.sub("", text, count=1))}:
                found[key].append((at, count))
    return found


def _key(text: str) -> str:
    return NO_LETTER.sub("", text.casefold())


def font_headings(pages: Sequence[Sequence[PdfLine]], body: float, pitch: float) -> Headings:
    """Find headings by their fonts: larger than the text, or bold, on lines of their own."""
    lines = [line for page in pages for line in page]
    # A style that most lines have distinguishes no heading.
    usual = sum(style for style in STYLES if 2 * sum(bool(line.style & style) for line in lines) > len(lines))
    fonts: dict[tuple[int, int], tuple[int, tuple[int, bool]]] = {}
    for number, page in enumerate(pages):
        at = 0
        while at < len(page):
            count = 1
            font = _heading_font(page, at, body, pitch, usual)
            while font and at + count < len(page) and _continues(page[at + count - 1], page[at + count], font):
                count += 1
            text = " ".join(line.text for line in page[at : at + count])
            if font and count <= HEADING_LINES and len(text) < HEADING_LETTERS:
                fonts[number, at] = count, font
            at += count
    # A font of one line only, other than the largest, is that of an author or a date.
    uses = Counter(font for _, font in fonts.values())
    kept = sorted((font for font in uses if uses[font] > 1 or font == max(uses)), reverse=True)
    levels = {font: level for level, font in enumerate(kept, 1)}
    return {
        (number, at): [PdfHeading(levels[font], _title(pages[number][at : at + count]), count)]
        for (number, at), (count, font) in fonts.items()
        if font in levels
    }


def largest_heading(page: Sequence[PdfLine], body: float, pitch: float) -> str | None:
    """Return the heading of a page in the largest font, or None if no heading is much larger than the text."""
    found = font_headings([page], body, pitch)
    sizes = [(page[at].size, -at) for _, at in found]
    if not sizes or max(sizes)[0] < TITLE * body:
        return None
    return found[0, -max(sizes)[1]][0].title


def _heading_font(page: Sequence[PdfLine], at: int, body: float, pitch: float, usual: int) -> tuple[int, bool] | None:
    """Return size and weight of the font if the line can be the first of a heading."""
    line = page[at]
    text = line.text
    bold = bool(line.style & IS_BOLD)
    if (
        len(line.cells) > 1
        or line.style & ~usual & (IS_MONOSPACED | IS_UNMAPPED)
        or sum(map(str.isalpha, text)) < 3
        or LEADER.search(text)
        or len(_scripts(text)) > MOST_SCRIPTS
    ):
        return None
    if line.size >= LARGER * body:
        return round(line.size), bold
    apart = at == 0 or abs(line.bottom - page[at - 1].bottom) > 1.2 * pitch * body
    if usual & IS_BOLD or not bold or line.size < SMALLER * body or not apart or text.endswith((".", ",", ";", ":")):
        return None
    return round(body), True


def _continues(above: PdfLine, line: PdfLine, font: tuple[int, bool]) -> bool:
    same = (round(line.size), bool(line.style & IS_BOLD)) == font and len(line.cells) == 1
    return same and 0 < line.bottom - above.bottom < 1.8 * line.size


def _title(lines: Sequence[PdfLine]) -> str:
    title = "\n".join(line.text for line in lines)
    return one_line(LINE_END_HYPHEN.sub("", title))


def _scripts(text: str) -> set[str]:
    """Return the scripts of the letters. Text in a font without a table of characters mixes many."""
    names = {unicodedata.name(letter, "").split(" ", 1)[0] for letter in text if letter.isalpha()}
    return {"CJK" if name in EAST_ASIAN else name for name in names}


# Blocks


def body_font(pages: Sequence[Sequence[PdfLine]]) -> tuple[float, float]:
    """Return the font size of most text, and the distance of its lines in font sizes."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page:
            if not line.style & IS_MONOSPACED:
                sizes[line.size] += len(line.text)
    body = sizes.most_common(1)[0][0] if sizes else 10.0
    body = max(body, 1.0)
    pitches = Counter(
        round((below.bottom - above.bottom) / body, 1)
        for page in pages
        for above, below in pairwise(page)
        if above.size == below.size == body and 0.8 * body < below.bottom - above.bottom < 3 * body
    )
    return body, pitches.most_common(1)[0][0] if pitches else 1.2


def add_pages(
    builder: TextBuilder, pages: Sequence[Sequence[PdfLine]], headings: Headings, body: float, pitch: float
) -> None:
    """Add the lines of all pages to ``builder`` as blocks. Pages are numbered from 1."""
    path = HeadingPath()
    block = _BlockLines(builder, path, body, pitch)
    for number, page in enumerate(pages):
        at = 0
        while at < len(page):
            count = 0
            for heading in headings.get((number, at), ()):
                block.end()
                titles = path.enter(heading.level, heading.title)
                if heading.lines:
                    text = "\n".join(_plain(line) for line in page[at : at + heading.lines])
                    builder.add_text(text, number + 1, "heading", titles)
                    count = heading.lines
            if not count:
                block.add(page[at])
                count = 1
            at += count
    block.end()


class _BlockLines:
    """Collects lines into blocks: paragraphs, code and tables."""

    def __init__(self, builder: TextBuilder, path: HeadingPath, body: float, pitch: float) -> None:
        self._builder, self._path, self._body, self._pitch = builder, path, body, pitch
        self._lines: list[PdfLine] = []
        self._kind = ""

    def add(self, line: PdfLine) -> None:
        kind = "code" if line.style & IS_MONOSPACED and not LIST_MARK.match(line.text) else "text"
        if self._lines:
            starts, above = self._starts(line, kind), self._lines[-1]
            within = abs(line.left - above.left) < line.size and not above.text.endswith(SENTENCE_END)
            if kind == "code" and not starts and within:
                kind = self._kind  # a paragraph can have a line that is in the font of code
            if starts or kind != self._kind:
                self.end()
        self._kind = kind
        self._lines.append(line)

    def end(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        headings = self._path.headings
        if self._kind == "code":
            self._builder.add(zip(_code(lines), (line.page for line in lines), strict=True), "code", headings)
            return
        for table, rows in _tables(lines, self._pitch):
            pairs = [(_row(line) if table else _plain(line), line.page) for line in rows]
            self._builder.add(pairs, "table" if table else "text", headings)

    def _starts(self, line: PdfLine, kind: str) -> bool:
        """Return whether ``line`` starts a block below the last line."""
        above = self._lines[-1]
        ends = above.text.endswith(SENTENCE_END)
        if line.page != above.page or line.bottom < above.top:
            return kind == "text" and (ends or not line.text[:1].islower())
        size = max(line.size, above.size)
        drop = line.bottom - above.bottom
        wide = len(line.cells) > 1 and len(above.cells) > 1
        if drop > (2.2 if wide or kind == "code" else BLOCK_GAP) * self._pitch * size:
            return True
        if not wide and not 1 / 1.15 < line.size / max(above.size, 0.1) < 1.15 and drop > 0.8 * size:
            return True
        return kind == "text" and ends and not wide and line.left > above.left + 0.8 * size


def _plain(line: PdfLine) -> str:
    """Return the text of a line without dot leaders."""
    return one_line(LEADER.sub(" ", line.text))


def _row(line: PdfLine) -> str:
    return " | ".join(one_line(cell.text) for cell in line.cells)


def _code(lines: Sequence[PdfLine]) -> list[str]:
    """Return lines of code with their indentation and columns."""
    widths = sorted((c.right - c.left) / len(c.text) for line in lines for c in line.cells if len(c.text) > 2)
    width = max(widths[len(widths) // 2] if widths else 0, 1.0)
    left = min(line.left for line in lines)
    texts = []
    for line in lines:
        text = ""
        for cell in sorted(line.cells, key=lambda cell: cell.left):
            column = min(round((cell.left - left) / width), 400)
            text = f"{text} ".ljust(column) if text else " " * column
            text += cell.text
        texts.append(text)
    return texts


def _tables(lines: Sequence[PdfLine], pitch: float) -> list[tuple[bool, list[PdfLine]]]:
    """Split a block into tables and other lines. A table has two rows or more whose cells stand below each other."""
    parts: list[tuple[bool, list[PdfLine]]] = []
    for line in lines:
        in_table, kept = parts[-1] if parts else (False, [])
        above = kept[-1] if kept else None
        if above is not None and len(above.cells) > 1 and not LEADER.search(above.text + line.text):
            aligned = len(line.cells) > 1 and sum(_column(above, cell) is not None for cell in line.cells) > 1
            if aligned or in_table:
                row = _continued(above, line, pitch)
                if aligned and not in_table:
                    kept.pop()
                    parts += [(True, [above])]
                    in_table, kept = parts[-1]
                if row is not None:
                    kept[-1] = row
                    continue
                if aligned:
                    kept.append(line)
                    continue
        if parts and not in_table:
            kept.append(line)
        else:
            parts.append((False, [line]))
    return parts


def _column(above: PdfLine, cell: PdfCell) -> int | None:
    """Return the number of the cell above that starts or ends with ``cell``, or has the same middle."""
    near = 0.5 * cell.size
    for number, other in enumerate(above.cells):
        middle = abs(cell.left + cell.right - other.left - other.right) / 2
        if min(abs(cell.left - other.left), abs(cell.right - other.right), middle) < near:
            return number
    return None


def _continued(above: PdfLine, line: PdfLine, pitch: float) -> PdfLine | None:
    """Return the row above with the text of ``line``; None if the line does not continue its cells."""
    if line.left <= above.cells[0].right or line.bottom - above.bottom > BLOCK_GAP * pitch * line.size:
        return None
    cells = list(above.cells)
    for cell in line.cells:
        column = _column(above, cell)
        if column is None:
            return None
        text = one_line(LINE_END_HYPHEN.sub("", f"{cells[column].text}\n{cell.text}"))
        cells[column] = replace(joined(cells[column], cell), text=text)
    return PdfLine(cells, above.page)
