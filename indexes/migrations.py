"""Bringing stores of older formats up to date, each format by one step to the next, in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from ragembed.documents.model import Chunk
from ragembed.errors import IncompatibleStoreError, StoreDamagedError, StoreError
from ragembed.indexes import catalog, changes, schema, terms
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.ann.specs import FLAT
from ragembed.indexes.database import open_for_writing
from ragembed.indexes.embedders import file_hashes
from ragembed.indexes.layout import DATABASE, EMBEDDERS
from ragembed.indexes.lock import writer_lock
from ragembed.indexes.records import text_hash
from ragembed.indexes.stemming import ENGLISH, Words

_WAIT_SECONDS = 60.0


def migrate(store: Path) -> None:
    """Bring a store of an older format up to date; one of this or a newer format is left as it is.

    Raises :class:`IncompatibleStoreError` where it cannot be written, :class:`StoreDamagedError` where it holds what
    no store of its format does.
    """
    found = _version(store)
    if found >= schema.FORMAT_VERSION:
        return
    if found not in _STEPS:
        raise StoreDamagedError(f"{store / DATABASE} says that it has format {found}, which there never was")
    try:
        with writer_lock(store, _WAIT_SECONDS):
            for version in range(_version(store), schema.FORMAT_VERSION):
                _step(store, version)
            with open_for_writing(store / DATABASE):  # all goes from the log into the one file, with its sums
                pass
    except (StoreError, OSError, sqlite3.OperationalError) as error:
        if isinstance(error, StoreDamagedError):
            raise
        raise IncompatibleStoreError(
            f"the store {store} has format {found} and could not be brought to format {schema.FORMAT_VERSION}, which "
            f"this version of ragembed reads: {error}; open it once where it can be written"
        ) from error


def _version(store: Path) -> int:
    path = store / DATABASE
    try:
        with closing(schema.open_unchecked(path, "mode=ro")) as connection:
            return schema.format_version(connection, path)
    except sqlite3.OperationalError:
        return schema.FORMAT_VERSION  # where it cannot even be opened, opening it tells why
    except sqlite3.DatabaseError as error:
        raise StoreDamagedError(f"{path} cannot be read as a store's database: {error}") from error


def _step(store: Path, version: int) -> None:
    path = store / DATABASE
    # Another open connection keeps SQLite from checkpointing when this one closes.
    with closing(schema.open_unchecked(path, "mode=ro")) as guard:
        schema.format_version(guard, path)
        with closing(schema.open_unchecked(path, "mode=rw")) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA foreign_keys = OFF")  # tables are replaced under the rows that refer to them
            connection.create_function("extension", 1, changes.extension, deterministic=True)
            terms.register(connection, ENGLISH)
            connection.execute("BEGIN IMMEDIATE")
            try:
                _change(connection, store, version)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _change(connection: sqlite3.Connection, store: Path, version: int) -> None:
    try:
        _STEPS[version](connection, store)
        connection.execute(f"PRAGMA user_version = {version + 1}")
        stray = connection.execute("PRAGMA foreign_key_check").fetchone()
        if stray is not None:
            raise ValueError(f"a row of {stray['table']} refers to a row of {stray['parent']} that is not there")
    except sqlite3.OperationalError:
        raise
    except (ValueError, TypeError, FileNotFoundError, sqlite3.DatabaseError) as error:
        raise StoreDamagedError(
            f"the store {store} of format {version} is damaged and cannot be brought to format {version + 1}: {error}"
        ) from error


def _from_1(connection: sqlite3.Connection, store: Path) -> None:
    """Segments get integer keys, hashes of texts are bytes, files have an extension, embedders' files are hashed."""
    sequence = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
    _replace(connection, "segments", schema.SEGMENTS, "folder, rows, dim, kind, raw_sha256, index_sha256", _SEGMENTS_1)
    _replace(connection, "sources", schema.SOURCES, "id, path, ext, size, mtime_ns, sha256, recipe", _SOURCES_1)
    hashes = [(row, bytes.fromhex(text)) for row, text in connection.execute("SELECT row, text_hash FROM vectors")]
    _replace(connection, "vectors", schema.VECTORS, "row, text_hash, segment, position", _VECTORS_1)
    connection.executemany("UPDATE vectors SET text_hash = ?2 WHERE row = ?1", hashes)
    if sequence is not None:
        connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'vectors'", tuple(sequence))
    _hash_as_stored(connection)
    _execute(connection, schema.REWRITTEN)
    embedder = catalog.embedder(connection)
    embedder["files"] = file_hashes(store / EMBEDDERS / embedder["fingerprint"])
    values = {"embedder": embedder, "index": FLAT}
    connection.executemany(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", [(key, json.dumps(v)) for key, v in values.items()]
    )


