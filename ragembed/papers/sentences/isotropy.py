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
    """Return the IsoScore: 1 if the variance is equal in all directions, 0 if one direction has all of it.

    Parameters
    ----------
    vectors : array_like
        Shape ``(n, d)`` with ``n >= 2`` and ``d >= 2``; they are not normalised. Use more rows than dimensions: ``n``
        rows vary in at most ``n - 1`` directions, so few rows always have a low score.

    Returns
    -------
    float
        The score, from 0 to 1.

    Raises
    ------
    ConfigError
        If a value is not finite, there are too few rows or dimensions, or all vectors are equal.

    Notes
    -----
    Source: Rudman et al. 2022. With λ the variances of the d principal components, λ̂ = √d·λ/‖λ‖,
    δ = ‖λ̂ - 1‖/√(2(d - √d)) and φ = (d - δ²(d - √d))²/d², the score is (dφ - 1)/(d - 1). Because ‖λ̂‖² = d,
    ‖λ̂ - 1‖² = 2d - 2·Σλ̂. Therefore φ = (Σλ̂)²/d² = (Σλ)²/(d·‖λ‖²), and the score is ((Σλ)²/‖λ‖² - 1)/(d - 1). Both sums
    follow from the covariance without its eigenvalues: Σλ is its trace, and ‖λ‖ its Frobenius norm.

    Examples
    --------
    >>> from ragembed.papers import iso_score
    >>> round(iso_score([[1, 0], [-1, 0], [0, 1], [0, -1]]), 6)
    1.0
    >>> round(iso_score([[1, 0], [-1, 0]]), 6)
    0.0
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
    """Return the alignment: the mean squared distance of positive pairs, E‖f(x) - f(y)‖².

    Source: Wang & Isola 2020. Smaller values are better.

    Parameters
    ----------
    vectors1 : array_like
        Vectors of the first text of each pair, shape ``(n, d)`` with ``n >= 1``. They are not normalised.
    vectors2 : array_like
        Vectors of the second text of each pair, shape ``(n, d)``. They are not normalised.

    Returns
    -------
    float
        The mean squared distance, 0 or more.

    Raises
    ------
    ConfigError
        If the shapes differ or a value is not finite.

    Examples
    --------
    >>> from ragembed.papers import alignment
    >>> alignment([[1.0, 0.0]], [[0.0, 1.0]])
    2.0
    """
    first, second = pair(vectors1, vectors2)
    return float(np.square(first - second).sum(axis=1).mean())


def uniformity(vectors: ArrayLike, t: float = 2.0) -> float:
    """Return the uniformity: log E exp(-t‖f(x) - f(y)‖²) over all pairs of rows.

    Source: Wang & Isola 2020. Smaller values are better. The result is computed as a log-sum-exp, because the plain
    mean underflows to 0 for distant vectors. Rows are compared in blocks; apart from a float64 copy of the vectors this
    takes some tens of megabytes.

    Parameters
    ----------
    vectors : array_like
        Shape ``(n, d)`` with ``n >= 2``. They are not normalised. Each of the n(n - 1)/2 pairs of rows counts once,
        including pairs of equal vectors.
    t : float
        Scale of the distances, above 0.

    Returns
    -------
    float
        The uniformity, 0 or less.

    Raises
    ------
    ConfigError
        If a value is not finite, there is only one row, or ``t`` is not above 0.

    Examples
    --------
    >>> from ragembed.papers import uniformity
    >>> uniformity([[1.0, 0.0], [0.0, 1.0]])
    -4.0
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
