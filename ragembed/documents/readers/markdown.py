"""Read Markdown: headings, fences, pipe tables, lists and front matter.

The text keeps its lines, without what no reader of the page sees: comments, anchors and attributes such as ``{#id}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ragembed.documents.model import Block, BlockKind, ParsedDocument
from ragembed.documents.readers.properties import MOST_VALUES, front_matter, key_value_block, merged
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, HeadingPath, one_line

FENCE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
ATX = re.compile(r" {0,3}(?P<marks>#{1,6})(?=[ \t]|$)")
SETEXT = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
CONTAINER = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)]|!!!|\?\?\?\+?|===|\[\^[^\]]+\]:)[ \t]")
"""A line whose text goes on below it with an indent: a list item, an admonition, a tab or a footnote."""
QUOTE = re.compile(r" {0,3}>")
INDENTED = re.compile(r"(?: {4}|\t)")

_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s{}"'=]+)"""
_TEXT = r"""(?:"[^"<>]{0,99}"|'[^'<>]{0,99}'|[^\s<>"']{1,99})"""
_NAME, _PAIR = r"[#.][\w:.-]+", rf"[\w:-]+={_VALUE}"
_REST = rf"(?:[ \t]+(?:{_NAME}|{_PAIR}))*[ \t]*\}}"
ATTRIBUTES = re.compile(
    rf"(?<=[)\]`])\{{:?[ \t]*(?:{_NAME}|{_PAIR}){_REST}"  # of the link, picture or code before
    rf"|(?<=[*_}}])\{{:?[ \t]*[#.][^\W\d][\w:.-]*{_REST}"  # of the emphasis before; formulas have _{{i=1}}
    rf"|^[ \t]*\{{:?[ \t]*(?:toc|{_NAME}|{_PAIR}){_REST}[ \t]*$"  # of the block above
    rf"|[ \t]{{0,9}}\{{:?[ \t]*{_NAME}{_REST}(?=[ \t]*(?:#*[ \t]*$|\|))"  # of the heading, paragraph or cell
)
"""Attribute lists of MkDocs, Docusaurus, kramdown and pandoc, such as ``{ #anchor .class }``. Code may look alike."""
MARKUP = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?<=\S)[ \t]+\^[\w-]{3,}[ \t]*$"
    rf"|<(?P<tag>a|span|div|p)\b(?:\s+(?:name|id|class)\s*=\s*{_TEXT}){{1,4}}\s*(?:/>|>\s*</(?P=tag)>)"
    r"|!?\[\[(?P<target>(?!\s)[^\[\]|\n]*?)(?:\\?\|(?P<label>[^\[\]\n]*))?\]\](?![(\[])"
)
"""Code, names of blocks, empty anchors and links of wikis."""
TAG = re.compile(r"#(?<!\S#)(?P<word>[\w/-]*[^\W\d_][\w/-]*)")
CODE = re.compile(r"`[^`]*`")
DEFINITION = re.compile(r" {0,3}\[[^\]]+\]:")
CLOSINGS = {
    "<!--": "-->",
    "{/*": "*/}",
    "%%": "%%",
    "<style": "</style>",
    "<script": "</script>",
    "{::comment}": "{:/",
    "{% comment %}": "{% endcomment %}",
}
"""How comments begin and end: in HTML, MDX, Obsidian, kramdown and Liquid; also styles and scripts."""
COMMENT = re.compile(rf"`[^`]*`|(?P<open>{'|'.join(map(re.escape, CLOSINGS))})")
TARGET = re.compile(r"\([\w:.-]+\)=[ \t]*$|\[\[?_?toc_?\]\]?[ \t]*$", re.IGNORECASE)
"""A line with only the name of a place, as in MyST, or the place of a table of contents."""
COLOUR = re.compile(r"(?=.*\d|(.)\1+$)[\da-f]{3,8}", re.IGNORECASE)
PICTURE_SIZE = re.compile(r"\d+(?:x\d+)?")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Markdown file. Its title is the front matter's title, or else the first level-1 heading."""
    scanner = MarkdownScanner(file.text, HeadingPath())
    body, properties = front_matter(scanner.lines, file.options.warn)
    if body and scanner.lines[0][:3] in ("---", "+++"):
        scanner.lines[0] = scanner.lines[body - 1] = ""
    scanner.file_text.add(0, body, "table")
    if not body and ATX.match(scanner.lines[0]):  # as in the exports of Notion
        below = next((n for n, line in enumerate(scanner.lines) if n and line.strip()), 0)
        properties = key_value_block(scanner.lines[below:])[1]
    scanner.scan(body)
    document = scanner.file_text.document(None, merged(properties, scanner.properties()))
    title = one_line(str(properties.get("title") or "")) or first_title(document.text, document.blocks)
    yield replace(document, title=title)


