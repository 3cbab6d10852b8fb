"""What this machine can do, measured in a moment."""

from __future__ import annotations

import os
import time

import numpy as np

from ragembed.indexes.ann.costs import Machine
from ragembed.indexes.ann.library import faiss

_SCANNED_BYTES = 64 * 1024**2
_RUNS = 5
_MEMORY_SHARE = 0.5
_UNKNOWN_MEMORY = 8 * 1024**3


def measure_machine(dim: int) -> Machine:
    """Measure how fast one thread scans vectors of dimension ``dim``, and how much memory may be used for building."""
    vectors = np.ones((_SCANNED_BYTES // (4 * dim) or 1, dim), dtype=np.float32)
    return Machine(_scan_ns("Flat", vectors), _scan_ns("SQfp16", vectors), int(_MEMORY_SHARE * _memory()))


def _scan_ns(factory: str, vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:1])
    index.add(vectors)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        best = min(_seconds(index, vectors[:1]) for _ in range(_RUNS))
    finally:
        faiss.omp_set_num_threads(threads)
    return best * 1e9 / vectors.size


def _seconds(index: faiss.Index, query: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    started = time.perf_counter()
    index.search(query, 10)
    return time.perf_counter() - started


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no such call on this system
        return _UNKNOWN_MEMORY
