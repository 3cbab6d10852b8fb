"""The writer's connection: transactions, checkpoints, and the number of the last commit."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.files import NO_LINK, is_unwritten, open_regular, replace_file
from ragembed.indexes.lexical.analyzer import AnalyzerConfig
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import COMMITTED_SUFFIX
from ragembed.indexes.storage.schema import connect
from ragembed.progress import is_stopped

_CACHE_KIBIBYTES = 32 << 10
"""Size of SQLite's page cache. Ids and hashes come in random order, so each one touches another page."""

_WORD_PAGES, _WORDS_MERGED = 500, 2
"""Pages of the full-text index that one merge step writes, and the changes below which a step had nothing to do."""
_FREE_SHARE = 0.05
"""Unused share of the database above which the space is returned to the disk."""

_DIGITS = 20

_STEPS_PER_CHECK = 10_000
"""Steps of SQLite's virtual machine, a few milliseconds, after which a statement looks whether it was stopped."""

DATABASE_REMEDIES = (
    "restore a copy, delete the store and index again, or accept the database as it is with "
    "'ragembed doctor --repair --trust-database'"
)
"""The remedies if the database is readable but does not match its last commit."""


class Database:
    """The connection that writes to a store. Its user must hold the writer lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connection = connect(path, writable=True)
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the ``with`` block in one transaction that increments the generation."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            generation = catalog.generation(self.connection) + 1
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
        """Merge the parts of the full-text index into one, some pages at a time."""
        pages = -_WORD_PAGES  # The first call is negative, which makes FTS5 merge parts of all sizes.
        while True:
            with self.transaction():
                before = self.connection.total_changes
                self.connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('merge', ?)", (pages,))
                if self.connection.total_changes - before < _WORDS_MERGED:
                    return
            pages = _WORD_PAGES

    def rebuild_words(self) -> None:
        """Rebuild the full-text index from the chunks, and forget the postings, which were made from the old index."""
        self.connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild')")
        self.connection.execute("DELETE FROM derived WHERE name = 'postings'")
        self.connection.execute("DELETE FROM stale_postings")

    def update_words(self) -> None:
        """Rebuild the full-text index if another version of the stemmer made it, because stems may differ."""
        made = catalog.analyzer_config(self.connection)
        current = AnalyzerConfig.of_language(made.language)
        if made != current:
            with self.transaction():
                self.rebuild_words()
                catalog.set_meta(self.connection, "words", current.to_dict())

    def vacuum(self) -> None:
        """Return the space of deleted rows to the disk, if it is a part of the file that matters."""
        free, pages = free_pages(self.connection)
        if free > _FREE_SHARE * pages:
            self.connection.execute("VACUUM")
            self.checkpoint()


def free_pages(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the numbers of unused and of all pages of the database file."""
    free, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
    return free, pages


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the database read-only; raise :class:`StoreDamagedError` if commits are lost.

    A statement whose thread is stopped (:mod:`ragembed.progress`) ends with an :class:`sqlite3.OperationalError`.
    """
    connection = connect(path, writable=False)
    try:
        require_commits(path, connection)
        connection.set_progress_handler(is_stopped, _STEPS_PER_CHECK)
    except BaseException:
        connection.close()
        raise
    return connection


def require_commits(path: Path, connection: sqlite3.Connection) -> None:
    """Raise :class:`StoreDamagedError` if commits to the database ``path`` are lost.

    Check this on a read-only connection first: a writable one copies a log of another state into the database.
    """
    if (message := lost_commits(path, connection)) is not None:
        raise StoreDamagedError(f"cannot use the store {path.parent}: {message}; {DATABASE_REMEDIES}")


@contextmanager
def open_for_writing(path: Path) -> Iterator[Database]:
    """Open the database for the ``with`` block; at its end, copy all commits into the database file.

    Raises :class:`StoreDamagedError` if commits are lost.
    """
    database = Database(path)
    with closing(database.connection):
        require_commits(path, database.connection)
        try:
            database.update_words()
            yield database
        except BaseException:
            with suppress(StoreError):  # The log keeps the commits, and the first error is the one to report.
                database.checkpoint()
            raise
        database.checkpoint()


def note_committed(path: Path, generation: int) -> None:
    """Write the number of the last commit into a file beside the database ``path``.

    SQLite silently drops a damaged end of its log. This file reveals that commits are missing. It is written after the
    commit, so if a process is killed between the two, no commit is reported as lost by mistake.

    A complete file is overwritten in place without waiting for the disk: the number before is as safe after a power
    failure, because the size stays the same.
    """
    file, number = committed_file(path), b"%0*d\n" % (_DIGITS, generation)
    if not file.exists() or file.stat().st_size != len(number):
        replace_file(file, number)
        return
    flags = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | NO_LINK
    with open(os.open(file, flags), "wb") as stream:  # noqa: PTH123  a descriptor, for the flags
        stream.write(number)


def lost_commits(path: Path, connection: sqlite3.Connection) -> str | None:
    """Return a message if the database is older than its last commit, else None.

    A file with the number that is missing or unwritten says nothing.
    """
    try:  # Before the database, because a writer may commit between the two.
        with open_regular(committed_file(path), path.parent) as file:
            written = file.read(2 * _DIGITS)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path.name}{COMMITTED_SUFFIX} cannot be read: {error.strerror or error}"
    if is_unwritten(written):
        return None
    generation = catalog.generation(connection)
    if not written.strip().isdigit():
        return f"{path.name}{COMMITTED_SUFFIX} holds {written[:40]!r}: expected the number of the last commit"
    if int(written) <= generation:
        return None
    return (
        f"commits are lost: {path.name} has generation {generation}, the last commit was {int(written)}; "
        f"{path.name}-wal was damaged or removed, or is an older one, which you can delete with {path.name}-shm"
    )


def committed_file(path: Path) -> Path:
    """Return the path of the file that holds the number of the last commit to the database ``path``."""
    return path.with_name(path.name + COMMITTED_SUFFIX)


@contextmanager
def write_errors(store: Path) -> Iterator[None]:
    """Turn errors of the file system and of SQLite during a write into one error that names the store."""
    try:
        yield
    except OSError as error:
        raise _not_written(store, error.strerror or str(error)) from error
    except sqlite3.DatabaseError as error:
        raise database_error(store, error) from error


def database_error(store: Path, error: sqlite3.DatabaseError) -> StoreError:
    """Return the error of the store for an SQLite error during a write."""
    if isinstance(error, sqlite3.OperationalError):
        return _not_written(store, str(error))
    return StoreDamagedError(
        f"cannot use the database of {store}: {error}; check it with 'ragembed doctor', or delete the store and index "
        "again"
    )


def _not_written(store: Path, reason: str) -> StoreError:
    return StoreError(f"cannot write to the store {store}: {reason}; its last committed state is intact")