def _from_2(connection: sqlite3.Connection, store: Path) -> None:  # noqa: ARG001  the signature of the others
    """Keep a kind and a budget as what is asked of the index; ``flat``, which was the default, leaves the kind open."""
    kind = catalog.meta(connection, "index", FLAT)
    wanted = Wanted() if kind == FLAT else Wanted(kind)
    catalog.set_meta(connection, "index", wanted.to_dict())


def _from_3(connection: sqlite3.Connection, store: Path) -> None:  # noqa: ARG001  the signature of the others
    """Make room for records of indexing runs; there are none yet."""
    _execute(connection, schema.RUN_RECORDS)


def _from_4(connection: sqlite3.Connection, store: Path) -> None:  # noqa: ARG001  the signature of the others
    """Chunks may be searched by a part of their text; the full-text index gets what :mod:`terms` makes of it."""
    _execute(connection, _DROP_WORDS_4)
    connection.execute("ALTER TABLE chunks ADD COLUMN searched TEXT")
    _execute(connection, schema.words_schema(ENGLISH))
    _execute(connection, schema.BOILERPLATE)
    connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
    catalog.set_meta(connection, "words", Words().to_dict())


def _from_5(connection: sqlite3.Connection, store: Path) -> None:  # noqa: ARG001  the signature of the others
    """Make room for postings, which the triggers of words take note of; the next change to a large store makes them."""
    _execute(connection, _DROP_TRIGGERS_5)
    _execute(connection, schema.WORD_TRIGGERS)
    _execute(connection, schema.POSTINGS)


def _hash_as_stored(connection: sqlite3.Connection) -> None:
    """Give vectors of texts with lone surrogates the hash of the text as it is stored, with question marks."""
    former = connection.execute(
        "SELECT c.key, c.row, v.text_hash FROM chunks c JOIN vectors v USING (row) ORDER BY c.key"
    )
    texts = connection.execute("SELECT text, headings, title FROM chunks ORDER BY key")
    for (key, row, made_from), (text, headings, title) in zip(former.fetchall(), texts, strict=True):
        stored = text_hash(Chunk(text, tuple(json.loads(headings)), title).embedded_text)
        if stored == made_from:
            continue
        same = connection.execute("SELECT row FROM vectors WHERE text_hash = ?", (stored,)).fetchone()
        if same is None:
            connection.execute("UPDATE vectors SET text_hash = ? WHERE row = ?", (stored, row))
        elif same[0] != row:
            connection.execute("UPDATE chunks SET row = ? WHERE key = ?", (same[0], key))
            changes.mark_unused(connection, [row, same[0]])


_SEGMENTS_1 = "SELECT id, rows, dim, kind, raw_sha256, index_sha256 FROM old ORDER BY id"
_SOURCES_1 = "SELECT id, path, extension(path), size, mtime_ns, sha256, recipe FROM old"
_VECTORS_1 = "SELECT o.row, o.text_hash, s.key, o.position FROM old o JOIN segments s ON s.folder = o.segment"

_DROP_WORDS_4 = """
DROP TRIGGER chunks_inserted;
DROP TRIGGER chunks_deleted;
DROP TABLE chunks_fts;
"""

_DROP_TRIGGERS_5 = """
DROP TRIGGER chunks_inserted;
DROP TRIGGER chunks_deleted;
DROP TRIGGER chunks_searched;
"""

_STEPS: Mapping[int, Callable[[sqlite3.Connection, Path], None]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
}


def _replace(connection: sqlite3.Connection, table: str, new: str, columns: str, select: str) -> None:
    """Make ``table`` anew from what ``select`` says of its ``old`` rows; what refers to it refers to the new one."""
    connection.execute("PRAGMA legacy_alter_table = ON")  # else the references would follow the old table's name
    connection.execute(f"ALTER TABLE {table} RENAME TO old")
    connection.execute("PRAGMA legacy_alter_table = OFF")
    _execute(connection, new)
    connection.execute(f"INSERT INTO {table} ({columns}) {select}")
    connection.execute("DROP TABLE old")


def _execute(connection: sqlite3.Connection, script: str) -> None:
    """Run several statements in the open transaction, which ``executescript`` would commit."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
