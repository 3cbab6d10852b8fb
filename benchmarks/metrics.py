"""Measures of retrieval quality; ``python -m doctest benchmarks/metrics.py`` checks the values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ranking: Sequence[str], relevance: Mapping[str, int], k: int = 10) -> float:
    """Return nDCG@k of one question's ranking, best first, as trec_eval's ``ndcg_cut``.

    The gain of a document is its relevance (0 where it is not judged or negative), its discount log2(rank + 1). The
    ideal ranking holds all relevant documents of the question, found or not. Without any, the value is 0.

    Gains 0, 1, 2 at ranks 1, 2, 3: DCG = 1 / log2(3) + 2 / log2(4) = 0.63093 + 1 = 1.63093. The ideal order is
    2, 1: 2 / log2(2) + 1 / log2(3) = 2.63093. Their ratio:

    >>> round(ndcg(["x", "b", "a"], {"a": 2, "b": 1, "c": 0}), 5)
    0.61991

    One of two relevant documents found, at rank 1: 1 / (1 + 0.63093); and cut off below it:

    >>> round(ndcg(["a", "x"], {"a": 1, "b": 1}), 5)
    0.61315
    >>> ndcg(["x", "a"], {"a": 1}, k=1)
    0.0
    >>> ndcg(["a"], {})
    0.0
    >>> ndcg(["a", "a"], {"a": 1})
    Traceback (most recent call last):
    ValueError: a ranking lists each document once, this one of 2 repeats some
    """
    if len(set(ranking)) != len(ranking):
        raise ValueError(f"a ranking lists each document once, this one of {len(ranking)} repeats some")
    ideal = _dcg(sorted((max(gain, 0) for gain in relevance.values()), reverse=True)[:k])
    return _dcg([max(relevance.get(name, 0), 0) for name in ranking[:k]]) / ideal if ideal else 0.0


def mean_ndcg(rankings: Mapping[str, Sequence[str]], relevance: Mapping[str, Mapping[str, int]], k: int = 10) -> float:
    """Return the mean of :func:`ndcg` over the judged questions; one without a ranking counts as 0.

    >>> mean_ndcg({"q1": ["a"], "q2": ["x"]}, {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}, "q4": {"d": 1}})
    0.25
    """
    return math.fsum(ndcg(rankings.get(query, ()), judged, k) for query, judged in relevance.items()) / len(relevance)


def _dcg(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
