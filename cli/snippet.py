"""The part of a chunk that is shown: its lines that hold most of the question's words, and where the words are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

from ragembed.indexes.text.analyzer import letters_of, words_or_runs

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
    """Return the stems of words of more than two letters, and of scripts without spaces pairs of letters."""
    stems = set()
    for match in words_or_runs(query):
        if match["run"] is None:
            stems |= {stem(match[0])} if len(match[0]) > 2 else set()
        else:
            letters = letters_of(match[0])
            stems |= {"".join(pair) for pair in pairwise(letters)} or set(letters)
    return stems


def matches(text: str, stems: set[str]) -> list[tuple[int, int]]:
    """Return the ``(start, end)`` places of words in ``text`` whose stem is in ``stems``, in order, none in another."""
    places: list[tuple[int, int]] = []
    for start, end, found in _stems(text):
        if found not in stems:
            continue
        if places and start < places[-1][1]:
            start = places.pop()[0]
        places.append((start, end))
    return places


def _stems(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and stem of each word, and of scripts without spaces each letter and each pair of them."""
    for match in words_or_runs(text):
        if match["run"] is None:
            yield match.start(), match.end(), stem(match[0])
            continue
        letters = letters_of(match[0])
        ends = list(accumulate(map(len, letters), initial=match.start()))
        for i, letter in enumerate(letters):
            yield ends[i], ends[i + 1], letter
            if i + 1 < len(letters):
                yield ends[i], ends[i + 2], letter + letters[i + 1]


def snippet(text: str, query: str) -> str:
    """Return the best run of whole lines of ``text``: verbatim, at most ``MAX_LINES`` lines.

    Best is the one with most different words of the question, the first of equals. A single line that is longer than
    ``MAX_CHARACTERS`` is cut, at words, around its matches.
    """
    stems = query_stems(query)
    lines = text.split("\n")
    found = [{each for _, _, each in _stems(line)} & stems for line in lines]
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
