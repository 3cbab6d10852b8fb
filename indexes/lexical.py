"""BM25 over the store's full-text index (SQLite FTS5)."""

from __future__ import annotations

import re
import sqlite3

_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")
_QUOTED = re.compile(r'"([^"]*)"')


def match_expression(query: str) -> str | None:
    """Turn a question into an FTS5 expression that matches any of its words; None if it has no word.

    What stands in double quotes, and what punctuation joins ("faiss.IndexFlat"), is matched as a phrase.
    """
    query = _UNUSABLE.sub(" ", query)
    phrases = _QUOTED.findall(query) + _QUOTED.sub(" ", query).split()
    quoted = [f'"{phrase}"' for phrase in (p.replace('"', " ").strip() for p in phrases) if _has_word(phrase)]
    return " OR ".join(dict.fromkeys(quoted)) or None


def search(connection: sqlite3.Connection, expression: str, limit: int) -> list[tuple[int, float]]:
    """Return ``(chunk key, BM25 score)`` of the best ``limit`` chunks, best first; higher is better."""
    rows = connection.execute(
        "SELECT rowid, -bm25(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank, rowid LIMIT ?",
        (expression, limit),
    )
    return [(row[0], row[1]) for row in rows]


def _has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)
