"""From scored candidates to results: near-duplicates folded, reranked, few of a file, unlike each other.

The order of the steps, and why, is in ``docs/how-to/search.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.search.deduplication import NearDuplicates
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.reranking import Reranker
from ragembed.types import Doubles, Floats

_LEAST_READ = 30
"""Candidates whose near-duplicates are told, at least."""
_FIRST_DEPTH, _DEEPER = 2, 4
"""How many times as many candidates as are needed are looked at first, and how many times more then."""


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """How candidates become results once they are scored; by default they are ordered by score.

    Parameters
    ----------
    dedupe
        Whether a chunk whose words nearly repeat those of a better one is folded into it.
    reranker
        Scores the best candidates again and reads each together with the query, as
        :class:`ragembed.reranking.CrossEncoderReranker` does.
    rerank_depth
        Number of candidates that the reranker reads, 1 or more; the rest comes after them.
    per_file
        Most chunks of one file, 1 or more; None for no limit. The file of a chunk that is from none is the ``source``
        in its metadata; those without are not limited.
    mmr
        From 0 (unlike each other) to 1 (by score): maximal marginal relevance (Carbonell & Goldstein 1998); None for
        the order of the scores.
    mmr_depth
        Number of candidates that maximal marginal relevance chooses from, 1 or more, where it is more than the results.

    Raises
    ------
    ConfigError
        For a value that is out of range.
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
            raise ConfigError(f"mmr is {self.mmr}: expected 0 (unlike each other) to 1 (by score)")

        if self.reranker is not None and not isinstance(self.reranker, Reranker):
            raise ConfigError(
                f"reranker is a {type(self.reranker).__name__}: expected an object with scores(question, texts), as "
                "CrossEncoderReranker('cross-encoder/ms-marco-MiniLM-L6-v2')"
            )

    def _pool_size(self, k: int) -> int:
        """Return how many of the best there must be to choose ``k`` from."""
        return k if self.mmr is None else max(k, self.mmr_depth)

    def _distinct_candidates(self, k: int) -> int:
        """Return how many candidates there must be, near-duplicates apart."""
        return max(self._pool_size(k), 0 if self.reranker is None else self.rerank_depth)

    def _candidate_depth(self, k: int) -> int:
        """Return how many candidates to ask for at first; more are needed only if many are left out."""
        return _FIRST_DEPTH * max(self._distinct_candidates(k), _LEAST_READ)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the candidates of one query come from.

    ``candidates(n)`` yields at least ``n`` of them, best first, or all that there are; ``most`` is the number of chunks
    of the store. ``geometry(hits)`` returns the query's unit vector, float32, shape ``(d,)``, and those of hits,
    shape ``(n, d)``.
    """

    query: str
    candidates: Callable[[int], Iterator[Hit]]
    most: int
    geometry: Callable[[Sequence[Hit]], tuple[Floats, Floats]]


def rank(source: Source, k: int, ranking: RankingOptions) -> list[Hit]:
    """Return the best ``k`` of the candidates as ``ranking`` says, all where there are fewer.

    Looks deeper for as long as too many are left out. Raises :class:`ConfigError` where a reranker does not give a
    finite score for each text.
    """
    pool_size, distinct_candidates = ranking._pool_size(k), ranking._distinct_candidates(k)
    scores: dict[str, float] = {}
    best: list[Hit] = []
    candidate_depth = min(ranking._candidate_depth(k), source.most)
    while True:
        duplicates = DuplicateGroups(source.candidates(candidate_depth), ranking.dedupe)
        if duplicates.fill(distinct_candidates) or duplicates.is_all_of(candidate_depth, source.most):
            best = _best(duplicates, source.query, ranking, pool_size, distinct_candidates, scores)
            if len(best) >= pool_size or duplicates.is_all_of(candidate_depth, source.most):
                break
        candidate_depth = min(_DEEPER * candidate_depth, source.most)
    if ranking.mmr is None or not best:
        return best[:k]
    pool = best[:pool_size]
    query_vector, vectors = source.geometry(pool)
    relevance = _as_cosines(_scores(pool), vectors @ query_vector)
    return [pool[i] for i in mmr_by_relevance(relevance, vectors, k, ranking.mmr)]


class DuplicateGroups:
    """Candidates in groups of near-duplicates, read as far as is asked for; ``read`` counts them."""

    def __init__(self, candidates: Iterator[Hit], dedupe: bool) -> None:
        self._candidates = candidates
        self._near = NearDuplicates() if dedupe else None
        self._least_read = _LEAST_READ if dedupe else 0
        self.groups: list[list[Hit]] = []
        self.read = 0

    def fill(self, count: int) -> bool:
        """Read on until one more than ``count`` groups are there, and tell whether they are."""
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

    def is_all_of(self, candidate_depth: int, most: int) -> bool:
        """Tell, once all candidates are read, whether there are no more of ``most`` chunks."""
        return self.read < candidate_depth or candidate_depth >= most


def _best(
    duplicates: DuplicateGroups,
    query: str,
    ranking: RankingOptions,
    pool_size: int,
    distinct_candidates: int,
    scores: dict[str, float],
) -> list[Hit]:
    """Return at least ``pool_size`` hits, reranked and few of a file, or all that there are."""
    while True:
        is_full = duplicates.fill(distinct_candidates)
        groups = duplicates.groups[:distinct_candidates]
        if ranking.reranker is not None:
            groups = _reranked(groups, query, ranking.reranker, ranking.rerank_depth, scores)
        best = _few_of_a_file(groups, ranking.per_file)
        if len(best) >= pool_size or not is_full:
            return best
        distinct_candidates *= _DEEPER


def _reranked(
    groups: Sequence[list[Hit]], query: str, reranker: Reranker, depth: int, scores: dict[str, float]
) -> list[list[Hit]]:
    """Order the first ``depth`` groups by the scores of their best, which are kept in ``scores`` by id."""
    read, rest = groups[:depth], groups[depth:]
    new = [group[0] for group in read if group[0].id not in scores]
    texts = [hit.chunk.embedded_text for hit in new]
    found = [float(score) for score in reranker.scores(query, texts)] if texts else []
    if len(found) != len(new) or not all(np.isfinite(found)):
        raise ConfigError(
            f"the reranker gave {found[:3]} for {len(new)} texts: expected a finite number for each of them"
        )
    scores.update(zip((hit.id for hit in new), found, strict=True))
    scored = [[replace(hit, rerank=scores[group[0].id]) for hit in group] for group in read]
    return [*sorted(scored, key=lambda group: -scores[group[0].id]), *rest]


def _few_of_a_file(groups: Sequence[list[Hit]], per_file: int | None) -> list[Hit]:
    """Return of each group the first whose file has room, with the others as its duplicates."""
    counts: Counter[str | None] = Counter()
    kept = []
    for group in groups:
        files = [_file(hit) for hit in group]
        first = next(
            (i for i, file in enumerate(files) if file is None or per_file is None or counts[file] < per_file), None
        )
        if first is not None:
            counts[files[first]] += 1
            others = tuple(ChunkRecord(hit.id, hit.chunk, hit.source) for hit in (*group[:first], *group[first + 1 :]))
            kept.append(replace(group[first], duplicates=others))
    return kept


def _file(hit: Hit) -> str | None:
    source = hit.chunk.metadata.get("source") if hit.source is None else hit.source
    return source if isinstance(source, str) else None


def _scores(hits: Sequence[Hit]) -> Doubles:
    """Return what the hits are ordered by; what the reranker did not read counts as the last that it read."""
    reranked = [hit.rerank for hit in hits if hit.rerank is not None]
    if not reranked:
        return np.array([hit.score for hit in hits], dtype=np.float64)
    least = min(reranked)
    return np.array([least if hit.rerank is None else hit.rerank for hit in hits], dtype=np.float64)


def _as_cosines(scores: Doubles, cosines: Floats) -> Floats:
    """Map ``scores`` linearly to the range of ``cosines``, so that they weigh against cosines between chunks."""
    low, high = float(scores.min()), float(scores.max())
    least, most = float(cosines.min()), float(cosines.max())
    shares = (scores - low) / (high - low) if high > low else np.ones_like(scores)
    return np.asarray(least + shares * (most - least), dtype=np.float32)


def mmr(query: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Return the positions of ``k`` of ``vectors``, in the order in which they are chosen.

    Each is the one with the highest ``lambda_mult`` times its cosine with the query, less ``1 - lambda_mult`` times its
    highest cosine with one that was chosen before; of equals the first (Carbonell & Goldstein 1998, "The use of MMR").
    ``query``, shape ``(d,)``, and ``vectors``, shape ``(n, d)``, are unit vectors.
    """
    return mmr_by_relevance(vectors @ query, vectors, k, lambda_mult)


def mmr_by_relevance(relevance: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Choose as :func:`mmr` does, by any ``relevance``, shape ``(n,)``, instead of cosines with the query."""
    relevance = lambda_mult * relevance
    likeness = np.zeros(len(vectors), dtype=np.float32)  # the first is chosen by relevance alone
    left = np.ones(len(vectors), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < min(k, len(vectors)):
        best = int(np.argmax(np.where(left, relevance - (1 - lambda_mult) * likeness, -np.inf)))
        cosines = vectors @ vectors[best]
        likeness = cosines if not chosen else np.maximum(likeness, cosines)
        left[best] = False
        chosen.append(best)
    return chosen
