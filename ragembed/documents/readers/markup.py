"""Read Org, AsciiDoc and reStructuredText: headings, listings, tables and paragraphs.

The text keeps its lines, without what no reader of the page sees: comments and names of places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any

from ragembed.documents.model import BlockKind, ParsedDocument
from ragembed.documents.readers.properties import MOST_VALUES, merged, plain
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, HeadingPath

Heading = tuple[int, str, int]
"""The level and title of a heading, and the line after it."""

ORG_HEADING = re.compile(
    r"(?P<stars>\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED|CANCELED)[ \t]+)?(?:\[#\w\][ \t]+)?(?P<title>\S.*)$"
)
ORG_TAGS = re.compile(r"[ \t]+:[\w@#%:]+:[ \t]*$")
ORG_KEYWORD = re.compile(r"#\+(?P<key>(?!begin_|end_)\w+):[ \t]*(?P<value>\S.*)$", re.IGNORECASE)
ORG_SETTINGS = re.compile(
    r"options|startup|setupfile|include|macro|bind|export\w*|latex\w*|html\w*|todo|seq_todo|\w*columns"
)
"""Keywords that say nothing about the document."""
ORG_PROPERTY = re.compile(r"[ \t]*:(?P<key>(?!end:|properties:)[\w-]+):[ \t]+(?P<value>\S.*)$", re.IGNORECASE)
ORG_DATE = re.compile(r"[<\[](\d{4}-\d\d-\d\d)(?: [^\W\d]+\.?)?( \d\d?:\d\d)?[^<>\[\]]*[>\]]")
ORG_LISTING = re.compile(r"[ \t]*#\+begin_(?P<name>src|example|export)\b", re.IGNORECASE)
ORG_COMMENT = re.compile(r"[ \t]*#(?: |$)")
ORG_MARKUP = re.compile(r"\[\[(?P<target>[^\[\]\n]+)\](?:\[(?P<label>[^\[\]\n]+)\])?\]|(?<!<)<{2,3}[^<>\n]+>{2,3}")
ORG_DRAWER = re.compile(r"[ \t]*:(?!end:)[\w-]+:[ \t]*$", re.IGNORECASE)
ORG_FIXED = re.compile(r"[ \t]*:(?: |$)")

ADOC_HEADING = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<title>\S.*?)(?:[ \t]+(?P=marks))?[ \t]*$")
ADOC_UNDERLINE = re.compile(r"(?P<mark>[=\-~^+])(?P=mark)+[ \t]*$")
ADOC_FENCE = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|`{3}[^`]*)[ \t]*$")
ADOC_UNSEEN = re.compile(r"//(?!/)|\[\[[^\]]+\]\][ \t]*$|\[#[^\]]+\][ \t]*$")
ADOC_COMMENT = re.compile(r"/{4,}[ \t]*$")
ADOC_ATTRIBUTE = re.compile(r":(?P<key>[\w-]+):[ \t]+(?P<value>\S.*)$")
ADOC_TABLE = re.compile(r"[|,:!]={3,}[ \t]*$")
ADOC_LEAD = re.compile(r"(?:\[[^\n]*\]|\.[^\s.][^\n]*)[ \t]*$")
ADOC_LEVELS = "=-~^+"
LONGEST_UNDERLINED = 200
MOST_LEADS = 8
"""Maximum number of lines with attributes or a title above a listing or table."""


def parse_org(file: RawFile) -> Iterator[ParsedDocument]:
    """Read an Org file. Its title is ``#+TITLE``, or else the first heading of level 1."""
    file_text = FileText(file.text)
    properties, links = _org_properties(file_text.lines), dict[str, None]()
    first = _scan(file_text, _org_heading, _org_block, partial(_clean_org, links))
    found = plain(merged(properties, {"links": list(links)[:MOST_VALUES]}))
    yield file_text.document(found.get("title") or first, found)


def parse_asciidoc(file: RawFile) -> Iterator[ParsedDocument]:
    """Read an AsciiDoc file. Its title is the first heading of level 1, and its header ends at the first blank line."""
    file_text = FileText(file.text)
    header = takewhile(str.strip, file_text.lines)
    properties = plain({match["key"]: match["value"] for line in header if (match := ADOC_ATTRIBUTE.match(line))})
    title = _scan(file_text, _asciidoc_heading, _asciidoc_block, _clean_asciidoc)
    yield file_text.document(title, properties)


