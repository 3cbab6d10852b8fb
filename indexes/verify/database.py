"""Checks of the database: its structure, its full-text index, its digests, and the consistency of its rows."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError, RagembedError
from ragembed.indexes.faiss_index.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.lexical.analyzer import AnalyzerConfig
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.relevance import KEY as RELEVANCE
from ragembed.indexes.search.relevance import RelevanceModel
from ragembed.indexes.storage import catalog, digests, schema
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.transactions import lost_commits
from ragembed.indexes.types import is_key_of
from ragembed.indexes.verify.report import Part, Problem

_LOG = DATABASE + "-wal"
_SEQUENCES = """
SELECT DISTINCT owner FROM (
    SELECT 'chunks' AS owner, max(key) AS used FROM chunks
    UNION ALL SELECT 'chunks', max(last) FROM derived WHERE name = 'postings'
    UNION ALL SELECT 'vectors', max(last) FROM derived WHERE name <> 'postings'
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
"""Errors of reading a value that is not JSON or has the wrong type."""
_SEARCHED = 200
"""Number of chunks that are searched by one of their words."""
_WORD = re.compile(r'(?<!\S)(?=\S*[^\W_]{2})[^\s"\x00-\x1f]{2,40}(?!\S)')
_FOUND = "SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid = ?"
_WORDS_CHECK = "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"


def check_structure(connection: sqlite3.Connection, *, texts: bool = True) -> Iterator[Problem]:
    """Let SQLite check the database, and compare its rows with each other; ``connection`` must be in a transaction.

    Without ``texts``, the texts of the chunks are not compared with the hashes of their vectors.
    """
    for (message,) in connection.execute("PRAGMA integrity_check(20)"):
        if "fts5" in message.lower():  # Newer versions of SQLite also check the full-text index.
            yield Problem(Part.WORDS, DATABASE, message)
        elif message != "ok":
            yield _damaged(message)
    yield from _check_types(connection)
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield _damaged(f"row {row} of {table} refers to a row of {parent} that does not exist")
    if marks := connection.execute(_MARKS).fetchone()[0]:
        yield _damaged(f"{marks:,} vectors are marked as both used and unused, or as neither")
    for (table,) in connection.execute(_SEQUENCES):
        yield _damaged(f"the next key of {table} has already been used")
    for (key,) in connection.execute(_POSITIONS):
        yield _damaged(f"the positions of the vectors of segment {key} are not 0, 1, 2, …")
    yield from _check_meta(connection)
    if texts:
        yield from _check_texts(connection)


def check_rows(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the rows with the digests, and the generation with the number of the last commit."""
    for table in digests.altered_tables(connection):
        yield Problem(Part.ROWS, DATABASE, f"the rows of {table} do not match their digest")
    if (message := lost_commits(store / DATABASE, connection)) is not None:
        yield Problem(Part.LOG, _LOG, message)


def check_words(store: Path) -> Iterator[Problem]:
    """Compare the full-text index with the chunks; needs a writable folder, although nothing is written."""
    with closing(schema.connect(store / DATABASE, writable=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_WORDS_CHECK)
        except sqlite3.DatabaseError as error:
            yield Problem(Part.WORDS, DATABASE, f"the full-text index does not match the chunks: {error}")
        finally:
            connection.execute("ROLLBACK")


def _check_types(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the types of all values with those of their columns, which SQLite does not enforce."""
    for table in (*digests.TABLES, "vectors", "tombstones"):
        columns = connection.execute(f"PRAGMA table_info ({table})").fetchall()
        wrong = [
            f"(typeof({name}) <> '{kind.lower()}' AND NOT ({name} IS NULL AND {not required and not in_key}))"
            for _, name, kind, required, _, in_key in columns
        ]
        count = connection.execute(f"SELECT count(*) FROM {table} WHERE {' OR '.join(wrong)}").fetchone()[0]  # noqa: S608  constants
        if count:
            yield _damaged(f"{count:,} rows of {table} have values of the wrong type")
    words = "SELECT count(*) FROM chunks_fts_docsize WHERE id NOT IN (SELECT key FROM chunks)"
    if strays := connection.execute(words).fetchone()[0]:
        yield Problem(Part.WORDS, DATABASE, f"the full-text index has {strays:,} chunks that do not exist")
    if connection.execute("SELECT count(DISTINCT dim) > 1 OR min(dim) < 1 FROM segments").fetchone()[0]:
        yield _damaged("the segments have different dimensions, or none")


def check_some_words(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Search the full-text index for one word of each of some chunks, which only reads."""
    low, high = connection.execute("SELECT coalesce(min(key), 0), coalesce(max(key), 0) FROM chunks").fetchone()
    step = max(1, (high - low) // _SEARCHED)
    nearest = "SELECT key, terms(coalesce(searched, text)) FROM chunks WHERE key >= ? ORDER BY key LIMIT 1"
    missing = 0
    try:
        for start in range(low, high + 1, step):
            key, terms = connection.execute(nearest, (start,)).fetchone() or (0, "")
            word = max(_WORD.findall(terms), key=len, default=None)
            missing += word is not None and connection.execute(_FOUND, (f'"{word}"', key)).fetchone() is None
    except sqlite3.DatabaseError as error:
        yield Problem(Part.WORDS, DATABASE, f"the full-text index cannot be searched: {error}")
    if missing:
        message = f"the full-text index does not match the chunks: {missing:,} are not found by a word of their text"
        yield Problem(Part.WORDS, DATABASE, message)


def _check_meta(connection: sqlite3.Connection) -> Iterator[Problem]:
    for key, text in connection.execute("SELECT key, value FROM meta ORDER BY key"):
        if not _is_valid(key, text):
            yield _damaged(f"the value of {key!r} is invalid: {str(text)[:80]}")


def _is_valid(key: str, text: str) -> bool:
    try:
        return _META.get(key, _is_anything)(json.loads(text))
    except _UNREADABLE:
        return False


def _check_texts(connection: sqlite3.Connection) -> Iterator[Problem]:
    hashes = connection.execute("SELECT v.text_hash FROM chunks c LEFT JOIN vectors v ON v.row = c.row ORDER BY c.key")
    try:
        for (stored_hash,), record in zip(hashes, catalog.iterate_chunks(connection), strict=True):
            if stored_hash is None or not is_key_of(stored_hash, record.chunk.embedded_text):
                yield _damaged(f"the text of chunk {record.id!r} is not the text that its vector was made from")
    except (*_UNREADABLE, RagembedError) as error:
        yield _damaged(f"cannot read a chunk: {error}")


def _damaged(message: str) -> Problem:
    return Problem(Part.DATABASE, DATABASE, message)


def _is_anything(value: object) -> bool:  # noqa: ARG001  same signature as the other functions
    return True


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_embedder(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(files := value.get("files"), dict):
        return False
    texts = [value.get(name) for name in ("kind", "model", "fingerprint", "raw_fingerprint")] + list(files.values())
    return all(isinstance(text, str) for text in texts) and all(Path(name).name == name for name in files)


def _readable_by(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    def accepted(value: object) -> bool:
        try:
            return value is None or read(value) is not None
        except ConfigError:
            return False

    return accepted


_META: Mapping[str, Callable[[Any], bool]] = {
    "boilerplate": lambda value: isinstance(value, dict),
    "dim": lambda value: _is_count(value) and value > 0,
    "embedder": _is_embedder,
    "fusion": _readable_by(Fusion.from_dict),
    RELEVANCE: _readable_by(RelevanceModel.from_dict),
    "detected_language": _readable_by(catalog.read_detected_language),
    "generation": _is_count,
    "index": _readable_by(IndexConfig.from_dict),
    "index_check": _readable_by(IndexEvaluation.from_dict),
    "index_choice": _readable_by(IndexSelection.from_dict),
    "indexing": _readable_by(catalog.read_request),
    catalog.PART: _readable_by(catalog.PartRecord.from_dict),
    "unfinished": lambda value: isinstance(value, bool),
    "wanted": _readable_by(catalog.read_chain),
    "words": _readable_by(AnalyzerConfig.from_dict),
}
"""For each key, a function that returns whether a value is valid."""
