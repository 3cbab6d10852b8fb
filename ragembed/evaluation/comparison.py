"""Comparing two systems over the same questions, measure by measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.errors import ConfigError
from ragembed.evaluation.bootstrap import paired_bootstrap
from ragembed.evaluation.inputs import at_least, numbers
from ragembed.evaluation.retrieval import RetrievalScore

LEVEL = 0.05
"""A difference is significant where chance alone would make one as large less often than this."""

_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean ``difference`` of the second system to the first, its 95 % interval, and a two-sided p-value.

    ``first`` and ``second`` are the means, in per cent as ``difference``, ``low`` and ``high`` are. The interval is of
    :func:`ragembed.evaluation.paired_bootstrap`, the p-value of :func:`paired_randomisation`.
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
    """Return the difference of ``second`` to ``first`` in each measure that both have: above 0, ``second`` is better.

    Raises :class:`ConfigError` where their questions differ, or there are fewer than two.
    """
    if first.queries != second.queries:
        raise ConfigError("the two systems are scored on different questions: expected the same ones")
    return {
        name: _difference(first.values[name], second.values[name], draws, seed)
        for name in first.values
        if name in second.values
    }


def paired_randomisation(a: ArrayLike, b: ArrayLike, draws: int = 10_000, seed: int = 0) -> float:
    """Return how often chance alone would make the means of two systems differ as much: a two-sided p-value.

    If the systems do not differ, each question's two values may be exchanged. The p-value is the share of exchanges,
    each question's drawn with probability 1/2, whose mean difference is at least as far from 0 as the one observed
    (Fisher's randomisation test; Smucker, Allan & Carterette 2007, section 2.1). The observed one is counted among
    those drawn, so that it is never 0. Where there are no more exchanges than ``draws``, all of them are made instead.

    Parameters
    ----------
    a, b
        The value of each question under either system, shape ``(n,)``, ``n >= 1``, in the same order.
    draws, seed
        How many exchanges are drawn, and the seed of the generator that draws them.

    Raises
    ------
    ConfigError
        Where lengths differ, values are not finite, or there is no question.
    """
    first = numbers(a, "a")
    differences = first - numbers(b, "b", len(first))
    count = len(differences)
    at_least(count, 1, "the number of questions")
    at_least(draws, 1, "draws")
    # Equal sums may differ by rounding, and have to count as equal.
    observed = abs(differences.sum()) * (1.0 - 1e-9) - 1e-12 * np.abs(differences).sum()
    every = count < draws.bit_length()
    total = 1 << count if every else draws
    generator = np.random.default_rng(seed)
    far, rows = 0, max(1, _BLOCK_CELLS // count)
    for start in range(0, total, rows):
        size = min(rows, total - start)
        if every:
            bits = (np.arange(start, start + size)[:, None] >> np.arange(count)) & 1
        else:
            bits = generator.integers(0, 2, size=(size, count), dtype=np.int8)
        sums = np.where(bits, differences, -differences).sum(axis=1)
        far += int(np.count_nonzero(np.abs(sums) >= observed))
    return far / total if every else (1 + far) / (1 + total)


def _difference(first: ArrayLike, second: ArrayLike, draws: int, seed: int) -> Difference:
    a, b = 100.0 * numbers(first, "first"), 100.0 * numbers(second, "second")
    interval = paired_bootstrap(b, a, draws, seed)
    p_value = paired_randomisation(b, a, draws, seed)
    return Difference(float(a.mean()), float(b.mean()), interval.difference, interval.low, interval.high, p_value)
