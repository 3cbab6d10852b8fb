"""Drop the running headers and footers of PDF pages, and their page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ragembed.documents.readers.pdf_layout import LEADER, PdfLine

_PAGE = (
    r"(?:page|pg|pag|pág|pagina|página|pàgina|pagină|seite|blatt|strona|str|strana|stránka|stran|stranica|sida|sid|side|"
    r"sivu|oldal|sayfa|bladzijde|blz|lehekülg|lk|lappuse|lpp|puslapis|psl|trang|halaman|hal|страница|сторінка|стор|стр|"
    r"лист|σελίδα|σελ|صفحة|صفحه|עמוד|หน้า|पृष्ठ|ページ|頁|页|페이지|쪽|(?:pp?|s|с)(?=[.]))[.:]?"
)
_PAGE_NUMBER = r"(\d{1,5}|[ivxlc]{1,8})"
_OF = r"(?:/|\(|of|von|van|de|di|du|da|sur|su|af|av|fra|z|ze|od|iz|из|з|от|από|din|dari|من|از|共|の|中)"
_OF_ALL = rf"(?:\s?{_OF}\s?\d{{1,5}}\)?)?"
NAMED_PAGE = re.compile(
    rf"(?:\A|(?<=[\W_]))(?:{_PAGE}\s?{_PAGE_NUMBER}{_OF_ALL}|第?\s?{_PAGE_NUMBER}{_OF_ALL}[.]?\s?{_PAGE}{_OF_ALL}(?:\s?{_PAGE})?)"
    r"[\W_]*\Z",
    re.IGNORECASE,
)
"""The number of a page at the end of a text, with a word for "page" in many languages, and the number of all pages."""
_DASHES = r"[-–—~·•.\s\[\](){}<>]*"
BARE_PAGE = re.compile(rf"\A{_DASHES}(?:[A-Z][-.])?{_PAGE_NUMBER}(?:{_OF_ALL}|-(\d{{1,5}})){_DASHES}\Z", re.IGNORECASE)
OUTER_NUMBER = re.compile(r"\A(\d{1,5})\s|[\s\W](\d{1,5})\Z")
BAR = re.compile(r"\s+[|•·]\s+")
ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
EDGE_LINES = 3
"""Number of lines at the top and at the bottom of a page that can be running headers or footers, close together."""
LEAST_PAGES, LONG_PART = 3, 5
"""Number of pages on which a running line is, and of those with the title of a part beside the page number."""
LONG_LINE = 40
"""A line with more characters is no field of a form, so a number at its start or end can be that of the page."""
MOST_BEYOND = 20
"""A number beside text can be that of a page if it is larger than that of the page in the file by at most this."""


class _EdgeLine(NamedTuple):
    """A line at the top or bottom of a page: its text without a number, and values of the number if it is the page's.

    ``is_named`` is true for a number beside a word such as "page", and for a small Roman number on a line of its own.
    """

    line: PdfLine
    text: str
    numbers: tuple[int, ...] = ()
    is_named: bool = False


def without_running_lines(pages: Sequence[Sequence[PdfLine]], body: float) -> list[list[PdfLine]]:
    """Drop page numbers, and the lines at the edges of pages that most pages repeat, except the first of them."""
    least = min(LEAST_PAGES, max(2, len(pages) - 1))
    edges = [[*_edge(page, 1, body), *_edge(page, -1, body)] for page in pages]
    offsets = Counter(
        offset for at, edge in enumerate(edges) for offset in {number - at for line in edge for number in line.numbers}
    )
    uses = Counter(
        key for edge in edges for key in {(text, _height(e.line)) for e in edge for text in (e.text, e.line.text)}
    )
    seen: set[str] = set()
    pages_left = []
    for at, (page, edge) in enumerate(zip(pages, edges, strict=True)):
        numbers: set[int] = set()
        running: dict[int, str] = {}
        for line, rest, values, is_named in edge:
            # A number beside a short text that is much larger than that of the page is one of a form.
            is_short, ends = 0 < len(rest) < LONG_LINE / 2, rest.endswith((".", ":", "#", "№"))
            known = [value for value in values if offsets[value - at] >= least]
            is_page = any(not is_short or (value - at <= MOST_BEYOND and not ends) for value in known)
            is_page |= is_named and values[0] <= len(pages) + MOST_BEYOND
            text = rest if is_page else line.text
            count = uses[text, _height(line)]
            if not text:
                numbers.add(id(line))
            elif count >= LEAST_PAGES and (2 * count > len(pages) or (is_page and count >= LONG_PART)):
                running[id(line)] = text
        left = [line for line in page if id(line) not in numbers]
        pages_left.append([line for line in left if running.get(id(line)) not in seen] or left)
        seen.update(running.values())
    return pages_left if any(pages_left) else [list(page) for page in pages]


def _edge(page: Sequence[PdfLine], direction: int, body: float) -> list[_EdgeLine]:
    """Return the lines at the top (``direction`` 1) or bottom (-1) of a page that stand close together."""
    lines = sorted(page, key=lambda line: direction * line.bottom)[: EDGE_LINES + 1]
    edge: list[_EdgeLine] = []
    for at, line in enumerate(lines[:EDGE_LINES]):
        if at > 0 and abs(line.bottom - lines[at - 1].bottom) > 2 * line.size:
            break
        if line.size > 1.4 * body or LEADER.search(line.text):
            break
        is_alone = at == 0 and (len(lines) == 1 or abs(lines[1].bottom - line.bottom) > 1.8 * line.size)
        edge.append(_without_number(line, is_alone, at == 0 or direction < 0))
    return edge


def _without_number(line: PdfLine, is_alone: bool, is_outer: bool) -> _EdgeLine:
    """Return a line without the number that can be that of its page.

    A bare number beside other text can be, if the line ``is_alone`` and no row of a form, or in a long line. A number
    that fills a line can be, if the line ``is_outer``: the outermost one, or one at the bottom of the page.
    """
    parts = BAR.split(" | ".join(cell.text for cell in line.cells))
    for at in (len(parts) - 1, 0):
        match = NAMED_PAGE.search(parts[at])
        is_named = match is not None
        if match is None and (is_alone or (is_outer and len(parts) == 1)):
            match = BARE_PAGE.search(parts[at])
            is_named = len(parts) == 1 and parts[at].islower()  # a Roman number
        if match is None and len(parts[at]) > LONG_LINE:
            match = OUTER_NUMBER.search(parts[at])
        if match is not None:
            own = f"{parts[at][: match.start()]}{parts[at][match.end() :]}"
            rest = [*parts[:at], own.strip(), *parts[at + 1 :]]
            values = tuple(_value(number) for number in match.groups() if number)
            return _EdgeLine(line, " | ".join(filter(None, rest)), values, is_named)
    return _EdgeLine(line, line.text)


def _height(line: PdfLine) -> int:
    return round(line.bottom / 3)


def _value(number: str) -> int:
    """Return the value of a decimal or Roman number."""
    if number.isdecimal():
        return int(number)
    values = [ROMAN_DIGITS[digit] for digit in number.lower()]
    return sum(value if value >= after else -value for value, after in zip(values, [*values[1:], 0], strict=True))
