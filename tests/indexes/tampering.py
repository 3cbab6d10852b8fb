"""Change a store as another program, or an attacker, would: the database and its digests, and the hashes of files."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ragembed.indexes.lexical import analyzer
from ragembed.indexes.storage import schema


def edit(store: Path, *statements: str | tuple[str, Sequence[object]], digests_too: bool = True) -> None:
    """Change the database without ragembed, and by default update its digests too."""
    with closing(sqlite3.connect(store / "store.db")) as connection:
        analyzer.register(connection, "english")
        schema.register(connection)
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE '%_digest_%'").fetchall()
        if not digests_too:
            connection.executescript("".join(f"DROP TRIGGER {name};" for name, _ in triggers))
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.executescript(statement)
        if not digests_too:
            connection.executescript("".join(f"{sql};" for _, sql in triggers))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def rename_hash(store: Path, file: Path, column: str) -> None:
    """Store the current hash of a segment's file in the database."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(store, (f"UPDATE segments SET {column} = ? WHERE folder = ?", (digest, file.parent.name)))
