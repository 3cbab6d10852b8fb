"""Pearson and Spearman correlation, with errors where they are not defined."""

from __future__ import annotations

import warnings

from ragembed.errors import ConfigError
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
