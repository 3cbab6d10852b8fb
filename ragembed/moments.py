"""Mean and spread of the vectors that an embedder was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean of ``count`` vectors, float64, shape ``(d,)``, and the root of their mean squared distance from it."""

    count: int
    mean: NDArray[np.float64]
    spread: float

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> Moments:
        """Return those of ``vectors``, float32, shape ``(n, d)``, ``n >= 1``."""
        mean = vectors.mean(axis=0, dtype=np.float64)
        total = 0.0
        for start in range(0, len(vectors), _ROWS):
            block = vectors[start : start + _ROWS] - mean
            total += float(np.einsum("ij,ij->", block, block))
        return cls(len(vectors), mean, float(np.sqrt(total / len(vectors))))
