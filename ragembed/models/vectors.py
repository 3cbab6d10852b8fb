"""Check vectors that another program made, and scale them to unit length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.types import Floats

_BLOCK = 4096
"""Number of vectors to normalise together, in float64."""


def checked_vectors(vectors: Sequence[Sequence[float]], count: int, model: str) -> Floats:
    """Return ``vectors`` scaled to unit length, float32, shape ``(count, d)``, or raise :class:`ConfigError`."""
    if len(vectors) != count:
        raise ConfigError(f"{model} returned {len(vectors)} vectors for {count} texts: expected one per text")
    if count == 0:
        return np.zeros((0, 0), dtype=np.float32)
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1 or lengths[0] == 0:
        raise ConfigError(
            f"{model} returned vectors of {' and '.join(map(str, lengths))} values: expected the same length above 0"
        )
    unit = np.empty((count, lengths[0]), dtype=np.float32)
    for start in range(0, count, _BLOCK):
        unit[start : start + _BLOCK] = _unit(vectors[start : start + _BLOCK], start, model)
    return unit


def _unit(vectors: Sequence[Sequence[float]], first: int, model: str) -> NDArray[np.float64]:
    rows = np.array(vectors, dtype=np.float64)
    if rows.ndim != 2:
        raise ConfigError(f"{model} returned vectors of shape {rows.shape[1:]}: expected one-dimensional vectors")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise ConfigError(
            f"{model} returned {rows[row, column]} as value {column} of vector {first + row}: expected finite numbers"
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.where(largest == 0.0, 1.0, largest)  # so that no square overflows
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms == 0.0, 1.0, norms))
