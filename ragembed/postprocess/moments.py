"""Means, variances and principal directions of vectors, computed in float64 in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ragembed.postprocess.protocol import ROUNDING
from ragembed.types import Doubles, Floats

_ROWS = 4096
_FLOAT16_ROUNDING = 2.0**-11


@dataclass(frozen=True, slots=True)
class Principal:
    """Principal directions of some vectors. All arrays are float64."""

    mean: Doubles  # (d,)
    directions: Doubles  # (d, d), one per row, largest spread first; the largest absolute component of each is positive
    spreads: Doubles  # (d,), standard deviations along the directions, with n - 1
    rank: int  # number of leading spreads that are larger than rounding


def column_means(vectors: Floats) -> Doubles:
    """Return the mean of each dimension of ``vectors``, shape ``(n, d)``."""
    means: Doubles = vectors.mean(axis=0, dtype=np.float64)
    return means


def column_variances(vectors: Floats, mean: Doubles, along: Doubles | None = None) -> Doubles:
    """Return the population variance of each dimension of ``vectors``, shape ``(n, d)``, about ``mean``.

    If ``along`` is given, with one direction per row, shape ``(k, d)``, return the variance along each direction.
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


def principal(vectors: Floats, *, centred: bool = True) -> Principal:
    """Return the principal directions of ``vectors``, shape ``(n, d)``; right singular vectors unless ``centred``.

    A direction counts in the rank if its spread exceeds the rounding of the values: ``ROUNDING`` times the largest
    spread and value, and the rounding of float16 if all values are representable in it, as in a store.
    """
    mean = column_means(vectors) if centred else np.zeros(vectors.shape[1])
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
    return Principal(mean, directions, spreads, min(rank, len(vectors) - 1 if centred else len(vectors)))


def _are_float16(vectors: Floats) -> bool:
    """Return whether every value is representable in float16."""
    blocks = (vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS))
    with np.errstate(over="ignore"):
        return all(np.array_equal(block.astype(np.float16), block) for block in blocks)


def by_blocks(vectors: Floats, function: Callable[[Doubles], Doubles], width: int) -> Floats:
    """Apply ``function`` to blocks of rows in float64; return the type of ``vectors``, shape ``(n, width)``."""
    out = np.empty((len(vectors), width), dtype=vectors.dtype)
    for start in range(0, len(vectors), _ROWS):
        out[start : start + _ROWS] = function(vectors[start : start + _ROWS].astype(np.float64))
    return out


def _centred(vectors: Floats, mean: Doubles) -> Iterator[Doubles]:
    """Yield blocks of rows minus ``mean``, in float64."""
    for start in range(0, len(vectors), _ROWS):
        yield vectors[start : start + _ROWS] - mean
