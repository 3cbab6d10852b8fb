"""The highest BM25 that a text could have for a query."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.bm25 import K1, Postings, idf
from ragembed.indexes.lexical.indexed_terms import IndexedTerms
from ragembed.indexes.storage.per_generation import PerGeneration

_MOST_KEPT = 100_000
"""Number of terms whose frequencies are kept, so that the memory of a server does not grow with its queries."""
_VOCABULARY = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab (main, chunks_fts, row)"


def frequencies(connection: sqlite3.Connection, postings: Postings | None, terms: Sequence[bytes]) -> list[int]:
    """Return the number of chunks of a store that contain each of ``terms``, from its postings if it has any."""
    if postings is not None:
        return [postings.frequency(term) for term in terms]
    connection.execute(_VOCABULARY)
    counted = connection.execute(
        "SELECT term, doc FROM temp.vocabulary WHERE term IN (SELECT value FROM json_each(?))",
        (json.dumps([term.decode() for term in terms]),),
    )
    counts = {term.encode(): count for term, count in counted}
    return [counts.get(term, 0) for term in terms]


class _Counted(NamedTuple):
    """The tokenizer, and the numbers of the chunks that contain a term in one state."""

    terms: IndexedTerms
    frequencies: dict[bytes, int]


class HighestScores:
    """Computes the highest BM25 of queries. Threads may share an instance.

    BM25 of a term is less than ``k1 + 1`` times its idf, which is highest for a term that no chunk contains. Terms in
    sequence, such as a text in double quotes, do not count: they are in a query beside their parts.
    """

    def __init__(self) -> None:
        self._kept: PerGeneration[_Counted] = PerGeneration()

    def of(
        self,
        expression: str,
        state: Hashable,
        language: str,
        chunks: int,
        frequencies: Callable[[Sequence[bytes]], list[int]],
    ) -> float:
        """Return the highest BM25 for an expression of :func:`~ragembed.indexes.lexical.fulltext.match_expression`.

        ``frequencies`` returns the number of ``chunks`` that contain each of some terms, while ``state`` is the same.
        """

        def counted(before: _Counted | None) -> _Counted:
            return _Counted(IndexedTerms(language) if before is None else before.terms, {})

        indexed, counts = self._kept.of(state, counted)
        phrases = [phrase for phrase in fulltext.phrases(expression) if not phrase.endswith("*")]
        terms = [indexed.of_phrase(fulltext.shown(phrase)) for phrase in phrases]
        single = [each[0] for each in terms if len(each) == 1] or [term for each in terms for term in each]
        with self._kept.lock:
            if len(counts) > _MOST_KEPT:
                counts.clear()
            new = list(dict.fromkeys(term for term in single if term not in counts))
            counts.update(zip(new, frequencies(new) if new else [], strict=True))
            return (K1 + 1.0) * sum(idf(chunks, counts[term]) for term in single)
