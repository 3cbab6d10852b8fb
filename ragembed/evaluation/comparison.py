"""Compare two systems on the same queries, measure by measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.errors import ConfigError
from ragembed.evaluation.bootstrap import paired_bootstrap
from ragembed.evaluation.inputs import at_least, numbers
from ragembed.evaluation.retrieval import RetrievalScore

LEVEL = 0.05
"""Significance level: a difference is significant if its p-value is below this."""

_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """The means of two systems in one measure, ``second - first`` with its 95 % interval, and a p-value.

    All but the two-sided p-value, from :func:`paired_randomisation`, are in per cent. The interval is from
    :func:`paired_bootstrap`.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p_value < LEVEL


def compare(first: RetrievalScore, second: RetrievalScore, draws: int = 10_000, seed: int = 0) -> dict[str, Difference]:
    """Compare two systems on the same queries, at least two, in each measure that both have.

    ``draws`` is the number of resamples for the interval, and of random exchanges for the p-value.
    """
    if first.queries != second.queries:
        raise ConfigError(
            "the two systems are scored on different queries: expected the same queries in the same order"
        )
    return {
        name: _difference(first.values[name], second.values[name], draws, seed)
        for name in first.values
        if name in second.values
    }


def paired_randomisation(a: ArrayLike, b: ArrayLike, draws: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of Fisher's paired randomisation test.

    If the systems do not differ, the two values of each query can be exchanged. The test exchanges the values of each
    query with probability 1/2. The p-value is the share of exchanges whose mean difference is at least as far from 0 as
    the observed one (Smucker, Allan & Carterette 2007, section 2.1). The observed difference counts as one exchange, so
    the p-value is never 0. If there are at most ``draws`` possible exchanges, all of them are computed instead.
    """
    first = numbers(a, "a")
    differences = first - numbers(b, "b", len(first))
    count = len(differences)
    at_least(count, 1, "the number of queries")
    at_least(draws, 1, "draws")
    # The tolerance makes sums count as equal that differ only by rounding.
    observed = abs(differences.sum()) * (1.0 - 1e-9) - 1e-12 * np.abs(differences).sum()
    exhaustive = count < draws.bit_length()
    total = 1 << count if exhaustive else draws
    generator = np.random.default_rng(seed)
    far, rows = 0, max(1, _BLOCK_CELLS // count)
    for start in range(0, total, rows):
        size = min(rows, total - start)
        if exhaustive:
            bits = (np.arange(start, start + size)[:, None] >> np.arange(count)) & 1
        else:
            bits = generator.integers(0, 2, size=(size, count), dtype=np.int8)
        sums = np.where(bits, differences, -differences).sum(axis=1)
        far += int(np.count_nonzero(np.abs(sums) >= observed))
    return far / total if exhaustive else (1 + far) / (1 + total)


def _difference(first: ArrayLike, second: ArrayLike, draws: int, seed: int) -> Difference:
    a, b = 100.0 * numbers(first, "first"), 100.0 * numbers(second, "second")
    interval = paired_bootstrap(b, a, draws, seed)
    p_value = paired_randomisation(b, a, draws, seed)
    return Difference(float(a.mean()), float(b.mean()), interval.difference, interval.low, interval.high, p_value)
