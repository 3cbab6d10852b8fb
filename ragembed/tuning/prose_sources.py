"""Pseudo-queries from running text: sentences, first sentences, runs of words, headings, titles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ragembed.documents.model import Chunk
from ragembed.tuning.kinds import kind_of
from ragembed.tuning.passages import Pool
from ragembed.tuning.prose import (
    is_prose,
    normal,
    plain,
    sentences,
    without_name,
    without_span,
    word_count,
    word_spans,
)
from ragembed.tuning.queries import PseudoQuery, choice, key_of

_LEAST_WORDS, _MOST_WORDS = 4, 40
_LEAST_NAME_WORDS = 2
_SHORTEST_SPAN, _LONGEST_SPAN, _LEAST_FOR_SPAN = 5, 12, 20

Span: TypeAlias = tuple[int, int]
Places: TypeAlias = Mapping[str, Sequence[tuple[int, Span]]]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence that can be a query; ``opens`` tells that it is the first of its file."""

    position: int
    text: str
    opens: bool


def sentence(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Ask for one sentence of each chunk, not the first of its file; the answer is the rest of the chunk."""
    everywhere, usable = _sentences(pool)
    of_chunk: dict[int, list[str]] = defaultdict(list)
    for one in usable:
        if not one.opens:
            of_chunk[one.position].append(one.text)
    for position, texts in of_chunk.items():
        yield from _without_sentence(pool, position, texts[choice(texts, seed)], everywhere)


def first_sentence(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  as of all sources
    """Ask for the first sentence of each file; the answer is the rest of its first chunk."""
    everywhere, usable = _sentences(pool)
    for one in usable:
        if one.opens:
            yield from _without_sentence(pool, one.position, one.text, everywhere)


def span(pool: Pool, seed: int) -> Iterator[PseudoQuery]:
    """Ask for a run of words of each chunk that has no sentence to take out; the answer is the rest of the chunk.

    So are texts asked for whose sentences have no ends, or are very long.
    """
    _, usable = _sentences(pool)
    with_sentence = {one.position for one in usable}
    for position, passage in enumerate(pool.passages):
        words = word_spans(passage.chunk.text)
        if position in with_sentence or kind_of(passage.file) != "prose" or len(words) < _LEAST_FOR_SPAN:
            continue
        key = int.from_bytes(key_of(passage.chunk.text, seed, "span"), "little")
        length = _SHORTEST_SPAN + key % (_LONGEST_SPAN - _SHORTEST_SPAN + 1)
        first = (key >> 16) % (len(words) - length + 1)
        start, stop = words[first][0], words[first + length - 1][1]
        text = plain(passage.chunk.text[start:stop])
        if is_prose(text):
            yield PseudoQuery(text, (position,), {position: without_span(passage.chunk, start, stop)})


def heading(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  as of all sources
    """Ask for each heading that only one place of the corpus has; the answers are the chunks below it."""
    below: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    named: dict[str, set[tuple[str, tuple[str, ...]]]] = defaultdict(set)
    for file, positions in pool.files.items():
        for position in positions:
            path = _headings(pool.passages[position].chunk)
            if kind_of(pool.passages[position].file) == "code":
                continue
            for depth in range(1, len(path) + 1):
                below[file, path[:depth]].append(position)
                named[normal(path[depth - 1])].add((file, path[:depth]))
    for (file, path), positions in below.items():
        if word_count(path[-1]) >= _LEAST_NAME_WORDS and named[normal(path[-1])] == {(file, path)}:
            yield name_query(pool, path[-1], positions)


def title(pool: Pool, seed: int) -> Iterator[PseudoQuery]:  # noqa: ARG001  as of all sources
    """Ask for each title that only one document has; the answers are the document's chunks."""
    having: dict[str, list[int]] = defaultdict(list)
    shown: dict[str, str] = {}
    for positions in pool.files.values():
        for position in positions:
            name = pool.passages[position].chunk.title
            if name and word_count(name) >= _LEAST_NAME_WORDS:
                having[normal(name)].append(position)
                shown.setdefault(normal(name), name)
    for key, positions in having.items():
        if len({pool.places[position].file for position in positions}) == 1:
            yield name_query(pool, shown[key], positions)


def name_query(pool: Pool, name: str, answers: Sequence[int]) -> PseudoQuery:
    """Return the query ``name``, whose answers are passages that have it as a title, a heading or a line."""
    changed: dict[int, Chunk] = {}
    for position in answers:
        chunk = pool.passages[position].chunk
        without = without_name(chunk, name)
        if without != chunk:
            changed[position] = without
    return PseudoQuery(plain(name), tuple(answers), changed)


def _headings(chunk: Chunk) -> tuple[str, ...]:
    """Return the headings above a chunk that are not its title."""
    name = normal(chunk.title or "")
    return tuple(heading for heading in chunk.headings if normal(heading) != name)


def _sentences(pool: Pool) -> tuple[Places, list[_Sentence]]:
    """Return where each sentence stands, and those that can be queries."""
    everywhere: dict[str, list[tuple[int, Span]]] = defaultdict(list)
    usable: list[_Sentence] = []
    for position, passage in enumerate(pool.passages):
        chunk = passage.chunk
        if kind_of(passage.file) == "code":
            continue
        names = {normal(name) for name in (chunk.title, *chunk.headings) if name}
        opens = pool.places[position].number == 0
        for start, stop in sentences(chunk.text):
            text = plain(chunk.text[start:stop])
            everywhere[normal(text)].append((position, (start, stop)))
            if normal(text) in names or not text:
                continue
            if _LEAST_WORDS <= word_count(text) <= _MOST_WORDS and is_prose(text):
                usable.append(_Sentence(position, text, opens))
            opens = False
    return everywhere, usable


def _without_sentence(pool: Pool, position: int, text: str, everywhere: Places) -> Iterator[PseudoQuery]:
    """Yield the query ``text``, unless files beside the passage's have it, too.

    Chunks of the same file that repeat it, as where chunks overlap, are answers as well.
    """
    places = everywhere[normal(text)]
    if len({pool.places[at].file for at, _ in places}) > 1:
        return
    changed: dict[int, Chunk] = {}
    for at, (start, stop) in sorted(places, reverse=True):  # from the back, as spans are those of the whole text
        changed[at] = without_span(changed.get(at, pool.passages[at].chunk), start, stop)
    yield PseudoQuery(text, (position, *(at for at in sorted(changed) if at != position)), changed)
