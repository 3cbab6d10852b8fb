"""Retrieval measures, equal to those of trec_eval, and the comparison of two systems on the same queries.

A ranking lists document ids, best first, without repetition. Relevance maps the ids of judged documents to their gains.
A document is relevant if its gain is 1 or more; documents without a judgement are not relevant. The value of a query
without relevant documents is 0. The functions for one query return fractions from 0 to 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least, numbers

Relevance: TypeAlias = Mapping[str, int]
Measure: TypeAlias = Callable[[Sequence[str], Relevance], float]


def ndcg(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return nDCG@k of one query (trec_eval: ``ndcg_cut``), with the discount log2(rank + 1) and linear gains."""
    _check(ranking, k)
    ideal = _dcg(sorted((max(gain, 0) for gain in relevance.values()), reverse=True)[:k])
    return _dcg([max(relevance.get(name, 0), 0) for name in ranking[:k]]) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], relevance: Relevance, k: int = 100) -> float:
    """Return the share of the relevant documents of one query among its first ``k`` (trec_eval: ``recall``)."""
    _check(ranking, k)
    relevant = _relevant(relevance)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], relevance: Relevance, k: int | None = 10) -> float:
    """Return 1 / the rank of the first relevant document of one query, 0 if none is among the first ``k``.

    The mean over queries is MRR@k (trec_eval: ``recip_rank`` of a ranking cut off at ``k``).
    """
    _check(ranking, 1 if k is None else k)
    relevant = _relevant(relevance)
    return next((1.0 / rank for rank, name in enumerate(ranking[:k], 1) if name in relevant), 0.0)


def precision(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return the number of relevant documents among the first ``k``, divided by ``k`` (trec_eval: ``P``)."""
    _check(ranking, k)
    return len(_relevant(relevance).intersection(ranking[:k])) / k


def success(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return 1 if a relevant document is among the first ``k`` of one query, else 0 (trec_eval: ``success``)."""
    _check(ranking, k)
    return float(not _relevant(relevance).isdisjoint(ranking[:k]))


def average_precision(ranking: Sequence[str], relevance: Relevance, k: int | None = None) -> float:
    """Return the mean of the precisions at the ranks of all relevant documents (trec_eval: ``map``, ``map_cut``)."""
    _check(ranking, 1 if k is None else k)
    relevant = _relevant(relevance)
    ranks = [rank for rank, name in enumerate(ranking[:k], 1) if name in relevant]
    return math.fsum(hits / rank for hits, rank in enumerate(ranks, 1)) / len(relevant) if relevant else 0.0


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "ndcg@10": partial(ndcg, k=10),
        "recall@100": partial(recall, k=100),
        "mrr@10": partial(reciprocal_rank, k=10),
        "map": average_precision,
    }
)
"""The default measures by name: nDCG@10, recall@100, MRR@10 and MAP, as functions of a ranking and its relevance."""

_CUT: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        "ndcg": ndcg,
        "recall": recall,
        "p": precision,
        "success": success,
        "mrr": reciprocal_rank,
        "map": average_precision,
    }
)
_WHOLE = ("mrr", "map")
_NAMED = re.compile(r"([a-z]+)(?:@([1-9]\d{0,5}))?", re.ASCII)


def parse_measures(text: str) -> dict[str, Measure]:
    """Parse names of measures, separated by commas, to functions of a ranking and its relevance.

    The names are ``ndcg@k``, ``recall@k``, ``p@k`` (precision), ``success@k``, ``mrr@k`` and ``map@k`` with any ``k``
    from 1, and ``mrr`` and ``map`` for the whole ranking.
    """
    measures: dict[str, Measure] = {}
    for name in (part.strip().lower() for part in text.split(",")):
        matched = _NAMED.fullmatch(name)
        kind, cut = matched.groups() if matched else (name, None)
        if kind not in _CUT or (cut is None and kind not in _WHOLE):
            expected = ", ".join(f"{measure}@k" for measure in _CUT)
            raise ConfigError(
                f"unknown measure {name!r}: expected {expected} with a number for k, {' or '.join(_WHOLE)}, separated "
                "by commas, such as ndcg@10,map"
            )
        measures[name] = partial(_CUT[kind], k=None if cut is None else int(cut))
    return measures


@dataclass(frozen=True, slots=True)
class RetrievalScore:
    """The values of each measure for each query, as fractions of shape ``(q,)`` in the order of ``queries``."""

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    def means(self) -> dict[str, float]:
        """Return the mean of each measure over the queries, in per cent."""
        return {name: float(100.0 * values.mean()) for name, values in self.values.items()}


def score_rankings(
    rankings: Mapping[str, Sequence[str]],
    relevance: Mapping[str, Relevance],
    measures: Mapping[str, Measure] = MEASURES,
) -> RetrievalScore:
    """Score rankings against judgements; as with ``-c`` of trec_eval, a judged query without a ranking counts as 0."""
    if not relevance:
        raise ConfigError("relevance has no query: expected at least one")
    values = {
        name: np.array([measure(rankings.get(query, ()), judged) for query, judged in relevance.items()])
        for name, measure in measures.items()
    }
    return RetrievalScore(tuple(relevance), values)


def _check(ranking: Sequence[str], k: int = 1) -> None:
    at_least(k, 1, "k")
    if len(set(ranking)) != len(ranking):
        raise ConfigError(f"a ranking of {len(ranking)} documents repeats some: expected each document once")


def _relevant(relevance: Relevance) -> set[str]:
    return {name for name, gain in relevance.items() if gain >= 1}


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


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

    The interval is the percentile interval of resampled means; for the p-value, they are shifted to a mean of 0 (Efron
    & Tibshirani 1993, section 16.4). The observed difference counts as one resample.
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


LEVEL = 0.05
"""Significance level: a difference is significant if its p-value is below this."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two means in per cent, ``second - first`` with its 95 % interval, and the two-sided p-value of no difference."""

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

    It is the share of random exchanges of the two values of each query whose mean difference is at least as far from 0
    as the observed one (Smucker, Allan & Carterette 2007, section 2.1); of all exchanges if there are at most
    ``draws``.
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
