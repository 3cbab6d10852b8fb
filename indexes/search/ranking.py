"""From scored candidates to results: folding near-duplicates, reranking, limiting chunks per file, and diversity.

The page "Search a store" of the documentation gives the order of the steps, and the reasons for it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.search.relevance import WEAK
from ragembed.indexes.types import ChunkRecord, Hit, source_of
from ragembed.progress import check
from ragembed.reranking import Reranker
from ragembed.types import Doubles, Floats

SHINGLE_WORDS = 3
LEAST_WORDS = 10
"""Texts with fewer words are near-duplicates only of texts with the same words; many texts would contain them."""
EXACT_WORDS = 30
"""Beyond this number of words, one word in :data:`WORDS_PER_NEW_ONE` may be new. Up to it, none may be."""
WORDS_PER_NEW_ONE = 10
WORDS_PER_NEW_NUMBER = 100
"""Words per new number that a near-duplicate may contain. Table rows that differ by a number are not duplicates."""

LEAST_BODY = 200
"""Number of characters from which equal texts are duplicates, also below other headings."""

_BITS = 32
"""Bits for the number of a word. No memory can hold so many different words."""

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Kana and Han, which are written without spaces. Each character counts as a word."""
_WORD = re.compile(
    r"[-+−]?\b\d(?:[0-9A-Za-z_.,:/+−-]*[0-9A-Za-z_])?"  # a number with its sign, a date, a version
    rf"|[{_ALONE}]|[^\W{_ALONE}]+"
    r"|[-+*/%&|^!<>=]?=|[<>]"  # operators, in which lines of code may differ
)


class NearDuplicates:
    """Texts in order, each either kept or a near-duplicate of a text that was kept before."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._same_words: dict[tuple[str, ...], int] = {}
        self._numbers: dict[str, int] = {}
        self._kept: list[set[int]] = []
        self._holders: dict[int, list[int]] = {}

    def place(self, text: str, body: str = "") -> int | None:
        """Return the number of the first kept text that ``text`` nearly duplicates, or keep ``text`` and return None.

        Kept texts are numbered from 0. ``body`` is a text without its headings.
        """
        if (known := self._seen.get(text, self._seen.get(body) if body else None)) is not None:
            return known
        words = words_of(text)
        shingles = self._shingles(words)
        number = self._same_words.get(words) if words else None
        if number is None and len(words) >= LEAST_WORDS:
            number = next((kept for kept in self._likely(words, shingles) if self._covers(kept, words, shingles)), None)
        self._seen[text] = len(self._kept) if number is None else number
        if len(body) >= LEAST_BODY:
            self._seen[body] = self._seen[text]
        if number is None:
            self._same_words.setdefault(words, len(self._kept))
            self._kept.append(set(shingles))
            for shingle in self._kept[-1]:
                self._holders.setdefault(shingle, []).append(len(self._kept) - 1)
        return number

    def _shingles(self, words: tuple[str, ...]) -> list[int]:
        """Return a number for each run of three words; only equal runs have equal numbers."""
        word_numbers = self._numbers
        numbers = [word_numbers.setdefault(word, len(word_numbers)) for word in words]
        return [
            first << 2 * _BITS | second << _BITS | third
            for first, second, third in zip(numbers, numbers[1:], numbers[2:], strict=False)
        ]

    def _likely(self, words: tuple[str, ...], shingles: list[int]) -> list[int]:
        """Return the numbers of the kept texts that may cover ``words``, in ascending order.

        A text that leaves at most n words uncovered covers at least one of any n + 1 words.
        """
        most_new = _most_new(len(words))
        holders = [self._holders.get(shingle, ()) for shingle in shingles]
        if len(words) - SHINGLE_WORDS * sum(map(bool, holders)) > most_new:
            return []
        covering = [holders[max(i - SHINGLE_WORDS + 1, 0) : i + 1] for i in range(len(words))]
        rarest = sorted(range(len(words)), key=lambda i: sum(map(len, covering[i])))[: most_new + 1]
        return sorted({kept for i in rarest for some in covering[i] for kept in some})

    def _covers(self, kept: int, words: tuple[str, ...], shingles: list[int]) -> bool:
        """Return whether the text with the number ``kept`` covers ``words``, except for as many as may be new."""
        covered = [False] * len(words)
        for i, shingle in enumerate(shingles):
            if shingle in self._kept[kept]:
                covered[i : i + SHINGLE_WORDS] = [True] * SHINGLE_WORDS
        new = [word for word, is_covered in zip(words, covered, strict=True) if not is_covered]
        new_numbers = sum(any(character.isnumeric() for character in word) for word in new)
        return len(new) <= _most_new(len(words)) and new_numbers <= len(words) // WORDS_PER_NEW_NUMBER


def words_of(text: str) -> tuple[str, ...]:
    """Return the words that texts are compared by: no case, punctuation or markup; numbers keep their signs."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _most_new(words: int) -> int:
    return max(words - EXACT_WORDS, 0) // WORDS_PER_NEW_ONE


