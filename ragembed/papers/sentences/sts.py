"""Semantic textual similarity: correlation of cosines with human judgements.

Source: Stankevičius & Lukoševičius 2024, section 3.5.2: Spearman correlation over all subsets of a year together,
without a regressor. Wang & Kuo 2020 also report the Pearson correlation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.evaluation.inputs import numbers, pair
from ragembed.papers.sentences.correlation import pearson_correlation, spearman_correlation

_DECIMALS = 12
"""Decimals of cosines. Without rounding, equal sentences would be ranked by floating-point errors."""


def spearman(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return the Spearman correlation of cosines and judged similarity, in per cent.

    Parameters
    ----------
    vectors1 : array_like
        Vectors of the first sentences, shape ``(n, d)`` with ``n >= 2``.
    vectors2 : array_like
        Vectors of the second sentences, shape ``(n, d)``.
    scores : array_like
        Judged similarity of each pair, shape ``(n,)``, on any scale.

    Returns
    -------
    float
        Rank correlation, from -100 to 100.

    Raises
    ------
    ConfigError
        If the shapes differ, a value is not finite, or all scores or all cosines are equal.

    Examples
    --------
    >>> from ragembed.papers import spearman
    >>> round(spearman([[1, 0], [1, 0], [1, 0]], [[1, 0], [1, 1], [0, 1]], [5, 4, 0]), 1)
    100.0
    """
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * spearman_correlation(similarities, judged)


def pearson(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return the Pearson correlation of cosines and judged similarity, in per cent.

    Parameters
    ----------
    vectors1 : array_like
        Vectors of the first sentences, shape ``(n, d)`` with ``n >= 2``.
    vectors2 : array_like
        Vectors of the second sentences, shape ``(n, d)``.
    scores : array_like
        Judged similarity of each pair, shape ``(n,)``, on any scale.

    Returns
    -------
    float
        Linear correlation, from -100 to 100.

    Raises
    ------
    ConfigError
        If the shapes differ, a value is not finite, or all scores or all cosines are equal.

    Examples
    --------
    >>> from ragembed.papers import pearson
    >>> round(pearson([[1, 0], [1, 0], [1, 0]], [[1, 0], [1, 1], [0, 1]], [5, 4, 0]), 1)
    99.5
    """
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * pearson_correlation(similarities, judged)


def cosines(vectors1: ArrayLike, vectors2: ArrayLike) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, rounded to 12 decimals.

    Parameters
    ----------
    vectors1, vectors2 : array_like
        Vectors, shape ``(n, d)`` with ``n >= 1``.

    Returns
    -------
    numpy.ndarray
        Cosines, float64, shape ``(n,)``; the cosine of a zero vector is 0.

    Raises
    ------
    ConfigError
        If the shapes differ or a value is not finite.

    Examples
    --------
    >>> from ragembed.papers import cosines
    >>> cosines([[1, 0], [3, 4]], [[0, 1], [3, 4]]).tolist()
    [0.0, 1.0]
    """
    first, second = pair(vectors1, vectors2)
    products = np.einsum("nd,nd->n", first, second)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    similarities: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0.0)
    return similarities.round(_DECIMALS)


def _similarities_and_scores(
    vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    similarities = cosines(vectors1, vectors2)
    return similarities, numbers(scores, "scores", len(similarities))
