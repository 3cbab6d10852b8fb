"""Reading the store's database: typed answers to the questions other modules ask of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from ragembed.documents.model import Chunk
from ragembed.errors import StoreDamagedError
from ragembed.indexes.folders import FINGERPRINT, SEGMENT_NAME
from ragembed.indexes.records import ChunkRecord, SourceRecord
from ragembed.indexes.segments import SegmentRecord

_CHUNK_COLUMNS = (
    "c.key, c.id, c.row, c.text, c.title, c.headings, c.start_line, c.end_line, c.page, c.tokens, c.metadata, s.path"
)
_CHUNKS = f"SELECT {_CHUNK_COLUMNS} FROM chunks c LEFT JOIN sources s ON s.id = c.source"  # noqa: S608  constants


def meta(connection: sqlite3.Connection, key: str, default: Any = None) -> Any:
    """Return the value kept under ``key``, or ``default``."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return default if row is None else json.loads(row[0])


def embedder(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return what is kept of the current embedder; raises :class:`StoreDamagedError` where it is not well formed."""
    record = meta(connection, "embedder")
    if not isinstance(record, dict) or not {"kind", "model", "fingerprint", "raw_fingerprint"} <= record.keys():
        raise StoreDamagedError("the store's database does not say what made its vectors: it is damaged")
    if FINGERPRINT.fullmatch(str(record["fingerprint"])) is None:
        raise StoreDamagedError(
            f"the store's database names an embedder by {record['fingerprint']!r}, which is no hash"
        )
    return record


def set_meta(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Keep a JSON value under ``key``."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, json.dumps(value)))


def segments(connection: sqlite3.Connection) -> list[SegmentRecord]:
    """Return the segments, by id; raises :class:`StoreDamagedError` for one that has no proper name."""
    rows = connection.execute("SELECT id, rows, dim, kind, raw_sha256, index_sha256 FROM segments ORDER BY id")
    records = [SegmentRecord(*row) for row in rows]
    for record in records:
        if SEGMENT_NAME.fullmatch(record.id) is None:
            raise StoreDamagedError(f"the store's database names a segment {record.id!r}, which is no name of ours")
    return records


def dead_rows(connection: sqlite3.Connection) -> frozenset[int]:
    """Return the rows that no chunk uses."""
    return frozenset(row[0] for row in connection.execute("SELECT row FROM tombstones"))


def sources(connection: sqlite3.Connection) -> dict[str, SourceRecord]:
    """Return the files in the store by name."""
    rows = connection.execute("SELECT path, size, mtime_ns, sha256, recipe FROM sources")
    return {row[0]: SourceRecord(*row) for row in rows}


def source_chunk_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of chunks of each file."""
    return {
        row[0]: row[1]
        for row in connection.execute(
            "SELECT s.path, count(c.key) FROM sources s LEFT JOIN chunks c ON c.source = s.id"
            " GROUP BY s.id ORDER BY s.path"
        )
    }


def skipped(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the reason for each file that the last runs skipped."""
    return {row[0]: row[1] for row in connection.execute("SELECT path, reason FROM skipped ORDER BY path")}


def count(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of rows of ``table``."""
    if table not in ("chunks", "sources", "segments", "tombstones", "skipped", "vectors"):
        raise ValueError(f"no table {table!r}")
    total: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  checked above
    return total


def keys_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, list[int]]:
    """Return the keys of the chunks that use each vector row, in order of insertion."""
    found: dict[int, list[int]] = {}
    for key, row in connection.execute(
        "SELECT key, row FROM chunks WHERE row IN (SELECT value FROM json_each(?)) ORDER BY key",
        (json.dumps(list(rows)),),
    ):
        found.setdefault(row, []).append(key)
    return found


def rows_of_keys(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, int]:
    """Return the vector row of each chunk key."""
    found = connection.execute(
        "SELECT key, row FROM chunks WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
    )
    return dict(found.fetchall())


def rows_of_ids(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return the vector row of each chunk id; unknown ids are left out."""
    found = connection.execute(
        "SELECT id, row FROM chunks WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
    )
    return dict(found.fetchall())


def places_of_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Return the segment and the position in it of each vector row."""
    found = connection.execute(
        "SELECT row, segment, position FROM vectors WHERE row IN (SELECT value FROM json_each(?))",
        (json.dumps(list(rows)),),
    )
    return {row: (segment, position) for row, segment, position in found}


def chunks_by_key(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, ChunkRecord]:
    """Return the chunks with these keys."""
    wanted = json.dumps(list(keys))
    found = connection.execute(_CHUNKS + " WHERE c.key IN (SELECT value FROM json_each(?))", (wanted,))  # noqa: S608  constants
    return {row["key"]: _chunk_record(row) for row in found}


def chunks_by_id(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, ChunkRecord]:
    """Return the chunks with these ids; unknown ids are left out."""
    found = connection.execute(_CHUNKS + " WHERE c.id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),))  # noqa: S608  constants
    return {row["id"]: _chunk_record(row) for row in found}


def iterate_chunks(connection: sqlite3.Connection, source: str | None = None) -> Iterator[ChunkRecord]:
    """Yield the chunks in order of insertion, all or those of one file."""
    if source is None:
        found = connection.execute(_CHUNKS + " ORDER BY c.key")
    else:
        found = connection.execute(_CHUNKS + " WHERE s.path = ? ORDER BY c.key", (source,))
    return (_chunk_record(row) for row in found)


def _chunk_record(row: sqlite3.Row) -> ChunkRecord:
    chunk = Chunk(
        text=row["text"],
        headings=tuple(json.loads(row["headings"])),
        title=row["title"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        page=row["page"],
        tokens=row["tokens"],
        metadata=json.loads(row["metadata"]),
    )
    return ChunkRecord(row["id"], chunk, row["path"])
