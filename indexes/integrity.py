"""The checks of a store's integrity: its database, the files that the database names, and some texts encoded again."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.fields import read_value
from ragembed.errors import ConfigError, RagembedError, StoreDamagedError
from ragembed.files import read_sha256
from ragembed.indexes.faiss_index.index import open_index
from ragembed.indexes.faiss_index.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.lexical.analyzer import AnalyzerConfig
from ragembed.indexes.lexical.postings import PostingsBlock
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.relevance import KEY as RELEVANCE
from ragembed.indexes.search.relevance import RelevanceModel
from ragembed.indexes.storage import catalog, derived, schema
from ragembed.indexes.storage.derived import DerivedRecord
from ragembed.indexes.storage.folders import foreign_file, hash_difference
from ragembed.indexes.storage.layout import DATABASE, DERIVED, EMBEDDERS, INDEX, RAW, SEGMENTS
from ragembed.indexes.storage.posting_files import stale_chunks
from ragembed.indexes.storage.segments import RAW_TYPE, SegmentFiles, SegmentRecord, stored_spec, to_vectors
from ragembed.indexes.storage.transactions import lost_commits
from ragembed.indexes.types import VectorEncoder, is_key_of, text_hash
from ragembed.postprocess import unit_rows
from ragembed.types import Floats, Halves


class Part(Enum):
    """The part of a store that a problem concerns, which decides how it can be repaired."""

    DATABASE = "database"
    ROWS = "rows"
    LOG = "log"
    WORDS = "words"
    POSTINGS = "postings"
    RAW = "raw"
    INDEX = "index"
    EMBEDDER = "embedder"
    QUERIES = "queries"
    HUBNESS = "hubness"
    CANARY = "canary"
    REWRITTEN = "rewritten"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference from the committed state of a store: the damaged part, its file in the store, and a description.

    ``segment`` is the key of the segment that the file belongs to, if any.
    """

    part: Part
    file: str
    message: str
    segment: int | None = None


