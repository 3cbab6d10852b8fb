"""Exact nearest-neighbour search, the basis of the retrieval measures."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, matrix

_BLOCK_CELLS = 1 << 24


def search(queries: ArrayLike, documents: ArrayLike, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the scores and rows of the ``k`` documents with the largest inner product for each query, best first.

    Both results have the shape ``(q, min(k, n))``. Documents with equal scores are in the order of their rows.
    Candidates come from a float32 matrix product, block by block. Its rounding errors depend on the position of a row,
    so all candidates within the error of the k-th are scored again in float64, one by one; equal vectors then have
    equal scores.
    """
    query_vectors, document_vectors = _single(queries, "queries"), _single(documents, "documents")
    if query_vectors.shape[1] != document_vectors.shape[1]:
        raise ConfigError(
            f"queries have {query_vectors.shape[1]} dimensions and documents {document_vectors.shape[1]}: expected the "
            "same"
        )
    width = min(at_least(k, 1, "k"), len(document_vectors))
    slack = _slack(query_vectors, document_vectors)
    scores = np.empty((len(query_vectors), width))
    rows = np.empty((len(query_vectors), width), dtype=np.int64)
    step = max(1, _BLOCK_CELLS // len(document_vectors))
    for start in range(0, len(query_vectors), step):
        products = query_vectors[start : start + step] @ document_vectors.T  # (step, n)
        least = np.partition(products, len(document_vectors) - width, axis=1)[:, len(document_vectors) - width]
        for query, (row, bound) in enumerate(zip(products, least, strict=True), start):
            candidates = np.flatnonzero(row >= float(bound) - slack[query])
            exact = (document_vectors[candidates].astype(np.float64) * query_vectors[query]).sum(axis=1)
            best = np.argsort(-exact, kind="stable")[:width]
            scores[query], rows[query] = exact[best], candidates[best]
    return scores, rows


def _single(values: ArrayLike, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(matrix(values, name), dtype=np.float32)
    matrix(single, f"{name}, as float32,")
    return single


def _slack(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, for each query, twice the largest error of a float32 inner product with a document.

    The error of a sum of d products in any order is at most d·ε·‖q‖·‖x‖, plus the smallest normal number for each
    product that underflows.
    """
    limits = np.finfo(np.float32)
    lengths = _lengths(queries) * _lengths(documents).max()
    # A quarter of the range leaves room for the difference of two such numbers.
    if lengths.max() > float(limits.max) / 4.0:
        raise ConfigError(
            f"inner products could reach {lengths.max():.1e}, which exceeds float32: normalise the vectors"
        )
    dimensions = queries.shape[1]
    slack: NDArray[np.float64] = 2.0 * dimensions * (float(limits.eps) * lengths + float(limits.tiny))
    return slack


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return lengths
