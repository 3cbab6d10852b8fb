"""Cut a text at paragraphs, lines, sentences or tokens, and pack the pieces up to a token limit.

All functions work on offsets into one text, which :class:`TokenMap` tokenises once.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from ragembed.documents.model import BlockKind
from ragembed.types import Integers, Spans

Item = TypeVar("Item")
Offsets: TypeAlias = "Callable[[list[str]], Sequence[Spans]]"
"""Returns the character spans of the tokens of each text, without special tokens."""

PIECE_CHARACTERS = 1 << 14
TOKENISED_TOGETHER = 1 << 20
LONGEST_TOKEN = 64
"""Maximum length of a token, in characters.

A longer stretch with only one token or none is counted as virtual tokens of ``VIRTUAL_TOKEN`` characters each.
"""
VIRTUAL_TOKEN = 16

PARAGRAPH_BREAK = re.compile(r"\n(?:[^\S\n]*\n)+")
LINE_BREAK = re.compile(r"\n")
NEW_SENTENCE_LINE_BREAK = re.compile(r"\n(?=[^\S\n]*[^\sa-zß-öø-ÿ])")
"""In hard-wrapped prose, a line that starts with a lower-case letter continues a sentence."""
SENTENCE_BREAK = re.compile(r"[.!?…]['\"’”»)\]]*\s+(?=[^\sa-zß-öø-ÿ])|[。！？][」』’”）]*\s*(?=\S)")
NON_BLANK = re.compile(r"\S")
BLANK_BEFORE_WORD = re.compile(r"\s(?=\S)")
ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


class TokenMap:
    """The start offsets of the tokens of one text, found in one pass over its blocks."""

    def __init__(self, text: str, ranges: Sequence[tuple[int, int]], offsets: Offsets) -> None:
        starts: array[int] = array("q")
        pieces = [piece for start, end in ranges for piece in _pieces(text, start, end)]
        for batch in grouped(pieces, lambda piece: piece[1] - piece[0], TOKENISED_TOGETHER):
            spans = offsets([text[start:end] for start, end in batch])
            for (start, end), tokens in zip(batch, spans, strict=True):
                starts.frombytes(_token_starts(tokens, end - start, start).tobytes())
        self._starts = starts

    def count(self, start: int, end: int) -> int:
        """Return the number of tokens that start in ``text[start:end]``."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def furthest(self, start: int, end: int, limit: int) -> int:
        """Return the largest offset up to ``end`` with at most ``limit`` tokens between ``start`` and it."""
        index = bisect_left(self._starts, start) + limit
        return min(end, self._starts[index]) if index < len(self._starts) else end

    def earliest(self, start: int, end: int, limit: int) -> int:
        """Return the smallest offset from ``start`` on with at most ``limit`` tokens between it and ``end``."""
        index = bisect_left(self._starts, end) - limit
        return max(start, self._starts[index]) if index > 0 else start


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a long range at white space, because a tokenizer should not get megabytes in one text."""
    while end - start > PIECE_CHARACTERS:
        window = start + PIECE_CHARACTERS
        cut = max(text.rfind("\n", start, window), text.rfind(" ", start + PIECE_CHARACTERS // 2, window))
        cut = cut if cut > start else window
        yield start, cut
        start = cut
    yield start, end


def _token_starts(spans: Spans, length: int, shift: int) -> Integers:
    """Return the token starts of a piece, int64 of shape ``(n,)``, with virtual tokens in long gaps."""
    begins, ends = np.asarray(spans, dtype=np.int64).reshape(-1, 2).T
    real = np.maximum.accumulate(begins[ends > begins])
    edges = np.concatenate(([0], real, [length]))
    gaps = np.flatnonzero(edges[1:] - edges[:-1] > LONGEST_TOKEN)
    if not len(gaps):
        return real + shift
    virtual = [np.arange(edges[gap] + (VIRTUAL_TOKEN if gap else 0), edges[gap + 1], VIRTUAL_TOKEN) for gap in gaps]
    return np.sort(np.concatenate([real, *virtual])).astype(np.int64) + shift


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield consecutive items in lists whose sizes sum to at most ``most``; a larger item has a list of its own."""
    group: list[Item] = []
    total = 0
    for item in items:
        item_size = size(item)
        if group and total + item_size > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += item_size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Atom:
    """A range that is best kept whole. ``level`` is the number of break patterns already applied to it."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0


def pack(text: str, tokens: TokenMap, atoms: Iterable[Atom], soft: int, hard: int) -> list[list[Atom]]:
    """Pack ``atoms`` in order into groups of at most ``hard`` tokens. Atoms that are too long are broken.

    A group grows only to ``soft`` tokens, to leave room for an overlap. The first group and a group of a single table
    or piece of code can grow to ``hard``. The first part of a broken atom fills up the previous group. A heading stays
    with the text that follows it, and that text is broken if necessary, if at least a quarter of the limit is left for
    it.
    """
    groups: list[list[Atom]] = []
    group: list[Atom] = []
    has_body = False
    pending = deque(atoms)
    while pending:
        atom = pending.popleft()
        start = group[0].start if group else atom.start
        whole = hard if atom.kind in ("code", "table") or not groups else soft
        limit = soft if has_body and groups else whole
        indivisible = atom.end - atom.start == 1 and not has_body
        if indivisible or tokens.count(start, atom.end) <= limit:
            group.append(atom)
            has_body = has_body or atom.kind != "heading"
            continue
        room = limit - tokens.count(start, atom.start)
        fits_alone = tokens.count(atom.start, atom.end) <= whole
        if group and (room < max(1, limit // 4) or (has_body and fits_alone)):
            pending.appendleft(atom)
            if _leads_in(text, tokens, group, atom, soft):
                pending.appendleft(group.pop())
            groups.append(group)
            group, has_body = [], False
        else:
            pending.extendleft(reversed(_break_atom(text, tokens, atom, room)))
    return [*groups, group] if group else groups


def rebalance(tokens: TokenMap, groups: list[list[Atom]], limit: int) -> list[list[Atom]]:
    """Divide the last two groups evenly if the last one has less than a third of ``limit`` tokens."""
    if len(groups) < 2 or _size(tokens, groups[-1]) >= limit // 3:
        return groups
    atoms = groups[-2] + groups[-1]
    best, best_size = len(groups[-2]), _size(tokens, groups[-2])
    for cut in range(best - 1, 0, -1):
        below = tokens.count(atoms[cut].start, atoms[-1].end)
        if below >= best_size:
            break
        size = max(below, tokens.count(atoms[0].start, atoms[cut - 1].end))
        if size < best_size and atoms[cut - 1].kind != "heading":
            best, best_size = cut, size
    return [*groups[:-2], atoms[:best], atoms[best:]]


def overlap_start(text: str, tokens: TokenMap, last: Atom, start: int, limit: int) -> int:
    """Return the start of the last sentences or lines before ``last.end`` that fit in ``limit`` tokens."""
    earliest = tokens.earliest(start, last.end, limit) if limit > 0 else last.end
    breaks = (LINE_BREAK,) if last.kind in ("code", "table") else (LINE_BREAK, SENTENCE_BREAK)
    search_from = max(start, earliest - LONGEST_TOKEN)
    found = (
        next((m.end() for m in pattern.finditer(text, search_from, last.end) if m.end() >= earliest), last.end)
        for pattern in breaks
    )
    return min(found)


def trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the range without blank lines at its ends, or blanks before a start inside a line; None if it is blank."""
    first = NON_BLANK.search(text, start, end)
    if first is None:
        return None
    line = text.rfind("\n", start, first.start()) + 1
    begins_line = start == 0 or text[start - 1] == "\n"
    begin = max(line, start) if line or begins_line else first.start()
    return begin, begin + len(text[begin:end].rstrip())