@dataclass(slots=True)
class Report:
    """The result of verifying a store: the damage, what of it was repaired, and what could not be checked, and why.

    ``leftovers`` is the number of folders of writes that never committed, and ``canaries`` that of texts that were
    encoded again for comparison. The other numbers are of what was checked.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repaired: list[Problem] = field(default_factory=list)
    leftovers: int = 0
    files: int = 0
    bytes: int = 0
    segments: int = 0
    vectors: int = 0
    chunks: int = 0
    canaries: int = 0

    def parts(self) -> set[Part]:
        """Return the parts of the store that the problems concern."""
        return {problem.part for problem in self.problems}

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [(problem.part.value, problem.file, problem.message) for problem in self.problems]
        summary = f"{len(self.problems):,} problems" if self.problems else "no problems"
        return notebook_table(f"Verification of {self.files:,} files: {summary}", ("Part", "File", "Problem"), rows)


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
_WAITING = (
    "SELECT count(*) FROM vectors WHERE segment IS NULL AND (position IS NOT NULL OR"
    " (SELECT value FROM meta WHERE key = 'unfinished') IS NOT 'true')"
)
_POSITIONS = (
    "SELECT s.key FROM segments s LEFT JOIN vectors v ON v.segment = s.key GROUP BY s.key"
    " HAVING count(v.row) <> s.rows OR min(v.position) <> 0 OR max(v.position) <> s.rows - 1"
    " OR count(DISTINCT v.position) <> s.rows"
)
_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)
"""Errors of reading a value that is not JSON or has the wrong type."""
SEARCHED = 200
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
    if waiting := connection.execute(_WAITING).fetchone()[0]:
        yield _damaged(f"{waiting:,} vectors are in no segment, and no run is under way that encodes them")
    for (table,) in connection.execute(_SEQUENCES):
        yield _damaged(f"the next key of {table} has already been used")
    for (key,) in connection.execute(_POSITIONS):
        yield _damaged(f"the positions of the vectors of segment {key} are not 0, 1, 2, …")
    yield from _check_meta(connection)
    if texts:
        yield from _check_texts(connection)


def check_rows(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare the rows with the digests, and the generation with the number of the last commit."""
    for table in schema.altered_tables(connection):
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
    for table in (*schema.TABLES, "vectors", "tombstones"):
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
    step = max(1, (high - low) // SEARCHED)
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
        value = json.loads(text)
        return key not in _META or _META[key](value)
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


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_embedder(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(files := value.get("files"), dict):
        return False
    texts = [value.get(name) for name in ("kind", "model", "fingerprint", "raw_fingerprint")] + list(files.values())
    return all(isinstance(text, str) for text in texts) and all(Path(name).name == name for name in files)


def _of_kind(kind: type) -> Callable[[Any], bool]:
    def accepted(value: object) -> bool:
        try:
            return value is None or read_value(kind, value, "value") is not None
        except ConfigError:
            return False

    return accepted


_META: Mapping[str, Callable[[Any], bool]] = {
    "dim": lambda value: _is_count(value) and value > 0,
    "embedder": _is_embedder,
    "fusion": _of_kind(Fusion),
    RELEVANCE: _of_kind(RelevanceModel),
    "detected_language": _of_kind(catalog.LanguageRecord),
    "generation": _is_count,
    "index": _of_kind(IndexConfig),
    "index_check": _of_kind(IndexEvaluation),
    "index_choice": _of_kind(IndexSelection),
    "indexing": _of_kind(catalog.RunRecord),
    catalog.PART: _of_kind(catalog.PartRecord),
    "unfinished": lambda value: isinstance(value, bool),
    "wanted": _of_kind(catalog.ChainRecord),
    "words": _of_kind(AnalyzerConfig),
}
"""For each key, a function that returns whether a value is valid."""


CANARIES = 16
"""Number of texts that are encoded again."""

_LEAST_COSINE = 0.999
_TOLERANCE, _ROUNDING = 1e-5, 1.5
_BLOCK = 50_000


def check_files(store: Path, files: SegmentFiles, raw_part: Part, index_part: Part, key: int) -> Iterator[Problem]:
    """Compare a segment's files with their hashes in the database."""
    for name, expected, part in ((RAW, files.raw_sha256, raw_part), (INDEX, files.index_sha256, index_part)):
        file = f"{SEGMENTS}/{files.folder}/{name}"
        if (message := file_difference(store / file, expected, store)) is not None:
            yield Problem(part, file, message, key)


def check_contents(
    store: Path, connection: sqlite3.Connection, record: SegmentRecord, embedder: VectorEncoder | None
) -> Iterator[Problem]:
    """Compare a segment's files, whose hashes match, with the database, and the index with the raw vectors."""
    files, folder = record.files, f"{SEGMENTS}/{record.files.folder}"
    width = catalog.meta(connection, "dim")
    size = (store / folder / RAW).stat().st_size
    if not isinstance(width, int) or size == 0 or size != files.rows * width * RAW_TYPE.itemsize:
        message = f"the file has {size:,} bytes: expected {files.rows:,} vectors of dimension {width} in float16"
        yield Problem(Part.RAW, f"{folder}/{RAW}", message, record.key)
        return
    raw: Halves = np.memmap(store / folder / RAW, dtype=RAW_TYPE, mode="r", shape=(files.rows, width))
    for start in range(0, files.rows, _BLOCK):
        if not np.isfinite(raw[start : start + _BLOCK]).all():
            yield Problem(Part.RAW, f"{folder}/{RAW}", "a vector contains a value that is not finite", record.key)
            return
    rows = catalog.rows_of_segment(connection, record.key)
    difference = _index_difference(store / folder / INDEX, files, raw, rows, embedder)
    if difference is not None:
        yield Problem(Part.INDEX, f"{folder}/{INDEX}", difference, record.key)


def _index_difference(
    file: Path, files: SegmentFiles, raw: Halves, rows: NDArray[np.int64], embedder: VectorEncoder | None
) -> str | None:
    spec = stored_spec(files.kind)
    seen = np.zeros(len(rows), dtype=bool)
    try:
        index = open_index(file, spec, files.rows, files.dim)
        for ids, stored in index.contents():
            positions = np.minimum(np.searchsorted(rows, ids), len(rows) - 1)
            if seen[positions].any() or not np.array_equal(rows[positions], ids):
                return "the ids in the index are not the rows that the database names"
            seen[positions] = True
            if embedder is None:
                continue
            expected = to_vectors(raw, embedder.postprocess_documents, positions)
            rounded = None if spec.lossless else index.kept_of(expected)
            if not _alike(stored, index.as_searched(expected), rounded):
                return "the vectors in the index are not those that the embedder makes from the raw vectors"
    except StoreDamagedError as error:
        return str(error)
    return None if seen.all() else "the ids in the index are not the rows that the database names"


def _alike(stored: Floats, expected: Floats, rounded: Floats | None) -> bool:
    """Return whether an index holds the expected vectors, within the rounding error that it would have today."""
    if rounded is None:
        return bool(np.allclose(stored, expected, atol=_TOLERANCE))
    allowed = _ROUNDING * np.linalg.norm(rounded - expected, axis=1).max() + _TOLERANCE
    return bool(np.linalg.norm(stored - expected, axis=1).max() <= allowed)


def check_embedder_files(store: Path, record: Mapping[str, Any]) -> Iterator[Problem]:
    """Compare the embedder's files with their hashes in the database."""
    for name, expected in record["files"].items():
        file = f"{EMBEDDERS}/{record['fingerprint']}/{name}"
        if (message := file_difference(store / file, expected, store)) is not None:
            yield Problem(Part.EMBEDDER, file, message)


def check_canaries(connection: sqlite3.Connection, embedder: VectorEncoder, raw_of: Mapping[int, Halves]) -> list[str]:
    """Encode some of the store's texts again; return a message for each that differs from its stored raw vector.

    ``raw_of`` maps a segment key to the raw vectors of the segment.
    """
    records = _spread(connection)
    if not records:
        return []
    again = embedder.raw_documents([text for _, text, _, _ in records])
    stored = np.stack([raw_of[segment][position] for _, _, segment, position in records]).astype(np.float32)
    if again.shape != stored.shape or not np.isfinite(again).all():
        return [f"encoding texts again gives vectors of shape {again.shape}: expected finite vectors of {stored.shape}"]
    cosines = (unit_rows(again) * unit_rows(stored)).sum(axis=1)
    cosines[~again.any(axis=1) & ~stored.any(axis=1)] = 1.0
    return [
        f"encoding the text of chunk {chunk_id!r} again gives another vector (cosine {cosine:.4f}): the model, its "
        "tokenizer or a library has changed since the store was made"
        for (chunk_id, _, _, _), cosine in zip(records, cosines.tolist(), strict=True)
        if cosine < _LEAST_COSINE
    ]


def _spread(connection: sqlite3.Connection) -> list[tuple[str, str, int, int]]:
    """Return id, text, segment and position of chunks that are spread evenly over the store.

    Chunks without a vector, or with another one than that of their text, are left out.
    """
    total = catalog.count(connection, "chunks")
    offsets = sorted({i * total // CANARIES for i in range(CANARIES)}) if total else []
    keys = [
        connection.execute("SELECT key FROM chunks ORDER BY key LIMIT 1 OFFSET ?", (offset,)).fetchone()[0]
        for offset in offsets
    ]
    records = catalog.chunks_by_key(connection, keys)
    rows = catalog.rows_of_keys(connection, keys)
    places, hashes = (of(connection, list(rows.values())) for of in (catalog.places_of_rows, catalog.hashes_of_rows))
    texts = {key: records[key].chunk.embedded_text for key in keys if rows[key] in places}
    own = [key for key in texts if hashes[rows[key]] == text_hash(texts[key])]
    return [(records[key].id, texts[key], *places[rows[key]]) for key in own]


def file_difference(file: Path, expected: str, store: Path) -> str | None:
    """Return a message if a file of ``store`` is missing or does not have the sha256 ``expected``, else None."""
    try:
        difference = foreign_file(file, store) or hash_difference(read_sha256(file), expected)
    except FileNotFoundError:
        return "it is missing"
    return None if difference is None else f"it {difference}"


def check_derived(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare each derived file with its hash in the database, and postings with the chunks in the store."""
    for record in derived.records(connection):
        file = f"{DERIVED}/{record.file}"
        message = file_difference(store / file, record.sha256, store)
        if message is None and record.name == derived.POSTINGS:
            message = _stray(store / file, connection, record)
        if message is not None:
            yield Problem(Part(record.name), file, message)


def _stray(file: Path, connection: sqlite3.Connection, record: DerivedRecord) -> str | None:
    """Return a message if a file has postings of chunks that the store neither has nor had."""
    try:
        block = PostingsBlock.read(file)
    except StoreDamagedError as error:
        return str(error)
    if not block.is_sound():
        return "the file has numbers that are out of range"
    chunks = block.chunks
    strays = np.setdiff1d(chunks, np.concatenate([catalog.chunk_rows(connection)[0], stale_chunks(connection, record)]))
    return f"the file has postings of {len(strays):,} chunks that are not in the store" if len(strays) else None
