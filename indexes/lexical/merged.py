"""BM25 over several stores, with the scores that one store with all their chunks would give."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.bm25 import K1, B, Postings, best_of, idf
from ragembed.indexes.lexical.indexed_terms import IndexedTerms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock
from ragembed.indexes.storage.selection import Admission
from ragembed.indexes.types import Keys
from ragembed.types import Doubles, Integers


@dataclass(frozen=True, slots=True, eq=False)
class LexicalMember:
    """The chunks of one store; their keys among those of all stores are higher by ``first``.

    A store without postings has one block, without terms: ``has_terms`` is false, and FTS5 counts the terms.
    """

    blocks: tuple[LiveBlock, ...]
    first: int
    has_terms: bool

    @classmethod
    def of(cls, connection: sqlite3.Connection, postings: Postings | None, first: int) -> LexicalMember:
        """Return the chunks of a store, from its ``postings`` if it has any."""
        blocks = (LiveBlock(_without_terms(connection)),) if postings is None else postings.blocks
        moved = tuple(replace(each, block=replace(each.block, chunks=each.block.chunks + first)) for each in blocks)
        return cls(moved, first, postings is not None)

    def occurrences(
        self, connection: sqlite3.Connection, phrase: str, terms: Sequence[bytes]
    ) -> list[tuple[Integers, Doubles]]:
        """Return for each block the positions of the chunks that contain a phrase, and how often each contains it."""
        if self.has_terms and len(terms) == 1 and not phrase.endswith("*"):
            places = [each.block.of(terms[0]) for each in self.blocks]
            return [
                (
                    each.of_postings(each.block.positions[inside], inside).astype(np.int64),
                    each.of_postings(each.block.counts[inside], inside).astype(np.float64),
                )
                for each, inside in zip(self.blocks, places, strict=True)
            ]
        return list(self._counted_by_fts5(connection, phrase))

    def _counted_by_fts5(self, connection: sqlite3.Connection, phrase: str) -> Iterator[tuple[Integers, Doubles]]:
        """Yield the same from the scores of FTS5.

        FTS5 does not return how often a chunk contains a phrase. But its score has only this unknown: it is ``idf * c *
        (k1 + 1) / (c + k1 * (1 - b + b * length / mean))`` for ``c`` occurrences.
        """
        keys, scores = fulltext.all_scores(connection, phrase)
        keys, scores = keys + self.first, scores / idf(self.count(), len(keys))
        mean = self.length() / max(self.count(), 1) or 1.0
        for each in self.blocks:
            chunks, order = each.block.chunks, each.order
            if not len(chunks):
                yield np.zeros(0, dtype=np.int64), np.zeros(0)
                continue
            at = order[np.minimum(np.searchsorted(chunks, keys, sorter=order), len(chunks) - 1)]
            here = (chunks[at] == keys) & (True if each.live is None else each.live[at])
            positions, of_each = at[here], scores[here]
            norms = K1 * ((1 - B) + (B * each.block.lengths[positions]) / mean)
            yield positions, np.rint(of_each * norms / (K1 + 1.0 - of_each))

    def count(self) -> int:
        """Return the number of chunks."""
        return sum(map(len, self.blocks))

    def length(self) -> int:
        """Return the number of terms in all chunks."""
        return sum(int(each.lengths().sum()) for each in self.blocks)


class MergedPostings:
    """The terms of the chunks of several stores. Threads may share an instance."""

    def __init__(self, members: Sequence[LexicalMember], terms: IndexedTerms) -> None:
        self._members = members
        self._terms = terms
        self._chunks = sum(each.count() for each in members)
        mean = sum(each.length() for each in members) / max(self._chunks, 1) or 1.0
        self._blocks = [block for each in members for block in each.blocks]
        self._norms = [K1 * ((1 - B) + (B * each.block.lengths) / mean) for each in self._blocks]

    def search(
        self, connections: Sequence[sqlite3.Connection], expression: str, limit: int, selection: Admission | None = None
    ) -> tuple[Keys, Doubles]:
        """Search like :func:`ragembed.indexes.lexical.fulltext.search`, over all stores."""
        return best_of(self._blocks, self._scores(connections, expression), limit, selection)

    def all_scores(self, connections: Sequence[sqlite3.Connection], expression: str) -> tuple[Keys, Doubles]:
        """Return the keys and scores of all chunks that match ``expression``, shapes ``(n,)``."""
        found = self._scores(connections, expression)
        keys = [each.block.chunks[scores > 0] for each, scores in zip(self._blocks, found, strict=True)]
        return (
            np.concatenate([*keys, np.zeros(0, dtype=np.int64)]),
            np.concatenate([*(scores[scores > 0] for scores in found), np.zeros(0)]),
        )

    def _scores(self, connections: Sequence[sqlite3.Connection], expression: str) -> list[Doubles]:
        """Return BM25 of each chunk of each block; ``connections`` are those of the members."""
        found = [np.zeros(len(each.block.chunks)) for each in self._blocks]
        for phrase in fulltext.phrases(expression):
            terms = self._terms.of_phrase(fulltext.shown(phrase))
            if not terms:
                continue
            occurrences = [
                each
                for member, connection in zip(self._members, connections, strict=True)
                for each in member.occurrences(connection, phrase, terms)
            ]
            of_phrase = idf(self._chunks, sum(len(positions) for positions, _ in occurrences))
            for scores, norms, (positions, counts) in zip(found, self._norms, occurrences, strict=True):
                scores[positions] += of_phrase * counts * (K1 + 1.0) / (counts + norms[positions])
        return found


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
