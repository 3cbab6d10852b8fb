"""BM25 over blocks of postings: the scores that FTS5 gives, to the last bit, in a fraction of its time."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import lexical
from ragembed.indexes.postings.live import LiveBlock
from ragembed.indexes.postings.terms import IndexedTerms
from ragembed.indexes.selection import Selection

Doubles = NDArray[np.float64]

K1, B = 1.2, 0.75
LEAST_IDF = 1e-6
"""Weight of a term that half of the chunks have, or more."""


class Postings:
    """The postings of all chunks of a store; threads may share it.

    BM25 is that of FTS5 (https://www.sqlite.org/fts5.html, section 5.1.1): k1 1.2, b 0.75, idf
    ``ln((N - n + 0.5) / (n + 0.5))``, at least 1e-6, every column alike. What is one term comes from
    the blocks; phrases of several terms, and beginnings of terms, are asked of FTS5 one by one.
    """

    def __init__(self, blocks: Sequence[LiveBlock], terms: IndexedTerms) -> None:
        self._blocks = blocks
        self._terms = terms
        self._chunks = sum(map(len, blocks))
        mean = sum(int(each.lengths().sum()) for each in blocks) / self._chunks or 1.0
        self._norms = [K1 * ((1 - B) + (B * each.block.lengths) / mean) for each in blocks]
        self._order = [np.argsort(each.block.chunks) for each in blocks]

    def search(
        self, connection: sqlite3.Connection, expression: str, limit: int, selection: Selection | None = None
    ) -> list[tuple[int, float]]:
        """Return what :func:`ragembed.indexes.lexical.search` does."""
        if limit == 0:
            return []
        found = [np.zeros(len(each.block.chunks)) for each in self._blocks]
        for phrase in lexical.phrases(expression):
            terms = self._terms.of_phrase(lexical.shown(phrase))
            if len(terms) == 1 and not phrase.endswith("*"):
                self._add_term(found, terms[0])
            elif terms:
                self._add_phrase(found, connection, phrase)
        return _best(self._blocks, found, limit, selection)

    def _add_term(self, found: Sequence[Doubles], term: bytes) -> None:
        postings = [each.of(term) for each in self._blocks]
        have = sum(len(positions) for positions, _ in postings)
        idf = math.log((self._chunks - have + 0.5) / (have + 0.5))
        idf = idf if idf > 0 else LEAST_IDF
        for scores, norms, (positions, counts) in zip(found, self._norms, postings, strict=True):
            times = counts.astype(np.float64)
            scores[positions] += idf * ((times * (K1 + 1.0)) / (times + norms[positions]))

    def _add_phrase(self, found: Sequence[Doubles], connection: sqlite3.Connection, phrase: str) -> None:
        matches = lexical.all_scores(connection, phrase)
        keys = np.array([key for key, _ in matches], dtype=np.int64)
        values = np.array([score for _, score in matches])
        for scores, order, each in zip(found, self._order, self._blocks, strict=True):
            chunks = each.block.chunks
            at = order[np.minimum(np.searchsorted(chunks, keys, sorter=order), len(chunks) - 1)]
            here = chunks[at] == keys
            scores[at[here]] += values[here]


def _best(
    blocks: Sequence[LiveBlock], found: Sequence[Doubles], limit: int, selection: Selection | None
) -> list[tuple[int, float]]:
    """Return key and score of the best, those that tie with the last of ``limit`` too, best first."""
    keys, scores = [], []
    for each, of_block in zip(blocks, found, strict=True):
        matching = np.flatnonzero(of_block if each.live is None else of_block * each.live)
        keys.append(each.block.chunks[matching])
        scores.append(of_block[matching])
    all_keys, all_scores = np.concatenate(keys), np.concatenate(scores)
    if selection is not None:
        admitted = selection.admits(all_keys)
        all_keys, all_scores = all_keys[admitted], all_scores[admitted]
    if len(all_scores) > limit:
        least = np.partition(all_scores, len(all_scores) - limit)[len(all_scores) - limit]
        all_keys, all_scores = all_keys[all_scores >= least], all_scores[all_scores >= least]
    order = np.lexsort((all_keys, -all_scores))
    best = list(zip(all_keys[order].tolist(), all_scores[order].tolist(), strict=True))
    return lexical.with_ties(best, limit)
