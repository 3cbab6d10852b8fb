"""The store's database: tables, format version and connections.

``store.db`` is the only commit point. Everything else in a store is an immutable file that a row of the database names
with its hash. The page "Store format" of the documentation specifies the tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from ragembed.errors import IncompatibleStoreError, StoreDamagedError, StoreError
from ragembed.files import publish, write_file
from ragembed.indexes import filters
from ragembed.indexes.lexical import analyzer
from ragembed.indexes.lexical.analyzer import ENGLISH, NO_STEMMER, tokenizer
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import APPLICATION_ID, root_of

FORMAT_VERSION = 2

_BUSY_SECONDS = 10.0
_WRITABLE = "mode=rw"

_SQL_TOKEN = re.compile(r"""(?P<space>(?:\s|--[^\n]*)+)|"(?P<name>\w+)"|"[^"]*"|'[^']*'""")
"""White space with comments, a quoted name, or another quoted text, in which nothing is a comment."""
_SPACE_AT_MARK = re.compile(r" ?([(),;=]) ?")

_Schema: TypeAlias = "tuple[tuple[str, str, str, str | None], ...]"
"""Type, name, table and SQL of each table, index, view and trigger, sorted. An index of a constraint has no SQL."""

_SCHEMA = """
CREATE TABLE segments (
    key          INTEGER PRIMARY KEY,
    folder       TEXT NOT NULL UNIQUE,  -- name below segments/
    rows         INTEGER NOT NULL,
    dim          INTEGER NOT NULL,
    kind         TEXT NOT NULL,         -- FAISS index kind
    raw_sha256   TEXT NOT NULL,
    index_sha256 TEXT NOT NULL
);

CREATE TABLE vectors (
    row       INTEGER PRIMARY KEY AUTOINCREMENT,   -- the id in the FAISS index; never reused
    text_hash BLOB NOT NULL UNIQUE,                -- BLAKE2b-128 of the embedded text
    segment   INTEGER REFERENCES segments (key),   -- NULL while the text waits for its vector
    position  INTEGER                              -- row of segments/<folder>/raw.f16
);
CREATE INDEX vectors_by_segment ON vectors (segment);

CREATE TABLE rewritten (                -- segments made for another embedder, until they replace the old ones
    segment      INTEGER PRIMARY KEY REFERENCES segments (key) ON DELETE CASCADE,
    fingerprint  TEXT NOT NULL,
    folder       TEXT NOT NULL UNIQUE,
    dim          INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    raw_sha256   TEXT NOT NULL,
    index_sha256 TEXT NOT NULL
);

CREATE TABLE sources (
    id         INTEGER PRIMARY KEY,
    path       TEXT NOT NULL UNIQUE,    -- relative to the folder that holds the store, with /
    ext        TEXT NOT NULL,           -- extension of the file's name, in lower case, without the dot
    size       INTEGER NOT NULL,
    mtime_ns   INTEGER NOT NULL,
    sha256     TEXT NOT NULL,
    pipeline_hash     TEXT NOT NULL            -- reader and chunker that made its chunks
);

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL                 -- JSON
) WITHOUT ROWID;

CREATE TABLE tombstones (
    row INTEGER PRIMARY KEY REFERENCES vectors (row) ON DELETE CASCADE   -- a vector that no chunk uses
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
    metadata   TEXT NOT NULL,           -- JSON object
    searched   TEXT,                    -- the text that is searched, if it differs
    later_pages TEXT                    -- JSON: first line in the text and number of each further page
);
CREATE INDEX chunks_by_row ON chunks (row);
CREATE INDEX chunks_by_source ON chunks (source);

CREATE VIEW chunk_terms AS              -- the contents of the full-text index
SELECT key, terms(title) AS title, terms(headings) AS headings, terms(coalesce(searched, text)) AS text FROM chunks;
CREATE VIRTUAL TABLE chunks_fts USING fts5 (
    title, headings, text, content = 'chunk_terms', content_rowid = 'key',
    tokenize = "{tokenizer}"
);

CREATE TRIGGER chunks_inserted AFTER INSERT ON chunks BEGIN
    INSERT INTO chunks_fts (rowid, title, headings, text)
    VALUES (new.key, terms(new.title), terms(new.headings), terms(coalesce(new.searched, new.text)));
END;
CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
    INSERT INTO chunks_fts (chunks_fts, rowid, title, headings, text)
    VALUES ('delete', old.key, terms(old.title), terms(old.headings), terms(coalesce(old.searched, old.text)));
    INSERT OR REPLACE INTO stale_postings (chunk, generation)
    SELECT old.key, (SELECT value + 1 FROM meta WHERE key = 'generation')
    WHERE EXISTS (SELECT 1 FROM derived WHERE name = 'postings');
END;

CREATE TABLE derived (                  -- files that can be made again from the rest of the store
    file               TEXT PRIMARY KEY,    -- name below derived/
    name               TEXT NOT NULL,       -- what it holds: postings, hubness or queries
    sha256             TEXT NOT NULL,
    made_at_generation INTEGER NOT NULL,
    chunks             INTEGER NOT NULL,    -- number of chunks, or of vectors (queries), that it was made from
    last               INTEGER NOT NULL     -- highest key of these chunks (postings) or row of their vectors (others)
) WITHOUT ROWID;
CREATE TABLE stale_postings (           -- chunks that were deleted
    chunk      INTEGER PRIMARY KEY,
    generation INTEGER NOT NULL         -- then: postings that were made earlier no longer cover the chunk
);

CREATE TABLE run_records (              -- chunks that programs such as LangChain's indexing API wrote
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    group_id   TEXT,                    -- the program's name for the document that the chunk comes from
    updated_at REAL NOT NULL,           -- seconds since 1970
    noted      INTEGER NOT NULL,        -- 0 from the chunk's commit until the run records it
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX run_records_by_key ON run_records (key);
CREATE INDEX run_records_by_time ON run_records (namespace, updated_at);
"""


