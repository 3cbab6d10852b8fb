"""Whether two systems differ on the same questions, or it is chance."""

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
    """The mean ``difference`` of two systems, its 95 % interval from ``low`` to ``high``, and a two-sided ``p_value``.

    The first three are in the unit of the values compared.
    """

    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(a: ArrayLike, b: ArrayLike, resamples: int = 10_000, seed: int = 0) -> PairedBootstrap:
    """Compare the values of two systems for the same questions by drawing questions with replacement.

    The interval is that of the percentiles of the resampled mean differences. The p-value is the share of resamples
    whose mean, moved so that the true difference is 0, is at least as far from 0 as the one observed (Efron &
    Tibshirani 1993, section 16.4), the observed one counted among them: it is never 0.

    Parameters
    ----------
    a, b
        The value of each question under either system, shape ``(n,)``, ``n >= 2``, in the same order.
    resamples, seed
        How many resamples are drawn, and the seed of the generator that draws them.

    Returns
    -------
    PairedBootstrap
        Of ``a - b``: above 0 where ``a`` is better.

    Raises
    ------
    ConfigError
        Where lengths differ, values are not finite, or there are fewer than two questions.
    """
    first = numbers(a, "a")
    differences = first - numbers(b, "b", len(first))
    count = len(differences)
    if count < 2:
        raise ConfigError(f"there are values for {count} questions: a comparison needs at least 2")
    generator = np.random.default_rng(seed)
    means = np.empty(at_least(resamples, 1, "resamples"))
    rows = max(1, _BLOCK_CELLS // count)
    for start in range(0, resamples, rows):
        block = means[start : start + rows]
        block[:] = differences[generator.integers(count, size=(len(block), count))].mean(axis=1)
    observed = differences.mean()
    # Equal means may differ by rounding, and have to count as equal.
    far = np.abs(means - observed) >= abs(observed) * (1.0 - 1e-9)
    low, high = np.quantile(means, [(1.0 - _COVERAGE) / 2.0, (1.0 + _COVERAGE) / 2.0])
    return PairedBootstrap(
        float(observed), float(low), float(high), float((1 + np.count_nonzero(far)) / (1 + resamples))
    )
