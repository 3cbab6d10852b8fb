"""Measures of how evenly vectors fill their space: IsoScore, alignment and uniformity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import Vectors, matrix, pair

_BLOCK_ROWS = 4096
_BLOCK_CELLS = 1 << 21


def iso_score(vectors: ArrayLike) -> float:
    """Return the IsoScore of Rudman et al. 2022: 1 if the variance is equal in all directions, 0 if one has all of it.

    With λ the variances of the d principal components, it is ((Σλ)²/‖λ‖² - 1)/(d - 1), which follows from the
    covariance without eigenvalues: Σλ is its trace, and ‖λ‖ its Frobenius norm. Few rows always have a low score.
    """
    points = matrix(vectors, "vectors", least=2)
    dimensions = points.shape[1]
    if dimensions < 2:
        raise ConfigError("vectors have 1 dimension: IsoScore needs at least 2")
    if (points == points[0]).all():
        raise ConfigError(f"all {len(points)} vectors are equal: IsoScore needs some variance")
    scatter = _scatter(points)
    scatter /= np.trace(scatter)
    return float((1.0 / np.square(scatter).sum() - 1.0) / (dimensions - 1))


def alignment(vectors1: ArrayLike, vectors2: ArrayLike) -> float:
    """Return the mean squared distance of positive pairs of vectors, E‖f(x) - f(y)‖² (Wang & Isola 2020)."""
    first, second = pair(vectors1, vectors2)
    return float(np.square(first - second).sum(axis=1).mean())


def uniformity(vectors: ArrayLike, t: float = 2.0) -> float:
    """Return log E exp(-t‖f(x) - f(y)‖²) over all pairs of rows of shape ``(n, d)`` (Wang & Isola 2020).

    It is computed as a log-sum-exp, because the plain mean underflows to 0 for distant vectors, and in blocks of rows.
    """
    if not (math.isfinite(t) and t > 0.0):
        raise ConfigError(f"t is {t}: expected a number above 0")
    points = matrix(vectors, "vectors", least=2).astype(np.float64)
    lengths = np.square(points).sum(axis=1)
    rows = max(1, _BLOCK_CELLS // len(points))
    total = -math.inf
    for start in range(0, len(points) - 1, rows):
        block = slice(start, start + rows)
        exponents = points[block] @ points[start:].T  # (rows, n - start)
        exponents *= 2.0
        exponents -= lengths[block, None]
        exponents -= lengths[start:]
        np.minimum(exponents, 0.0, out=exponents)
        exponents *= t
        # Each row is paired only with later rows.
        exponents[np.tril_indices(len(exponents), m=exponents.shape[1])] = -math.inf
        greatest = exponents.max()
        exponents -= greatest
        total = np.logaddexp(total, greatest + np.log(np.exp(exponents, out=exponents).sum()))
    return float(total - math.log(len(points) * (len(points) - 1) / 2))


def _scatter(points: Vectors) -> NDArray[np.float64]:
    """Return the sum of the outer products of the centred vectors, float64, shape ``(d, d)``."""
    mean = points.mean(axis=0, dtype=np.float64)
    total = np.zeros((len(mean), len(mean)))
    for start in range(0, len(points), _BLOCK_ROWS):
        centred = points[start : start + _BLOCK_ROWS] - mean
        total += centred.T @ centred
    return total