_Identity: TypeAlias = "tuple[str | None, str]"
"""The store and the name of a file."""
_Ranked: TypeAlias = "tuple[int, float | None]"
"""The number of a group, and the reranker's score of its best hit."""

_RANK_CONSTANT = 60.0
"""Constant of reciprocal rank fusion: a higher value reduces the advantage of the first ranks."""
_LEAST_READ = 30
"""Number of candidates that are compared with each other before the first of them is a result."""


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """Steps between the scores of a search and its results. By default, there are none.

    Parameters
    ----------
    dedupe : bool, default False
        Whether to fold a chunk into a better one if its words nearly repeat those of the better one.
    reranker : ragembed.reranking.Reranker, optional
        Object that scores the best candidates again by reading each together with the query, such as
        :class:`ragembed.reranking.ModelReranker`. None keeps the scores of the search.
    rerank_depth : int, default 50
        Number of candidates that the reranker reads, 1 or more. The others follow after them.
    per_file : int, optional
        Maximum number of chunks of one file, 1 or more. None sets no limit. If a chunk comes from no file, the
        ``source`` in its metadata counts as its file. Chunks without either are not limited.
    mmr : float, optional
        Balance of maximal marginal relevance (Carbonell & Goldstein 1998), from 0 (results unlike each other) to 1
        (results by score). None orders by score.
    mmr_depth : int, default 50
        Number of candidates that maximal marginal relevance chooses from, 1 or more. The others follow after them.

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
                "such as ModelReranker('cross-encoder/ms-marco-MiniLM-L6-v2')"
            )


@dataclass(frozen=True, slots=True)
class CandidateStream:
    """The candidates of one query, best first; they are read as needed.

    ``geometry(hits)`` returns unit vectors: of the query, float32, shape ``(d,)``, and of the hits, shape ``(n, d)``.
    ``is_deleted(hit)`` returns whether the file of a hit was deleted since it was indexed.
    """

    query: str
    candidates: Iterator[Hit]
    geometry: Callable[[Sequence[Hit]], tuple[Floats, Floats]]
    is_deleted: Callable[[Hit], bool] = lambda _: False


def rank(stream: CandidateStream, k: int, ranking: RankingOptions) -> list[Hit]:
    """Return the best ``k`` candidates according to ``ranking``, or all if there are fewer.

    The order does not depend on ``k``.
    """
    groups: list[list[Hit]] = []
    ranked = _limited_per_file(_ordered(stream, ranking, groups), groups, ranking.per_file, stream.is_deleted)
    if ranking.mmr is not None:
        ranked = chain(_diverse(list(islice(ranked, ranking.mmr_depth)), stream, ranking.mmr), ranked)
    best = list(islice(ranked, k))
    return [replace(hit, duplicates=_others(groups[number], hit)) for number, hit in best]


def by_rank(streams: Sequence[CandidateStream]) -> CandidateStream:
    """Return the candidates of several streams, ordered by their ranks there (Cormack, Clarke & Büttcher 2009).

    Weak candidates wait for those of other streams that are not. The score is ``1 / (60 + rank)``, at most that of the
    candidate before. Candidates of the same rank are ordered by their relevance; an unknown one is between.
    """

    def order(numbered: tuple[int, Hit]) -> tuple[bool, int, float]:
        place, hit = numbered
        relevance = WEAK if hit.relevance is None else hit.relevance
        return relevance < WEAK, place, -relevance

    def candidates() -> Iterator[Hit]:
        score = 1.0
        for place, hit in merge(*(enumerate(stream.candidates, 1) for stream in streams), key=order):
            score = min(score, 1.0 / (_RANK_CONSTANT + place))
            yield replace(hit, score=score)

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        raise ConfigError(
            f"{len(hits)} hits come from stores with different embedders, whose vectors cannot be compared: leave out "
            "mmr, or search stores with the same embedder"
        )

    def is_deleted(hit: Hit) -> bool:
        return any(stream.is_deleted(hit) for stream in streams)

    return CandidateStream(streams[0].query, candidates(), geometry, is_deleted)


def _ordered(stream: CandidateStream, ranking: RankingOptions, groups: list[list[Hit]]) -> Iterator[_Ranked]:
    """Yield the groups of near-duplicates by their best hit, after reranking, and write them into ``groups``.

    A group that grows after that is yielded again.
    """
    near = NearDuplicates() if ranking.dedupe else None
    reranked = 0 if ranking.reranker is None else ranking.rerank_depth
    done = 0
    for read, hit in enumerate(stream.candidates, 1):
        check()
        number = None if near is None else near.place(hit.chunk.embedded_text, hit.chunk.text)
        if number is not None:
            groups[number].append(hit)
            if number < done:
                yield number, None
            continue
        groups.append([hit])
        # The last group is not yielded before another begins, so that it has its duplicates.
        ready = len(groups) if near is None else len(groups) - 1 if read >= _LEAST_READ else 0
        if ready > done and ready >= reranked:
            yield from _reranked(groups[:reranked] if not done else [], stream.query, ranking.reranker)
            yield from ((number, None) for number in range(max(done, reranked), ready))
            done = ready
    yield from _reranked(groups[:reranked] if not done else [], stream.query, ranking.reranker)
    yield from ((number, None) for number in range(max(done, reranked), len(groups)))


def _reranked(groups: Sequence[list[Hit]], query: str, reranker: Reranker | None) -> list[_Ranked]:
    """Return the numbers of ``groups`` by the reranker's score of their best hit, with these scores."""
    if reranker is None or not groups:
        return []
    scores = [float(score) for score in reranker.scores(query, [hits[0].chunk.embedded_text for hits in groups])]
    if len(scores) != len(groups) or not all(np.isfinite(scores)):
        raise ConfigError(
            f"the reranker returned {scores[:3]} for {len(groups)} texts: expected one finite number for each text"
        )
    return [(number, scores[number]) for number in sorted(range(len(scores)), key=lambda number: -scores[number])]


