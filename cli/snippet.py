"""The part of a chunk that is shown: its lines that hold most of the question's words, and where the words are."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ers", "ed", "er", "es", "ly", "s", "e", "y")
_MIN_STEM = 3

MAX_LINES, MAX_CHARACTERS = 4, 320


def stem(word: str) -> str:
    """Cut a word's English ending off, so that ``locked`` and ``locking`` meet; crude, for highlighting only."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM:
            return word[: -len(ending)]
    return word


def query_stems(query: str) -> set[str]:
    """Return the stems of the question's words of more than two letters."""
    return {stem(word) for word in _WORD.findall(query) if len(word) > 2}


def matches(text: str, stems: set[str]) -> list[tuple[int, int]]:
    """Return the ``(start, end)`` places of words in ``text`` whose stem is in ``stems``."""
    return [match.span() for match in _WORD.finditer(text) if stem(match[0]) in stems]


def snippet(text: str, query: str) -> str:
    """Return the best run of whole lines of ``text``: verbatim, at most ``MAX_LINES`` lines.

    Best is the one with most different words of the question, the first of equals. A single line that is longer than
    ``MAX_CHARACTERS`` is cut, at words, around its matches.
    """
    stems = query_stems(query)
    lines = text.split("\n")
    found = [{stem(word) for word in _WORD.findall(line)} & stems for line in lines]
    starts = range(max(len(lines) - MAX_LINES, 0) + 1)
    start = max(starts, key=lambda i: (len(set().union(*found[i : i + MAX_LINES])), -i))
    kept = lines[start : start + MAX_LINES]
    while len(kept) > 1 and sum(map(len, kept)) > MAX_CHARACTERS:
        first, last = found[lines.index(kept[0], start)], found[lines.index(kept[-1], start)]
        kept = kept[1:] if len(first) < len(last) else kept[:-1]
    block = "\n".join(kept).strip("\n")
    return block if len(block) <= MAX_CHARACTERS else _cut(block, stems)


def _cut(line: str, stems: set[str]) -> str:
    places = [start for start, _ in matches(line, stems)]
    window = MAX_CHARACTERS
    best = max([0, *places], key=lambda at: (sum(at <= place < at + window for place in places), -at))
    start = max(best - window // 8, 0)
    end = min(start + window, len(line))
    if start > 0:
        start = line.find(" ", start, best) + 1 or start
    if end < len(line):
        end = line.rfind(" ", start, end) if " " in line[start:end] else end
    return line[start:end].strip()
