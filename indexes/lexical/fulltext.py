"""BM25 over the full-text index of a store (SQLite FTS5)."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ragembed.indexes.storage.selection import Selection
from ragembed.indexes.text.analyzer import Analyzer, Phrase, of_language
from ragembed.indexes.text.stemming import ENGLISH
from ragembed.indexes.types import Keys
from ragembed.types import Doubles

_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")
_QUOTED = re.compile(r'"([^"]*)"')
_PHRASE = re.compile(r'"[^"]*"\*?')
_LEAST_LETTERS = 2
_EXPRESSIONS_KEPT = 256
"""Number of queries whose expressions are kept; each search needs its expression more than once."""
_BLOCK = 4096

MOST_TERMS = 1000
"""Maximum number of distinct words and phrases of a query; search time grows with their number."""

MOST_TIES = 1000
"""Maximum number of additional results that tie with the last one."""


@lru_cache(_EXPRESSIONS_KEPT)
def match_expression(query: str, terms: Analyzer | None = None) -> str | None:
    """Convert a query to an FTS5 expression that matches any of its words, or return None if it has no word.

    Text in double quotes matches as a phrase. Words joined by punctuation, such as ``faiss.IndexFlat``, and text in
    scripts without spaces match as a phrase and in parts. A text with the whole phrase therefore scores higher.
    ``terms`` is the analyzer of the store's language, by default English. Words and phrases after the first
    ``MOST_TERMS`` are ignored.
    """
    terms = terms or of_language(ENGLISH)
    query = _UNUSABLE.sub(" ", query)
    phrases = [terms.of_phrase(phrase) for phrase in _QUOTED.findall(query) if _has_word(phrase)]
    for piece in _QUOTED.sub(" ", query).replace('"', " ").split():
        phrases += _phrases(piece, terms)
    quoted = dict.fromkeys(f'"{phrase.terms.strip()}"{"*" if phrase.prefix else ""}' for phrase in phrases)
    return " OR ".join(list(quoted)[:MOST_TERMS]) or None


def _phrases(piece: str, terms: Analyzer) -> list[Phrase]:
    """Return the phrases to match for a part of a query without spaces."""
    parts = terms.parts(piece)
    if len(parts) < 2:
        return parts
    return [terms.of_phrase(piece), *(part for part in parts if len(part.terms) >= _LEAST_LETTERS and not part.prefix)]


def search(
    connection: sqlite3.Connection, expression: str, limit: int, selection: Selection | None = None
) -> tuple[Keys, Doubles]:
    """Return keys and BM25 of the best ``limit`` selected chunks, best first, and up to a thousand ties of the last."""
    if limit == 0:
        return _arrays([])
    left_out = 0 if selection is None else selection.most_left_out
    found = connection.execute(
        "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank, rowid LIMIT ?",
        (expression, -1 if left_out is None else limit + MOST_TIES + left_out),
    )
    best: list[tuple[int, float]] = []
    while block := found.fetchmany(_BLOCK):
        keys = np.array([key for key, _ in block], dtype=np.int64)
        admitted = np.ones(len(keys), dtype=bool) if selection is None else selection.admits(keys)
        best += [(key, score) for (key, score), is_in in zip(block, admitted.tolist(), strict=True) if is_in]
        if len(best) >= limit + MOST_TIES or (len(best) > limit and best[-1][1] < best[limit - 1][1]):
            break
    return with_ties(*_arrays(best), limit)


def _arrays(pairs: Sequence[tuple[int, float]]) -> tuple[Keys, Doubles]:
    """Return the keys and the scores of pairs, shapes ``(n,)``."""
    return np.array([key for key, _ in pairs], dtype=np.int64), np.array(
        [score for _, score in pairs], dtype=np.float64
    )


def phrases(expression: str) -> list[str]:
    """Split an expression of :func:`match_expression` into its phrases; each one is an FTS5 expression."""
    return _PHRASE.findall(expression)


def shown(phrase: str) -> str:
    """Return one of :func:`phrases` for display, without quotes."""
    return phrase.replace('"', "")


def all_scores(connection: sqlite3.Connection, expression: str) -> tuple[Keys, Doubles]:
    """Return the keys and BM25 scores of all chunks that match ``expression``, unordered."""
    found = connection.execute(
        "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?", (expression,)
    )
    return _arrays(found.fetchall())


def scores_of(connection: sqlite3.Connection, expression: str, keys: Sequence[int]) -> dict[int, float]:
    """Return the BM25 score of each chunk in ``keys`` that matches ``expression``; higher is better."""
    found = connection.execute(
        # The plus disables the lookup of chunks one by one, in which bm25 counts the words of the store each time.
        "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?"
        " AND +rowid IN (SELECT value FROM json_each(?))",
        (expression, json.dumps(list(keys))),
    )
    return dict(found.fetchall())


def rank(connection: sqlite3.Connection, expression: str, score: float) -> int:
    """Return the rank of ``score`` for ``expression``: 1 + the number of chunks with a higher score."""
    found = connection.execute(
        "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ? AND -bm25(chunks_fts) > ?", (expression, score)
    )
    return 1 + int(found.fetchone()[0])


def with_ties(keys: Keys, scores: Doubles, limit: int) -> tuple[Keys, Doubles]:
    """Return the first ``limit`` keys and scores, which are sorted, and up to a thousand that tie with the last."""
    if len(keys) > limit:
        stop = int(np.count_nonzero(scores[: limit + MOST_TIES] >= scores[limit - 1])) if limit else 0
        keys, scores = keys[:stop], scores[:stop]
    return keys, scores


def _has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)
