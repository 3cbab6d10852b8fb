"""The writer's connection: transactions, checkpoints, and the number of the last commit."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.files import NO_LINK
from ragembed.indexes.storage import catalog, changes
from ragembed.indexes.storage.layout import COMMITTED_SUFFIX
from ragembed.indexes.storage.schema import connect
from ragembed.indexes.text.stemming import AnalyzerConfig

_CACHE_KIBIBYTES = 32 << 10
"""Pages of the database that are kept in memory: ids and hashes come in no order, each to another page."""

_WORD_PAGES, _WORDS_MERGED = 500, 2
"""Pages of the full-text index that one step writes, and the changes below which SQLite says a step had no work."""
_PAGE_COUNTS = ("freelist_count", "page_count")

_DIGITS = 20

TAKE_AS_IT_IS = (
    "put a copy in its place, delete the store and index again, or take the database as it is with "
    "ragembed verify --repair --trust-database"
)
"""The remedies if the database is readable and not what was committed."""


class Database:
    """The one connection that writes to a store; its holder has the writer's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connection = connect(path, writable=True)
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the ``with`` block in one transaction that raises the generation."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            generation = _generation(self.connection) + 1
            catalog.set_meta(self.connection, "generation", generation)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        with write_errors(self._path.parent):
            note_committed(self._path, generation)

    def checkpoint(self) -> None:
        """Copy all commits into the database file, and empty the log unless a reader still needs it."""
        patience = self.connection.execute("PRAGMA busy_timeout").fetchone()[0]
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            with write_errors(self._path.parent):
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {patience}")

    def merge_words(self) -> None:
        """Join the parts of the full-text index into one, some pages at a time."""
        pages = -_WORD_PAGES  # negative once: it takes parts of all sizes together
        while True:
            with self.transaction():
                before = self.connection.total_changes
                self.connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('merge', ?)", (pages,))
                if self.connection.total_changes - before < _WORDS_MERGED:
                    return
            pages = _WORD_PAGES

    def renew_words(self) -> None:
        """Make the full-text index again where another release of the stemmer made it: this one may stem otherwise."""
        made = catalog.analyzer_config(self.connection)
        current = AnalyzerConfig.of_language(made.language)
        if made != current:
            with self.transaction():
                changes.rebuild_words(self.connection)
                catalog.set_meta(self.connection, "words", current.to_dict())

    def free_share(self) -> float:
        """Return the share of the database file that nothing uses, from 0 to 1."""
        free, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGE_COUNTS)
        return float(free / pages)

    def vacuum(self) -> None:
        """Give the space that deleted rows took back to the disk."""
        self.connection.execute("VACUUM")
        self.checkpoint()


@contextmanager
def open_for_writing(path: Path) -> Iterator[Database]:
    """Open the database for the time of the ``with`` block; at its end all commits go into the one file.

    Raises :class:`StoreDamagedError` if commits are lost.
    """
    database = Database(path)
    with closing(database.connection):
        if (message := lost_commits(path, database.connection)) is not None:
            raise StoreDamagedError(f"the store {path.parent} cannot be written: {message}; {TAKE_AS_IT_IS}")
        try:
            database.renew_words()
            yield database
        except BaseException:
            with suppress(StoreError):  # the log keeps what is committed; the first error is the one to report
                database.checkpoint()
            raise
        database.checkpoint()


def note_committed(path: Path, generation: int) -> None:
    """Write the number of the last commit into a file beside the database ``path``.

    SQLite drops a damaged end of its log without a word. The file tells that commits are missing. It is written after
    the commit, so a process killed between the two loses no commit that anybody knows of.
    """
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | NO_LINK
    with open(os.open(committed_file(path), flags, 0o664), "wb") as file:  # noqa: PTH123  a descriptor, for the flags
        file.write(b"%0*d\n" % (_DIGITS, generation))


def lost_commits(path: Path, connection: sqlite3.Connection) -> str | None:
    """Return a sentence if the database is older than its last commit, None if it is not."""
    try:
        written = committed_file(path).read_bytes()
    except FileNotFoundError:
        return None
    generation = _generation(connection)
    if not written.strip().isdigit():
        return f"{path.name}{COMMITTED_SUFFIX} holds {written[:40]!r}, expected the number of the last commit"
    if int(written) <= generation:
        return None
    return (
        f"commits are lost: {path.name} has generation {generation}, the last commit was {int(written)}; "
        f"{path.name}-wal was damaged or removed"
    )


def _generation(connection: sqlite3.Connection) -> int:
    found = catalog.meta(connection, "generation", 0)
    if not isinstance(found, int):
        raise StoreDamagedError(f"the store's database holds {str(found)[:60]!r} for 'generation', expected a number")
    return found


def committed_file(path: Path) -> Path:
    """Return the file that holds the number of the last commit to the database ``path``."""
    return path.with_name(path.name + COMMITTED_SUFFIX)


@contextmanager
def write_errors(store: Path) -> Iterator[None]:
    """Turn what the file system and SQLite say about a failed write into one error that names the store."""
    try:
        yield
    except OSError as error:
        raise _not_written(store, error.strerror or str(error)) from error
    except sqlite3.DatabaseError as error:
        raise database_error(store, error) from error


def database_error(store: Path, error: sqlite3.DatabaseError) -> StoreError:
    """Return what SQLite says while the store is written as one error that names the store."""
    if isinstance(error, sqlite3.OperationalError):
        return _not_written(store, str(error))
    return StoreDamagedError(
        f"the database of {store} cannot be used: {error}; look closer with ragembed verify, or delete the store and "
        "index again"
    )


def _not_written(store: Path, reason: str) -> StoreError:
    return StoreError(f"the store {store} could not be written, its last state is intact: {reason}")
