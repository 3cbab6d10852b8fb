"""Split the text of a chunk into sentences, and remove a sentence or a name from a chunk."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ragembed.documents.model import Chunk

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_BLOCKS = r"\n[ \t]*\n|\n(?=[ \t]*(?:[#>|]|[-*+] |\d+[.)] ))|(?<=[。！？])|(?<=\s[.!?])\s+"
_BREAK = re.compile(_BLOCKS + r"|(?<=[.!?])\s+(?=[\"'“‘(\[]?[A-Z0-9])")
_LOWER_BREAK = re.compile(_BLOCKS + r"|(?<=[.!?])\s+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*(?:\s+\"[^\"]*\")?\)")
_LEAD = re.compile(r"^[\s#>*+|-]+|^\s*\d+[.)]\s+")
_MARKS = re.compile(r"[*`|]+|(?<!\w)_+|_+(?!\w)")
_HEADING_ID = re.compile(r"\s*\{#[^}]*\}\s*$")
_UNDERLINE = re.compile(r"\s*([=\-~^\"'`*+#.:_])\1{2,}\s*")

_PROSE_SHARE = 0.75


def word_count(text: str) -> int:
    """Return the number of words; a character of Chinese, Japanese or Korean counts as one."""
    return sum(1 for _ in _WORD.finditer(text))


def normal(text: str) -> str:
    """Return a text with normalised case, white space and mark-up, for comparisons."""
    return plain(text).casefold()


def plain(text: str) -> str:
    """Return a text without Markdown mark-up and line breaks, as a person would type it."""
    text = _HEADING_ID.sub("", _LINK.sub(r"\1", text))
    return " ".join(_MARKS.sub(" ", _LEAD.sub("", text)).split())


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences of ``text``, without surrounding white space.

    A sentence ends at a full stop, question mark or exclamation mark that is followed by white space and a capital
    letter or digit. It also ends at a blank line, and before a heading or list item. In a text without capital letters,
    and after a mark with white space before it, any character may follow.
    """
    spans = []
    start = 0
    pattern = _BREAK if text != text.lower() else _LOWER_BREAK
    for found in [*pattern.finditer(text), None]:
        stop = len(text) if found is None else found.start()
        left = start + len(text[start:stop]) - len(text[start:stop].lstrip())
        right = stop - (len(text[start:stop]) - len(text[start:stop].rstrip()))
        if left < right:
            spans.append((left, right))
        start = stop if found is None else found.end()
    return spans


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the span of each word, as :func:`word_count` counts them."""
    return [found.span() for found in _WORD.finditer(text)]


def is_prose(text: str) -> bool:
    """Return whether a text consists mostly of letters and spaces, unlike code or a table."""
    return sum(character.isalpha() or character.isspace() for character in text) >= _PROSE_SHARE * len(text)


def without_span(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return ``chunk`` without ``text[start:stop]``."""
    before, after = chunk.text[:start].rstrip(" \t"), chunk.text[stop:].lstrip(" \t")
    joint = "" if not before or not after or before[-1].isspace() or after[0].isspace() else " "
    return replace(chunk, text=(before + joint + after).strip("\n"))


def without_name(chunk: Chunk, name: str) -> Chunk:
    """Return ``chunk`` without ``name`` as its title, as a heading, or as a line of its text.

    If an underline follows the line, it is removed too.
    """
    wanted = normal(name)
    title = None if chunk.title is not None and normal(chunk.title) == wanted else chunk.title
    headings = tuple(heading for heading in chunk.headings if normal(heading) != wanted)
    text = "\n".join(_other_lines(chunk.text.split("\n"), wanted)).strip("\n")
    return replace(chunk, title=title, headings=headings, text=text)


def _other_lines(lines: Sequence[str], wanted: str) -> list[str]:
    kept: list[str] = []
    after_name = False
    for line in lines:
        is_name = normal(line) == wanted
        if not is_name and not (after_name and _UNDERLINE.fullmatch(line)):
            kept.append(line)
        after_name = is_name
    return kept