def _org_properties(lines: list[str]) -> dict[str, Any]:
    """Return the keywords above the first heading, the properties of all drawers, and the tags of all headings."""
    above = takewhile(lambda line: not ORG_HEADING.match(line), lines)
    pairs = [(match["key"].lower(), match["value"]) for line in above if (match := ORG_KEYWORD.match(line))]
    tags = [value.replace(":", " ") for key, value in pairs if key == "filetags"]
    pairs = [(key, value) for key, value in pairs if key != "filetags" and not ORG_SETTINGS.fullmatch(key)]
    in_drawer = False
    for line in lines:
        if line.lstrip().startswith(":"):
            in_drawer = line.strip().lower() == ":properties:" or (in_drawer and line.strip().lower() != ":end:")
            pairs += [
                (match["key"].lower(), match["value"]) for match in [ORG_PROPERTY.match(line)] if in_drawer and match
            ]
        elif ORG_HEADING.match(line) and (found := ORG_TAGS.search(line)):
            tags.append(found[0].replace(":", " "))
    values: dict[str, Any] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value.strip())
    values = {key: [ORG_DATE.sub(r"\1\2", value) for value in each] for key, each in values.items()}
    one = {key: each[0] if len(set(each)) == 1 else list(dict.fromkeys(each)) for key, each in values.items()}
    return {**one, "tags": " ".join(tags)} if tags else one


def _clean_org(links: dict[str, None], lines: list[str], number: int) -> None:
    """Leave out a comment, a setting and the names of places, and replace links by their text."""

    def shown(found: re.Match[str]) -> str:
        if found["target"] and not found["target"].startswith(("http:", "https:")):
            links[found["target"]] = None
        return found["label"] or found["target"] or ""

    line = lines[number]
    keyword = ORG_KEYWORD.match(line)
    key = keyword["key"].lower() if keyword else ""
    if ORG_COMMENT.match(line) or (ORG_SETTINGS.fullmatch(key) and key not in ("html", "latex")):
        lines[number] = ""
    elif line.strip().lower() == "#+begin_comment":
        _empty(lines, number, _closing(lines, number, "#+end_comment", ORG_HEADING))
    elif "[[" in line or "<<" in line:
        lines[number] = ORG_MARKUP.sub(shown, line)


def _clean_asciidoc(lines: list[str], number: int) -> None:
    """Leave out a comment or the name of a place."""
    if ADOC_UNSEEN.match(lines[number]):
        lines[number] = ""
    elif ADOC_COMMENT.match(lines[number]):
        _empty(lines, number, _closing(lines, number, lines[number].strip()))


def _empty(lines: list[str], first: int, stop: int) -> None:
    lines[first:stop] = [""] * (stop - first)


def _scan(
    file_text: FileText,
    heading: Callable[[list[str], int], Heading | None],
    block: Callable[[list[str], int], tuple[BlockKind, int] | None],
    clean: Callable[[list[str], int], None],
) -> str | None:
    """Add the blocks that ``heading`` and ``block`` find at a line, and return the first heading of level 1."""
    lines, path, title = file_text.lines, HeadingPath(), None
    start = number = 0
    while number < len(lines):
        clean(lines, number)
        if not lines[number].strip():
            file_text.add(start, number, "text", path.headings)
            start = number = number + 1
        elif found := heading(lines, number):
            file_text.add(start, number, "text", path.headings)
            level, name, stop = found
            title = title or (name if level == 1 else None)
            file_text.add(number, stop, "heading", path.enter(level, name))
            start = number = stop
        elif whole := block(lines, number):
            file_text.add(start, number, "text", path.headings)
            file_text.add(number, whole[1], whole[0], path.headings)
            start = number = whole[1]
        else:
            number += 1
    file_text.add(start, number, "text", path.headings)
    return title


def _org_heading(lines: list[str], number: int) -> Heading | None:
    match = ORG_HEADING.match(lines[number])
    if match is None:
        return None
    title = ORG_TAGS.sub("", match["title"]).strip()
    return len(match["stars"]), title or match["title"].strip(), number + 1


