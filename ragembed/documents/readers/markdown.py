"""Read Markdown: headings, fences, pipe tables, lists and front matter. The text of the file is unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, HeadingPath, one_line

FENCE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
ATX = re.compile(r" {0,3}(?P<marks>#{1,6})(?=[ \t]|$)")
SETEXT = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
QUOTE = re.compile(r" {0,3}>")
INDENTED = re.compile(r"(?: {4}|\t)")
FRONT_MATTER_KEY = re.compile(r"(?P<key>[\w-]+)[ \t]*[:=](?P<value>.*)$")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Markdown file. Its title is the front matter's title, or else the first level-1 heading."""
    text = file.text
    body, title = front_matter(text.split("\n"))
    blocks = markdown_blocks(text, HeadingPath(), body)
    yield ParsedDocument(text, blocks, title or first_title(text, blocks))


def front_matter(lines: list[str]) -> tuple[int, str | None]:
    """Return the 0-based line where the body starts, and the title of the front matter, if there is one."""
    fence = lines[0].rstrip()
    if fence not in ("---", "+++"):
        return 0, None
    ends = (fence, "...") if fence == "---" else (fence,)
    stop = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ends), 0)
    keys = [match for line in lines[1:stop] if (match := FRONT_MATTER_KEY.match(line))]
    if not keys:
        return 0, None
    title = next((match["value"].strip() for match in keys if match["key"] == "title"), "")
    return stop + 1, _unquoted(title) or None


def first_title(text: str, blocks: list[Block]) -> str | None:
    """Return the first level-1 heading among the blocks of ``text``, or None."""
    for block in blocks:
        if block.kind == "heading" and len(block.headings) == 1:
            marks = ATX.match(text, block.start)
            last_line = text[block.start : block.end].rsplit("\n", 1)[-1]
            if len(marks["marks"]) == 1 if marks else "=" in last_line:
                return block.headings[0]
    return None


def markdown_blocks(text: str, path: HeadingPath, first: int = 0) -> list[Block]:
    """Split ``text`` into blocks, from line ``first`` on. ``path`` holds the headings above and is updated."""
    file_text = FileText(text)
    lines, number, in_list = file_text.lines, first, False
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            number += 1
            continue
        stop = number + 1
        if opens_fence(line):
            stop = fence_end(lines, number)
            file_text.add(number, stop, "code", path.headings)
        elif heading := _atx_heading(line):
            file_text.add(number, stop, "heading", path.enter(*heading))
            in_list = False
        elif table_starts(lines, number):
            stop = table_end(lines, number)
            file_text.add(number, stop, "table", path.headings)
        elif INDENTED.match(line) and not in_list:
            stop = _indented_end(lines, number)
            file_text.add(number, stop, "code", path.headings)
        else:
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line[0] in " \t")
            stop, level = _paragraph_end(lines, number, in_list)
            if level:
                file_text.add(number, stop, "heading", path.enter(level, one_line(" ".join(lines[number : stop - 1]))))
            else:
                file_text.add(number, stop, "text", path.headings)
        number = stop
    return file_text.blocks


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    return value


def opens_fence(line: str) -> bool:
    """Return whether a line opens a fenced block."""
    match = FENCE.match(line)
    return match is not None and not (match["fence"][0] == "`" and "`" in match["info"])


def fence_end(lines: list[str], first: int) -> int:
    """Return the line after the fenced block that starts at ``first``."""
    opening = FENCE.match(lines[first])
    fence = opening["fence"] if opening else ""
    for number in range(first + 1, len(lines)):
        stripped = lines[number].strip()
        if stripped.startswith(fence) and not stripped.strip(fence[0]):
            return number + 1
    return len(lines)


def _atx_heading(line: str) -> tuple[int, str] | None:
    match = ATX.match(line)
    if match is None:
        return None
    title = line[match.end() :].strip()
    unmarked = title.rstrip("#")
    if not unmarked or unmarked[-1].isspace():
        title = unmarked.rstrip()
    if title.endswith("}") and " {#" in title:
        title = title[: title.rindex(" {#")].rstrip()
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
    number = first + 2
    while number < len(lines) and "|" in lines[number]:
        number += 1
    return number


def _indented_end(lines: list[str], first: int) -> int:
    stop = first + 1
    for number in range(first + 1, len(lines)):
        if INDENTED.match(lines[number]) and lines[number].strip():
            stop = number + 1
        elif lines[number].strip():
            break
    return stop


def _paragraph_end(lines: list[str], first: int, in_list: bool) -> tuple[int, int]:
    """Return the end of the paragraph or list that starts at ``first``, and its level if it is a heading (else 0)."""
    can_be_heading = not in_list and not QUOTE.match(lines[first])
    stop, number = first + 1, first + 1
    while number < len(lines):
        line = lines[number]
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