def _define(connection: sqlite3.Connection, language: str) -> None:
    connection.executescript(_SCHEMA.format(tokenizer=tokenizer(language)))
    define(connection)


def create_database(
    path: Path, meta: Mapping[str, object], language: str, derived: Iterable[tuple[object, ...]] = ()
) -> None:
    """Create a database for texts in ``language`` with ``meta`` (JSON values) and ``derived`` files, atomically."""
    temporary = path.with_name(f".{path.name}.new")
    write_file(temporary, b"")
    for suffix in ("-journal", "-wal", "-shm"):  # Left over if a process was killed here.
        temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    connection = sqlite3.connect(temporary)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY")  # Nobody reads the file before it is complete.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        _define(connection, language)
        register(connection)
        connection.executemany(
            "INSERT INTO meta (key, value) VALUES (?, ?)", [(key, json.dumps(value)) for key, value in meta.items()]
        )
        connection.executemany("INSERT INTO derived VALUES (?, ?, ?, ?, ?, ?)", derived)
        connection.commit()
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    publish(temporary, path)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open the database in autocommit mode; transactions are explicit.

    In a read-only folder, a reader opens the file as immutable, which is safe if all commits are in the file itself.
    """
    _require_own_files(path)
    try:
        return _checked(path, _WRITABLE if writable else "mode=ro")
    except sqlite3.OperationalError as error:
        if writable or not _is_read_only(error) or os.access(path.parent, os.W_OK):
            raise StoreError(f"cannot open {path}: {error}") from error
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise StoreError(
                f"cannot open {path}: its last commits are in {wal.name}, which SQLite reads only in a writable "
                "folder; make the folder writable once, or copy the store"
            ) from error
    try:
        return _checked(path, "immutable=1")
    except sqlite3.OperationalError as error:
        raise StoreError(f"cannot open {path}: {error}") from error


def _require_own_files(path: Path) -> None:
    """Raise :class:`StoreDamagedError` if SQLite would read or write another file for the database.

    It follows symbolic links. A rollback journal, which no store has, may name a file that SQLite then deletes.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(path.name + suffix)
        try:
            status = file.lstat()
        except OSError:  # SQLite reports it.
            continue
        if not stat.S_ISREG(status.st_mode):
            raise StoreDamagedError(f"{file} is a link, a folder or a device: expected a regular file; remove it")
        if suffix == "-journal" and status.st_size:
            raise StoreDamagedError(f"{file} does not belong to a store, whose database has no such journal: remove it")


def _is_read_only(error: sqlite3.OperationalError) -> bool:
    """Return whether SQLite could not create the files that it needs beside the database."""
    return "unable to open" in str(error) or "readonly" in str(error)


def _checked(path: Path, mode: str) -> sqlite3.Connection:
    """Open the database if it is that of a store; ``mode`` is an SQLite URI parameter such as ``"mode=ro"``."""
    uri = f"{path.resolve().as_uri()}?{mode}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=ClosingConnection
    )
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA cell_size_check = ON")
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreDamagedError(f"{path} is not a ragembed database: expected its application id")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT_VERSION:
            raise IncompatibleStoreError(
                f"the store {path.parent} has format {version}: this version of ragembed reads format "
                f"{FORMAT_VERSION}; use the version that wrote the store, or delete the store and index again"
            )
        language = _language(connection)
        if language is None:
            raise StoreDamagedError(
                f"{path} does not have the tables of a store of format {version}: it is damaged, or another program "
                "changed it; delete the store and index again"
            )
        filters.register(connection, root_of(path.parent))
        analyzer.register(connection, language)
        register(connection)
        if mode == _WRITABLE:
            analyzer.of_language(language)
    except BaseException as error:
        connection.close()
        unreadable = isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError)  # a message may quote any bytes
        if unreadable and not isinstance(error, sqlite3.OperationalError):
            raise StoreDamagedError(f"cannot read {path} as a store's database: {error}") from error
        raise
    return connection


