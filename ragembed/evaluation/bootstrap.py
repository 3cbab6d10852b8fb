"""Bootstrap tests of the difference between two systems on the same queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, numbers

_COVERAGE = 0.95
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class PairedBootstrap:
    """The mean difference ``a - b``, its 95 % confidence interval, and the two-sided p-value of no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(a: ArrayLike, b: ArrayLike, resamples: int = 10_000, seed: int = 0) -> PairedBootstrap:
    """Estimate the mean difference of two systems on the same queries, with a 95 % interval and a p-value.

    The queries are resampled with replacement. The interval is the percentile interval of the resampled means. For the
    p-value, the resampled means are shifted to a mean of 0; it is the share of them that are at least as far from 0 as
    the observed difference (Efron & Tibshirani 1993, section 16.4). The observed difference counts as one resample, so
    the p-value is never 0.
    """
    first = numbers(a, "a")
    differences = first - numbers(b, "b", len(first))
    count = len(differences)
    if count < 2:
        raise ConfigError(f"got values for {count} queries: expected at least 2")
    generator = np.random.default_rng(seed)
    means = np.empty(at_least(resamples, 1, "resamples"))
    rows = max(1, _BLOCK_CELLS // count)
    for start in range(0, resamples, rows):
        block = means[start : start + rows]
        block[:] = differences[generator.integers(count, size=(len(block), count))].mean(axis=1)
    observed = float(differences.mean())
    # The tolerance makes means count as equal that differ only by rounding.
    far = np.abs(means - observed) >= abs(observed) * (1.0 - 1e-9)
    low, high = np.quantile(means, [(1.0 - _COVERAGE) / 2.0, (1.0 + _COVERAGE) / 2.0])
    p_value = (1 + np.count_nonzero(far)) / (1 + len(means))
    return PairedBootstrap(observed, float(low), float(high), float(p_value))
