"""Retrieval measures, equal to those of trec_eval.

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
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import at_least

Relevance: TypeAlias = Mapping[str, int]
Measure: TypeAlias = Callable[[Sequence[str], Relevance], float]


def ndcg(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return nDCG@k of one query (trec_eval: ``ndcg_cut``).

    The gain of a document is its relevance, and the discount is log2(rank + 1). The ideal ranking contains all relevant
    documents of the query.
    """
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
    """Return the mean of the precisions at the ranks of the relevant documents of one query.

    The mean over queries is MAP (trec_eval: ``map``, or ``map_cut`` with a cut-off). A relevant document outside of the
    ranking or the cut-off counts as 0, so use long rankings: 1,000 documents are usual.
    """
    _check(ranking, 1 if k is None else k)
    relevant = _relevant(relevance)
    ranks = [rank for rank, name in enumerate(ranking[:k], 1) if name in relevant]
    return math.fsum(found / rank for found, rank in enumerate(ranks, 1)) / len(relevant) if relevant else 0.0


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
            known = ", ".join(f"{each}@k" for each in _CUT)
            raise ConfigError(
                f"unknown measure {name!r}: expected {known} with a number for k, {' or '.join(_WHOLE)}, separated "
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
    """Score rankings, document ids by query, against relevance judgements, gains by query and document id.

    All queries in ``relevance`` are scored, as with the option ``-c`` of trec_eval: a query without a ranking counts as
    0. Rankings of other queries are ignored.
    """
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
