"""BM25 over blocks of postings, of one store or of several that are searched as one.

Those for several stores are the scores that one store with all their chunks would give.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.fulltext import Admits, IndexedTerms, indexed_terms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock
from ragembed.indexes.types import Keys
from ragembed.progress import check
from ragembed.types import Bools, Doubles, Integers

K1, B = 1.2, 0.75
_LEAST_SCORE = math.ulp(0.0)
_SAMPLED, _MORE = 8192, 16
_MOST_KEPT = 1 << 19
"""Number of postings whose scores are kept for later queries, in 8 MiB. Half of the words of a query are in most."""
_VOCABULARY = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, chunks_fts, row)"

TermScores: TypeAlias = "list[tuple[Integers, Doubles]]"
"""For each block, the positions of the chunks that contain a term, and its part of their scores."""


@dataclass(frozen=True, slots=True, eq=False)
class LexicalMember:
    """The chunks of one store; their keys among those of all stores are higher by ``first``.

    A store without postings has one block, without terms: ``has_terms`` is false, and FTS5 counts the terms.
    """

    blocks: tuple[LiveBlock, ...]
    first: int = 0
    has_terms: bool = True

    @classmethod
    def of(cls, connection: sqlite3.Connection, postings: Sequence[LiveBlock] | None, first: int) -> LexicalMember:
        """Return the chunks of a store, from its ``postings`` if it has any."""
        blocks = [LiveBlock(_without_terms(connection))] if postings is None else postings
        moved = (replace(block, block=replace(block.block, chunks=block.block.chunks + first)) for block in blocks)
        return cls(tuple(moved), first, postings is not None)

    def occurrences(self, connection: sqlite3.Connection, phrase: str, term: bytes | None) -> tuple[int, TermScores]:
        """Return the number of chunks that contain a phrase, their positions in each block, and how often they do."""
        if self.has_terms and term is not None:
            places = [block.block.of(term) for block in self.blocks]
            pairs = list(zip(self.blocks, places, strict=True))
            return sum(block.count(inside) for block, inside in pairs), [
                (block.block.positions[inside].astype(np.intp), block.block.counts[inside].astype(np.float64))
                for block, inside in pairs
            ]
        # FTS5 does not return how often a chunk contains a phrase. But its score has only this unknown: it is
        # idf * c * (k1 + 1) / (c + k1 * (1 - b + b * length / mean)) for c occurrences.
        keys, scores = fulltext.scores(connection, phrase)
        scores /= _idf_of_fts5(sum(map(len, self.blocks)), len(keys))
        mean = _mean_length(self.blocks)
        counted: TermScores = []
        for block in self.blocks:
            positions, is_in_block = _positions(block, keys + self.first)
            norms = K1 * ((1 - B) + (B * block.block.lengths[positions]) / mean)
            counted.append((positions, np.rint(scores[is_in_block] * norms / (K1 + 1.0 - scores[is_in_block]))))
        return len(keys), counted


class Postings:
    """The words of all chunks of one store or of several. Threads may share an instance.

    BM25 is the variant of Lucene (Kamphuis, de Vries, Boytsov & Lin 2020, "Which BM25 do you mean?"): k1 is 1.2, b is
    0.75, idf is ``ln(1 + (N - n + 0.5) / (n + 0.5))``, and all columns have the same weight. Scores of single terms are
    computed from postings. FTS5 counts phrases and prefixes, one by one, and the terms of a store without postings.
    """

    def __init__(self, members: Sequence[LexicalMember], terms: IndexedTerms) -> None:
        self.blocks = [block for member in members for block in member.blocks]
        self._members = members
        self._terms = terms
        self._chunks = sum(map(len, self.blocks))
        mean = _mean_length(self.blocks)
        self._norms = [K1 * ((1 - B) + (B * block.block.lengths) / mean) for block in self.blocks]
        self._lock = threading.Lock()
        self._kept: dict[bytes, TermScores] = {}
        self._room = _MOST_KEPT

    def search(
        self, connections: Sequence[sqlite3.Connection], expression: str, limit: int, admits: Admits | None = None
    ) -> tuple[Keys, Doubles]:
        """Return keys and BM25 of the best ``limit`` admitted chunks, best first, and ties of the last.

        ``connections`` are those of the members.
        """
        if limit == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        scores = self._scores(connections, expression)
        keys, values = self._above(scores, _probable_least(scores, limit), admits)
        if len(keys) < limit:
            keys, values = self._above(scores, _LEAST_SCORE, admits)
        if len(values) > limit:
            least = np.partition(values, len(values) - limit)[len(values) - limit]
            keys, values = keys[values >= least], values[values >= least]
        order = np.lexsort((keys, -values))
        return fulltext.with_ties(keys[order], values[order], limit)

    def all_scores(self, connections: Sequence[sqlite3.Connection], expression: str) -> tuple[Keys, Doubles]:
        """Return the keys and scores of all chunks that match ``expression``, shapes ``(n,)``."""
        return self._above(self._scores(connections, expression), _LEAST_SCORE, None)

    def _scores(self, connections: Sequence[sqlite3.Connection], expression: str) -> list[Doubles]:
        """Return the score of each chunk of each block, 0 for the chunks that do not match."""
        scores = [np.zeros(len(block.block.chunks)) for block in self.blocks]
        for phrase in fulltext.phrases(expression):
            check()
            terms = self._terms.of_phrase(phrase)
            if not terms:
                continue
            if len(terms) == 1 and not phrase.endswith("*"):
                parts = self._of_term(connections, phrase, terms[0])
            else:
                parts = self._computed(connections, phrase)
            for of_block, (at, part) in zip(scores, parts, strict=True):
                np.add.at(of_block, at, part)  # five times as fast as +=
        for block, of_block in zip(self.blocks, scores, strict=True):
            of_block[block.dead] = 0.0
        return scores

    def _of_term(self, connections: Sequence[sqlite3.Connection], phrase: str, term: bytes) -> TermScores:
        """Return the part of a term in the scores; those of the latest terms are kept."""
        with self._lock:
            cached = self._kept.pop(term, None)
            if cached is not None:
                self._kept[term] = cached  # as the latest
                return cached
        parts = self._computed(connections, phrase, term)
        size = sum(len(at) for at, _ in parts)
        with self._lock:
            if size <= _MOST_KEPT // 4 and term not in self._kept:
                self._kept[term] = parts
                self._room -= size
                while self._room < 0:
                    oldest = self._kept.pop(next(iter(self._kept)))
                    self._room += sum(len(at) for at, _ in oldest)
        return parts

    def _computed(
        self, connections: Sequence[sqlite3.Connection], phrase: str, term: bytes | None = None
    ) -> TermScores:
        """Return the part of a phrase in the scores; ``term`` is the only term of a phrase without prefixes."""
        members = zip(self._members, connections, strict=True)
        counted = [member.occurrences(connection, phrase, term) for member, connection in members]
        of_phrase = idf(self._chunks, sum(frequency for frequency, _ in counted))
        occurrences = [of_block for _, of_member in counted for of_block in of_member]
        parts: TermScores = []
        for norms, (at, part) in zip(self._norms, occurrences, strict=True):
            divisor = norms.take(at, mode="clip")  # five times as fast as indexing
            divisor += part
            part *= K1 + 1.0
            part /= divisor
            part *= of_phrase
            parts.append((at, part))
        return parts

    def _above(self, scores: Sequence[Doubles], least: float, admits: Admits | None) -> tuple[Keys, Doubles]:
        """Return the keys and scores of the admitted chunks that score at least ``least``."""
        places = [np.flatnonzero(of_block >= least) for of_block in scores]
        keys = np.concatenate([block.block.chunks[at] for block, at in zip(self.blocks, places, strict=True)])
        values = np.concatenate([of_block[at] for of_block, at in zip(scores, places, strict=True)])
        if admits is None:
            return keys, values
        admitted = admits(keys)
        return keys[admitted], values[admitted]


def idf(chunks: int, frequency: int) -> float:
    """Return the idf of BM25 of a term that ``frequency`` of ``chunks`` contain."""
    return math.log1p((chunks - frequency + 0.5) / (frequency + 0.5))


def _idf_of_fts5(chunks: int, frequency: int) -> float:
    """Return the idf in the scores of FTS5 (https://www.sqlite.org/fts5.html, section 5.1.1)."""
    value = math.log((chunks - frequency + 0.5) / (frequency + 0.5))
    return value if value > 0 else 1e-6


def _mean_length(blocks: Sequence[LiveBlock]) -> float:
    return sum(int(block.lengths().sum()) for block in blocks) / max(sum(map(len, blocks)), 1) or 1.0


def _positions(block: LiveBlock, keys: Keys) -> tuple[Integers, Bools]:
    """Return the positions of the ``keys`` that are live chunks of a block, and which of the keys these are."""
    chunks, order = block.block.chunks, block.order
    if not len(chunks):
        return np.zeros(0, dtype=np.int64), np.zeros(len(keys), dtype=bool)
    at = order[np.minimum(np.searchsorted(chunks, keys, sorter=order), len(chunks) - 1)]
    is_in_block = (chunks[at] == keys) & (True if block.live is None else block.live[at])
    return at[is_in_block], is_in_block


def _probable_least(scores: Sequence[Doubles], limit: int) -> float:
    """Estimate from a sample a score that more than ``limit`` chunks reach, but not many more."""
    step = max(1, sum(map(len, scores)) // _SAMPLED)
    sample = np.concatenate([of_block[::step] for of_block in scores])
    rank = 2 * limit // step + _MORE
    if rank >= len(sample):
        return _LEAST_SCORE
    return max(float(np.partition(sample, len(sample) - rank)[len(sample) - rank]), _LEAST_SCORE)


def _without_terms(connection: sqlite3.Connection) -> PostingsBlock:
    """Return the chunks of a store and their lengths, which FTS5 keeps for BM25."""
    sizes = connection.execute("SELECT id, sz FROM chunks_fts_docsize ORDER BY id").fetchall()
    empty = np.zeros(0, dtype=np.int64)
    return PostingsBlock(
        chunks=np.array([key for key, _ in sizes], dtype=np.int64),
        lengths=np.array([_sum_of_varints(size) for _, size in sizes], dtype=np.int64),
        text=np.zeros(0, dtype=np.uint8),
        text_ends=empty,
        ends=empty,
        positions=np.zeros(0, dtype=np.uint32),
        counts=np.zeros(0, dtype=np.uint8),
    )


def _sum_of_varints(data: bytes) -> int:
    """Return the sum of the numbers in ``data``: seven bits a byte, highest first, with the eighth if more follow."""
    total = value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            total, value = total + value, 0
    return total


def frequencies(
    connection: sqlite3.Connection, postings: Sequence[LiveBlock] | None, terms: Sequence[bytes]
) -> list[int]:
    """Return the number of chunks of a store that contain each of ``terms``, from its postings if it has any."""
    if postings is not None:
        return [sum(block.count(block.block.of(term)) for block in postings) for term in terms]
    connection.execute(_VOCABULARY)
    counted = connection.execute(
        "SELECT term, doc FROM temp.vocabulary WHERE term IN (SELECT value FROM json_each(?))",
        (json.dumps([term.decode() for term in terms]),),
    )
    counts = {term.encode(): count for term, count in counted}
    return [counts.get(term, 0) for term in terms]


def counted_terms(language: str, expression: str) -> list[bytes]:
    """Return the terms of an expression of :func:`fulltext.match_expression` that :func:`highest_score` counts.

    Terms in sequence, such as a text in double quotes, do not count: they are in a query beside their parts.
    """
    indexed = indexed_terms(language)
    phrases = [phrase for phrase in fulltext.phrases(expression) if not phrase.endswith("*")]
    of_phrases = [indexed.of_phrase(phrase) for phrase in phrases]
    single = [terms[0] for terms in of_phrases if len(terms) == 1]
    return single or [term for terms in of_phrases for term in terms]


def highest_score(chunks: int, counts: Sequence[int]) -> float:
    """Return the highest BM25 that a text could have for terms that ``counts`` of the ``chunks`` contain.

    BM25 of a term is less than ``k1 + 1`` times its idf, which is highest for a term that no chunk contains.
    """
    return (K1 + 1.0) * sum(idf(chunks, count) for count in counts)