def middle(text: str, start: int, end: int) -> int:
    """Return an offset in the middle of ``text[start:end]`` that does not separate a character from its marks."""
    return _before_marks(text, start, (start + end) // 2)


def _leads_in(text: str, tokens: TokenMap, group: list[Atom], atom: Atom, limit: int) -> bool:
    """Return whether the last atom of ``group`` introduces ``atom`` ("For example:") and can move to its group."""
    if len(group) < 2 or group[-1].kind != "text" or group[-2].kind == "heading":
        return False
    announces = text[group[-1].start : group[-1].end].rstrip().endswith((":", "："))
    together = tokens.count(group[-1].start, atom.end)
    return announces and together <= limit and tokens.count(group[-1].start, atom.start) < limit // 4


BREAKS: dict[BlockKind, tuple[re.Pattern[str], ...]] = {
    "text": (PARAGRAPH_BREAK, NEW_SENTENCE_LINE_BREAK, SENTENCE_BREAK),
    "heading": (PARAGRAPH_BREAK, LINE_BREAK, SENTENCE_BREAK),
    "code": (PARAGRAPH_BREAK, LINE_BREAK),
    "table": (LINE_BREAK,),
}


def _break_atom(text: str, tokens: TokenMap, atom: Atom, room: int) -> list[Atom]:
    """Break ``atom`` with the first remaining pattern that matches, otherwise at the token where ``room`` is full."""
    for level, pattern in enumerate(BREAKS[atom.kind][atom.level :], atom.level + 1):
        ends = (match.end() for match in pattern.finditer(text, atom.start, atom.end))
        if cuts := [end for end in ends if end < atom.end]:
            edges = [atom.start, *cuts, atom.end]
            return [Atom(a, b, atom.kind, level) for a, b in pairwise(edges)]
    cut = _token_cut(text, tokens, atom, room)
    level = len(BREAKS[atom.kind])
    return [Atom(atom.start, cut, atom.kind, level), Atom(cut, atom.end, atom.kind, level)]


def _token_cut(text: str, tokens: TokenMap, atom: Atom, room: int) -> int:
    """Return the start of the last line or word in the second half of ``room`` tokens, else of the last token."""
    furthest = min(max(tokens.furthest(atom.start, atom.end, room), atom.start + 1), atom.end - 1)
    half = (atom.start + furthest) // 2
    line = text.rfind("\n", half, furthest)
    if line >= 0:
        return line + 1
    words = [match.end() for match in BLANK_BEFORE_WORD.finditer(text, half, furthest + 1)]
    return words[-1] if words else _before_marks(text, atom.start, furthest)


def _before_marks(text: str, start: int, at: int) -> int:
    """Move ``at`` back if it would separate a character from its combining marks or joined characters."""
    cut = at
    while cut > start and _continues(text, cut):
        cut -= 1
    return cut if cut > start else at


def _continues(text: str, at: int) -> bool:
    char = text[at]
    joined = ZERO_WIDTH_JOINER in (char, text[at - 1]) or char in SKIN_TONES
    return joined or unicodedata.category(char).startswith("M")


def _size(tokens: TokenMap, group: list[Atom]) -> int:
    return tokens.count(group[0].start, group[-1].end)
