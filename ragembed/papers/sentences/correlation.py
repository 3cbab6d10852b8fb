"""Pearson and Spearman correlation."""

from __future__ import annotations

import numpy as np

from ragembed.errors import ConfigError
from ragembed.types import Doubles


def pearson_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of two finite arrays of shape ``(n,)``, from -1 to 1.

    Raises
    ------
    ConfigError
        If there are fewer than two values, or all values of one array are equal.
    """
    if len(scores) < 2:
        raise ConfigError(f"got {len(scores)} scores: a correlation needs at least 2")
    first, second = _standard(predictions, "predictions"), _standard(scores, "scores")
    return float(np.clip(first @ second, -1.0, 1.0))


def spearman_correlation(predictions: Doubles, scores: Doubles) -> float:
    """Return the linear correlation of the ranks; equal values get the mean of their ranks."""
    return pearson_correlation(_ranks(predictions), _ranks(scores))


def _ranks(values: Doubles) -> Doubles:
    """Return the rank of each value, from 1; equal values get the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last: Doubles = np.cumsum(counts).astype(np.float64)
    ranks: Doubles = (last - (counts - 1) / 2)[place]
    return ranks


def _standard(values: Doubles, name: str) -> Doubles:
    """Return ``values`` with mean 0 and Euclidean length 1."""
    if (values == values[0]).all():
        raise ConfigError(f"all {len(values)} {name} are equal: their correlation is not defined")
    centred = values - values.mean()
    # This keeps the squares of very small or large values in the range of float64.
    centred /= np.abs(centred).max()
    standard: Doubles = centred / np.sqrt(centred @ centred)
    return standard
