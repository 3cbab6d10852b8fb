"""Checking the database: its structure, its words, its digests, and that its rows agree with one another."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError, RagembedError
from ragembed.indexes.ann.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.storage import catalog, digests, schema
from ragembed.indexes.storage.baseline import KEY as BASELINE
from ragembed.indexes.storage.baseline import is_baseline_record
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.transactions import lost_commits
from ragembed.indexes.text.stemming import AnalyzerConfig
from ragembed.indexes.types import text_hash
from ragembed.indexes.verify.report import Part, Problem

_LOG = DATABASE + "-wal"
_SEQUENCES = """
SELECT DISTINCT owner FROM (
    SELECT 'chunks' AS owner, max(key) AS used FROM chunks
    UNION ALL SELECT 'chunks', max(last_chunk) FROM postings
    UNION ALL SELECT 'postings', max(key) FROM postings
    UNION ALL SELECT 'vectors', max(row) FROM vectors
) WHERE used > coalesce((SELECT seq FROM sqlite_sequence WHERE name = owner), 0)
"""
_MARKS = "SELECT count(*) FROM vectors v WHERE EXISTS (SELECT 1 FROM chunks WHERE row = v.row) = (v.row IN tombstones)"
_POSITIONS = (
    "SELECT s.key FROM segments s LEFT JOIN vectors v ON v.segment = s.key GROUP BY s.key"
    " HAVING count(v.row) <> s.rows OR min(v.position) <> 0 OR max(v.position) <> s.rows - 1"
    " OR count(DISTINCT v.position) <> s.rows"
)
_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)
"""What reading a value raises that is no JSON, or not of its type."""
_WORDS_CHECK = "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"


def check_structure(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Let SQLite check the database, and compare rows with one another; ``connection`` stands in a transaction."""
    for (message,) in connection.execute("PRAGMA integrity_check(20)"):
        if "fts5" in message.lower():  # newer versions of SQLite look into the full-text index too
            yield Problem(Part.WORDS, DATABASE, message)
        elif message != "ok":
            yield _damaged(message)
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield _damaged(f"row {row} of {table} refers to a row of {parent} that is not there")
    if marks := connection.execute(_MARKS).fetchone()[0]:
        yield _damaged(f"{marks:,} vectors are marked as unused and used, or as neither")
    for (table,) in connection.execute(_SEQUENCES):
        yield _damaged(f"the next key of {table} is one that was used before")
    for (key,) in connection.execute(_POSITIONS):
        yield _damaged(f"the vectors of segment {key} are not numbered from 0 to the number of its rows")
    yield from _check_meta(connection)
    yield from _check_texts(connection)


def check_rows(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the rows with the digests, and the last commit with the number that its writer noted."""
    for table in digests.altered_tables(connection):
        yield Problem(Part.ROWS, DATABASE, f"the rows of {table} are not those that were committed")
    if (message := lost_commits(store / DATABASE, connection)) is not None:
        yield Problem(Part.LOG, _LOG, message)


def check_words(store: Path) -> Iterator[Problem]:
    """Compare the full-text index with the chunks; the folder must be writable, though nothing is written."""
    with closing(schema.connect(store / DATABASE, writable=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_WORDS_CHECK)
        except sqlite3.DatabaseError as error:
            yield Problem(Part.WORDS, DATABASE, f"the full-text index does not agree with the chunks: {error}")
        finally:
            connection.execute("ROLLBACK")


def _check_meta(connection: sqlite3.Connection) -> Iterator[Problem]:
    for key, text in connection.execute("SELECT key, value FROM meta ORDER BY key"):
        if not _is_right(key, text):
            yield _damaged(f"the value of {key!r} is {str(text)[:80]}, which no store has")


def _is_right(key: str, text: str) -> bool:
    try:
        return _META.get(key, _is_anything)(json.loads(text))
    except _UNREADABLE:
        return False


def _check_texts(connection: sqlite3.Connection) -> Iterator[Problem]:
    hashes = connection.execute("SELECT v.text_hash FROM chunks c LEFT JOIN vectors v ON v.row = c.row ORDER BY c.key")
    try:
        for (made_from,), record in zip(hashes, catalog.iterate_chunks(connection), strict=True):
            if made_from != text_hash(record.chunk.embedded_text):
                yield _damaged(f"the text of chunk {record.id!r} is not the one that its vector was made from")
    except (*_UNREADABLE, RagembedError) as error:
        yield _damaged(f"a chunk cannot be read: {error}")


def _damaged(message: str) -> Problem:
    return Problem(Part.DATABASE, DATABASE, message)


def _is_anything(value: object) -> bool:  # noqa: ARG001  the signature of the others
    return True


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_embedder(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(files := value.get("files"), dict):
        return False
    texts = [value.get(name) for name in ("kind", "model", "fingerprint", "raw_fingerprint")] + list(files.values())
    return all(isinstance(text, str) for text in texts) and all(Path(name).name == name for name in files)


def _reads(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    def accepted(value: object) -> bool:
        try:
            return value is None or read(value) is not None
        except ConfigError:
            return False

    return accepted


_META: Mapping[str, Callable[[Any], bool]] = {
    "boilerplate": lambda value: isinstance(value, dict),
    BASELINE: is_baseline_record,
    "dim": lambda value: _is_count(value) and value > 0,
    "embedder": _is_embedder,
    "fusion": _reads(Fusion.from_dict),
    "generation": _is_count,
    "index": _reads(IndexConfig.from_dict),
    "index_check": _reads(IndexEvaluation.from_dict),
    "index_choice": _reads(IndexSelection.from_dict),
    "indexing": lambda value: isinstance(value, dict),
    "unfinished": lambda value: isinstance(value, bool),
    "wanted": lambda value: isinstance(value, dict),
    "words": _reads(AnalyzerConfig.from_dict),
}
"""Whether a value that a store keeps under a key is one of its type."""
