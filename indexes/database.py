"""The writer's connection: transactions, and checkpoints that keep the sums of the database's pages.

SQLite writes commits to ``store.db-wal`` and copies them into ``store.db`` at a checkpoint. Only the writer
checkpoints, and only through :meth:`Database.checkpoint`: first the pages are copied, then their sums are written, and
only then is the log emptied. Killed in between, the log still explains every page that differs from its sum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.indexes import catalog, changes, page_sums, wal
from ragembed.indexes.schema import connect
from ragembed.indexes.stemming import Words

_CHECKPOINT_BYTES = 4 << 20
_CACHE_KIBIBYTES = 32 << 10
"""Pages of the database that are kept in memory: ids and hashes come in no order, each to another page."""

_WORD_PAGES, _WORDS_MERGED = 500, 2
"""Pages of the full-text index that one step writes, and the changes below which SQLite says a step had no work."""
_PAGE_COUNTS = ("freelist_count", "page_count")


class Database:
    """The one connection that writes to a store; its holder has the writer's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._sums = path.with_name(path.name + page_sums.SUMS_SUFFIX)
        # SQLite checkpoints by itself when the last connection closes; another open one keeps it from that.
        self._guard = connect(path, writable=False)
        try:
            self.connection = connect(path, writable=True)
        except BaseException:
            self._guard.close()
            raise
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("PRAGMA wal_autocheckpoint = 0")
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the ``with`` block in one transaction that raises the generation."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            generation = catalog.meta(self.connection, "generation", 0)
            catalog.set_meta(self.connection, "generation", generation + 1)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        if self._wal.stat().st_size > _CHECKPOINT_BYTES:
            self.checkpoint()

    def checkpoint(self) -> bool:
        """Copy all commits into the database file, and empty the log where no reader is in the way.

        Returns whether all were copied, and so whether their sums are right.
        """
        with write_errors(self._path.parent):
            _, in_log, copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if in_log or not self._sums.exists():
                page_sums.update(self._path, wal.pages(self._wal))
            if copied == in_log:  # else emptying it would copy pages whose sums are not written yet
                with self._without_waiting():
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return bool(copied == in_log)

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
        """Make the full-text index anew where another release of the stemmer made it: this one may stem otherwise."""
        made = catalog.words(self.connection)
        current = Words.of_language(made.language)
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

    def close(self, *, settled: bool) -> None:
        """Close; ``settled`` says that the last checkpoint copied the last commit.

        SQLite then removes its log, where no reader is in the way.
        """
        connections = (self._guard, self.connection) if settled else (self.connection, self._guard)
        for connection in connections:
            connection.close()

    @contextmanager
    def _without_waiting(self) -> Iterator[None]:
        patience = self.connection.execute("PRAGMA busy_timeout").fetchone()[0]
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {patience}")


@contextmanager
def open_for_writing(path: Path) -> Iterator[Database]:
    """Open the database for the time of the ``with`` block; at its end all commits go into the one file."""
    database = Database(path)
    settled = False
    try:
        database.checkpoint()  # what a killed writer left: its log must not be written over before the sums are right
        try:
            database.renew_words()
            yield database
        except BaseException:
            with suppress(StoreError):  # the log keeps what is committed; what went wrong first is to be told
                database.checkpoint()
            raise
        settled = database.checkpoint()
    finally:
        database.close(settled=settled)


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
