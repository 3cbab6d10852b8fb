"""From scored candidates to results: near-duplicates folded, reranked, few of a file, unlike each other.

The order of the steps, and why, is in ``docs/search.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.indexes.search import mmr
from ragembed.indexes.search.deduplication import NearDuplicates
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.reranking import Reranker

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_LEAST_READ = 30
"""Candidates whose near-duplicates are told, at least."""
_FIRST_LOOK, _DEEPER = 2, 4
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

    def wanted(self, k: int) -> int:
        """Return how many of the best there must be to choose ``k`` from."""
        return k if self.mmr is None else max(k, self.mmr_depth)

    def needed(self, k: int) -> int:
        """Return how many candidates there must be, near-duplicates apart."""
        return max(self.wanted(k), 0 if self.reranker is None else self.rerank_depth)

    def first_look(self, k: int) -> int:
        """Return how many candidates to ask for at first; no more are needed where few are left out."""
        return _FIRST_LOOK * max(self.needed(k), _LEAST_READ)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the candidates of one question come from.

    ``candidates(n)`` yields at least ``n`` of them, best first, or all that there are; ``most`` is the number of chunks
    of the store. ``geometry(hits)`` returns the question's unit vector, float32, shape ``(d,)``, and those of hits,
    shape ``(n, d)``.
    """

    question: str
    candidates: Callable[[int], Iterator[Hit]]
    most: int
    geometry: Callable[[Sequence[Hit]], tuple[Floats, Floats]]


def arranged(source: Source, k: int, ranking: RankingOptions) -> list[Hit]:
    """Return the best ``k`` of the candidates as ``ranking`` says, all where there are fewer.

    Looks deeper for as long as too many are left out. Raises :class:`ConfigError` where a reranker does not give a
    finite score for each text.
    """
    wanted, needed = ranking.wanted(k), ranking.needed(k)
    scores: dict[str, float] = {}
    best: list[Hit] = []
    look = min(ranking.first_look(k), source.most)
    while True:
        pile = DuplicateGroups(source.candidates(look), ranking.dedupe)
        if pile.fill(needed) or pile.is_all_of(look, source.most):
            best = _best(pile, source.question, ranking, wanted, needed, scores)
            if len(best) >= wanted or pile.is_all_of(look, source.most):
                break
        look = min(_DEEPER * look, source.most)
    if ranking.mmr is None or not best:
        return best[:k]
    pool = best[:wanted]
    question, vectors = source.geometry(pool)
    relevance = _as_cosines(_scores(pool), vectors @ question)
    return [pool[i] for i in mmr.choose(relevance, vectors, k, ranking.mmr)]


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

    def is_all_of(self, look: int, most: int) -> bool:
        """Tell, once all candidates are read, whether there are no more; ``look`` of ``most`` were asked for."""
        return self.read < look or look >= most


def _best(
    pile: DuplicateGroups,
    question: str,
    ranking: RankingOptions,
    wanted: int,
    needed: int,
    scores: dict[str, float],
) -> list[Hit]:
    """Return at least ``wanted`` hits, reranked and few of a file, or all that the pile gives."""
    while True:
        is_full = pile.fill(needed)
        groups = pile.groups[:needed]
        if ranking.reranker is not None:
            groups = _reranked(groups, question, ranking.reranker, ranking.rerank_depth, scores)
        best = _few_of_a_file(groups, ranking.per_file)
        if len(best) >= wanted or not is_full:
            return best
        needed *= _DEEPER


def _reranked(
    groups: Sequence[list[Hit]], question: str, reranker: Reranker, depth: int, scores: dict[str, float]
) -> list[list[Hit]]:
    """Order the first ``depth`` groups by the scores of their best, which are kept in ``scores`` by id."""
    read, rest = groups[:depth], groups[depth:]
    new = [group[0] for group in read if group[0].id not in scores]
    texts = [hit.chunk.embedded_text for hit in new]
    found = [float(score) for score in reranker.scores(question, texts)] if texts else []
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
