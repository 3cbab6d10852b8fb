"""BM25 over blocks of postings. The scores equal those of FTS5 to the last bit, in a fraction of the time."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.indexed_terms import IndexedTerms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock, open_postings
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.named_postings import named_postings, stale_chunks
from ragembed.indexes.storage.per_generation import PerGeneration
from ragembed.indexes.storage.selection import Admission
from ragembed.indexes.types import Keys
from ragembed.stopping import check
from ragembed.types import Doubles, Integers

K1, B = 1.2, 0.75
LEAST_IDF = 1e-6
"""The idf of a term that half of the chunks or more contain."""

_LEAST_SCORE = math.ulp(0.0)
_SAMPLED, _MORE = 8192, 16
_MOST_KEPT = 1 << 19
"""Number of postings whose scores are kept for later queries, in 8 MiB. Half of the words of a query are in most."""

TermScores: TypeAlias = "list[tuple[Integers, Doubles]]"
"""For each block, the positions of the chunks that contain a term, and its part of their scores."""


class Postings:
    """The postings of all chunks of a store. Threads may share an instance.

    BM25 is the variant of FTS5 (https://www.sqlite.org/fts5.html, section 5.1.1): k1 is 1.2, b is 0.75, idf is
    ``ln((N - n + 0.5) / (n + 0.5))`` but at least 1e-6, and all columns have the same weight. Scores of single terms
    are computed from the blocks. FTS5 computes the scores of phrases and of prefixes, one by one.
    """

    def __init__(self, blocks: Sequence[LiveBlock], terms: IndexedTerms) -> None:
        self.blocks = tuple(blocks)
        self._terms = terms
        self._chunks = sum(map(len, blocks))
        mean = sum(int(each.lengths().sum()) for each in blocks) / self._chunks or 1.0
        self._norms = [K1 * ((1 - B) + (B * each.block.lengths) / mean) for each in blocks]
        self._lock = threading.Lock()
        self._kept: dict[bytes, TermScores] = {}
        self._room = _MOST_KEPT

    def search(
        self, connection: sqlite3.Connection, expression: str, limit: int, selection: Admission | None = None
    ) -> tuple[Keys, Doubles]:
        """Search like :func:`ragembed.indexes.lexical.fulltext.search`, with the same results."""
        found = [np.zeros(len(each.block.chunks)) for each in self.blocks]
        for phrase in fulltext.phrases(expression):
            check()
            terms = self._terms.of_phrase(fulltext.shown(phrase))
            if len(terms) == 1 and not phrase.endswith("*"):
                for scores, (at, part) in zip(found, self._scores(terms[0]), strict=True):
                    np.add.at(scores, at, part)  # five times as fast as +=
            elif terms:
                self._add_phrase(found, connection, phrase)
        return best_of(self.blocks, found, limit, selection)

    def frequency(self, term: bytes) -> int:
        """Return the number of chunks that contain a term."""
        return sum(each.count(each.block.of(term)) for each in self.blocks)

    def _scores(self, term: bytes) -> TermScores:
        """Return the part of a term in the scores; those of the latest terms are kept."""
        with self._lock:
            found = self._kept.pop(term, None)
            if found is not None:
                self._kept[term] = found  # as the latest
                return found
        found = self._computed_scores(term)
        size = sum(len(at) for at, _ in found)
        with self._lock:
            if size <= _MOST_KEPT // 4 and term not in self._kept:
                self._kept[term] = found
                self._room -= size
                while self._room < 0:
                    oldest = self._kept.pop(next(iter(self._kept)))
                    self._room += sum(len(at) for at, _ in oldest)
        return found

    def _computed_scores(self, term: bytes) -> TermScores:
        places = [each.block.of(term) for each in self.blocks]
        frequency = sum(each.count(inside) for each, inside in zip(self.blocks, places, strict=True))
        of_term = idf(self._chunks, frequency)
        found: TermScores = []
        for norms, each, inside in zip(self._norms, self.blocks, places, strict=True):
            positions, counts = each.block.positions[inside], each.block.counts[inside]
            at, part = positions.astype(np.intp), counts.astype(np.float64)
            divisor = norms.take(at, mode="clip")  # five times as fast as indexing
            divisor += part
            part *= K1 + 1.0
            part /= divisor
            part *= of_term
            found.append((at, part))
        return found

    def _add_phrase(self, found: Sequence[Doubles], connection: sqlite3.Connection, phrase: str) -> None:
        keys, values = fulltext.all_scores(connection, phrase)
        for scores, each in zip(found, self.blocks, strict=True):
            chunks, order = each.block.chunks, each.order
            at = order[np.minimum(np.searchsorted(chunks, keys, sorter=order), len(chunks) - 1)]
            here = chunks[at] == keys
            scores[at[here]] += values[here]


def idf(chunks: int, frequency: int) -> float:
    """Return the idf of BM25 of a term that ``frequency`` of ``chunks`` contain, at least ``LEAST_IDF``."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else LEAST_IDF


def best_of(
    blocks: Sequence[LiveBlock], found: Sequence[Doubles], limit: int, selection: Admission | None
) -> tuple[Keys, Doubles]:
    """Return the keys and scores of the best ``limit`` chunks and of chunks that tie with the last, best first."""
    if limit == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    for each, scores in zip(blocks, found, strict=True):
        scores[each.dead] = 0.0
    keys, values = _above(blocks, found, _probable_least(found, limit), selection)
    if len(keys) < limit:
        keys, values = _above(blocks, found, _LEAST_SCORE, selection)
    if len(values) > limit:
        least = np.partition(values, len(values) - limit)[len(values) - limit]
        keys, values = keys[values >= least], values[values >= least]
    order = np.lexsort((keys, -values))
    return fulltext.with_ties(keys[order], values[order], limit)


def _above(
    blocks: Sequence[LiveBlock], found: Sequence[Doubles], least: float, selection: Admission | None
) -> tuple[Keys, Doubles]:
    """Return the keys and scores of the selected chunks that score at least ``least``."""
    places = [np.flatnonzero(scores >= least) for scores in found]
    keys = np.concatenate([each.block.chunks[at] for each, at in zip(blocks, places, strict=True)])
    values = np.concatenate([scores[at] for scores, at in zip(found, places, strict=True)])
    if selection is None:
        return keys, values
    admitted = selection.admits(keys)
    return keys[admitted], values[admitted]


def _probable_least(found: Sequence[Doubles], limit: int) -> float:
    """Estimate from a sample a score that more than ``limit`` chunks reach, but not many more."""
    step = max(1, sum(map(len, found)) // _SAMPLED)
    sample = np.concatenate([scores[::step] for scores in found])
    rank = 2 * limit // step + _MORE
    if rank >= len(sample):
        return _LEAST_SCORE
    return max(float(np.partition(sample, len(sample) - rank)[len(sample) - rank]), _LEAST_SCORE)


class _Opened(NamedTuple):
    """The blocks of a generation by folder, the tokenizer, and the postings, or None if chunks without them exist."""

    blocks: dict[str, PostingsBlock]
    terms: IndexedTerms | None
    postings: Postings | None


class OpenPostings:
    """Opens the postings of the store at ``path``. Threads may share an instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: PerGeneration[_Opened] = PerGeneration()

    def clear(self) -> None:
        """Release the mapped files."""
        self._kept.clear()

    def of(self, connection: sqlite3.Connection, generation: object) -> Postings | None:
        """Return the postings of ``generation``, which ``connection`` sees; None if chunks without postings exist."""
        return self._kept.of(generation, lambda before: self._open(connection, before)).postings

    def _open(self, connection: sqlite3.Connection, before: _Opened | None) -> _Opened:
        former, terms, _ = before or _Opened({}, None, None)
        records = named_postings(connection)
        if not records:
            return _Opened(former, terms, None)
        opened, blocks = {}, []
        for record in records:
            name = record.files.folder
            block = opened[name] = former.get(name) or open_postings(self._path, record.files)
            blocks.append(LiveBlock.without(block, stale_chunks(connection, record.key)))
        if sum(map(len, blocks)) != catalog.count(connection, "chunks"):
            return _Opened(opened, terms, None)
        terms = terms or IndexedTerms(catalog.analyzer_config(connection).language)
        return _Opened(opened, terms, Postings(blocks, terms))
