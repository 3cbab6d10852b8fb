"""Derived files: they are made from the rest of a store, and made again when they are damaged.

Each file is immutable and named by its own hash. It belongs to the store while the table ``derived`` names it.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from ragembed.errors import StoreDamagedError
from ragembed.files import publish, read_sha256
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import DERIVED_FILE, require_committed, temporary_folder
from ragembed.indexes.storage.layout import DERIVED
from ragembed.indexes.storage.transactions import Database

Value = TypeVar("Value")
Joined = TypeVar("Joined")

NAMES = POSTINGS, HUBNESS, QUERIES = "postings", "hubness", "queries"
"""What a derived file can hold."""


@dataclass(frozen=True, slots=True)
class DerivedRecord:
    """A derived file as the database names it.

    It was made from ``chunks`` chunks, for queries from as many vectors, and takes effect with the commit of
    ``made_at_generation``. ``last`` is the highest key of these chunks (postings) or row of their vectors (others).
    """

    file: str
    name: str
    sha256: str
    made_at_generation: int
    chunks: int
    last: int


@dataclass(frozen=True, slots=True)
class DerivedFile(Generic[Value, Joined]):
    """A kind of derived file: its ``name``, and functions that read one file and join the files of a generation."""

    name: str
    read: Callable[[Path], Value]
    join: Callable[[sqlite3.Connection, Sequence[tuple[DerivedRecord, Value]]], Joined]


def only(_: sqlite3.Connection, files: Sequence[tuple[DerivedRecord, Value]]) -> Value | None:
    """Return the content of the only file of a kind, or None if there is none."""
    return files[0][1] if files else None


def records(connection: sqlite3.Connection, name: str | None = None) -> list[DerivedRecord]:
    """Return the derived files, all or those of one kind, oldest first; raise StoreDamagedError for an invalid one."""
    rows = connection.execute(
        "SELECT file, name, sha256, made_at_generation, chunks, last FROM derived WHERE name = ?1 OR ?1 IS NULL"
        " ORDER BY made_at_generation, file",
        (name,),
    )
    named = [DerivedRecord(*row) for row in rows]
    for record in named:
        numbers = record.made_at_generation, record.chunks, record.last
        catalog.require_types("a derived file", numbers, (record.file, record.sha256))
        kind = DERIVED_FILE.fullmatch(record.file)
        if kind is None or kind[1] != record.name:
            raise StoreDamagedError(
                f"the store's database names the derived file {record.file!r} for {record.name!r}: expected one of "
                f"{', '.join(NAMES)}, with the beginning of its hash"
            )
    return named


def read_derived(store: Path, kind: DerivedFile[Value, Joined], record: DerivedRecord) -> Value:
    """Return the content of a file; raise StoreDamagedError for a damaged one, FileNotFoundError for a missing one."""
    file = store / DERIVED / record.file
    require_committed(file, record.sha256, store)
    return kind.read(file)


def sound_files(store: Path, database: Database, kind: DerivedFile[Value, Joined]) -> list[tuple[DerivedRecord, Value]]:
    """Return the files of a kind with their contents. If one is damaged or missing, drop all of them."""
    named = records(database.connection, kind.name)
    try:
        return [(record, read_derived(store, kind, record)) for record in named]
    except (FileNotFoundError, StoreDamagedError):
        with database.transaction():
            forget(database.connection, kind.name)
        return []


def write_derived(
    store: Path, name: str, write: Callable[[Path], None], chunks: int = 0, last: int = 0
) -> DerivedRecord:
    """Let ``write`` write a file, beside which it may buffer others; return a record for :func:`insert`."""
    temporary = temporary_folder(store / DERIVED / name)
    try:
        made = temporary / "made"
        write(made)
        sha256 = read_sha256(made)
        final = store / DERIVED / f"{name}-{sha256[:16]}.safetensors"
        publish(made, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return DerivedRecord(final.name, name, sha256, 0, chunks, last)


def insert(connection: sqlite3.Connection, record: DerivedRecord) -> None:
    """Insert the record of a file, within the caller's transaction."""
    made = replace(record, made_at_generation=catalog.generation(connection) + 1)
    connection.execute(
        "INSERT INTO derived (file, name, sha256, made_at_generation, chunks, last) VALUES (?, ?, ?, ?, ?, ?)",
        astuple(made),
    )


def forget(connection: sqlite3.Connection, name: str) -> None:
    """Delete the records of all files of a kind, within the caller's transaction; the next run makes them again."""
    connection.execute("DELETE FROM derived WHERE name = ?", (name,))
    if name == POSTINGS:
        connection.execute("DELETE FROM stale_postings")


class OpenDerived(Generic[Value, Joined]):
    """Opens the files of a kind of the store at ``path``, each once. Threads may share an instance.

    What was opened is never changed or closed, so a thread that still uses an earlier generation may go on.
    """

    def __init__(self, path: Path, kind: DerivedFile[Value, Joined]) -> None:
        self._path, self._kind = path, kind
        self._lock = threading.Lock()
        self._files: dict[str, Value] = {}
        self._joined: tuple[object, Joined] | None = None

    def clear(self) -> None:
        """Release the mapped files."""
        with self._lock:
            self._files, self._joined = {}, None

    def of(self, connection: sqlite3.Connection, generation: object) -> Joined:
        """Return the joined files of ``generation``, which ``connection`` sees."""
        with self._lock:
            if self._joined is None or self._joined[0] != generation:
                files = self._files
                pairs = [
                    (
                        record,
                        files[record.file] if record.file in files else read_derived(self._path, self._kind, record),
                    )
                    for record in records(connection, self._kind.name)
                ]
                self._files = {record.file: value for record, value in pairs}
                self._joined = generation, self._kind.join(connection, pairs)
            return self._joined[1]
