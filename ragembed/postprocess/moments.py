"""Means, spreads and principal directions of vectors, in float64, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ragembed.postprocess.protocol import ROUNDING
from ragembed.types import Doubles, Floats

_ROWS = 4096
_FLOAT16_ROUNDING = 2.0**-11


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean of ``count`` vectors, float64, shape ``(d,)``, and the root of their mean squared distance from it."""

    count: int
    mean: Doubles
    spread: float

    @classmethod
    def of(cls, vectors: Floats) -> Moments:
        """Return those of ``vectors``, float32, shape ``(n, d)``, ``n >= 1``."""
        mean = column_means(vectors)
        total = sum(float(np.einsum("ij,ij->", block, block)) for block in _centred(vectors, mean))
        return cls(len(vectors), mean, float(np.sqrt(total / len(vectors))))


@dataclass(frozen=True, slots=True)
class Principal:
    """Principal directions of vectors.

    ``directions`` has a direction in each row, shape ``(d, d)``, widest first; the component of each that is largest
    in absolute value is positive. ``spreads``, shape ``(d,)``, are the standard deviations along them, with ``n - 1``.
    The first ``rank`` of them are more than rounding. ``mean`` has shape ``(d,)``. All are float64.
    """

    mean: Doubles
    directions: Doubles
    spreads: Doubles
    rank: int


def column_means(vectors: Floats) -> Doubles:
    """Return the mean of each dimension of ``vectors``, shape ``(n, d)``."""
    means: Doubles = vectors.mean(axis=0, dtype=np.float64)
    return means


def column_variances(vectors: Floats, mean: Doubles, along: Doubles | None = None) -> Doubles:
    """Return the population variance of each dimension of ``vectors``, shape ``(n, d)``, about ``mean``.

    With ``along``, directions in rows, shape ``(k, d)``, the variance along each of them.
    """
    total = np.zeros(vectors.shape[1] if along is None else len(along))
    for block in _centred(vectors, mean):
        projected = block if along is None else block @ along.T
        total += np.einsum("ij,ij->j", projected, projected)
    return total / len(vectors)


def largest(vectors: Floats) -> Floats:
    """Return the largest absolute value in each dimension of ``vectors``, shape ``(n, d)``."""
    sizes: Floats = np.maximum(vectors.max(axis=0), -vectors.min(axis=0))
    return sizes


def principal(vectors: Floats) -> Principal:
    """Return the principal directions of ``vectors``, shape ``(n, d)``, from the covariance of the dimensions.

    Fewer vectors than dimensions are no special case: the directions left over have spread 0 and are not counted in
    the rank. A spread counts when it is above the rounding of the values: ``ROUNDING`` of the widest spread and of the
    largest absolute value, or where all values are float16's, as those of a store are, its rounding of the latter.
    """
    mean = column_means(vectors)
    scatter = np.zeros((vectors.shape[1], vectors.shape[1]))
    for block in _centred(vectors, mean):
        scatter += block.T @ block
    variances, columns = np.linalg.eigh(scatter / max(len(vectors) - 1, 1))
    directions = np.ascontiguousarray(columns.T[::-1])
    peaks = np.abs(directions).argmax(axis=1)
    directions *= np.sign(directions[np.arange(len(directions)), peaks])[:, None]
    spreads = np.sqrt(np.maximum(variances[::-1], 0.0))
    size = float(largest(vectors).max())
    rounding = ROUNDING * max(spreads[0], size)
    if _are_float16(vectors):
        rounding = max(rounding, _FLOAT16_ROUNDING * size)
    rank = int((spreads > rounding).sum())
    return Principal(mean, directions, spreads, min(rank, len(vectors) - 1))


def _are_float16(vectors: Floats) -> bool:
    """Tell whether every value is one of float16's."""
    blocks = (vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS))
    with np.errstate(over="ignore"):
        return all(np.array_equal(block.astype(np.float16), block) for block in blocks)


def by_blocks(vectors: Floats, function: Callable[[Doubles], Doubles], width: int) -> Floats:
    """Apply ``function`` to float64 blocks of rows of ``vectors``; return their type, shape ``(n, width)``."""
    out = np.empty((len(vectors), width), dtype=vectors.dtype)
    for start in range(0, len(vectors), _ROWS):
        out[start : start + _ROWS] = function(vectors[start : start + _ROWS].astype(np.float64))
    return out


def _centred(vectors: Floats, mean: Doubles) -> Iterator[Doubles]:
    for start in range(0, len(vectors), _ROWS):
        yield vectors[start : start + _ROWS] - mean
