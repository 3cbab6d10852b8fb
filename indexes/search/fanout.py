"""Searching every segment of a generation: in this process, or on the actors of a Ray cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.ann.index import FEW_QUERIES, most_threads
from ragembed.indexes.search.segment_search import SegmentHits, search_part, search_segment
from ragembed.indexes.search.snapshot import SegmentSearch, Snapshot
from ragembed.types import Bools, Floats

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

_LEAST_ROWS = 10_000
"""Vectors of a segment below which a search of it is over before another thread has begun with it."""

_LEAST_PART = 25_000
"""Vectors of a part of a flat segment that a thread of its own searches, at least."""


def segment_search(
    path: Path, engine: Engine, address: str | None, replicas: int, threads: int | None, search_device: str
) -> SegmentSearch:
    """Return what searches the segments of the store at ``path``; the arguments are those of ``Store.open``.

    Raises :class:`ConfigError` for an unknown engine or for arguments of another engine, and what
    :func:`ragembed.ray_cluster.connected` raises.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: expected one of {', '.join(ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}: expected 1 or more")
    if replicas < 1:
        raise ConfigError(f"replicas is {replicas}: expected 1 or more")
    if engine == "local":
        if address is not None or replicas > 1:
            raise ConfigError("address and replicas are of a Ray cluster: open the store with engine='ray'")
        return LocalSegments(threads if search_device == "cpu" else 1)
    if threads is not None or search_device != "cpu":
        raise ConfigError(
            "threads and search_device are for engine='local': on Ray each actor searches in one thread, and more "
            "shards or replicas take their place"
        )
    from ragembed.indexes.search.ray_search import RaySegments

    return RaySegments(path, address, replicas)


class LocalSegments:
    """Searches the segments one after the other; those that are large at the same time, where queries are few.

    Of a flat one, which is looked through from the first vector to the last, threads take a part each.
    ``threads`` is the most that search at once, None for as many as FAISS takes. For more queries FAISS itself divides
    them among threads, in one segment after the other.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def nearest(self, snapshot: Snapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Search all segments; see :class:`ragembed.indexes.search.snapshot.SegmentSearch`."""
        lock = threading.Lock()

        def postprocess(raw: Floats) -> Floats:
            with lock:  # the database is asked for the embedder
                embedder = snapshot.embedder()
            return embedder.postprocess_documents(raw)

        small: list[Callable[[], SegmentHits]] = []
        large: list[Callable[[], SegmentHits]] = []
        segments = snapshot.segments()
        effort = None if all(segment.flat for segment in segments.values()) else snapshot.effort()
        threads = 1 if len(queries) > FEW_QUERIES else self._threads or most_threads()
        for key, segment in segments.items():
            rows = None if segment.flat else snapshot.rows_of(key)
            if segment.flat and (parts := min(threads, segment.files.rows // _LEAST_PART)) > 1:
                bounds = np.linspace(0, segment.files.rows, parts + 1, dtype=np.int64).tolist()
                large += [partial(search_part, segment, queries, k, mask, *part) for part in pairwise(bounds)]
                continue
            ask = partial(search_segment, segment, queries, k, mask, rows, effort, postprocess)
            (large if segment.files.rows >= _LEAST_ROWS else small).append(ask)
        if threads < 2 or len(large) < 2:
            return [ask() for ask in (*large, *small)]
        others = self._in_threads(large[1:])
        found = [ask() for ask in (large[0], *small)]
        for mine, other in zip(reversed(large), reversed(others), strict=False):  # what no thread has begun with yet
            found.append(mine() if other.cancel() else other.result())
        return found

    def _in_threads(self, asks: Sequence[Callable[[], SegmentHits]]) -> list[Future[SegmentHits]]:
        with self._lock:
            if self._pool is None:
                most = max((self._threads or most_threads()) - 1, 1)
                self._pool = ThreadPoolExecutor(most, thread_name_prefix="ragembed-search")
            return [self._pool.submit(ask) for ask in asks]

    def close(self) -> None:
        """End the threads, each once its search is over; the next search starts others."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None
