"""Reading a store: connections and mapped files are kept between queries, and each query reads one snapshot."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ragembed.errors import IncompatibleStoreError, RagembedError, StoreDamagedError, StoreError
from ragembed.indexes.filters import Filter
from ragembed.indexes.search.fanout import SegmentSearch
from ragembed.indexes.search.snapshot import StoreSnapshot, StoreState
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.derived import OpenDerived
from ragembed.indexes.storage.embedders import load_embedder
from ragembed.indexes.storage.hubness import HUBNESS
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.posting_files import POSTINGS
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.selection import Selection, select
from ragembed.indexes.storage.transactions import open_for_reading
from ragembed.indexes.types import VectorEncoder
from ragembed.stopping import check, is_stopped

Answer = TypeVar("Answer")

_SNAPSHOT_TRIES = 5
_INCONSISTENT = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Errors that values of a damaged store can cause anywhere, and a mistake in a program as well."""
_SELECTIONS_KEPT = 8


class SnapshotReader:
    """The read side of a store. Threads may share it.

    ``embedder`` is the one that the store was opened with; by default, the stored one is loaded on ``device``.
    ``threads`` and ``gpus`` are those of :class:`SegmentIndex`. ``diagnose`` returns a message if the store is damaged;
    it is called when a search fails unexpectedly, to name the cause. Raises as :func:`open_for_reading` does if the
    store cannot be read.
    """

    def __init__(
        self,
        path: Path,
        embedder: VectorEncoder | None,
        device: str | None = None,
        threads: int | None = None,
        gpus: Sequence[int] = (),
        diagnose: Callable[[sqlite3.Connection], str | None] = lambda _: None,
    ) -> None:
        self._path = path
        self._diagnose = diagnose
        self._sound_in = -1
        self._given = embedder
        self._device = device
        self._threads = threads
        self._gpus = gpus
        self._searcher = SegmentSearch(1 if gpus else threads)
        self._loaded: VectorEncoder | None = None
        self._segments: dict[str, Segment] = {}
        self._selected_in: object = -1
        self._selections: dict[Filter | None, Selection | None] = {}
        self._postings = OpenDerived(path, POSTINGS)
        self._hubness = OpenDerived(path, HUBNESS)
        self._kept = StoreState()
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.RLock()
        self._current = threading.local()
        self._opened = self._file()
        self._idle.append(open_for_reading(path / DATABASE))  # Fails here if the store cannot be read.

    def close(self) -> None:
        """Close the database, the mapped files and the segment search. The next query opens them again."""
        self._close_files()
        self._searcher.close()

    def _close_files(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._segments.clear()
            self._selections.clear()
            self._postings.clear()
            self._hubness.clear()
            self._kept.clear()

    def read(self, answer: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Return ``answer(snapshot)``, calling it again if a writer removed files of the snapshot.

        Reads by the same thread within ``answer`` use the same snapshot.
        """
        current: StoreSnapshot | None = getattr(self._current, "snapshot", None)
        if current is not None:
            return answer(current)
        for _ in range(_SNAPSHOT_TRIES - 1):
            with contextlib.suppress(FileNotFoundError), self.hold():
                return answer(self._current.snapshot)
            # A writer merged segments after the snapshot and before a file was opened: read a newer snapshot.
        try:
            with self.hold():
                return answer(self._current.snapshot)
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"a file of the store is missing: {error.filename}; rebuild it with 'ragembed doctor --repair'"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot read {error.filename or self._path}: {error.strerror or error}") from error

    @contextmanager
    def hold(self) -> Iterator[StoreSnapshot]:
        """Hold a snapshot during the ``with`` block, which all reads of this thread use."""
        current: StoreSnapshot | None = getattr(self._current, "snapshot", None)
        if current is not None:
            yield current
            return
        with self.snapshot() as snapshot:
            self._current.snapshot = snapshot
            try:
                yield snapshot
            finally:
                self._current.snapshot = None

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        """Hold a snapshot of the current generation during the ``with`` block."""
        check()
        file = self._file()
        with self._lock:
            if file != self._opened:  # The store was replaced by another.
                self._close_files()
                self._opened, self._loaded = file, None
            connection = self._idle.pop() if self._idle else None
        connection = connection or open_for_reading(self._path / DATABASE)
        try:
            connection.execute("BEGIN")
            generation = catalog.meta(connection, "generation", 0)
            yield StoreSnapshot(
                connection,
                generation,
                lambda: self._open_segments(connection, generation),
                lambda: self._embedder(connection, generation),
                lambda where: self._select(connection, generation, where),
                lambda: self._postings.of(connection, generation),
                lambda: self._hubness.of(connection, generation),
                self._kept,
                self._searcher,
                self._path,
            )
        except sqlite3.DatabaseError as error:
            check()
            raise StoreDamagedError(
                f"cannot use the database of {self._path}: {error}; check it with 'ragembed doctor', or delete the "
                "store and index again"
            ) from error
        except RagembedError:
            raise
        except _INCONSISTENT as error:
            self._blame_damage(connection, error)
            raise
        finally:
            if is_stopped():
                connection.close()
            else:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                with self._lock:
                    if file == self._opened:
                        self._idle.append(connection)
                    else:
                        connection.close()

    def _blame_damage(self, connection: sqlite3.Connection, error: Exception) -> None:
        """Raise :class:`StoreDamagedError` if the snapshot is damaged, which explains ``error``."""
        generation = catalog.meta(connection, "generation", 0)
        if generation == self._sound_in:
            return
        if (damage := self._diagnose(connection)) is not None:
            raise StoreDamagedError(
                f"the store {self._path} is damaged: {damage}; check it with 'ragembed doctor', or delete the store "
                "and index again"
            ) from error
        self._sound_in = generation

    def _file(self) -> tuple[int, int] | None:
        """Return the identity of the database file, or None if it does not exist."""
        try:
            found = os.stat(self._path / DATABASE)  # noqa: PTH116  called for every query
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open_segments(self, connection: sqlite3.Connection, generation: object) -> dict[int, Segment]:
        records = self._kept.facts.of(connection, generation, catalog.segments)
        with self._lock:
            for record in records:
                if record.files.folder not in self._segments:
                    self._segments[record.files.folder] = Segment(self._path, record.files, self._threads, self._gpus)
            self._segments = {record.files.folder: self._segments[record.files.folder] for record in records}
            return {record.key: self._segments[record.files.folder] for record in records}

    def _select(self, connection: sqlite3.Connection, generation: object, where: Filter | None) -> Selection | None:
        with self._lock:
            if generation != self._selected_in:
                self._selected_in, self._selections = generation, {}
            if where in self._selections:
                return self._selections[where]
        selection = select(connection, where)
        with self._lock:
            if generation == self._selected_in:
                while len(self._selections) >= _SELECTIONS_KEPT:
                    self._selections.pop(next(iter(self._selections)))
                self._selections[where] = selection
        return selection

    def _embedder(self, connection: sqlite3.Connection, generation: object) -> VectorEncoder:
        record = self._kept.facts.of(connection, generation, catalog.embedder)
        with self._lock:
            given, source = self._given, None
            if given is not None and (own := given.refittable) is not None and own.source is not None:
                source = own.source
                given = own if own.is_fitted else None  # otherwise the store has the fit, and lacks the source
            for embedder in (self._loaded, given):
                if embedder is not None and embedder.fingerprint == record["fingerprint"]:
                    return embedder
            mismatch = given is not None and given.raw_fingerprint != record["raw_fingerprint"]
            if record["kind"] != "ragembed" or mismatch:
                shown = "no embedder was given" if given is None else f"{_named(given)} was given"
                raise IncompatibleStoreError(
                    f"the vectors of {self._path} were made by {_named(record)}, but {shown}: open the store with the "
                    "embedder that it was made with, or search it with mode='lexical'"
                )
            self._loaded = load_embedder(self._path, record, self._device, source)
            return self._loaded


def _named(embedder: VectorEncoder | Mapping[str, Any]) -> str:
    """Return the model of an embedder, or of its database record, and the beginning of its fingerprint."""
    if isinstance(embedder, Mapping):
        return f"{embedder['model']} ({embedder['fingerprint'][:12]})"
    return f"{embedder.describe()['model']} ({embedder.fingerprint[:12]})"