class MarkdownScanner:
    """Finds the blocks below the headings ``path``, leaves out the markup, and collects tags and links of a wiki."""

    def __init__(self, text: str, path: HeadingPath) -> None:
        self.file_text = FileText(text)
        self.lines = self.file_text.lines
        self._path = path
        self._tags: dict[str, None] = {}
        self._links: dict[str, None] = {}
        self._unclosed: set[str] = set()

    def properties(self) -> dict[str, Any]:
        """Return the ``tags`` and ``links`` of the text, without keys that have none."""
        found = {"tags": self._tags, "links": self._links}
        return {key: list(values)[:MOST_VALUES] for key, values in found.items() if values}

    def scan(self, first: int = 0) -> None:
        """Add the blocks from line ``first`` on."""
        lines, number, in_list = self.lines, first, False
        while number < len(lines):
            line = lines[number]
            if not line or line.isspace():
                number += 1
                continue
            kind: BlockKind = "text"
            path, stop = self._path.headings, number + 1
            is_code = not in_list and line[0] in " \t" and INDENTED.match(line) is not None
            if opens_fence(line):
                kind, stop = "code", fence_end(lines, number)
            elif not is_code and not (line := self._clean(number)).strip():
                pass
            elif heading := _atx_heading(line):
                kind, path, in_list = "heading", self._path.enter(*heading), False
            elif table_starts(lines, number):
                kind, stop = "table", table_end(lines, number)
                for row in range(number + 1, stop):
                    self._clean(row)
            elif is_code:
                kind, stop = "code", _indented_end(lines, number)
            else:
                in_list = bool(CONTAINER.match(line)) or (in_list and line[0] in " \t")
                stop, level = self._paragraph_end(number, in_list)
                if level:
                    kind, path = "heading", self._path.enter(level, one_line(" ".join(lines[number : stop - 1])))
            self.file_text.add(number, stop, kind, path)
            number = stop

    def _clean(self, number: int) -> str:
        """Leave out the markup of a line, and a comment that starts there, and return what is left."""
        line = self.lines[number]
        if line[:1] in ("(", "[") and TARGET.match(line):
            line = self.lines[number] = ""
        if "<" in line or "{" in line or "%%" in line:
            line = self._without_comment(number)
        if "{" in line:
            line = ATTRIBUTES.sub("", line)
        if "<" in line or "[[" in line or "^" in line:
            line = MARKUP.sub(self._shown, line)
        if "#" in line and TAG.search(line) and not DEFINITION.match(line):
            words = (word.strip("/") for word in TAG.findall(CODE.sub("", line)))
            self._tags.update(dict.fromkeys(word for word in words if not COLOUR.fullmatch(word)))
        self.lines[number] = line
        return line

    def _without_comment(self, number: int) -> str:
        """Return a line without its comments, and empty the lines of one that ends on a later line."""
        lines, parts, start, done = self.lines, list[str](), 0, 0
        line = lines[number]
        while opening := COMMENT.search(line, done):
            done = opening.end()
            closing = CLOSINGS.get(opening["open"])
            if closing is None or closing in self._unclosed:
                continue
            last, stop = number, line.find(closing, done)
            while stop < 0 and last + 1 < len(lines):
                last += 1
                stop = lines[last].find(closing)
            if stop < 0:
                self._unclosed.add(closing)
            if stop < 0 or (closing == "%%" and last > number and line.strip() != "%%"):
                continue
            parts.append(line[start : opening.start()])
            stop = lines[last].find("}", stop) + 1 if closing == "{:/" else stop + len(closing)
            if last > number:
                lines[number + 1 : last] = [""] * (last - number - 1)
                lines[last] = lines[last][stop:]
                return "".join(parts).rstrip()
            start = done = stop
        return "".join([*parts, line[start:]]) if parts else line

    def _shown(self, found: re.Match[str]) -> str:
        """Return what a person sees of a piece of markup."""
        target = found["target"]
        if found["code"] or (target is not None and not re.search(r"[^\W\d_]|\d{6}", target)):
            return found[0]
        if target is None:
            return ""
        page, _, place = target.partition("#")
        if page.strip():
            self._links[page.strip()] = None
        label = (found["label"] or "").strip()
        if label and not PICTURE_SIZE.fullmatch(label):
            return label
        return " > ".join(part.strip() for part in (page, *place.split("#")) if part.strip() and part[0] != "^")

    def _paragraph_end(self, first: int, in_list: bool) -> tuple[int, int]:
        """Return the end of the paragraph or list that starts at a line, and its level if it is a heading (else 0)."""
        lines = self.lines
        can_be_heading = not in_list and not QUOTE.match(lines[first])
        stop, number = first + 1, first + 1
        while number < len(lines):
            if opens_fence(lines[number]):
                break
            line = self._clean(number)
            if not line.strip():
                if not in_list:
                    break
            elif can_be_heading and SETEXT.match(line):
                return number + 1, 1 if "=" in line else 2
            elif (line[0] in " #" and _atx_heading(line)) or ("|" in line and table_starts(lines, number)):
                break
            elif lines[number - 1].strip() or LIST_ITEM.match(line) or line[0] in " \t":
                stop = number + 1
            else:
                break
            number += 1
        return stop, 0


