"""The full-text index of a store (SQLite FTS5): expressions for queries, scores of phrases, and the terms of texts."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TypeAlias, TypeVar

import numpy as np

from ragembed.indexes.lexical.analyzer import Analyzer, Phrase, tokenizer
from ragembed.indexes.lexical.postings import PostingsBlock, counts_type
from ragembed.indexes.types import Keys
from ragembed.types import Bools, Doubles, Floats

Admits: TypeAlias = "Callable[[Keys], Bools]"
"""Returns for each of the chunk keys, shape ``(n,)``, whether a search may return the chunk."""

Scores = TypeVar("Scores", Doubles, Floats)

Columns = tuple[str | None, str | None, str | None]
"""Title, headings and text of a chunk, in the form passed to the full-text index."""

_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")
_QUOTED = re.compile(r'"([^"]*)"')
_PHRASE = re.compile(r'"[^"]*"\*?')
_LEAST_LETTERS = 2
_EXPRESSIONS_KEPT = 256
"""Number of queries whose expressions are kept; each search needs its expression more than once."""

MOST_TERMS = 1000
"""Maximum number of distinct words and phrases of a query; search time grows with their number."""

MOST_TIES = 1000
"""Maximum number of additional results that tie with the last one."""

_PHRASES_KEPT = 1 << 14
_HASH_BYTES = 64 << 20  # Room for the terms of one call, so that FTS5 has nothing to merge.

_SCHEMA = """
CREATE VIRTUAL TABLE texts USING fts5 (title, headings, text, content = '', tokenize = "{tokenizer}");
INSERT INTO texts (texts, rank) VALUES ('hashsize', {hash_bytes});
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (texts, instance);
CREATE VIEW instances AS SELECT ifnull(term, '') AS term, doc, offset FROM vocabulary;
"""
"""FTS5 indexes a combining mark without a letter as an empty term, which ``fts5vocab`` lists as NULL."""


@lru_cache(_EXPRESSIONS_KEPT)
def match_expression(query: str, terms: Analyzer) -> str | None:
    """Convert a query to an FTS5 expression that matches any of its words, or return None if it has no word.

    Stop words count only if the query has no other words. Text in double quotes matches as a phrase. Words joined by
    punctuation, such as ``faiss.IndexFlat``, and text in scripts without spaces match as a phrase and in parts. A text
    with the whole phrase therefore scores higher. ``terms`` is the analyzer of the store's language.
    """
    query = _UNUSABLE.sub(" ", query)
    quoted = [terms.of_phrase(phrase) for phrase in _QUOTED.findall(query) if any(map(str.isalnum, phrase))]
    pieces = _QUOTED.sub(" ", query).replace('"', " ").split()
    is_upper = query.isupper()  # then capitals do not make an acronym of a stop word
    telling = [piece for piece in pieces if not terms.is_stop_word(piece.lower() if is_upper else piece)]
    phrases = [*quoted, *_phrases_of(telling, terms)] or _phrases_of(pieces, terms)
    together = dict.fromkeys(f'"{phrase.terms.strip()}"{"*" if phrase.prefix else ""}' for phrase in phrases)
    return " OR ".join(list(together)[:MOST_TERMS]) or None


def _phrases_of(pieces: Sequence[str], terms: Analyzer) -> list[Phrase]:
    """Return the phrases and parts of the pieces between the blanks of a query."""
    phrases = []
    for piece in pieces:
        parts = terms.parts(piece)
        if len(parts) > 1:
            parts = [part for part in parts if len(part.terms) >= _LEAST_LETTERS and not part.prefix]
            phrases.append(terms.of_phrase(piece))
        phrases += parts
    return phrases


def phrases(expression: str) -> list[str]:
    """Split an expression of :func:`match_expression` into its phrases; each one is an FTS5 expression."""
    return _PHRASE.findall(expression)


def shown(phrase: str) -> str:
    """Return one of :func:`phrases` for display, without quotes."""
    return phrase.replace('"', "")


def scores(connection: sqlite3.Connection, phrase: str) -> tuple[Keys, Doubles]:
    """Return the keys of the chunks that match one of :func:`phrases`, and their scores in FTS5, shapes ``(n,)``."""
    matches = connection.execute("SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?", (phrase,))
    rows = matches.fetchall()
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return np.array(keys, dtype=np.int64), np.array(values, dtype=np.float64)


def with_ties(keys: Keys, scores: Scores, limit: int) -> tuple[Keys, Scores]:
    """Return the first ``limit`` keys (or rows) with their sorted scores, and up to a thousand ties of the last."""
    if len(keys) > limit:
        stop = int(np.count_nonzero(scores[: limit + MOST_TIES] >= scores[limit - 1])) if limit else 0
        keys, scores = keys[:stop], scores[:stop]
    return keys, scores


class IndexedTerms:
    """Runs the tokenizer of a store in ``language`` on texts. Threads may share an instance."""

    def __init__(self, language: str) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.executescript(_SCHEMA.format(tokenizer=tokenizer(language), hash_bytes=_HASH_BYTES))
        self._lock = threading.Lock()
        self.of_phrase = lru_cache(_PHRASES_KEPT)(self._of_phrase)

    def _of_phrase(self, phrase: str) -> tuple[bytes, ...]:
        """Return the terms of a phrase in order, encoded in UTF-8."""
        with self._lock:
            self._fill([(None, None, phrase)])
            rows = self._connection.execute("SELECT term FROM instances ORDER BY offset").fetchall()
        return tuple(term.encode() for (term,) in rows)

    def of_each(self, texts: Sequence[str]) -> list[frozenset[str]]:
        """Return the terms of each text."""
        terms_of_texts: list[set[str]] = [set() for _ in texts]
        with self._lock:
            self._fill([(None, None, text) for text in texts])
            for position, term in self._connection.execute("SELECT doc, term FROM instances"):
                terms_of_texts[position].add(term)
            self._fill([])
        return [frozenset(terms) for terms in terms_of_texts]

    def postings(self, keys: Sequence[int], texts: Sequence[Columns]) -> PostingsBlock:
        """Return the postings of the chunks ``keys`` with the columns ``texts``."""
        with self._lock:
            self._fill(texts)
            entries = self._connection.execute("SELECT term, group_concat(doc) FROM instances GROUP BY term").fetchall()
            self._fill([])
        entries = sorted((term.encode(), documents) for term, documents in entries)
        instances = [np.fromstring(documents, dtype=np.int64, sep=",") for _, documents in entries]
        of_each = np.array([len(of_term) for of_term in instances], dtype=np.int64)
        positions = np.concatenate([*instances, np.zeros(0, dtype=np.int64)])
        together = np.repeat(np.arange(len(entries)), of_each) * len(keys) + positions
        pairs, counts = np.unique(together, return_counts=True)
        terms = [term for term, _ in entries]
        return PostingsBlock(
            chunks=np.array(keys, dtype=np.int64),
            lengths=np.bincount(positions, minlength=len(keys)).astype(np.int64),
            text=np.frombuffer(b"".join(terms), dtype=np.uint8),
            text_ends=np.cumsum([len(term) for term in terms], dtype=np.int64),
            ends=np.cumsum(np.bincount(pairs // len(keys), minlength=len(terms)), dtype=np.int64),
            positions=(pairs % len(keys)).astype(np.uint32),
            counts=counts.astype(counts_type(int(counts.max(initial=0)))),
        )

    def _fill(self, texts: Sequence[Columns]) -> None:
        """Replace the contents of the index by ``texts``, numbered from 0."""
        self._connection.execute("BEGIN")  # Otherwise FTS5 would write the terms of each text on their own.
        with self._connection:
            self._connection.execute("INSERT INTO texts (texts) VALUES ('delete-all')")
            self._connection.executemany(
                "INSERT INTO texts (rowid, title, headings, text) VALUES (?, ?, ?, ?)",
                ((i, *columns) for i, columns in enumerate(texts)),
            )


@cache
def indexed_terms(language: str) -> IndexedTerms:
    """Return the tokenizer of the stores in ``language``."""
    return IndexedTerms(language)
