"""Reading a store: its segments are searched, and its connections and mapped files are kept between queries."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ragembed.errors import ConfigError, IncompatibleStoreError, RagembedError, StoreDamagedError, StoreError
from ragembed.indexes.faiss_index.index import FEW_QUERIES, DividedIndex, RefinedIndex, most_threads
from ragembed.indexes.faiss_index.vectors import Vectors, inner_products, k_best, places_in, rows_in
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical.postings import LiveBlock
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.derived import OpenDerived
from ragembed.indexes.storage.embedders import load_embedder, named_embedder
from ragembed.indexes.storage.hubness import HUBNESS, Hubness
from ragembed.indexes.storage.layout import DATABASE
from ragembed.indexes.storage.posting_files import POSTINGS
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.transactions import open_for_reading
from ragembed.indexes.types import Keys, Rows, VectorEncoder
from ragembed.progress import check, is_stopped
from ragembed.types import Bools, Floats

_SHARE = 0.1
"""Share of a store's chunks that a reader looks up in the database before it reads all. By then, both take as long."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The chunks that a search may return.

    ``mask`` says for each vector row whether it may be returned. ``keys`` are the chunks, ascending, or None for all.
    """

    mask: Bools
    keys: Keys | None


def select(connection: sqlite3.Connection, where: Filter | None) -> Selection | None:
    """Return the chunks that match ``where``, or None if every row belongs to such a chunk."""
    size = catalog.last_row(connection) + 1
    if where is not None:
        keys, rows = catalog.matching(connection, where)
        mask = np.zeros(size, dtype=bool)
        mask[rows] = True
        return Selection(mask, keys)
    dead = catalog.dead_rows(connection)
    if len(dead) == 0:
        return None
    mask = np.ones(size, dtype=bool)
    mask[dead] = False
    return Selection(mask, None)


class _AllRows:
    """The keys of all chunks, ascending, and the row of each, and both in order of the rows; int64, shapes ``(n,)``."""

    def __init__(self, keys: Keys, rows: Rows) -> None:
        self.keys, self.rows = keys, rows
        self.keys_by_row, self.ordered = keys, rows
        if bool((rows[1:] < rows[:-1]).any()):
            order = np.argsort(rows, kind="stable")
            self.keys_by_row, self.ordered = keys[order], rows[order]
        self.distinct = bool((self.ordered[1:] > self.ordered[:-1]).all())


class KeptRows:
    """Looks up rows of chunks in one generation: a few in the database, many in memory. Threads may share an object."""

    def __init__(self) -> None:
        self._number = 0
        self._rows: _AllRows | None = None

    def of_keys(self, connection: sqlite3.Connection, chunks: int, keys: Keys) -> Rows:
        """Return the row of each of ``keys``, shape ``(n,)``; raise KeyError for an unknown key."""
        every = self._all(connection, chunks, len(keys))
        if every is None:
            of_keys = catalog.rows_of_keys(connection, keys.tolist())
            return np.array([of_keys[key] for key in keys.tolist()], dtype=np.int64)
        at = places_in(every.keys, keys)
        if not np.array_equal(every.keys[at], keys):
            raise KeyError(int(keys[every.keys[at] != keys][0]))
        rows: Rows = every.rows[at]
        return rows

    def of_rows(self, connection: sqlite3.Connection, chunks: int, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        every = self._all(connection, chunks, len(rows))
        if every is None:
            return catalog.chunks_of_rows(connection, rows.tolist())
        if every.distinct:
            at = places_in(every.ordered, rows)
            at = at[every.ordered[at] == rows]
        else:
            rows = np.unique(rows)
            first, stop = (np.searchsorted(every.ordered, rows, side) for side in ("left", "right"))
            lengths = stop - first
            ends = np.cumsum(lengths)
            at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + lengths, lengths)
        keys = every.keys_by_row[at]
        order = np.argsort(keys)
        return keys[order], every.ordered[at[order]]

    def _all(self, connection: sqlite3.Connection, chunks: int, looked_up: int) -> _AllRows | None:
        """Return the rows of all chunks, or None if few of the ``chunks`` have been looked up."""
        if self._rows is None and chunks and self._number >= _SHARE * chunks:
            self._rows = _AllRows(*catalog.chunk_rows(connection))
        self._number += looked_up
        return self._rows


Result = TypeVar("Result")

_LEAST_ROWS = 10_000
"""Segments with fewer vectors are searched faster than another thread can start."""
_LEAST_PART = 25_000
"""Minimum number of vectors that a thread compares, if a search is divided."""
_EXACT_ROWS, _EXACT_SHARE = 5_000, 0.05
"""Number and share of selected rows in an approximate segment up to which each row is compared exactly."""
_BLOCK_BYTES = 16 * 1024**2


class SegmentHits(NamedTuple):
    """Cosines and rows of ``n`` queries, shapes ``(n, m)``, best first. The row is -1 if there is no hit."""

    scores: Floats
    rows: Rows


def rows_of_segment(connection: sqlite3.Connection, key: int, segment: Segment) -> Rows:
    """Return the row of each vector of a segment by position, int64, ascending."""
    if segment.rows is None:
        in_order = segment.spec.family != "lists"  # the index has the rows in order; a list has its own
        segment.rows = segment.index().rows() if in_order else catalog.rows_of_segment(connection, key)
    return segment.rows


class SegmentSearch:
    """Searches the segments of a store, large ones in parallel if there are few queries.

    A search that compares many vectors of one segment, by an exact index or by inverted lists, is divided too.
    ``threads`` is the maximum number of threads; None uses as many as FAISS does. With many queries, FAISS divides them
    among threads, one segment at a time.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is {threads}: expected 1 or more")
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def nearest(
        self,
        connection: sqlite3.Connection,
        segments: Mapping[int, Segment],
        queries: Floats,
        k: int,
        mask: Bools | None,
        effort: int | None,
        postprocess: Callable[[Floats], Floats],
    ) -> list[tuple[Rows, Floats]]:
        """Return the ``k`` nearest rows for each of ``queries``, unit vectors, shape ``(n, d)``, and their cosines.

        ``mask`` says for each row whether it may be returned; None allows all rows.
        """
        small: list[Callable[[], SegmentHits]] = []
        large: list[Callable[[], SegmentHits]] = []
        most = 1
        if any(segment.files.rows >= min(_LEAST_ROWS, 2 * _LEAST_PART) for segment in segments.values()):
            most = self._threads or most_threads()
        by_segment = []
        for key, segment in segments.items():
            rows = None if segment.flat else rows_of_segment(connection, key, segment)
            job = partial(search_segment, segment, queries, k, mask, rows, effort, postprocess)
            parts = 1
            if min(most, segment.files.rows // _LEAST_PART) > 1:
                parts = _parts(segment, len(queries), k * segment.spec.refine_factor, effort, most)
            if parts > 1:
                by_segment.append(job(DividedIndex(segment.index(), segment.files.rows, parts, self._run)))
            else:
                (large if segment.files.rows >= _LEAST_ROWS else small).append(job)
        if len(queries) > FEW_QUERIES or most == 1 or len(large) < 2:
            by_segment += [job() for job in (*large, *small)]
        else:
            by_segment += self._run([*large, *small], len(large))
        nearest = []
        for i in range(len(queries)):
            rows = np.concatenate([np.zeros(0, dtype=np.int64), *(hits.rows[i] for hits in by_segment)])
            scores = np.concatenate([np.zeros(0, dtype=np.float32), *(hits.scores[i] for hits in by_segment)])
            if len(rows) and rows.min() < 0:
                rows, scores = rows[rows >= 0], scores[rows >= 0]
            order = np.lexsort((rows, -scores))[:k]
            nearest.append((rows[order], scores[order]))
        return nearest

    def _run(self, jobs: Sequence[Callable[[], Result]], shared: int | None = None) -> list[Result]:
        """Return the results of ``jobs``; other threads run some of the first ``shared``, by default of all."""
        others = jobs[1:shared]
        submitted = self._in_threads(others) if others else []
        results = {i: job() for i, job in enumerate(jobs) if i == 0 or i > len(others)}
        # This thread takes over jobs that no other thread has started yet.
        for i in range(len(others), 0, -1):
            future = submitted[i - 1]
            results[i] = jobs[i]() if future.cancel() else future.result()
        return [results[i] for i in range(len(jobs))]

    def _in_threads(self, jobs: Sequence[Callable[[], Result]]) -> list[Future[Result]]:
        with self._lock:
            if self._pool is None:
                workers = max((self._threads or most_threads()) - 1, 1)
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ragembed-search")
            return [self._pool.submit(job) for job in jobs]

    def close(self) -> None:
        """Stop the threads when their searches are done. The next search starts new ones."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None


def _parts(segment: Segment, queries: int, k: int, effort: int | None, most: int) -> int:
    """Return the number of threads, up to ``most``, that search a segment together, 1 if it is not divided."""
    index = segment.index()
    parts = min(most, index.compared(k, effort) // _LEAST_PART)
    return parts if parts > 1 and (queries <= FEW_QUERIES or index.multiplies(queries, k, parts)) else 1


def search_segment(
    segment: Segment,
    queries: Floats,
    k: int,
    mask: Bools | None,
    rows: Rows | None,
    effort: int | None,
    postprocess: Callable[[Floats], Floats],
    divided: DividedIndex | None = None,
) -> SegmentHits:
    """Return the ``k`` nearest vectors of a segment for each of ``queries``.

    ``rows`` holds the row of each vector by position, int64, ascending; it is None for a flat segment.
    """
    opened = divided or segment.index()
    if rows is None:
        return SegmentHits(*opened.search(queries, k, mask))
    chosen = np.arange(len(rows)) if mask is None else np.flatnonzero(mask[rows])
    share = len(chosen) / len(rows)
    vectors = segment.vectors(postprocess)
    if mask is None or (len(chosen) > _EXACT_ROWS and share > _EXACT_SHARE):
        index = RefinedIndex(opened, segment.spec, vectors, rows)
        scores, of_scores = index.search(queries, k, mask, share, effort)
        if (of_scores >= 0).sum(axis=1).min() >= min(k, len(chosen)):
            return SegmentHits(scores, of_scores)
    return _one_by_one(queries, vectors, chosen, rows, k)


def _one_by_one(queries: Floats, vectors: Vectors, chosen: Rows, rows: Rows, k: int) -> SegmentHits:
    """Compare ``queries`` exactly with the vectors at positions ``chosen``, block by block; ``rows`` has their rows."""
    scores = np.empty((len(queries), 0), dtype=np.float32)
    of_scores = np.empty((len(queries), 0), dtype=np.int64)
    step = rows_in(_BLOCK_BYTES, vectors.dim)
    for start in range(0, len(chosen), step):
        block = chosen[start : start + step]
        scores = np.hstack([scores, inner_products(queries, vectors.at(block))])
        of_scores = np.hstack([of_scores, np.broadcast_to(rows[block], (len(queries), len(block)))])
        scores, of_scores = k_best(scores, of_scores, k)
    return SegmentHits(scores, of_scores)


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

    def postings(self) -> tuple[LiveBlock, ...] | None:
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
                shown = "no embedder was given" if given is None else f"{named_embedder(given)} was given"
                raise IncompatibleStoreError(
                    f"the vectors of {reader.path} were made by {named_embedder(record)}, but {shown}: open the "
                    "store with the embedder that it was made with, or search it with mode='lexical'"
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
            for cache in (self.postings, self.hubness):
                cache.clear()

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
                generation = self._generation
            yield [StoreView(self, connection, generation, name)]
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
