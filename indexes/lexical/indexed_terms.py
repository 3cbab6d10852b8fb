"""Find the terms that the full-text index has for texts, with an FTS5 index in memory."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.lexical.postings import PostingsBlock, counts_type
from ragembed.indexes.text.stemming import tokenizer

Columns = tuple[str | None, str | None, str | None]
"""Title, headings and text of a chunk, in the form passed to the full-text index."""

_PHRASES_KEPT = 1 << 14
_HASH_BYTES = 64 << 20  # Room for the terms of one call, so that FTS5 has nothing to merge.

_SCHEMA = """
CREATE VIRTUAL TABLE texts USING fts5 (title, headings, text, content = '', tokenize = "{tokenizer}");
INSERT INTO texts (texts, rank) VALUES ('hashsize', {hash_bytes});
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (texts, instance);
CREATE VIEW instances AS SELECT ifnull(term, '') AS term, doc, offset FROM vocabulary;
"""
"""FTS5 indexes a combining mark without a letter as an empty term, which ``fts5vocab`` lists as NULL."""


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
            found = self._connection.execute("SELECT term FROM instances ORDER BY offset").fetchall()
        return tuple(term.encode() for (term,) in found)

    def of_each(self, texts: Sequence[str]) -> list[frozenset[str]]:
        """Return the terms of each text."""
        found: list[set[str]] = [set() for _ in texts]
        with self._lock:
            self._fill([(None, None, text) for text in texts])
            for position, term in self._connection.execute("SELECT doc, term FROM instances"):
                found[position].add(term)
            self._fill([])
        return [frozenset(terms) for terms in found]

    def postings(self, keys: Sequence[int], texts: Sequence[Columns]) -> PostingsBlock:
        """Return the postings of the chunks ``keys`` with the columns ``texts``."""
        with self._lock:
            self._fill(texts)
            found = self._connection.execute("SELECT term, group_concat(doc) FROM instances GROUP BY term").fetchall()
            self._fill([])
        found = sorted((term.encode(), documents) for term, documents in found)
        instances = [np.fromstring(documents, dtype=np.int64, sep=",") for _, documents in found]
        of_each = np.array([len(each) for each in instances], dtype=np.int64)
        positions = np.concatenate([*instances, np.zeros(0, dtype=np.int64)])
        together = np.repeat(np.arange(len(found)), of_each) * len(keys) + positions
        pairs, counts = np.unique(together, return_counts=True)
        terms = [term for term, _ in found]
        return PostingsBlock(
            chunks=np.array(keys, dtype=np.int64),
            lengths=np.bincount(positions, minlength=len(keys)).astype(np.int64),
            text=np.frombuffer(b"".join(terms), dtype=np.uint8),
            text_ends=_ends([len(term) for term in terms]),
            ends=_ends(np.bincount(pairs // len(keys), minlength=len(terms))),
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


def _ends(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(np.asarray(lengths, dtype=np.int64), dtype=np.int64)
