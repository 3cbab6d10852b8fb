"""Digests: the number of rows of each table and the sum of their hashes.

Triggers update the digests in the same transaction as the rows. If a row is altered, lost or duplicated, the digest of
its table no longer matches. The triggers call ``row_hash``, which only ragembed's connections define, so other programs
cannot change the tables.

``vectors`` and ``tombstones`` need no digest: :mod:`ragembed.indexes.writing.integrity` compares each of their rows
with the chunk that uses it and with the index, which contains the same rows in the same order.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

TABLES = (
    "boilerplate",
    "chunks",
    "derived",
    "meta",
    "rewritten",
    "run_records",
    "segments",
    "skipped",
    "source_lines",
    "sources",
    "stale_postings",
)

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
