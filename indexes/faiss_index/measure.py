"""Measure the recall of an approximate search, and find the smallest effort that reaches a wanted recall."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.evaluation.retrieval import paired_bootstrap
from ragembed.indexes.faiss_index.index import USUAL_K
from ragembed.indexes.faiss_index.records import Recall
from ragembed.indexes.faiss_index.vectors import Vectors, best_products, blocks
from ragembed.types import Floats

Search = Callable[[Floats, int], Floats]
"""Maps queries, shape ``(n, d)``, and k to the scores of the results, shape ``(n, at most k)``, best first."""

MOST_EFFORT = 16_384
"""The highest effort that tuning tries."""

K = 10
"""The number of nearest neighbours in recall@10."""

LEAST_QUERIES = 2
"""Minimum number of queries for a measurement: fewer give no confidence interval."""

_LEAST_EFFORT, _STEP, _STEPS_TO_DOUBLE = 1, 1.15, 5
_TIE = 2e-6
_TIMED_QUERIES, _RUNS = 100, 3


@dataclass(frozen=True, slots=True)
class Truth:
    """Queries, unit vectors of shape ``(n, d)``, and the score of the k-th nearest vector to each, shape ``(n,)``."""

    queries: Floats
    kth: Floats
    k: int


def exact(parts: Iterable[tuple[Vectors, NDArray[np.bool_] | None]], queries: Floats) -> Truth:
    """Find the scores of the ten nearest vectors by exhaustive search, block by block.

    ``parts`` are pairs of vectors and a mask of the positions that count, None for all. With fewer than ten vectors,
    k is their number.
    """
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    for vectors, allowed in parts:
        for start, block in blocks(vectors):
            kept = block if allowed is None else np.ascontiguousarray(block[allowed[start : start + len(block)]])
            if len(kept):
                best = -np.sort(-np.hstack([best, best_products(queries, kept, K)]), axis=1)[:, :K]
    k = int(np.isfinite(best[0]).sum()) if len(queries) else 0
    return Truth(queries, best[:, k - 1] if k else np.zeros(len(queries), dtype=np.float32), k)


def recall(search: Search, truth: Truth) -> Recall:
    """Measure recall@10 with its percentile bootstrap; a vector that ties with the tenth nearest counts as found."""
    scores = search(truth.queries, USUAL_K)[:, : truth.k]
    shares = (scores >= truth.kth[:, None] - _TIE).sum(axis=1) / truth.k
    resampled = paired_bootstrap(shares, np.zeros(len(shares)))
    return Recall(float(shares.mean()), min(resampled.low, 1.0), min(resampled.high, 1.0), len(shares))


def least_effort(
    search: Callable[[int], Search], most: int, truth: Truth, wanted: float, limit_ms: float = math.inf
) -> int:
    """Return the smallest effort whose recall interval starts at ``wanted`` or above, or ``most`` if none does.

    ``search`` maps an effort to its search. The effort doubles until the recall suffices or a query takes longer than
    ``limit_ms``; then bisection finds the smallest one, on a ladder in steps of 15 %.
    """
    ladder = [_LEAST_EFFORT]
    while ladder[-1] < most:
        ladder.append(min(max(ladder[-1] + 1, int(ladder[-1] * _STEP)), most))
    low = high = 0
    while True:
        started = time.perf_counter()
        if recall(search(ladder[high]), truth).low >= wanted:
            break
        slow = 1e3 * (time.perf_counter() - started) > limit_ms * len(truth.queries)
        if slow or high == len(ladder) - 1:
            return min(ladder[high], most)
        low, high = high + 1, min(high + _STEPS_TO_DOUBLE, len(ladder) - 1)
    while low < high:
        middle = (low + high) // 2
        if recall(search(ladder[middle]), truth).low >= wanted:
            high = middle
        else:
            low = middle + 1
    return min(ladder[low], most)


def tuned_effort(
    search: Callable[[int], Search], most: int, truth: Truth, wanted: float, limit_ms: float = math.inf
) -> int | None:
    """Return the result of :func:`least_effort`, or None for an exhaustive index, which has no effort."""
    return least_effort(search, min(most, MOST_EFFORT), truth, wanted, limit_ms) if most else None


def latency_ms(search: Search, queries: Floats) -> float:
    """Return the 95th percentile, over up to 100 ``queries``, of the shortest of three times for one query, in ms."""
    times = [min(_seconds(search, query[None, :]) for _ in range(_RUNS)) for query in queries[:_TIMED_QUERIES]]
    return 1e3 * float(np.percentile(times, 95))


def _seconds(search: Search, query: Floats) -> float:
    started = time.perf_counter()
    search(query, USUAL_K)
    return time.perf_counter() - started
