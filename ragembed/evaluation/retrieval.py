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

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int
        Cut-off, 1 or more.

    Returns
    -------
    float
        nDCG, from 0 to 1.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    The ranking has the gains 0, 1, 2, so DCG = 1 / log2(3) + 2 / log2(4) = 1.63093. The ideal ranking has the gains
    2, 1, so its DCG is 2 / log2(2) + 1 / log2(3) = 2.63093.

    >>> from ragembed.evaluation import ndcg
    >>> round(ndcg(["x", "b", "a"], {"a": 2, "b": 1, "c": 0}), 5)
    0.61991
    """
    _check(ranking, k)
    ideal = _dcg(sorted((max(gain, 0) for gain in relevance.values()), reverse=True)[:k])
    return _dcg([max(relevance.get(name, 0), 0) for name in ranking[:k]]) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], relevance: Relevance, k: int = 100) -> float:
    """Return recall@k of one query: the share of its relevant documents that are among the first ``k``.

    trec_eval calls this measure ``recall``.

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int
        Cut-off, 1 or more.

    Returns
    -------
    float
        Recall, from 0 to 1.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import recall
    >>> recall(["x", "a"], {"a": 1, "b": 1}, k=2)
    0.5
    """
    _check(ranking, k)
    relevant = _relevant(relevance)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], relevance: Relevance, k: int | None = 10) -> float:
    """Return the reciprocal rank of one query: 1 / the rank of the first relevant document.

    The mean over queries is MRR@k. trec_eval calls this measure ``recip_rank``, applied to a ranking cut off at ``k``.

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int, optional
        Cut-off, 1 or more; None for the whole ranking.

    Returns
    -------
    float
        Reciprocal rank, or 0 if no relevant document is among the first ``k``.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import reciprocal_rank
    >>> reciprocal_rank(["x", "a"], {"a": 1})
    0.5
    """
    _check(ranking, 1 if k is None else k)
    relevant = _relevant(relevance)
    return next((1.0 / rank for rank, name in enumerate(ranking[:k], 1) if name in relevant), 0.0)


def precision(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return precision@k of one query: the number of relevant documents among the first ``k``, divided by ``k``.

    trec_eval calls this measure ``P``.

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int
        Cut-off, 1 or more.

    Returns
    -------
    float
        Precision, from 0 to 1.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import precision
    >>> precision(["x", "a"], {"a": 1}, k=2)
    0.5
    """
    _check(ranking, k)
    return len(_relevant(relevance).intersection(ranking[:k])) / k


def success(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return success@k of one query: 1 if a relevant document is among the first ``k``, else 0.

    trec_eval calls this measure ``success``.

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int
        Cut-off, 1 or more.

    Returns
    -------
    float
        0.0 or 1.0.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import success
    >>> success(["x", "a"], {"a": 1}, k=1)
    0.0
    """
    _check(ranking, k)
    return float(not _relevant(relevance).isdisjoint(ranking[:k]))


def average_precision(ranking: Sequence[str], relevance: Relevance, k: int | None = None) -> float:
    """Return the average precision of one query: the mean of the precisions at the ranks of its relevant documents.

    The mean over queries is MAP. trec_eval calls this measure ``map``, or ``map_cut`` with a cut-off. A relevant
    document outside of the ranking or the cut-off counts as 0, so use long rankings: 1,000 documents are usual.

    Parameters
    ----------
    ranking : sequence of str
        Document ids, best first.
    relevance : mapping of str to int
        Gains of the judged documents.
    k : int, optional
        Cut-off, 1 or more; None for the whole ranking.

    Returns
    -------
    float
        Average precision, from 0 to 1.

    Raises
    ------
    ConfigError
        If ``k`` is below 1, or the ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import average_precision
    >>> average_precision(["a", "x", "x2", "b"], {"a": 1, "b": 1})
    0.75
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
    """Parse names of measures, separated by commas.

    Parameters
    ----------
    text : str
        Names among ``ndcg@k``, ``recall@k``, ``p@k`` (precision), ``success@k``, ``mrr@k`` and ``map@k`` with any
        ``k`` from 1, and ``mrr`` and ``map`` for the whole ranking.

    Returns
    -------
    dict of str to callable
        Functions of a ranking and its relevance, by name.

    Raises
    ------
    ConfigError
        If a name is unknown.

    Examples
    --------
    >>> from ragembed.evaluation import parse_measures
    >>> list(parse_measures("ndcg@10, recall@100, map"))
    ['ndcg@10', 'recall@100', 'map']
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
    """The value of each measure for each query, a result of :func:`score_rankings`.

    Attributes
    ----------
    queries : tuple of str
        Ids of the queries.
    values : mapping of str to numpy.ndarray
        For each measure, its values as fractions, float64, shape ``(q,)``, in the order of ``queries``.

    Examples
    --------
    >>> from ragembed.evaluation import score_rankings
    >>> score = score_rankings({"q1": ["x", "a"], "q2": ["b"]}, {"q1": {"a": 1}, "q2": {"b": 1}})
    >>> score.queries, score.means()["mrr@10"]
    (('q1', 'q2'), 75.0)
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    def means(self) -> dict[str, float]:
        """Return the mean of each measure over the queries, in per cent.

        Returns
        -------
        dict of str to float
            Mean by name of the measure, from 0 to 100.
        """
        return {name: float(100.0 * values.mean()) for name, values in self.values.items()}


def score_rankings(
    rankings: Mapping[str, Sequence[str]],
    relevance: Mapping[str, Relevance],
    measures: Mapping[str, Measure] = MEASURES,
) -> RetrievalScore:
    """Score rankings against relevance judgements.

    All queries in ``relevance`` are scored, as with the option ``-c`` of trec_eval: a query without a ranking counts as
    0. Rankings of other queries are ignored.

    Parameters
    ----------
    rankings : mapping of str to sequence of str
        For each query id, document ids, best first.
    relevance : mapping of str to mapping of str to int
        For each query id, the gains of the judged documents by their ids; at least one query.
    measures : mapping of str to callable
        Functions of a ranking and its relevance, by name; by default :data:`MEASURES`.

    Returns
    -------
    RetrievalScore
        The values for each query.

    Raises
    ------
    ConfigError
        If there is no query, or a ranking repeats a document.

    Examples
    --------
    >>> from ragembed.evaluation import parse_measures, score_rankings
    >>> score = score_rankings({"q1": ["x", "a"]}, {"q1": {"a": 1}}, parse_measures("mrr@10,recall@100"))
    >>> score.means()
    {'mrr@10': 50.0, 'recall@100': 100.0}
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
