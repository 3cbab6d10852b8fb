"""Exact nearest vectors, as the reference that measures of retrieval start from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, matrix

_BLOCK_CELLS = 1 << 24


def search(queries: ArrayLike, documents: ArrayLike, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the ``k`` documents with the greatest inner product with each query, best first; of equals the lower row.

    A matrix product in float32 finds the candidates, block by block; its rounding depends on where in the matrix a row
    stands. So all within its error of the k-th are scored again in float64, each alone: equal vectors tie.

    Parameters
    ----------
    queries, documents
        Shapes ``(q, d)`` and ``(n, d)``, ``q >= 1`` and ``n >= 1``; taken as float32. Nothing is normalised here.
    k
        1 or more; where there are fewer documents, all are returned.

    Returns
    -------
    Scores and rows of the documents, float64 and int64, both of shape ``(q, min(k, n))``.

    Raises
    ------
    ConfigError
        Where dimensions differ, values are not finite, or an inner product may leave the range of float32.
    """
    asked, stored = _single(queries, "queries"), _single(documents, "documents")
    if asked.shape[1] != stored.shape[1]:
        raise ConfigError(
            f"queries have {asked.shape[1]} dimensions and documents {stored.shape[1]}: expected the same"
        )
    width = min(at_least(k, 1, "k"), len(stored))
    slack = _slack(asked, stored)
    scores = np.empty((len(asked), width))
    rows = np.empty((len(asked), width), dtype=np.int64)
    step = max(1, _BLOCK_CELLS // len(stored))
    for start in range(0, len(asked), step):
        products = asked[start : start + step] @ stored.T  # (step, n)
        least = np.partition(products, len(stored) - width, axis=1)[:, len(stored) - width]
        for query, (row, bound) in enumerate(zip(products, least, strict=True), start):
            candidates = np.flatnonzero(row >= float(bound) - slack[query])
            exact = (stored[candidates].astype(np.float64) * asked[query]).sum(axis=1)
            best = np.argsort(-exact, kind="stable")[:width]
            scores[query], rows[query] = exact[best], candidates[best]
    return scores, rows


def _single(values: ArrayLike, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(matrix(values, name), dtype=np.float32)
    matrix(single, f"{name}, as float32,")
    return single


def _slack(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, for each query, twice the greatest error that a float32 inner product with a document can have.

    It is d·ε·‖q‖·‖x‖ for a sum of d products in any order, and the smallest normal number for each that underflows.
    """
    limits = np.finfo(np.float32)
    lengths = _lengths(queries) * _lengths(documents).max()
    # A quarter leaves room for the difference of two such numbers.
    if lengths.max() > float(limits.max) / 4.0:
        raise ConfigError(f"inner products may reach {lengths.max():.1e}, too much for float32: normalise the vectors")
    dimensions = queries.shape[1]
    slack: NDArray[np.float64] = 2.0 * dimensions * (float(limits.eps) * lengths + float(limits.tiny))
    return slack


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return lengths
