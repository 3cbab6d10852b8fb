"""How evenly vectors use their space: IsoScore, alignment and uniformity. Nothing is normalised here."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import Vectors, matrix, pair

_BLOCK_ROWS = 4096
_BLOCK_CELLS = 1 << 21


def iso_score(vectors: ArrayLike) -> float:
    """Return IsoScore: 1 where the variance is the same in all directions, 0 where one direction has it all.

    Source: Rudman et al. 2022. With λ the variances of the d principal components, λ̂ = √d·λ/‖λ‖,
    δ = ‖λ̂ - 1‖/√(2(d - √d)), φ = (d - δ²(d - √d))²/d² and the score (dφ - 1)/(d - 1). As ‖λ̂‖² = d, this is
    ‖λ̂ - 1‖² = 2d - 2·Σλ̂, so φ = (Σλ̂)²/d² = (Σλ)²/(d·‖λ‖²), and the score ((Σλ)²/‖λ‖² - 1)/(d - 1). Both sums
    can be had from the covariance C without its eigenvalues: Σλ is its trace, ‖λ‖ its Frobenius norm.

    Parameters
    ----------
    vectors
        Shape ``(n, d)``, ``n >= 2`` and ``d >= 2``. ``n`` rows vary in ``n - 1`` directions at most, so far fewer rows
        than dimensions have a low score whatever they are.

    Raises
    ------
    ConfigError
        Where values are not finite, there are too few rows or dimensions, or all vectors are equal.
    """
    points = matrix(vectors, "vectors", least=2)
    dimensions = points.shape[1]
    if dimensions < 2:
        raise ConfigError("vectors have 1 dimension: IsoScore is defined for at least 2")
    if (points == points[0]).all():
        raise ConfigError(f"all {len(points)} vectors are equal: IsoScore needs some variance")
    scatter = _scatter(points)
    scatter /= np.trace(scatter)
    return float((1.0 / np.square(scatter).sum() - 1.0) / (dimensions - 1))


def alignment(vectors1: ArrayLike, vectors2: ArrayLike) -> float:
    """Return the mean squared distance of positive pairs, E‖f(x) - f(y)‖² (Wang & Isola 2020); smaller is better.

    Both sides have the shape ``(n, d)``, ``n >= 1``; raises ConfigError where shapes differ or values are not finite.
    """
    first, second = pair(vectors1, vectors2)
    return float(np.square(first - second).sum(axis=1).mean())


def uniformity(vectors: ArrayLike, t: float = 2.0) -> float:
    """Return log E exp(-t‖f(x) - f(y)‖²) over the distinct pairs of rows (Wang & Isola 2020); smaller is better.

    It is a log-sum-exp, as the plain mean underflows to 0 for vectors far apart. Rows are paired in blocks: beside a
    float64 copy of the vectors it needs some dozens of megabytes.

    Parameters
    ----------
    vectors
        Shape ``(n, d)``, ``n >= 2``. Each of the n(n - 1)/2 pairs of two rows counts once, those of equal vectors too.
    t
        Above 0.

    Raises
    ------
    ConfigError
        Where values are not finite, there is one row only, or ``t`` is not a number above 0.
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
        # A row is paired with the later ones only.
        exponents[np.tril_indices(len(exponents), m=exponents.shape[1])] = -math.inf
        greatest = exponents.max()
        exponents -= greatest
        total = np.logaddexp(total, greatest + np.log(np.exp(exponents, out=exponents).sum()))
    return float(total - math.log(len(points) * (len(points) - 1) / 2))


def _scatter(points: Vectors) -> NDArray[np.float64]:
    """Return the sum of the centred vectors' outer products, float64, shape ``(d, d)``."""
    mean = points.mean(axis=0, dtype=np.float64)
    total = np.zeros((len(mean), len(mean)))
    for start in range(0, len(points), _BLOCK_ROWS):
        centred = points[start : start + _BLOCK_ROWS] - mean
        total += centred.T @ centred
    return total
