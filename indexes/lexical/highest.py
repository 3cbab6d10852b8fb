"""The highest BM25 that a text could have for a query."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.bm25 import K1, Postings, idf
from ragembed.indexes.lexical.indexed_terms import IndexedTerms
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.per_generation import PerGeneration

_MOST_KEPT = 100_000
"""Number of terms whose frequencies are kept, so that the memory of a server does not grow with its queries."""
_VOCABULARY = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, chunks_fts, row)"


class TermCounts(Protocol):
    """The numbers of chunks that contain terms, in one store or in several."""

    def state(self) -> Hashable:
        """Return a value that changes with the stores."""
        ...

    def language(self) -> str:
        """Return the language of the terms."""
        ...

    def chunks(self) -> int:
        """Return the number of chunks."""
        ...

    def frequencies(self, terms: Sequence[bytes]) -> list[int]:
        """Return the number of chunks that contain each of ``terms``."""
        ...


@dataclass(frozen=True, slots=True)
class StoreTerms:
    """The numbers of chunks of a store that contain terms, from its postings if it has any."""

    connection: sqlite3.Connection
    postings: Postings | None

    def state(self) -> Hashable:
        """Return the generation of the store."""
        return int(catalog.meta(self.connection, "generation", 0))

    def language(self) -> str:
        """Return the language of the store."""
        return catalog.analyzer_config(self.connection).language

    def chunks(self) -> int:
        """Return the number of chunks."""
        return catalog.count(self.connection, "chunks")

    def frequencies(self, terms: Sequence[bytes]) -> list[int]:
        """Return the number of chunks that contain each of ``terms``."""
        if self.postings is not None:
            return [self.postings.frequency(term) for term in terms]
        self.connection.execute(_VOCABULARY)
        counted = self.connection.execute(
            "SELECT term, doc FROM temp.vocabulary WHERE term IN (SELECT value FROM json_each(?))",
            (json.dumps([term.decode() for term in terms]),),
        )
        found = {term.encode(): count for term, count in counted}
        return [found.get(term, 0) for term in terms]


class _Counted(NamedTuple):
    """The tokenizer, the number of chunks of a state, and those of the chunks that contain a term."""

    terms: IndexedTerms
    chunks: int
    frequencies: dict[bytes, int]


class HighestScores:
    """Computes the highest BM25 of queries. Threads may share an instance.

    BM25 of a term is less than ``k1 + 1`` times its idf, which is highest for a term that no chunk contains. Terms in
    sequence, such as a text in double quotes, do not count: they are in a query beside their parts.
    """

    def __init__(self) -> None:
        self._kept: PerGeneration[_Counted] = PerGeneration()

    def clear(self) -> None:
        """Drop everything that is kept, because the store may have been replaced."""
        self._kept.clear()

    def of(self, terms: TermCounts, expression: str) -> float:
        """Return the highest BM25 for an expression of :func:`~ragembed.indexes.lexical.fulltext.match_expression`."""

        def counted(before: _Counted | None) -> _Counted:
            return _Counted(IndexedTerms(terms.language()) if before is None else before.terms, terms.chunks(), {})

        indexed, chunks, frequencies = self._kept.of(terms.state(), counted)
        phrases = [phrase for phrase in fulltext.phrases(expression) if not phrase.endswith("*")]
        found = [indexed.of_phrase(fulltext.shown(phrase)) for phrase in phrases]
        single = [terms[0] for terms in found if len(terms) == 1] or [term for terms in found for term in terms]
        with self._kept.lock:
            if len(frequencies) > _MOST_KEPT:
                frequencies.clear()
            new = list(dict.fromkeys(term for term in single if term not in frequencies))
            frequencies.update(zip(new, terms.frequencies(new) if new else [], strict=True))
            return (K1 + 1.0) * sum(idf(chunks, frequencies[term]) for term in single)