class ClosingConnection(sqlite3.Connection):
    """A connection that is really closed when :meth:`close` returns.

    SQLite keeps a connection open as long as a cursor exists that was not read to its end, for example in a traceback.
    Such a connection would be closed after the others, and run a checkpoint of its own.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def execute(self, *args: Any) -> sqlite3.Cursor:
        """Execute a statement and remember its cursor."""
        cursor = super().execute(*args)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        """Close all cursors, then the connection."""
        for cursor in list(self._cursors):
            cursor.close()
        super().close()


def _schema(connection: sqlite3.Connection) -> _Schema:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name, tbl_name, sql")
    return tuple((kind, name, table, sql) for kind, name, table, sql in rows)


def _language(connection: sqlite3.Connection) -> str | None:
    """Return the language of the store's texts, or None if the schema is not that of a store in this language."""
    tokenized = _tokenized_for(_schema(connection))
    if tokenized is None:
        return None
    language = catalog.analyzer_config(connection).language
    return language if (language == ENGLISH) == (tokenized == ENGLISH) else None


@lru_cache(8)
def _tokenized_for(schema: _Schema) -> str | None:
    """Return the language of the full-text index in a schema, or None if no store has this schema; cached."""
    normalised = _normalised_schema(schema)
    return next((name for name in (ENGLISH, NO_STEMMER) if normalised == _expected_schema(name)), None)


@cache
def _expected_schema(language: str) -> _Schema:
    with closing(sqlite3.connect(":memory:")) as connection:
        _define(connection, language)
        return _normalised_schema(_schema(connection))


def _normalised_schema(schema: _Schema) -> _Schema:
    return tuple(
        (kind, name, table, None if sql is None else _normalised_sql(sql)) for kind, name, table, sql in schema
    )


def _normalised_sql(sql: str) -> str:
    """Return SQL without what does not change its meaning: comments, white space, and quotes around table names."""
    return _SPACE_AT_MARK.sub(
        r"\1", _SQL_TOKEN.sub(lambda token: " " if token["space"] else token["name"] or token[0], sql)
    )


TABLES = ("chunks", "derived", "meta", "rewritten", "run_records", "segments", "skipped", "sources", "stale_postings")

_BITS = 60  # SQLite's 64-bit integers can hold the sum of three such numbers.
_MODULUS = 1 << _BITS

_TABLE = """
CREATE TABLE digests (
    name TEXT PRIMARY KEY,              -- of the table
    rows INTEGER NOT NULL,
    sum  INTEGER NOT NULL               -- of the hashes of its rows
) WITHOUT ROWID;
"""
_EVENTS = {
    "INSERT": ("rows = rows + 1", "sum + {new}"),
    "DELETE": ("rows = rows - 1", "sum - {old} + {modulus}"),
    "UPDATE": ("rows = rows", "sum - {old} + {new} + {modulus}"),
}


def row_hash(*values: str | bytes | int | float | None) -> int:
    """Return the hash of a row's values in column order: the first 60 bits of BLAKE2b."""
    parts: list[bytes] = []
    for value in values:
        if isinstance(value, int):
            parts.append(b"i%d;" % value)
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            parts += b"t%d:" % len(text), text
        elif value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts += b"b%d:" % len(value), value
        else:
            parts.append(b"r%s;" % repr(value).encode())
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "big") >> (64 - _BITS)


def register(connection: sqlite3.Connection) -> None:
    """Allow ``connection`` to change tables that have digests."""
    connection.create_function("row_hash", -1, row_hash, deterministic=True)
    connection.execute("PRAGMA recursive_triggers = ON")  # Subtracts the rows that INSERT OR REPLACE removes.


def define(connection: sqlite3.Connection) -> None:
    """Add the digests to a database whose tables have just been created."""
    connection.executescript(_TABLE)
    for table in TABLES:
        connection.execute("INSERT INTO digests (name, rows, sum) VALUES (?, 0, 0)", (table,))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info ({table})")]
        hashes = {when: f"row_hash({', '.join(f'{when}.{column}' for column in columns)})" for when in ("old", "new")}
        for event, (rows, total) in _EVENTS.items():
            total = total.format(**hashes, modulus=_MODULUS)
            connection.execute(
                f"CREATE TRIGGER {table}_digest_{event.lower()} AFTER {event} ON {table} BEGIN"  # noqa: S608  constants
                f" UPDATE digests SET {rows}, sum = ({total}) % {_MODULUS} WHERE name = '{table}'; END"
            )


def altered_tables(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the tables whose rows do not match their digests; reads every row."""
    stored = {name: (rows, total) for name, rows, total in connection.execute("SELECT name, rows, sum FROM digests")}
    for table in TABLES:
        try:
            is_altered = stored.get(table) != _digest(connection, table)
        except sqlite3.DatabaseError:  # A text is not valid UTF-8, or a page cannot be read.
            is_altered = True
        if is_altered:
            yield table


def renew(connection: sqlite3.Connection) -> None:
    """Recompute the digests from the current rows, within the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO digests (name, rows, sum) VALUES (?, ?, ?)",
        [(table, *_digest(connection, table)) for table in TABLES],
    )


def _digest(connection: sqlite3.Connection, table: str) -> tuple[int, int]:
    cursor = connection.cursor()
    cursor.row_factory = None
    rows = total = 0
    for values in cursor.execute(f"SELECT * FROM {table}"):  # noqa: S608  constants
        rows, total = rows + 1, total + row_hash(*values)
    return rows, total % _MODULUS
