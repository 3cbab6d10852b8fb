"""Read Markdown: headings, fences, pipe tables, lists and front matter.

The text keeps its lines, without what no reader of the page sees: comments, anchors and attributes such as ``{#id}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ragembed.documents.model import Block, BlockKind, ParsedDocument
from ragembed.documents.readers.properties import MOST_VALUES, front_matter, merged
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
_NAME, _PAIR = r"[#.][\w:.-]+", rf"[\w:-]+={_VALUE}"
_REST = rf"(?:[ \t]+(?:{_NAME}|{_PAIR}))*[ \t]*\}}"
ATTRIBUTES = re.compile(
    rf"(?<=[)\]`*_}}])\{{:?[ \t]*(?:{_NAME}|{_PAIR}){_REST}"  # of the link, picture or code before
    rf"|^[ \t]*\{{:?[ \t]*(?:toc|{_NAME}|{_PAIR}){_REST}[ \t]*$"  # of the block above
    rf"|[ \t]*\{{:?[ \t]*{_NAME}{_REST}(?=[ \t]*(?:#*[ \t]*$|\|))"  # of the heading, paragraph or cell
)
"""Attribute lists of MkDocs, Docusaurus, kramdown and pandoc, such as ``{ #anchor .class }``. Code may look alike."""
MARKUP = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|<!--.*?-->|\{/\*.*?\*/\}"
    r"|<(?P<tag>a|span|div|p)\b(?:\s+(?:name|id|class)\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>\"']+))+\s*(?:/>|>\s*</(?P=tag)>)"
    r"|!?\[\[(?P<target>(?!\s)[^\[\]|\n]*?)(?:\\?\|(?P<label>[^\[\]\n]*))?\]\](?![(\[])"
)
"""Code, comments, empty anchors and links of wikis."""
TAG = re.compile(r"#(?<!\S#)(?P<word>[\w/-]*[^\W\d_][\w/-]*)")
CODE = re.compile(r"`[^`]*`")
DEFINITION = re.compile(r" {0,3}\[[^\]]+\]:")
COMMENT = re.compile(r"`[^`]*`|(?P<open><!--|\{/\*)")
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
    scanner.scan(body)
    document = scanner.file_text.document(None, merged(properties, scanner.properties()))
    title = one_line(str(properties.get("title") or "")) or first_title(document.text, document.blocks)
    yield replace(document, title=title)


class MarkdownScanner:
    """Finds the blocks of a text, leaves out its markup, and collects its tags and the links of a wiki.

    ``path`` holds the headings above, and is updated.
    """

    def __init__(self, text: str, path: HeadingPath) -> None:
        self.file_text = FileText(text)
        self.lines = self.file_text.lines
        self._path = path
        self._tags: dict[str, None] = {}
        self._links: dict[str, None] = {}

    def properties(self) -> dict[str, Any]:
        """Return the ``tags`` and ``links`` of the text, without keys that have none."""
        found = {"tags": self._tags, "links": self._links}
        return {key: list(values)[:MOST_VALUES] for key, values in found.items() if values}

    def scan(self, first: int = 0) -> None:
        """Add the blocks from line ``first`` on."""
        lines, number, in_list = self.lines, first, False
        while number < len(lines):
            is_code = not in_list and INDENTED.match(lines[number]) is not None
            line = lines[number] if is_code else self._clean(number)
            if not line.strip():
                number += 1
                continue
            kind: BlockKind = "text"
            path, stop = self._path.headings, number + 1
            if opens_fence(line):
                kind, stop = "code", fence_end(lines, number)
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
        if opens_fence(line):
            return line
        if line[:1] in ("(", "[") and TARGET.match(line):
            line = self.lines[number] = ""
        if "<!--" in line or "{/*" in line:
            line = self._without_comment(number)
        if "{" in line:
            line = ATTRIBUTES.sub("", line)
        if "<" in line or "[[" in line or "{/*" in line:
            line = MARKUP.sub(self._shown, line)
        if "#" in line and TAG.search(line) and not DEFINITION.match(line):
            words = (word.strip("/") for word in TAG.findall(CODE.sub("", line)))
            self._tags.update(dict.fromkeys(word for word in words if not COLOUR.fullmatch(word)))
        self.lines[number] = line
        return line

    def _without_comment(self, number: int) -> str:
        """Return a line without the comment that starts there and ends on a later line, and empty the lines between."""
        line = MARKUP.sub(lambda found: "" if found[0].startswith(("<!--", "{/*")) else found[0], self.lines[number])
        opening = next((found for found in COMMENT.finditer(line) if found["open"]), None)
        if opening is None:
            return line
        closing = "-->" if opening["open"] == "<!--" else "*/}"
        last = next((n for n in range(number + 1, len(self.lines)) if closing in self.lines[n]), None)
        if last is None:
            return line
        self.lines[number + 1 : last] = [""] * (last - number - 1)
        self.lines[last] = self.lines[last].partition(closing)[2].strip()
        return line[: opening.start()].rstrip()

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
            line = self._clean(number)
            if not line.strip():
                if not in_list:
                    break
            elif can_be_heading and SETEXT.match(line):
                return number + 1, 1 if "=" in line else 2
            elif opens_fence(line) or _atx_heading(line) or table_starts(lines, number):
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
    closing = (n + 1 for n in range(first + 1, len(lines)) if _closes(lines[n].strip(), fence))
    return next(closing, len(lines))


def _closes(line: str, fence: str) -> bool:
    return line.startswith(fence) and not line.strip(fence[0])


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
    return "|" in lines[number] and number + 1 < len(lines) and _is_delimiter_row(lines[number + 1])


def _is_delimiter_row(line: str) -> bool:
    if "|" not in line or not set(line) <= set("|:- \t"):
        return False
    return all("-" in cell for cell in line.strip().strip("|").split("|"))


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
