"""Search of all segments of a snapshot: in this process, or on the actors of a Ray cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, get_args

from ragembed.errors import ConfigError
from ragembed.indexes.ann.index import FEW_QUERIES, DividedIndex, most_threads
from ragembed.indexes.search.segment_search import SegmentHits, search_segment
from ragembed.indexes.search.snapshot import SegmentSearch, StoreSnapshot
from ragembed.types import Bools, Floats

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

Found = TypeVar("Found")

_LEAST_ROWS = 10_000
"""Segments with fewer vectors are searched faster than another thread can start."""

_LEAST_PART = 25_000
"""Minimum number of vectors of an exact index that a thread searches."""


def segment_search(
    path: Path, engine: Engine, address: str | None, replicas: int, threads: int | None, search_device: str
) -> SegmentSearch:
    """Return the search of the segments of the store at ``path``; the arguments are those of ``Store.open``.

    Raises :class:`ConfigError` for an unknown engine or arguments of another engine, and as
    :func:`ragembed.ray_cluster.connected` does.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: expected one of {', '.join(ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}: expected 1 or more")
    if replicas < 1:
        raise ConfigError(f"replicas is {replicas}: expected 1 or more")
    if engine == "local":
        if address is not None or replicas > 1:
            raise ConfigError("address and replicas are for engine='ray': open the store with it, or leave them out")
        return LocalSegments(threads if search_device == "cpu" else 1)
    if threads is not None or search_device != "cpu":
        raise ConfigError(
            "threads and search_device are for engine='local': on Ray, each actor searches in one thread; use more "
            "shards or replicas instead"
        )
    from ragembed.indexes.search.ray_search import RaySegments

    return RaySegments(path, address, replicas)


class LocalSegments:
    """Searches the segments in this process, large ones in parallel if there are few queries.

    An exact index is scanned as a whole, so several threads each scan a part of it. ``threads`` is the maximum number
    of threads; None uses as many as FAISS does. With many queries, FAISS divides them among threads, one segment at a
    time.
    """

    waits_for_others = False

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def nearest(self, snapshot: StoreSnapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Search all segments; see :class:`ragembed.indexes.search.snapshot.SegmentSearch`."""
        lock = threading.Lock()

        def postprocess(raw: Floats) -> Floats:
            with lock:  # Reading the embedder uses the database connection, which one thread at a time may use.
                embedder = snapshot.embedder()
            return embedder.postprocess_documents(raw)

        small: list[Callable[[], SegmentHits]] = []
        large: list[Callable[[], SegmentHits]] = []
        segments = snapshot.segments()
        effort = None if all(segment.flat for segment in segments.values()) else snapshot.effort()
        threads = self._threads or most_threads()
        many = len(queries) > FEW_QUERIES
        found = []
        for key, segment in segments.items():
            rows = None if segment.flat else snapshot.rows_of(key)
            job = partial(search_segment, segment, queries, k, mask, rows, effort, postprocess)
            parts = min(threads, segment.files.rows // _LEAST_PART) if segment.spec.exact else 1
            depth = k * segment.spec.refine_factor
            if parts > 1 and (not many or segment.index().multiplies(len(queries), depth, parts)):
                divided = DividedIndex(segment.index(), segment.files.rows, parts, self._run)
                found.append(job(divided))
            else:
                (large if segment.files.rows >= _LEAST_ROWS else small).append(job)
        if many or threads == 1:
            return [*found, *(job() for job in (*large, *small))]
        return [*found, *self._run([*large, *small], len(large))]

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
                most = max((self._threads or most_threads()) - 1, 1)
                self._pool = ThreadPoolExecutor(most, thread_name_prefix="ragembed-search")
            return [self._pool.submit(job) for job in jobs]

    def close(self) -> None:
        """Stop the threads when their searches are done. The next search starts new ones."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None
