"""Reading a store: connections and mapped files are kept between queries, and each query reads one generation."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ragembed.errors import IncompatibleStoreError, RagembedError, StoreDamagedError, StoreError
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical.bm25 import Postings
from ragembed.indexes.search.segment_search import SegmentSearch
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.derived import OpenDerived
from ragembed.indexes.storage.embedders import load_embedder
from ragembed.indexes.storage.hubness import HUBNESS, Hubness
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.posting_files import POSTINGS
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.selection import KeptRows, Selection, select
from ragembed.indexes.storage.transactions import open_for_reading
from ragembed.indexes.types import VectorEncoder
from ragembed.stopping import check, is_stopped
from ragembed.types import Floats

Value = TypeVar("Value")

_INCONSISTENT = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Errors that values of a damaged store can cause anywhere, and a mistake in a program as well."""
_SELECTIONS_KEPT = 8


@dataclass(slots=True, eq=False)
class Generation:
    """What the snapshots of one generation of a store have read. Threads share it.

    ``state`` changes with the generation and when another store replaces the store.
    """

    state: tuple[object, object]
    facts: dict[tuple[object, ...], Any] = field(default_factory=dict)
    selections: dict[Filter, Selection | None] = field(default_factory=dict)
    rows: KeptRows = field(default_factory=KeptRows)


@dataclass(frozen=True, slots=True, eq=False)
class StoreView:
    """One store as a snapshot reads it: ``connection`` is in a read transaction. ``name`` is that in a collection."""

    reader: StoreReader
    connection: sqlite3.Connection
    kept: Generation
    name: str | None = None

    def fact(self, read: Callable[..., Value], *arguments: Any) -> Value:
        """Return ``read(connection, *arguments)``, from memory if an earlier snapshot of the generation has read it."""
        key = (read, *arguments)
        if key not in self.kept.facts:
            self.kept.facts[key] = read(self.connection, *arguments)
        value: Value = self.kept.facts[key]
        return value

    def count(self) -> int:
        """Return the number of chunks."""
        return self.fact(catalog.count, "chunks")

    def segments(self) -> Mapping[int, Segment]:
        """Return the segments by key."""
        return self.fact(self.reader.open_segments)

    def postings(self) -> Postings | None:
        """Return the postings, or None if the store has chunks without postings."""
        return self.fact(self.reader.postings.of, self.kept.state)

    def hubness(self) -> Hubness | None:
        """Return the hubness of the chunks, even if there are too few for a search; None if it was not measured."""
        return self.fact(self.reader.hubness.of, self.kept.state)

    def embedder(self) -> VectorEncoder:
        """Return the embedder of the vectors: the one given, if it has made them, or the one that the store keeps."""
        reader = self.reader
        with reader.lock:  # also because one thread at a time may use the connection
            record = self.fact(catalog.embedder)
            given, source = reader.given, None
            if given is not None and (own := given.refittable) is not None and own.source is not None:
                source = own.source
                given = own if own.is_fitted else None  # otherwise the store has the fit, and lacks the source
            for embedder in (reader.loaded, given):
                if embedder is not None and embedder.fingerprint == record["fingerprint"]:
                    return embedder
            mismatch = given is not None and given.raw_fingerprint != record["raw_fingerprint"]
            if record["kind"] != "ragembed" or mismatch:
                shown = "no embedder was given" if given is None else f"{_named(given)} was given"
                raise IncompatibleStoreError(
                    f"the vectors of {reader.path} were made by {_named(record)}, but {shown}: open the store with the "
                    "embedder that it was made with, or search it with mode='lexical'"
                )
            reader.loaded = load_embedder(reader.path, record, reader.device, source)
            return reader.loaded

    def postprocess(self, raw: Floats) -> Floats:
        """Return the vectors of raw document vectors."""
        return self.embedder().postprocess_documents(raw)

    def selection(self, where: Filter | None) -> Selection | None:
        """Return which chunks match ``where`` and can be found, or None if these are all chunks."""
        if where is None:
            return self.fact(select, None)
        selections = self.kept.selections
        with self.reader.lock:
            if where in selections:
                return selections[where]
        selection = select(self.connection, where)
        with self.reader.lock:
            while len(selections) >= _SELECTIONS_KEPT:
                selections.pop(next(iter(selections)))
            selections[where] = selection
        return selection