def _limited_per_file(
    ranked: Iterator[_Ranked], groups: Sequence[Sequence[Hit]], per_file: int | None, is_deleted: Callable[[Hit], bool]
) -> Iterator[tuple[int, Hit]]:
    """Yield the number of each group and its first hit whose file is below its limit.

    A hit whose file exists precedes those whose files were deleted.
    """
    counts: Counter[_Identity | None] = Counter()
    shown: set[int] = set()
    for number, score in ranked:
        files = [] if number in shown else [_file(hit) for hit in groups[number]]
        allowed = [i for i, file in enumerate(files) if file is None or per_file is None or counts[file] < per_file]
        if allowed:
            first = allowed[0]
            if len(allowed) > 1:
                first = next((i for i in allowed if not is_deleted(groups[number][i])), first)
            shown.add(number)
            counts[files[first]] += 1
            yield number, replace(groups[number][first], rerank=score)


def _diverse(pool: Sequence[tuple[int, Hit]], stream: CandidateStream, lambda_mult: float) -> list[tuple[int, Hit]]:
    """Return ``pool`` in the order of maximal marginal relevance."""
    if not pool:
        return []
    query_vector, vectors = stream.geometry([hit for _, hit in pool])
    relevance = _as_cosines(_scores([hit for _, hit in pool]), vectors @ query_vector)
    return [pool[i] for i in mmr_by_relevance(relevance, vectors, len(pool), lambda_mult)]


def _others(group: Sequence[Hit], best: Hit) -> tuple[ChunkRecord, ...]:
    return tuple(
        ChunkRecord(hit.id, hit.chunk, hit.source, hit.store)
        for hit in group
        if (hit.store, hit.id) != (best.store, best.id)
    )


def _file(hit: Hit) -> _Identity | None:
    """Return the store and the name of the file that a chunk counts for."""
    source = source_of(hit)
    return None if source is None else (hit.store, source)


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
    highest cosine with an earlier choice; ties go to the first (Carbonell & Goldstein 1998).
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
