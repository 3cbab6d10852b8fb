"""Exhaustive search for many queries: each block of vectors is read once and multiplied with all queries.

A matrix product takes a third of the time of single products. Its sums differ in the last bits with the number of
queries, so callers rank the results by exact products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

_BLOCK = 4096
_SAMPLED, _MORE = 8192, 16
_LEAST_VECTORS, _LEAST_SHARE = 4096, 8
"""Least number of vectors, and of vectors per result, for which an estimate of the lowest score saves time."""


def can_estimate(vectors: int, k: int) -> bool:
    """Return whether :func:`above_estimate` is faster than other methods for so many vectors and results."""
    return vectors >= max(_LEAST_VECTORS, _LEAST_SHARE * k)


def above_estimate(
    queries: Floats, k: int, codes: NDArray[Any], centre: float, selected: Bools | None
) -> tuple[Floats, list[Rows], list[Floats]]:
    """Return for each query a score that more than ``k`` vectors probably reach, and the vectors that reach it.

    The score of a vector is the product of the query, shape ``(n, d)``, with ``codes - centre``, whose shape is ``(m,
    d)``. ``selected`` says for each position whether it may be returned; None allows all. The results are the lowest
    scores, shape ``(n,)``, and for each query the positions, ascending, and their scores.
    """
    step = max(1, len(codes) // _SAMPLED)
    sample = _products(queries, codes[::step], centre, None if selected is None else selected[::step])
    rank = min(2 * k // step + _MORE, len(sample))
    estimated = np.partition(sample, len(sample) - rank, axis=0)[len(sample) - rank]
    lowest: Floats = np.maximum(estimated, np.finfo(np.float32).min)  # more than the score of what is not selected
    at, of_query, values = [], [], []
    for start in range(0, len(codes), _BLOCK):
        block = slice(start, start + _BLOCK)
        products = _products(queries, codes[block], centre, None if selected is None else selected[block])
        high = np.flatnonzero(products >= lowest)
        at.append(start + high // len(queries))
        of_query.append(high % len(queries))
        values.append(products.ravel()[high])
    numbers = np.concatenate(of_query)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(queries)))[:-1]
    positions, scores = np.concatenate(at)[order], np.concatenate(values)[order]
    return lowest, np.split(positions, ends), np.split(scores, ends)


def _products(queries: Floats, codes: NDArray[Any], centre: float, selected: Bools | None) -> Floats:
    """Return the products of all codes and queries, shape ``(m, n)``; minus infinity for others than ``selected``."""
    vectors = (
        np.subtract(codes, np.float32(centre), dtype=np.float32)
        if centre
        else np.require(codes, np.float32, ["C", "ALIGNED"])
    )
    products: Floats = vectors @ queries.T
    if selected is not None:
        products[~selected] = -np.inf
    return products
