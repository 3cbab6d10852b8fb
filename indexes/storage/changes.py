"""Changes to chunks and files, each within the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from ragembed.documents.places import RemotePath, is_url
from ragembed.errors import ConfigError, StoreError
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import UNUSABLE, ChunkRecord, SourceRecord, json_ids, text_hash

_COLUMNS = "id, row, source, text, title, headings, start_line, end_line, page, tokens, metadata, searched"
_MARKS = ", ".join("?" for _ in _COLUMNS.split(","))


def insert_source(connection: sqlite3.Connection, source: SourceRecord) -> None:
    """Insert a file."""
    connection.execute(
        "INSERT INTO sources (path, ext, size, mtime_ns, sha256, pipeline_hash) VALUES (?, ?, ?, ?, ?, ?)",
        (source.path, extension(source.path), source.size, source.mtime_ns, source.sha256, source.pipeline_hash),
    )


def extension(path: str) -> str:
    """Return the extension of a file name in lower case, without the dot; empty if there is none."""
    suffix = RemotePath(path).suffix if is_url(path) else PurePosixPath(path).suffix
    return suffix.removeprefix(".").lower()


def delete_source(connection: sqlite3.Connection, path: str) -> set[int]:
    """Delete a file and its chunks; return the vector rows that the chunks used."""
    rows = _delete(connection, "source = (SELECT id FROM sources WHERE path = ?)", path)
    connection.execute("DELETE FROM sources WHERE path = ?", (path,))
    return rows


def delete_chunks(connection: sqlite3.Connection, ids: Sequence[str]) -> set[int]:
    """Delete the chunks with these ids, ignoring unknown ids; return the vector rows that they used."""
    return _delete(connection, "id IN (SELECT value FROM json_each(?))", json_ids(ids))


def delete_keys(connection: sqlite3.Connection, keys: Sequence[int]) -> set[int]:
    """Delete the chunks with these keys; return the vector rows that they used."""
    return _delete(connection, "key IN (SELECT value FROM json_each(?))", json.dumps(list(keys)))


def _delete(connection: sqlite3.Connection, condition: str, value: str) -> set[int]:
    rows = connection.execute(f"SELECT row FROM chunks WHERE {condition}", (value,)).fetchall()  # noqa: S608  constants
    connection.execute(f"DELETE FROM chunks WHERE {condition}", (value,))  # noqa: S608  as above
    return {row[0] for row in rows}


def insert_chunks(
    connection: sqlite3.Connection, records: Sequence[ChunkRecord], keys: Mapping[str, bytes] = MappingProxyType({})
) -> set[int]:
    """Insert chunks with vectors, of their text or with ``keys`` by id; return the rows of these vectors."""
    hashes = [keys.get(record.id) or text_hash(record.chunk.embedded_text) for record in records]
    rows = catalog.rows_of_hashes(connection, hashes)
    sources: dict[str, int] = {}
    for record, key in zip(records, hashes, strict=True):
        if UNUSABLE.search(record.id):
            raise ConfigError(
                f"the id {record.id!r} contains U+0000 or a lone surrogate: use an id without these characters"
            )
        if key not in rows:
            raise StoreError(
                f"the chunk {record.id!r} was committed before its text was staged: stage the texts of all chunks first"
            )
        if record.source is not None and record.source not in sources:
            sources[record.source] = _source_id(connection, record)
    # A statement per chunk would make FTS5 write its terms chunk by chunk, because it writes when a statement with
    # triggers begins. One statement for all rows halves the time.
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_chunks ({_COLUMNS})")
    connection.executemany(
        f"INSERT INTO new_chunks VALUES ({_MARKS})",  # noqa: S608  marks alone
        (_values(record, rows[key], sources) for record, key in zip(records, hashes, strict=True)),
    )
    connection.execute(f"INSERT INTO chunks ({_COLUMNS}) SELECT {_COLUMNS} FROM new_chunks ORDER BY rowid")  # noqa: S608  constants
    connection.execute("DELETE FROM new_chunks")
    return set(rows.values())


def _values(record: ChunkRecord, row: int, sources: Mapping[str, int]) -> tuple[object, ...]:
    chunk = record.chunk
    return (
        record.id,
        row,
        None if record.source is None else sources[record.source],
        chunk.text,
        chunk.title,
        json.dumps(list(chunk.headings), ensure_ascii=False),
        chunk.start_line,
        chunk.end_line,
        chunk.page,
        chunk.tokens,
        _metadata_json(record),
        chunk.searched,
    )


def _source_id(connection: sqlite3.Connection, record: ChunkRecord) -> int:
    found = connection.execute("SELECT id FROM sources WHERE path = ?", (record.source,)).fetchone()
    if found is None:
        raise StoreError(
            f"the chunk {record.id!r} names the file {record.source!r}, which is not in the store: add the file first"
        )
    return int(found[0])


def detach_vectors(connection: sqlite3.Connection, rows: Sequence[int]) -> None:
    """Replace the text hashes of unused ``rows`` by random ones, so that their texts can get other vectors."""
    connection.executemany("UPDATE vectors SET text_hash = randomblob(16) WHERE row = ?", [(row,) for row in rows])


def mark_unused(connection: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Add a tombstone for each of ``rows`` that no chunk uses, and remove it from the others."""
    affected = [(row,) for row in rows]
    connection.executemany(
        "DELETE FROM tombstones WHERE row = ? AND EXISTS (SELECT 1 FROM chunks c WHERE c.row = tombstones.row)",
        affected,
    )
    connection.executemany(
        "INSERT OR IGNORE INTO tombstones (row) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE row = ?1)",
        affected,
    )


def _metadata_json(record: ChunkRecord) -> str:
    try:
        return json.dumps(dict(record.chunk.metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the metadata of {record.id!r} cannot be stored: {error}; use only strings, finite numbers, booleans, "
            "None, and lists and dictionaries of these"
        ) from error
