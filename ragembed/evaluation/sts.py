"""Semantic textual similarity: how well the cosine of two sentences follows human judgement.

Source: Stankevičius & Lukoševičius 2024, section 3.5.2: Spearman over all subsets of a year pooled, no regressor.
Pearson is what Wang & Kuo 2020 report beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.evaluation.correlation import pearson_correlation, spearman_correlation
from ragembed.evaluation.inputs import numbers, pair

_DECIMALS = 12
"""Of a cosine. Equal sentences have the cosine 1 but for rounding, which must not rank them."""


def spearman(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return Spearman's correlation of the pairs' cosines with their scores, in per cent.

    Parameters
    ----------
    vectors1, vectors2
        The vectors of the first and of the second sentences, shape ``(n, d)``, ``n >= 2``.
    scores
        The judged similarity of each pair, shape ``(n,)``, on any scale.

    Raises
    ------
    ConfigError
        Where shapes differ, values are not finite, or all scores or all cosines are equal: the correlation is not
        defined then.
    """
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * spearman_correlation(similarities, judged)


def pearson(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return Pearson's correlation of the pairs' cosines with their scores, in per cent; else as :func:`spearman`."""
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * pearson_correlation(similarities, judged)


def cosines(vectors1: ArrayLike, vectors2: ArrayLike) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, shape ``(n,)``, to 12 decimals; that of a zero vector is 0.

    Both sides have the shape ``(n, d)``; raises ConfigError where shapes differ or values are not finite.
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
