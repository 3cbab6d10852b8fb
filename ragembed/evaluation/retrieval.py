"""Measures of retrieval, equal to trec_eval's.

A ranking lists the ids of documents, best first and each once; relevance maps the ids of the judged documents to their
gains. A document is relevant where its gain is 1 or more; one that is not judged, or whose gain is negative, is not. A
question without relevant documents has the value 0. The functions of one question return fractions, from 0 to 1.
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
    """Return nDCG@k of one question: trec_eval's ``ndcg_cut``.

    The gain of a document is its relevance, its discount log2(rank + 1). The ideal ranking holds all relevant documents
    of the question, found or not.

    Gains 0, 1, 2 at ranks 1, 2, 3: DCG = 1 / log2(3) + 2 / log2(4) = 0.63093 + 1 = 1.63093. The ideal order is
    2, 1: 2 / log2(2) + 1 / log2(3) = 2.63093. Their ratio:

    >>> round(ndcg(["x", "b", "a"], {"a": 2, "b": 1, "c": 0}), 5)
    0.61991
    """
    _check(ranking, k)
    ideal = _dcg(sorted((max(gain, 0) for gain in relevance.values()), reverse=True)[:k])
    return _dcg([max(relevance.get(name, 0), 0) for name in ranking[:k]]) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], relevance: Relevance, k: int = 100) -> float:
    """Return the share of a question's relevant documents among the first ``k``: trec_eval's ``recall``."""
    _check(ranking, k)
    relevant = _relevant(relevance)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], relevance: Relevance, k: int | None = 10) -> float:
    """Return 1 / the rank of the first relevant document, 0 where it is not among the first ``k``, if that is given.

    It is trec_eval's ``recip_rank`` of a ranking cut off at ``k``; its mean over questions is MRR@k.
    """
    _check(ranking, 1 if k is None else k)
    relevant = _relevant(relevance)
    return next((1.0 / rank for rank, name in enumerate(ranking[:k], 1) if name in relevant), 0.0)


def precision(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return the share of relevant documents among ``k``, found or not: trec_eval's ``P``."""
    _check(ranking, k)
    return len(_relevant(relevance).intersection(ranking[:k])) / k


def success(ranking: Sequence[str], relevance: Relevance, k: int = 10) -> float:
    """Return 1 where a relevant document is among the first ``k``, else 0: trec_eval's ``success``."""
    _check(ranking, k)
    return float(not _relevant(relevance).isdisjoint(ranking[:k]))


def average_precision(ranking: Sequence[str], relevance: Relevance, k: int | None = None) -> float:
    """Return the mean of the precisions at the ranks of the relevant documents: trec_eval's ``map`` of one question.

    A relevant document that is not in the ranking, or not among the first ``k`` (trec_eval's ``map_cut``), counts as
    0, so the ranking should be deep: trec_eval's are usually 1,000 documents.
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
"""What is reported of a system."""

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
    """Return the measures that ``text`` names, as in ``"ndcg@10, recall@100, map"``.

    They are ``ndcg@k``, ``recall@k``, ``p@k`` (precision), ``success@k``, ``mrr@k`` and ``map@k`` for any ``k`` from 1,
    and ``mrr`` and ``map`` of the whole ranking. Raises :class:`ConfigError` for any other.
    """
    measures: dict[str, Measure] = {}
    for name in (part.strip().lower() for part in text.split(",")):
        matched = _NAMED.fullmatch(name)
        kind, cut = matched.groups() if matched else (name, None)
        if kind not in _CUT or (cut is None and kind not in _WHOLE):
            known = ", ".join(f"{each}@k" for each in _CUT)
            raise ConfigError(
                f"unknown measure {name!r}: expected {known} with a number for k, {' or '.join(_WHOLE)}, joined by "
                "commas, as in ndcg@10,map"
            )
        measures[name] = partial(_CUT[kind], k=None if cut is None else int(cut))
    return measures


@dataclass(frozen=True, slots=True)
class RetrievalScore:
    """The value of each measure for each question, as fractions.

    ``values`` maps the name of a measure to float64 of shape ``(queries,)``, in the order of ``queries``.
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    def means(self) -> dict[str, float]:
        """Return the mean of each measure over the questions, in per cent."""
        return {name: float(100.0 * values.mean()) for name, values in self.values.items()}


def score_rankings(
    rankings: Mapping[str, Sequence[str]],
    relevance: Mapping[str, Relevance],
    measures: Mapping[str, Measure] = MEASURES,
) -> RetrievalScore:
    """Score the ranking of each judged question.

    As with trec_eval's option ``-c``, the questions are those of ``relevance``: one without a ranking counts as 0, a
    ranking without judgements not at all.

    Parameters
    ----------
    rankings
        By the id of a question, the ids of documents, best first.
    relevance
        By the id of a question, the gains of the judged documents by their ids; at least one question.
    measures
        Functions of a ranking and the relevance for its question, by their names.

    Raises
    ------
    ConfigError
        Where no question is judged, or a ranking repeats a document.
    """
    if not relevance:
        raise ConfigError("relevance has no question: expected at least one")
    values = {
        name: np.array([measure(rankings.get(query, ()), judged) for query, judged in relevance.items()])
        for name, measure in measures.items()
    }
    return RetrievalScore(tuple(relevance), values)


def _check(ranking: Sequence[str], k: int = 1) -> None:
    at_least(k, 1, "k")
    if len(set(ranking)) != len(ranking):
        raise ConfigError(f"a ranking of {len(ranking)} documents repeats some: expected each once")


def _relevant(relevance: Relevance) -> set[str]:
    return {name for name, gain in relevance.items() if gain >= 1}


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
