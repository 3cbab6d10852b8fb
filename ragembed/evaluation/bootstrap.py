"""Whether two systems differ on the same questions, or it is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, numbers
from ragembed.types import Doubles

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
    return _compared(float(differences.mean()), means)


class MacroBootstrap:
    """Compares systems by the mean over sources of their means, drawing documents with replacement.

    A document is drawn with all of its queries, as these are not independent of one another (a cluster bootstrap:
    Davison & Hinkley 1997, section 3.8). A source that a resample has no query of is left out of its mean.

    Parameters
    ----------
    source, document
        The source and the document of each query; one or more.
    seed, resamples
        Of the generator that draws; how many times it draws.
    """

    def __init__(self, source: Sequence[str], document: Sequence[int], seed: int = 0, resamples: int = 10_000) -> None:
        _, self._documents = np.unique(np.asarray(document), return_inverse=True)
        _, self._sources = np.unique(np.asarray(source), return_inverse=True)
        self._shape = int(self._documents.max()) + 1, int(self._sources.max()) + 1
        self._counts = self._by_document(np.ones(len(source)))
        documents = self._shape[0]
        generator = np.random.default_rng(seed)
        shares = np.full(documents, 1.0 / documents)
        self._drawn = generator.multinomial(documents, shares, size=resamples).astype(np.float64)

    def compare(self, a: Doubles, b: Doubles) -> PairedBootstrap:
        """Return the difference ``a - b`` of the values of each query, float64, shape ``(n,)``, with its interval.

        The p-value is as in :func:`paired_bootstrap`.
        """
        sums = self._by_document(a - b)
        total, number = self._drawn @ sums, self._drawn @ self._counts
        present = number > 0
        means = np.divide(total, number, out=np.zeros_like(total), where=present).sum(axis=1) / present.sum(axis=1)
        observed = float((sums.sum(axis=0) / self._counts.sum(axis=0)).mean())
        return _compared(observed, means)

    def _by_document(self, values: Doubles) -> Doubles:
        sums = np.zeros(self._shape)
        np.add.at(sums, (self._documents, self._sources), values)
        return sums


def _compared(observed: float, means: Doubles) -> PairedBootstrap:
    # Equal means may differ by rounding, and have to count as equal.
    far = np.abs(means - observed) >= abs(observed) * (1.0 - 1e-9)
    low, high = np.quantile(means, [(1.0 - _COVERAGE) / 2.0, (1.0 + _COVERAGE) / 2.0])
    p_value = (1 + np.count_nonzero(far)) / (1 + len(means))
    return PairedBootstrap(observed, float(low), float(high), float(p_value))
