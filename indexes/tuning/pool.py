"""The pool of chunks that tuning searches: a seeded sample of a corpus, drawn in runs of neighbouring chunks."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ragembed.indexes.types import ChunkRecord

RUN = 16
"""Number of neighbouring chunks that are drawn together. A longer file counts as several documents of this size."""


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """The place of a chunk in the corpus: its file (its id if it has none), its number in the file, and its run."""

    file: str
    number: int
    run: int


@dataclass(frozen=True)
class Pool:
    """The chunks to search, with the place of each; ``total`` is the number of chunks in the corpus."""

    passages: Sequence[ChunkRecord]
    places: Sequence[PoolPlace]
    total: int

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self.passages)

    @cached_property
    def files(self) -> Mapping[str, Sequence[int]]:
        """The positions of each file's chunks, in the order of the file."""
        found: dict[str, list[int]] = defaultdict(list)
        for position, place in enumerate(self.places):
            found[place.file].append(position)
        return {file: sorted(positions, key=lambda i: self.places[i].number) for file, positions in found.items()}

    def half(self, position: int) -> int:
        """Return the half, 0 or 1, of the chunk's run; runs alternate between halves in the order of their hashes."""
        return self.places[position].run % 2


def draw_pool(
    corpus: Callable[[], Iterable[ChunkRecord]], limit: int, seed: int, needed: Collection[str] = frozenset()
) -> Pool:
    """Draw runs of neighbouring chunks from ``corpus`` until there are ``limit`` chunks.

    ``corpus`` is called twice and must return the chunks of a file in order. The draw depends only on the texts of the
    runs and the seed. Runs of the files in ``needed`` come first. If several chunks have the same embedded text, the
    pool keeps the first one drawn.
    """
    runs: dict[tuple[str, int], hashlib.blake2b] = {}
    counts: dict[str, int] = defaultdict(int)
    total = 0
    for passage in corpus():
        key = _run_of(passage, counts)
        if key not in runs:
            runs[key] = hashlib.blake2b(digest_size=16, salt=seed.to_bytes(16, "little"))
        runs[key].update(_encoded(passage.chunk.embedded_text) + b"\0")
        total += 1
    order = sorted(runs, key=lambda key: (key[0] not in needed, runs[key].digest(), key))
    sizes = {key: min(RUN, counts[key[0]] - key[1] * RUN) for key in order}
    taken: dict[tuple[str, int], int] = {}
    drawn = 0
    for key in order:
        if drawn >= limit:
            break
        taken[key] = len(taken)
        drawn += sizes[key]
    return _read(corpus, taken, total)


def _read(corpus: Callable[[], Iterable[ChunkRecord]], taken: Mapping[tuple[str, int], int], total: int) -> Pool:
    counts: dict[str, int] = defaultdict(int)
    found: list[tuple[PoolPlace, ChunkRecord]] = []
    for passage in corpus():
        number = counts[passage.source or passage.id]
        key = _run_of(passage, counts)
        if key in taken:
            found.append((PoolPlace(key[0], number, taken[key]), passage))
    found.sort(key=lambda item: (item[0].run, item[0].number))
    unique = {passage.chunk.embedded_text: (place, passage) for place, passage in reversed(found)}
    kept = [item for item in found if unique[item[1].chunk.embedded_text][1] is item[1]]
    return Pool([passage for _, passage in kept], [place for place, _ in kept], total)


def _run_of(passage: ChunkRecord, counts: dict[str, int]) -> tuple[str, int]:
    """Return the run of the next chunk of its file, and count the chunk."""
    file = passage.source or passage.id
    counts[file] += 1
    return file, (counts[file] - 1) // RUN


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
