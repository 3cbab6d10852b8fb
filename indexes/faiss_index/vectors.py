"""Vectors read in blocks, from memory or from files, and their inner products, for few and for many queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.faiss_index.records import faiss
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats, Integers

_BLOCK_BYTES = 16 * 1024**2
_QUERIES = 512
_LEAST_SUMMED_ALIKE = 16
"""Dimension from which FAISS's fastest inner products, of one query, equal those of its searches to the last bit."""

PartSearch: TypeAlias = "Callable[[], tuple[Floats, Rows]]"
"""Searches one part of an index: the inner products and the rows of the nearest vectors in it, shape ``(n, k)``."""


class Vectors(Protocol):
    """Unit vectors in order of position; arrays are float32, C-order, shape ``(n, dim)``."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        ...

    def __len__(self) -> int:
        """Return the number of vectors."""
        ...

    def block(self, start: int, stop: int) -> Floats:
        """Return the vectors at positions ``start`` (inclusive) to ``stop`` (exclusive)."""
        ...

    def at(self, positions: Rows) -> Floats:
        """Return the vectors at ``positions``, int64, shape ``(n,)``."""
        ...


class ArrayVectors:
    """Unit vectors in memory, float32, shape ``(n, dim)``."""

    def __init__(self, array: Floats) -> None:
        self._array = array

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self._array.shape[1])

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._array)

    def block(self, start: int, stop: int) -> Floats:
        """Return the vectors at positions ``start`` (inclusive) to ``stop`` (exclusive)."""
        return np.ascontiguousarray(self._array[start:stop], dtype=np.float32)

    def at(self, positions: Rows) -> Floats:
        """Return the vectors at ``positions``, int64, shape ``(n,)``."""
        return np.ascontiguousarray(self._array[positions], dtype=np.float32)


def vector_blocks(vectors: Vectors, size: int | None = None) -> Iterator[tuple[int, Floats]]:
    """Yield the first position and the vectors of each block of ``size`` vectors, by default 16 MiB."""
    step = size or rows_in(_BLOCK_BYTES, vectors.dim)
    for start in range(0, len(vectors), step):
        yield start, vectors.block(start, min(start + step, len(vectors)))


def inner_products(queries: Floats, vectors: Floats) -> Floats:
    """Return the inner products, shape ``(n, m)``, of ``queries``, shape ``(n, d)``, and ``vectors``, shape ``(m, d)``.

    Unlike in NumPy's matrix product, a vector's product does not depend on its position, to the last bit.
    """
    if not faiss.is_installed():
        return dot_products(queries, vectors)
    products = np.empty((len(queries), len(vectors)), dtype=np.float32)
    if not products.size:
        return products
    if queries.shape[1] < _LEAST_SUMMED_ALIKE:
        nearest, positions = faiss.knn(queries, vectors, len(vectors), faiss.METRIC_INNER_PRODUCT)
        np.put_along_axis(products, positions, nearest, axis=1)
        return products
    queries, vectors = (np.ascontiguousarray(array, dtype=np.float32) for array in (queries, vectors))
    for query, own in zip(queries, products, strict=True):
        faiss.fvec_inner_products_ny(*map(faiss.swig_ptr, (own, query, vectors)), queries.shape[1], len(vectors))
    return products


def dot_products(queries: Floats, vectors: Floats) -> Floats:
    """Return the same products as :func:`inner_products`, computed without FAISS."""
    products: Floats = np.einsum("nd,md->nm", queries, vectors)  # sums every dot product in the same order
    return products


def nearest(queries: Floats, vectors: Floats, k: int, leave_out: Rows | None = None) -> tuple[Rows, Floats]:
    """Return the positions and the inner products of the ``k`` nearest vectors of each query, best first.

    Their shape is ``(n, min(k, m))``. ``leave_out``, shape ``(n,)``, has the position of a vector that does not count
    for a query.
    """
    k = min(k, len(vectors))
    positions = np.empty((len(queries), k), dtype=np.int64)
    products = np.empty((len(queries), k), dtype=np.float32)
    for start in range(0, len(queries), _QUERIES):
        part = slice(start, start + _QUERIES)
        scores = queries[part] @ vectors.T
        if leave_out is not None:
            scores[np.arange(len(scores)), leave_out[part]] = -np.inf
        last = scores.shape[1] - k
        found = np.sort(np.argpartition(scores, min(last, scores.shape[1] - 1), axis=1)[:, last:])
        products[part], positions[part] = k_best(np.take_along_axis(scores, found, axis=1), found, k)
    return positions, products


def places_in(ascending: Rows, wanted: Rows) -> Rows:
    """Return the place of each of ``wanted`` in ``ascending``, or any place if it is not there.

    ``ascending`` has one integer or more, each greater than the one before.
    """
    last = len(ascending) - 1
    if ascending[last] - ascending[0] == last:
        places: Rows = np.clip(wanted - ascending[0], 0, last)
        return places
    return np.minimum(np.searchsorted(ascending, wanted), last)


def among(numbers: Integers, ascending: Integers) -> Bools:
    """Return for each of ``numbers``, shape ``(n,)``, whether it is in ``ascending``."""
    if len(ascending) == 0:
        return np.zeros(len(numbers), dtype=bool)
    return np.asarray(ascending[places_in(ascending, numbers)] == numbers)


def ranges(total: int, parts: int) -> list[tuple[int, int]]:
    """Return the bounds of ``parts`` ranges that cover the positions below ``total``, of nearly equal size."""
    return list(pairwise(np.linspace(0, total, parts + 1, dtype=np.int64).tolist()))


def k_best(scores: Floats, rows: Rows, k: int) -> tuple[Floats, Rows]:
    """Return the ``k`` best scores of each query and their rows; of equal scores, the first."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    query = np.arange(len(scores))[:, None]  # ten times as fast as take_along_axis for one query
    return scores[query, best], rows[query, best]


def rows_in(size: int, dim: int) -> int:
    """Return the number of float32 vectors of dimension ``dim`` that fit into ``size`` bytes, at least 1."""
    return max(1, size // (4 * dim))


def stratified(total: int, count: int, seed: int) -> Rows:
    """Draw ``count`` positions below ``total``, one at random from each of ``count`` equal strata, in ascending order.

    Neighbours in a store come from the same document, so a stratified sample covers all documents.
    """
    if total <= count:
        return np.arange(total, dtype=np.int64)
    bounds = np.linspace(0, total, count + 1).astype(np.int64)
    drawn = np.random.default_rng(seed).random(count)
    return np.asarray(bounds[:-1] + (drawn * np.diff(bounds)).astype(np.int64))


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
    d)``.
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
