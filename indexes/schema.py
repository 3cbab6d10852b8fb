"""The store's database: tables, format version, connections.

``store.db`` is the only commit point. Everything else in a store is an immutable file that a row here names with
its hash. See ``docs/store-format.md``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from ragembed.errors import IncompatibleStoreError, StoreDamagedError, StoreError
from ragembed.indexes.folders import sync

FORMAT_VERSION = 1
APPLICATION_ID = 0x52474531  # "RGE1"

_BUSY_SECONDS = 10.0

SCHEMA = """
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL                 -- JSON
) WITHOUT ROWID;

CREATE TABLE segments (
    id           TEXT PRIMARY KEY,      -- folder name below segments/
    rows         INTEGER NOT NULL,
    dim          INTEGER NOT NULL,
    kind         TEXT NOT NULL,         -- FAISS index kind
    raw_sha256   TEXT NOT NULL,
    index_sha256 TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE vectors (
    row       INTEGER PRIMARY KEY AUTOINCREMENT,   -- the id in the FAISS index; never reused
    text_hash TEXT NOT NULL UNIQUE,                -- BLAKE2b-128 of the embedded text, in hex
    segment   TEXT NOT NULL REFERENCES segments (id),
    position  INTEGER NOT NULL,                    -- row of segments/<segment>/raw.f16
    UNIQUE (segment, position)
);

CREATE TABLE tombstones (
    row INTEGER PRIMARY KEY REFERENCES vectors (row) ON DELETE CASCADE   -- a vector that no chunk uses
);

CREATE TABLE sources (
    id         INTEGER PRIMARY KEY,
    path       TEXT NOT NULL UNIQUE,    -- relative to the folder that holds the store, with /
    size       INTEGER NOT NULL,
    mtime_ns   INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    recipe     TEXT NOT NULL            -- reader and chunker that made its chunks
);

CREATE TABLE skipped (
    path   TEXT PRIMARY KEY,
    reason TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE chunks (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    row        INTEGER NOT NULL REFERENCES vectors (row),
    source     INTEGER REFERENCES sources (id),
    text       TEXT NOT NULL,
    title      TEXT,
    headings   TEXT NOT NULL,           -- JSON array
    start_line INTEGER,
    end_line   INTEGER,
    page       INTEGER,
    tokens     INTEGER NOT NULL,
    metadata   TEXT NOT NULL            -- JSON object
);
CREATE INDEX chunks_by_row ON chunks (row);
CREATE INDEX chunks_by_source ON chunks (source);

CREATE VIRTUAL TABLE chunks_fts USING fts5 (
    title, headings, text, content = 'chunks', content_rowid = 'key', tokenize = 'porter unicode61'
);
CREATE TRIGGER chunks_inserted AFTER INSERT ON chunks BEGIN
    INSERT INTO chunks_fts (rowid, title, headings, text) VALUES (new.key, new.title, new.headings, new.text);
END;
CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
    INSERT INTO chunks_fts (chunks_fts, rowid, title, headings, text)
    VALUES ('delete', old.key, old.title, old.headings, old.text);
END;
"""


def create_database(path: Path, meta: Mapping[str, object]) -> None:
    """Make a database at ``path`` that holds nothing but ``meta`` (JSON values), whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    connection = sqlite3.connect(temporary)
    try:
        connection.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION};" + SCHEMA
        )
        connection.executemany(
            "INSERT INTO meta (key, value) VALUES (?, ?)", [(key, json.dumps(value)) for key, value in meta.items()]
        )
        connection.commit()
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open the database in autocommit mode; transactions are explicit.

    In a folder that cannot be written, a reader reads the file as immutable; that is safe where all commits are in the
    file itself. Raises :class:`StoreDamagedError` when it is no database of ragembed's,
    :class:`IncompatibleStoreError` when its format is newer, :class:`StoreError` when it cannot be opened.
    """
    try:
        return _opened(path, "mode=rw" if writable else "mode=ro", writable)
    except sqlite3.OperationalError as error:
        if writable or not _is_locked_up(error):
            raise StoreError(f"{path} cannot be opened: {error}") from error
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise StoreError(
                f"{path} cannot be opened: its last commits are in {wal.name}, which can be read only where the folder "
                "can be written; make it writable once, or copy the store"
            ) from error
    try:
        return _opened(path, "immutable=1", writable)
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error


def _is_locked_up(error: sqlite3.OperationalError) -> bool:
    """Tell whether SQLite could not make the files that it needs beside the database."""
    return "unable to open" in str(error) or "readonly" in str(error)


def _opened(path: Path, mode: str, writable: bool) -> sqlite3.Connection:
    connection = _open(path, mode)
    try:
        version = _check(connection, path)
        if version != FORMAT_VERSION:
            raise IncompatibleStoreError(
                f"the store {path.parent} has format {version}, this version of ragembed reads {FORMAT_VERSION}: "
                "upgrade with: pip install --upgrade ragembed"
            )
        if writable:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.OperationalError:
        connection.close()
        raise
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreDamagedError(f"{path} cannot be read as a store's database: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> int:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreDamagedError(f"{path} is not the database of a ragembed store")
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute("SELECT count(*) FROM meta").fetchone()
    return version
