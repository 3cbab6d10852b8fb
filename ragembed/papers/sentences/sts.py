"""Semantic textual similarity: correlation of cosines with human judgements.

Source: Stankevičius & Lukoševičius 2024, section 3.5.2: Spearman correlation over all subsets of a year together,
without a regressor. Wang & Kuo 2020 also report the Pearson correlation.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import numbers, pair
from ragembed.extras import needed_for
from ragembed.types import Doubles

with needed_for("correlation"):
    from scipy.stats import NearConstantInputWarning, pearsonr, rankdata


def pearson_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of two finite arrays of shape ``(n,)``, from -1 to 1.

    Raises :class:`ConfigError` for fewer than two values, or if all values of one array are equal.
    """
    if len(scores) < 2:
        raise ConfigError(f"got {len(scores)} scores: a correlation needs at least 2")
    for name, values in (("predictions", predictions), ("scores", scores)):
        if (values == values[0]).all():
            raise ConfigError(f"all {len(values)} {name} are equal: their correlation is not defined")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearConstantInputWarning)
        return float(pearsonr(predictions, scores).statistic)


def spearman_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of the ranks; equal values get the mean of their ranks."""
    return pearson_correlation(rankdata(predictions), rankdata(scores))


_DECIMALS = 12
"""Decimals of cosines. Without rounding, equal sentences would be ranked by floating-point errors."""


def spearman(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return the Spearman correlation of the cosines of pairs of rows and judged similarity, in per cent."""
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * spearman_correlation(similarities, judged)


def pearson(vectors1: ArrayLike, vectors2: ArrayLike, scores: ArrayLike) -> float:
    """Return the Pearson correlation of the cosines of pairs of rows and judged similarity, in per cent."""
    similarities, judged = _similarities_and_scores(vectors1, vectors2, scores)
    return 100.0 * pearson_correlation(similarities, judged)


def cosines(vectors1: ArrayLike, vectors2: ArrayLike) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, rounded to 12 decimals, shape ``(n,)``; 0 for a zero vector."""
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