def first_title(text: str, blocks: Sequence[Block]) -> str | None:
    """Return the first level-1 heading among the blocks of ``text``, or None."""
    for block in blocks:
        if block.kind == "heading" and len(block.headings) == 1:
            marks = ATX.match(text, block.start)
            last_line = text[block.start : block.end].rsplit("\n", 1)[-1]
            if len(marks["marks"]) == 1 if marks else "=" in last_line:
                return block.headings[0]
    return None


def opens_fence(line: str) -> bool:
    """Return whether a line opens a fenced block."""
    match = FENCE.match(line) if line.lstrip().startswith(("```", "~~~")) else None
    return match is not None and not (match["fence"][0] == "`" and "`" in match["info"])


def fence_end(lines: list[str], first: int) -> int:
    """Return the line after the fenced block that starts at ``first``."""
    opening = FENCE.match(lines[first])
    fence = opening["fence"] if opening else "`"
    below = ((number, lines[number].strip()) for number in range(first + 1, len(lines)))
    closing = (number + 1 for number, line in below if line.startswith(fence) and not line.strip(fence[0]))
    return next(closing, len(lines))


def _atx_heading(line: str) -> tuple[int, str] | None:
    match = ATX.match(line)
    if match is None:
        return None
    title = line[match.end() :].strip()
    unmarked = title.rstrip("#")
    if not unmarked or unmarked[-1].isspace():
        title = unmarked.rstrip()
    return (len(match["marks"]), title) if title else None


def table_starts(lines: list[str], number: int) -> bool:
    """Return whether a pipe table starts at a line."""
    below = lines[number + 1] if number + 1 < len(lines) else ""
    if "|" not in lines[number] or "|" not in below or not set(below) <= set("|:- \t"):
        return False
    return all("-" in cell for cell in below.strip().strip("|").split("|"))


def table_end(lines: list[str], first: int) -> int:
    """Return the line after the pipe table that starts at ``first``."""
    return next((number for number in range(first + 2, len(lines)) if "|" not in lines[number]), len(lines))


def _indented_end(lines: list[str], first: int) -> int:
    stop = first + 1
    for number in range(first + 1, len(lines)):
        if INDENTED.match(lines[number]) and lines[number].strip():
            stop = number + 1
        elif lines[number].strip():
            break
    return stop
