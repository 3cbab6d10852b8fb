"""Dense search of the segments of a store, by their indexes, or by exact comparison if few rows are selected."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.index import FEW_QUERIES, DividedIndex, RefinedIndex, most_threads
from ragembed.indexes.faiss_index.vectors import Vectors, inner_products, rows_in
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

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

        ``mask`` says for each row whether it may be returned; None allows all rows. ``effort`` is that of
        :meth:`SegmentIndex.search`, and ``postprocess`` maps raw vectors to vectors; flat
        segments need neither. Raises :class:`FileNotFoundError` if a writer has removed a segment meanwhile.
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

    ``rows`` holds the row of each vector by position, int64, ascending; it is None for a flat segment. ``divided`` is
    searched instead of the index of the segment. The other arguments are those of :meth:`SegmentSearch.nearest`.
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
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, of_scores = np.take_along_axis(scores, best, axis=1), np.take_along_axis(of_scores, best, axis=1)
    return SegmentHits(scores, of_scores)