def _org_block(lines: list[str], number: int) -> tuple[BlockKind, int] | None:
    line = lines[number]
    if listing := ORG_LISTING.match(line):
        return "code", _closing(lines, number, f"#+end_{listing['name']}", ORG_HEADING)
    if ORG_DRAWER.match(line):
        return "code", _closing(lines, number, ":end:", ORG_HEADING)
    if line.lstrip().startswith("|"):
        return "table", _run_end(lines, number, lambda line: line.lstrip().startswith("|"))
    if ORG_FIXED.match(line):
        return "code", _run_end(lines, number, ORG_FIXED.match)
    return None


def _asciidoc_heading(lines: list[str], number: int) -> Heading | None:
    match = ADOC_HEADING.match(lines[number])
    if match:
        return len(match["marks"]), match["title"], number + 1
    line, below = lines[number].rstrip(), lines[number + 1].rstrip() if number + 1 < len(lines) else ""
    above = lines[number - 1].strip() if number else ""
    underline = ADOC_UNDERLINE.match(below)
    is_title = underline and len(line) <= LONGEST_UNDERLINED and any(map(str.isalnum, line)) and not line[0].isspace()
    stands_alone = (not above or ADOC_LEAD.match(above)) and not ADOC_LEAD.match(line)
    if underline and is_title and abs(len(line) - len(below)) <= 2 and stands_alone:
        return ADOC_LEVELS.index(underline["mark"]) + 1, line, number + 2
    return None


def _asciidoc_block(lines: list[str], number: int) -> tuple[BlockKind, int] | None:
    stop = min(number + MOST_LEADS, len(lines) - 1)
    while number < stop and ADOC_LEAD.match(lines[number]):
        number += 1
    line = lines[number].rstrip()
    if ADOC_FENCE.match(line):
        return "code", _closing(lines, number, "```" if line.startswith("```") else line)
    if ADOC_TABLE.match(line):
        return "table", _closing(lines, number, line)
    return None


def _closing(lines: list[str], first: int, closing: str, end: re.Pattern[str] | None = None) -> int:
    """Return the line after the one that is ``closing``, the next that matches ``end``, or the number of lines."""
    for number in range(first + 1, len(lines)):
        if lines[number].strip().lower() == closing.lower():
            return number + 1
        if end is not None and end.match(lines[number]):
            return number
    return len(lines)


def _run_end(lines: list[str], first: int, belongs: Callable[[str], object]) -> int:
    """Return the first line after ``first`` that does not belong to the run."""
    return next((number for number in range(first + 1, len(lines)) if not belongs(lines[number])), len(lines))


ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")
CODE_DIRECTIVE = re.compile(r"[ \t]*\.\. (?:code-block|code|sourcecode|parsed-literal|testcode|doctest)::")
SIMPLE_BORDER = re.compile(r"[ \t]*=+(?: +=+)+[ \t]*$")
GRID_BORDER = re.compile(r"[ \t]*\+[-=+]*-[-=+]*\+[ \t]*$")
SHORTEST_TRANSITION = 4
RST_FIELD = re.compile(
    r"(?:\.\. (?P<nikola>(?=\w+: )))?(?(nikola)|:)(?P<key>[A-Za-z][\w -]*):(?:[ \t]+(?P<value>.*)|$)"
)
"""A field, or a comment ``.. key: value`` as in Nikola."""
RST_META_FIELD = re.compile(r"[ \t]+:(?P<key>[A-Za-z][\w-]*)(?: [^:]*)?:[ \t]+(?P<value>.*)$")
RST_COMMENT = re.compile(r"[ \t]*\.\.(?:[ \t]+(?!\[|\||_|[\w:.+-]+::)\S.*)?[ \t]*$")
RST_TARGET = re.compile(r"[ \t]*\.\. _(?:`[^`]+`|[^:`](?:[^:]|:(?! |$))*):[ \t]*$")


