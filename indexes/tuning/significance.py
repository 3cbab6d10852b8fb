"""Whether the mean over sources differs, when queries of one document go together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.evaluation.bootstrap import PairedBootstrap

Doubles = NDArray[np.float64]

_COVERAGE = 0.95


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

        The p-value is as in :func:`ragembed.evaluation.bootstrap.paired_bootstrap`.
        """
        sums = self._by_document(a - b)
        total, number = self._drawn @ sums, self._drawn @ self._counts
        present = number > 0
        means = np.divide(total, number, out=np.zeros_like(total), where=present).sum(axis=1) / present.sum(axis=1)
        observed = float((sums.sum(axis=0) / self._counts.sum(axis=0)).mean())
        far = np.abs(means - observed) >= abs(observed) * (1.0 - 1e-9)
        low, high = np.quantile(means, [(1.0 - _COVERAGE) / 2.0, (1.0 + _COVERAGE) / 2.0])
        p_value = (1 + np.count_nonzero(far)) / (1 + len(means))
        return PairedBootstrap(observed, float(low), float(high), float(p_value))

    def _by_document(self, values: Doubles) -> Doubles:
        sums = np.zeros(self._shape)
        np.add.at(sums, (self._documents, self._sources), values)
        return sums