class StoreReader:
    """The read side of a store. Threads may share it.

    ``embedder`` is the one that the store was opened with; by default, the stored one is loaded on ``device``.
    ``threads`` and ``gpus`` are those of :class:`SegmentIndex`. ``diagnose`` returns a
    message if the store is damaged; it is called when a search fails unexpectedly, to name the cause. Raises as
    :func:`open_for_reading` does if the store cannot be read.
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
        self.path = path
        self.given = embedder
        self.searcher = SegmentSearch(1 if gpus else threads)
        self.postings = OpenDerived(path, POSTINGS)
        self.hubness = OpenDerived(path, HUBNESS)
        self.lock = threading.RLock()
        self._diagnose = diagnose
        self.device, self._threads, self._gpus = device, threads, gpus
        self._sound_in: object = None
        self.loaded: VectorEncoder | None = None
        self._segments: dict[str, Segment] = {}
        self._generation = Generation((None, None))
        self._idle: list[sqlite3.Connection] = []
        self._opened = self._file()
        self._idle.append(open_for_reading(path / DATABASE))  # Fails here if the store cannot be read.

    def close(self) -> None:
        """Close the database, the mapped files and the segment search. The next query opens them again."""
        self._close_files()
        self.searcher.close()

    def _close_files(self) -> None:
        with self.lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._segments.clear()
            self._generation = Generation((None, None))
            for kept in (self.postings, self.hubness):
                kept.clear()

    @contextmanager
    def views(self, name: str | None = None) -> Iterator[list[StoreView]]:
        """Hold a view of the current generation during the ``with`` block: a list of one."""
        check()
        file = self._file()
        with self.lock:
            if file != self._opened:  # The store was replaced by another.
                self._close_files()
                self._opened, self.loaded = file, None
            connection = self._idle.pop() if self._idle else None
        connection = connection or open_for_reading(self.path / DATABASE)
        try:
            connection.execute("BEGIN")
            state = file, catalog.meta(connection, "generation", 0)
            with self.lock:
                if self._generation.state != state:
                    self._generation = Generation(state)
                kept = self._generation
            yield [StoreView(self, connection, kept, name)]
        except sqlite3.DatabaseError as error:
            check()
            raise StoreDamagedError(
                f"cannot use the database of {self.path}: {error}; check it with 'ragembed doctor', or delete the "
                "store and index again"
            ) from error
        except (RagembedError, FileNotFoundError):
            raise
        except OSError as error:
            if error.filename is None or not Path(error.filename).is_relative_to(self.path):
                raise
            raise StoreError(f"cannot read {error.filename}: {error.strerror or error}") from error
        except _INCONSISTENT as error:
            self._blame_damage(connection, error)
            raise
        finally:
            self._put_back(connection, file)

    def _put_back(self, connection: sqlite3.Connection, file: object) -> None:
        if not is_stopped() and connection.in_transaction:
            connection.execute("ROLLBACK")
        with self.lock:
            if is_stopped() or file != self._opened:
                connection.close()
            else:
                self._idle.append(connection)

    def _blame_damage(self, connection: sqlite3.Connection, error: Exception) -> None:
        """Raise :class:`StoreDamagedError` if the snapshot is damaged, which explains ``error``."""
        generation = catalog.meta(connection, "generation", 0)
        if generation == self._sound_in:
            return
        if (damage := self._diagnose(connection)) is not None:
            raise StoreDamagedError(
                f"the store {self.path} is damaged: {damage}; check it with 'ragembed doctor', or delete the store "
                "and index again"
            ) from error
        self._sound_in = generation

    def _file(self) -> tuple[int, int] | None:
        """Return the identity of the database file, or None if it does not exist."""
        try:
            status = os.stat(self.path / DATABASE)  # noqa: PTH116  called for every query
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def open_segments(self, connection: sqlite3.Connection) -> dict[int, Segment]:
        """Return the segments that ``connection`` sees, by key; those that are open already stay open."""
        records = catalog.segments(connection)
        with self.lock:
            for record in records:
                if record.files.folder not in self._segments:
                    self._segments[record.files.folder] = Segment(self.path, record.files, self._threads, self._gpus)
            self._segments = {record.files.folder: self._segments[record.files.folder] for record in records}
            return {record.key: self._segments[record.files.folder] for record in records}


def _named(embedder: VectorEncoder | Mapping[str, Any]) -> str:
    """Return the model of an embedder, or of its database record, and the beginning of its fingerprint."""
    if isinstance(embedder, Mapping):
        return f"{embedder['model']} ({embedder['fingerprint'][:12]})"
    return f"{embedder.describe()['model']} ({embedder.fingerprint[:12]})"