def parse_rst(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a reStructuredText file. Its title is the field of that name, or else the first section title."""
    text = file.text
    scanner = _RstScanner(FileText(text))
    properties = _rst_fields(scanner.lines, has_meta=".. meta::" in text)
    scanner.scan()
    yield scanner.file_text.document(properties.get("title") or scanner.title, properties)


def _rst_fields(lines: list[str], *, has_meta: bool) -> dict[str, Any]:
    """Return the fields above or below the first title and of ``meta`` directives, and comments ``.. key: value``."""
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(lines):
        if line.startswith((":", "..")) and RST_FIELD.match(line):
            pairs += _fields(lines, number, RST_FIELD)
        elif line.strip() and not line[0].isspace():
            below = lines[number + 1] if number + 1 < len(lines) else ""
            patterns = (ADORNMENT, RST_COMMENT, RST_TARGET)
            if not ADORNMENT.match(below) and not any(pattern.match(line) for pattern in patterns):
                break
    for number in [n for n, line in enumerate(lines) if line.startswith(".. meta::")] if has_meta else []:
        pairs += _fields(lines, number + 1, RST_META_FIELD)
    return plain(dict(reversed(pairs))) if pairs else {}


def _fields(lines: list[str], first: int, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the field of a line with the indented lines below it, or all fields of a directive."""
    field: tuple[str, str] | None = None
    for line in lines[first:]:
        if match := pattern.match(line):
            if field:
                yield field
                if pattern is RST_FIELD:
                    return
            field = match["key"].lower(), match["value"] or ""
        elif field and line[:1].isspace() and line.strip():
            field = field[0], f"{field[1]} {line.strip()}"
        elif field or line.strip():
            break
    if field:
        yield field


class _RstScanner:
    """Scans the lines once. The order in which title styles first appear gives their levels."""

    def __init__(self, file_text: FileText) -> None:
        self.file_text = file_text
        self.lines = file_text.lines
        self.path = HeadingPath()
        self.styles: list[tuple[str, bool]] = []
        self.title: str | None = None

    def scan(self) -> None:
        number = 0
        while number < len(self.lines):
            line = self.lines[number].lstrip()
            if line.startswith(".."):
                self._clean(number)
                line = self.lines[number].strip()
            if not line:
                number += 1
                continue
            below = self._line(number + 1)[:1]
            may_be_title = not line[0].isalnum() or not (below.isalnum() or below.isspace() or not below)
            number = (
                (may_be_title and self._title(number))
                or (line[0] in "+=" and self._table(number))
                or (line.startswith((">>> ", "..")) and self._code(number))
                or self._paragraph(number)
            )

    def _clean(self, number: int) -> None:
        """Leave out the comment and the names of places that start at a line; fields that look like comments stay."""
        while RST_TARGET.match(self._line(number)) and not self._line(number + 1)[:1].isspace():
            self.lines[number] = ""
            number += 1
        line = self._line(number)
        if RST_COMMENT.match(line) and not RST_FIELD.match(line):
            _empty(self.lines, number, self._indented_end(number))

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
        self.title = self.title or title
        self.file_text.add(first, stop, "heading", self.path.enter(self.styles.index(style), title))
        return stop

    def _table(self, number: int) -> int:
        if GRID_BORDER.match(self.lines[number]):
            stop = _run_end(self.lines, number, lambda line: line.lstrip()[:1] in ("+", "|"))
        elif SIMPLE_BORDER.match(self.lines[number]):
            below = range(number + 1, len(self.lines))
            ends = (
                end + 1 for end in below if SIMPLE_BORDER.match(self.lines[end]) and not self._line(end + 1).strip()
            )
            stop = next(ends, len(self.lines))
        else:
            return 0
        self.file_text.add(number, stop, "table", self.path.headings)
        return stop

    def _code(self, number: int) -> int:
        line = self.lines[number]
        if CODE_DIRECTIVE.match(line):
            stop = self._indented_end(number)
        elif line.lstrip().startswith(">>> "):
            stop = _run_end(self.lines, number, str.strip)
        else:
            return 0
        self.file_text.add(number, stop, "code", self.path.headings)
        return stop

    def _paragraph(self, number: int) -> int:
        stop = _run_end(self.lines, number, str.strip)
        self.file_text.add(number, stop, "text", self.path.headings)
        if not self.lines[stop - 1].rstrip().endswith("::"):
            return stop
        literal_end = self._indented_end(stop - 1)
        self.file_text.add(stop, literal_end, "code", self.path.headings)
        return literal_end

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
