"""Correlation of predictions with judgements."""

from __future__ import annotations

import numpy as np

from ragembed.errors import ConfigError
from ragembed.types import Doubles


def pearson_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of two finite arrays of shape ``(n,)``, from -1 to 1.

    Raises
    ------
    ConfigError
        With fewer than two values, or where one side is constant, which no correlation is defined for.
    """
    if len(scores) < 2:
        raise ConfigError(f"there are {len(scores)} scores: a correlation needs at least 2")
    first, second = _standard(predictions, "predictions"), _standard(scores, "scores")
    return float(np.clip(first @ second, -1.0, 1.0))


def spearman_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of the ranks, where equal values share the mean of theirs; otherwise as above."""
    return pearson_correlation(_ranks(predictions), _ranks(scores))


def _ranks(values: Doubles) -> Doubles:
    """Return the rank of each of ``values`` from 1, and the mean of their ranks for equal ones."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last: Doubles = np.cumsum(counts).astype(np.float64)
    ranks: Doubles = (last - (counts - 1) / 2)[place]
    return ranks


def _standard(values: Doubles, name: str) -> Doubles:
    """Return ``values`` with mean 0 and Euclidean length 1."""
    if (values == values[0]).all():
        raise ConfigError(f"all {len(values)} {name} are equal: their correlation is not defined")
    centred = values - values.mean()
    # Without this step the squares of very small or large values leave the range of float64.
    centred /= np.abs(centred).max()
    standard: Doubles = centred / np.sqrt(centred @ centred)
    return standard
