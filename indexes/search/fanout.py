"""Search of all segments of a snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.index import FEW_QUERIES, DividedIndex, most_threads
from ragembed.indexes.search.segment_search import SegmentHits, search_segment
from ragembed.indexes.storage.segments import Segment
from ragembed.types import Bools, Floats

if TYPE_CHECKING:
    from ragembed.indexes.search.snapshot import StoreSnapshot

Found = TypeVar("Found")

_LEAST_ROWS = 10_000
"""Segments with fewer vectors are searched faster than another thread can start."""

_LEAST_PART = 25_000
"""Minimum number of vectors that a thread compares, if a search is divided."""


class SegmentSearch:
    """Searches the segments of a snapshot, large ones in parallel if there are few queries.

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

    def nearest(self, snapshot: StoreSnapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Return the hits of each segment of ``snapshot``, in any order.

        ``queries`` are unit vectors, shape ``(n, d)``. ``mask`` says for each row whether it may be returned; None
        allows all rows. Raises :class:`FileNotFoundError` if a writer has removed a segment meanwhile.
        """
        lock = threading.Lock()

        def postprocess(raw: Floats) -> Floats:
            with lock:  # Reading the embedder uses the database connection, which one thread at a time may use.
                embedder = snapshot.embedder()
            return embedder.postprocess_documents(raw)

        small: list[Callable[[], SegmentHits]] = []
        large: list[Callable[[], SegmentHits]] = []
        segments = snapshot.segments()
        effort = None if all(segment.flat for segment in segments.values()) else snapshot.effort()
        many = len(queries) > FEW_QUERIES
        found = []
        for key, segment in segments.items():
            rows = None if segment.flat else snapshot.rows_of(key)
            job = partial(search_segment, segment, queries, k, mask, rows, effort, postprocess)
            parts = self._parts(segment, len(queries), k * segment.spec.refine_factor, effort)
            if parts > 1:
                found.append(job(DividedIndex(segment.index(), segment.files.rows, parts, self._run)))
            else:
                (large if segment.files.rows >= _LEAST_ROWS else small).append(job)
        if many or self._most_threads == 1:
            return [*found, *(job() for job in (*large, *small))]
        return [*found, *self._run([*large, *small], len(large))]

    def _parts(self, segment: Segment, queries: int, k: int, effort: int | None) -> int:
        """Return the number of threads that search the segment together, 1 if it is not divided."""
        if min(self._most_threads, segment.files.rows // _LEAST_PART) <= 1:
            return 1
        index = segment.index()
        parts = min(self._most_threads, index.compared(k, effort) // _LEAST_PART)
        return parts if parts > 1 and (queries <= FEW_QUERIES or index.multiplies(queries, k, parts)) else 1

    @property
    def _most_threads(self) -> int:
        return self._threads or most_threads()

    def _run(self, jobs: Sequence[Callable[[], Found]], shared: int | None = None) -> list[Found]:
        """Return the results of ``jobs``; other threads run some of the first ``shared``, by default of all."""
        others = jobs[1:shared]
        submitted = self._in_threads(others) if others else []
        found = {i: job() for i, job in enumerate(jobs) if i == 0 or i > len(others)}
        # This thread takes over jobs that no other thread has started yet.
        for i in range(len(others), 0, -1):
            future = submitted[i - 1]
            found[i] = jobs[i]() if future.cancel() else future.result()
        return [found[i] for i in range(len(jobs))]

    def _in_threads(self, jobs: Sequence[Callable[[], Found]]) -> list[Future[Found]]:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max(self._most_threads - 1, 1), thread_name_prefix="ragembed-search")
            return [self._pool.submit(job) for job in jobs]

    def close(self) -> None:
        """Stop the threads when their searches are done. The next search starts new ones."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None
