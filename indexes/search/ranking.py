"""From scored candidates to results: folding near-duplicates, reranking, limiting chunks per file, and diversity.

The page "Search a store" of the documentation gives the order of the steps, and the reasons for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.search.deduplication import NearDuplicates
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.reranking import Reranker
from ragembed.types import Doubles, Floats

_Identity: TypeAlias = "tuple[str | None, str]"
"""The store and the id of a hit, or the store and the name of a file."""

_LEAST_READ = 30
"""Minimum number of candidates that are checked for near-duplicates."""
_FIRST_DEPTH, _DEEPER = 2, 4
"""Candidates read at first, as a multiple of those needed, and the factor by which that number then grows."""


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """Steps between the scores of a search and its results. By default, results are ordered by score only.

    Parameters
    ----------
    dedupe : bool, default False
        Whether to fold a chunk into a better one if its words nearly repeat those of the better one.
    reranker : ragembed.reranking.Reranker, optional
        Object that scores the best candidates again by reading each together with the query, such as
        :class:`ragembed.reranking.CrossEncoderReranker`. None keeps the scores of the search.
    rerank_depth : int, default 50
        Number of candidates that the reranker reads, 1 or more. The others follow after them.
    per_file : int, optional
        Maximum number of chunks of one file, 1 or more. None sets no limit. If a chunk comes from no file, the
        ``source`` in its metadata counts as its file. Chunks without either are not limited.
    mmr : float, optional
        Balance of maximal marginal relevance (Carbonell & Goldstein 1998), from 0 (results unlike each other) to 1
        (results by score). None orders by score.
    mmr_depth : int, default 50
        Number of candidates that maximal marginal relevance chooses from, 1 or more. If it is less than the number of
        results, that number is used instead.

    Raises
    ------
    ConfigError
        If a value is out of range, or ``reranker`` has no method ``scores``.

    Examples
    --------
    >>> from ragembed import RankingOptions
    >>> RankingOptions(dedupe=True, per_file=2).rerank_depth
    50
    """

    dedupe: bool = False
    reranker: Reranker | None = None
    rerank_depth: int = 50
    per_file: int | None = None
    mmr: float | None = None
    mmr_depth: int = 50

    def __post_init__(self) -> None:
        for name in ("rerank_depth", "per_file", "mmr_depth"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: expected 1 or more")
        if self.mmr is not None and not 0.0 <= self.mmr <= 1.0:
            raise ConfigError(f"mmr is {self.mmr}: expected a number from 0 (unlike each other) to 1 (by score)")

        if self.reranker is not None and not isinstance(self.reranker, Reranker):
            raise ConfigError(
                f"reranker is of type {type(self.reranker).__name__}: expected an object with scores(query, texts), "
                "such as CrossEncoderReranker('cross-encoder/ms-marco-MiniLM-L6-v2')"
            )

    def _pool_size(self, k: int) -> int:
        """Return the number of best candidates needed to choose ``k`` results."""
        return k if self.mmr is None else max(k, self.mmr_depth)

    def _distinct_candidates(self, k: int) -> int:
        """Return the number of candidates needed, not counting near-duplicates."""
        return max(self._pool_size(k), 0 if self.reranker is None else self.rerank_depth)

    def _candidate_depth(self, k: int) -> int:
        """Return the number of candidates to request first; more are needed only if many are left out."""
        return _FIRST_DEPTH * max(self._distinct_candidates(k), _LEAST_READ)


@dataclass(frozen=True, slots=True)
class Source:
    """The candidates of one query.

    ``candidates(n)`` yields at least ``n`` of them, best first, or all if there are fewer. ``most`` is the number of
    chunks in the store. ``geometry(hits)`` returns the query's unit vector, float32, shape ``(d,)``, and those of the
    hits, shape ``(n, d)``.
    """

    query: str
    candidates: Callable[[int], Iterator[Hit]]
    most: int
    geometry: Callable[[Sequence[Hit]], tuple[Floats, Floats]]


def rank(source: Source, k: int, ranking: RankingOptions) -> list[Hit]:
    """Return the best ``k`` candidates according to ``ranking``, or all if there are fewer.

    Reads more candidates while too many are left out. Raises :class:`ConfigError` if a reranker does not return a
    finite score for each text.
    """
    pool_size, distinct_candidates = ranking._pool_size(k), ranking._distinct_candidates(k)
    scores: dict[_Identity, float] = {}
    best: list[Hit] = []
    candidate_depth = min(ranking._candidate_depth(k), source.most)
    while True:
        duplicates = DuplicateGroups(source.candidates(candidate_depth), ranking.dedupe)
        if duplicates.fill(distinct_candidates) or duplicates.is_exhausted(candidate_depth, source.most):
            best = _best(duplicates, source.query, ranking, pool_size, distinct_candidates, scores)
            if len(best) >= pool_size or duplicates.is_exhausted(candidate_depth, source.most):
                break
        candidate_depth = min(_DEEPER * candidate_depth, source.most)
    if ranking.mmr is None or not best:
        return best[:k]
    pool = best[:pool_size]
    query_vector, vectors = source.geometry(pool)
    relevance = _as_cosines(_scores(pool), vectors @ query_vector)
    return [pool[i] for i in mmr_by_relevance(relevance, vectors, k, ranking.mmr)]


class DuplicateGroups:
    """Candidates in groups of near-duplicates, read as needed; ``read`` counts them."""

    def __init__(self, candidates: Iterator[Hit], dedupe: bool) -> None:
        self._candidates = candidates
        self._near = NearDuplicates() if dedupe else None
        self._least_read = _LEAST_READ if dedupe else 0
        self.groups: list[list[Hit]] = []
        self.read = 0

    def fill(self, count: int) -> bool:
        """Read until there are more than ``count`` groups, and return whether there are."""
        while len(self.groups) <= count or self.read < self._least_read:
            hit = next(self._candidates, None)
            if hit is None:
                break
            self.read += 1
            group = None if self._near is None else self._near.place(hit.chunk.embedded_text)
            if group is None:
                self.groups.append([hit])
            else:
                self.groups[group].append(hit)
        return len(self.groups) > count

    def is_exhausted(self, candidate_depth: int, most: int) -> bool:
        """Return, once all candidates are read, whether the store of ``most`` chunks has no more."""
        return self.read < candidate_depth or candidate_depth >= most


def _best(
    duplicates: DuplicateGroups,
    query: str,
    ranking: RankingOptions,
    pool_size: int,
    distinct_candidates: int,
    scores: dict[_Identity, float],
) -> list[Hit]:
    """Return at least ``pool_size`` hits, reranked and limited per file, or all if there are fewer."""
    while True:
        is_full = duplicates.fill(distinct_candidates)
        groups = duplicates.groups[:distinct_candidates]
        if ranking.reranker is not None:
            groups = _reranked(groups, query, ranking.reranker, ranking.rerank_depth, scores)
        best = _limited_per_file(groups, ranking.per_file)
        if len(best) >= pool_size or not is_full:
            return best
        distinct_candidates *= _DEEPER


def _reranked(
    groups: Sequence[list[Hit]], query: str, reranker: Reranker, depth: int, scores: dict[_Identity, float]
) -> list[list[Hit]]:
    """Order the first ``depth`` groups by the score of their best hit; ``scores`` caches these by hit."""
    read, rest = groups[:depth], groups[depth:]
    new = [group[0] for group in read if _identity(group[0]) not in scores]
    texts = [hit.chunk.embedded_text for hit in new]
    found = [float(score) for score in reranker.scores(query, texts)] if texts else []
    if len(found) != len(new) or not all(np.isfinite(found)):
        raise ConfigError(
            f"the reranker returned {found[:3]} for {len(new)} texts: expected one finite number for each text"
        )
    scores.update(zip(map(_identity, new), found, strict=True))
    scored = [[replace(hit, rerank=scores[_identity(group[0])]) for hit in group] for group in read]
    return [*sorted(scored, key=lambda group: -scores[_identity(group[0])]), *rest]


def _identity(hit: Hit) -> _Identity:
    return hit.store, hit.id


def _limited_per_file(groups: Sequence[list[Hit]], per_file: int | None) -> list[Hit]:
    """Return the first hit of each group whose file is below its limit, with the others as its duplicates."""
    counts: Counter[_Identity | None] = Counter()
    kept = []
    for group in groups:
        files = [_file(hit) for hit in group]
        first = next(
            (i for i, file in enumerate(files) if file is None or per_file is None or counts[file] < per_file), None
        )
        if first is not None:
            counts[files[first]] += 1
            others = tuple(
                ChunkRecord(hit.id, hit.chunk, hit.source, hit.store) for hit in (*group[:first], *group[first + 1 :])
            )
            kept.append(replace(group[first], duplicates=others))
    return kept


def _file(hit: Hit) -> _Identity | None:
    """Return the store and the name of the file that a chunk counts for."""
    source = hit.chunk.metadata.get("source") if hit.source is None else hit.source
    return (hit.store, source) if isinstance(source, str) else None


def _scores(hits: Sequence[Hit]) -> Doubles:
    """Return the scores that order the hits; a hit without a reranker score gets the lowest reranker score."""
    reranked = [hit.rerank for hit in hits if hit.rerank is not None]
    if not reranked:
        return np.array([hit.score for hit in hits], dtype=np.float64)
    least = min(reranked)
    return np.array([least if hit.rerank is None else hit.rerank for hit in hits], dtype=np.float64)


def _as_cosines(scores: Doubles, cosines: Floats) -> Floats:
    """Scale ``scores`` linearly to the range of ``cosines``, to make them comparable with cosines between chunks."""
    low, high = float(scores.min()), float(scores.max())
    least, most = float(cosines.min()), float(cosines.max())
    shares = (scores - low) / (high - low) if high > low else np.ones_like(scores)
    return np.asarray(least + shares * (most - least), dtype=np.float32)


def mmr(query: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Return the positions of ``k`` of ``vectors`` by maximal marginal relevance, in the order of choice.

    Each choice has the highest ``lambda_mult`` times its cosine with the query, minus ``1 - lambda_mult`` times its
    highest cosine with an earlier choice. Ties go to the first (Carbonell & Goldstein 1998, "The use of MMR").
    ``query``, shape ``(d,)``, and ``vectors``, shape ``(n, d)``, are unit vectors.
    """
    return mmr_by_relevance(vectors @ query, vectors, k, lambda_mult)


def mmr_by_relevance(relevance: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Choose as :func:`mmr` does, with any ``relevance``, shape ``(n,)``, instead of cosines with the query."""
    relevance = lambda_mult * relevance
    likeness = np.zeros(len(vectors), dtype=np.float32)  # The first choice depends on relevance only.
    left = np.ones(len(vectors), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < min(k, len(vectors)):
        best = int(np.argmax(np.where(left, relevance - (1 - lambda_mult) * likeness, -np.inf)))
        cosines = vectors @ vectors[best]
        likeness = cosines if not chosen else np.maximum(likeness, cosines)
        left[best] = False
        chosen.append(best)
    return chosen
