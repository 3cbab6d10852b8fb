"""Search of a snapshot: dense, lexical and hybrid."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice, zip_longest
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ragembed.documents.normalisation import normalise
from ragembed.errors import ConfigError
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.analyzer import of_language
from ragembed.indexes.search import dense
from ragembed.indexes.search.fusion import Fusion, read_weight
from ragembed.indexes.search.hybrid import DEEPER, DEPTH, Candidates, LexicalMatches, tiers
from ragembed.indexes.search.ranking import RankingOptions, Source, mmr, rank
from ragembed.indexes.search.relevance import RelevanceModel, check_least, matched_share, note_unknown
from ragembed.indexes.search.snapshot import Snapshot, unread_share, vectors_of
from ragembed.indexes.storage.selection import Admission, among
from ragembed.indexes.types import Hit, Keys, Rows
from ragembed.postprocess import unit_rows
from ragembed.resources import processors
from ragembed.stopping import check
from ragembed.types import Doubles, Floats

Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)
Parts: TypeAlias = "Sequence[tuple[float | None, float | None]]"
"""Cosine and BM25 of chunks."""
Vectors: TypeAlias = "Callable[[], Floats]"
"""Returns the vectors of queries, shape ``(n, d)``, when they are needed."""
Relevance: TypeAlias = "Callable[[float | None, float | None], float | None]"
"""Returns the relevance of a hit for its cosine and its BM25."""
QueryVectors: TypeAlias = "Callable[[int, int], Vectors | None]"
"""Returns the vectors of the queries from a number up to, not including, another; None for lexical search."""


class _Processors:
    """What the searches of a process share: ``places`` for as many as there are processors, and ``threads`` for them.

    More searches at once would wait for one another, at half the rate.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start without searches and threads, as in a child process."""
        self.places = threading.BoundedSemaphore(processors())
        self.threads = ThreadPoolExecutor(processors(), thread_name_prefix="ragembed-query")


_PROCESSORS = _Processors()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESSORS.renew)

_DENSE_DEPTH = 50
"""Number of chunks that dense and lexical search find first; it grows by the factor ``DEEPER``."""
_BLOCK = 500
_RANK_CONSTANT = 60.0
"""Constant of reciprocal rank fusion: a higher value reduces the advantage of the first ranks."""
_QUERIES_AT_ONCE = 32
"""Queries of hybrid search that are encoded together, in one thread, while another searches for those before them."""


def search(
    snapshot: Snapshot,
    queries: Sequence[str],
    k: int,
    mode: Mode,
    where: Filter | None,
    fusion: Fusion,
    ranking: RankingOptions | None = None,
    trace: list[Candidates] | None = None,
    min_relevance: float | None = None,
    given: Floats | None = None,
) -> list[list[Hit]]:
    """Return the best ``k`` chunks that match ``where`` for each of ``queries``, best first.

    Ties are ordered by file, then by order of insertion. Chunks that hold only boilerplate are never returned.
    ``ranking`` adds steps after scoring. Hybrid search appends the candidates that it read last to ``trace``. Hits with
    less than ``min_relevance`` are left out; those whose relevance is unknown stay, with a warning. ``given`` are
    vectors of the queries, shape ``(n, d)``, to search with instead of those that the embedder makes. Raises
    :class:`ConfigError` for an unknown mode, a negative ``k``, or a ``min_relevance`` that is out of range.
    """
    _require_mode(mode)
    model = snapshot.relevance()
    check_least(min_relevance)
    k = _within(snapshot, k)
    if k == 0 or not queries:
        return [[] for _ in queries]
    queries = [normalise(query) for query in queries]
    with _PROCESSORS.places:
        check()  # the search may have waited for long
        request = _Request(snapshot, k, mode, fusion, snapshot.select(where), model, min_relevance, trace)
        found = _results(request, queries, _vectors(snapshot, queries, mode, given), ranking)
    if min_relevance is not None:
        note_unknown(chain.from_iterable(found), min_relevance, model, snapshot.count())
    return found


def sources(
    snapshot: Snapshot,
    queries: Sequence[str],
    k: int,
    mode: Mode,
    where: Filter | None,
    fusion: Fusion,
    min_relevance: float | None = None,
) -> list[Source]:
    """Return the candidates of each query; arguments and errors are those of :func:`search`."""
    _require_mode(mode)
    model = snapshot.relevance()
    check_least(min_relevance)
    request = _Request(snapshot, _within(snapshot, k), mode, fusion, snapshot.select(where), model, min_relevance)
    queries = [normalise(query) for query in queries]
    vectors = _vectors(snapshot, queries, mode)
    return [_source(request, query, vectors(i, i + 1)) for i, query in enumerate(queries)]


def by_rank(sources: Sequence[Source]) -> Source:
    """Return the candidates of several sources, ordered by their ranks there (Cormack, Clarke & Büttcher 2009).

    The score is ``1 / (60 + rank)``. Candidates of the same rank are ordered by their relevance, if it is known.
    """

    def candidates() -> Iterator[Hit]:
        for place, tier in enumerate(zip_longest(*(each.candidates for each in sources)), 1):
            hits = [hit for hit in tier if hit is not None]
            for hit in sorted(hits, key=lambda hit: -(hit.relevance or 0.0)):
                yield replace(hit, score=1.0 / (_RANK_CONSTANT + place))

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        raise ConfigError(
            f"{len(hits)} hits come from stores with different embedders, whose vectors cannot be compared: leave out "
            "mmr, or search stores with the same embedder"
        )

    def is_deleted(hit: Hit) -> bool:
        return any(each.is_deleted(hit) for each in sources)

    return Source(sources[0].query, candidates(), geometry, is_deleted)


def search_vectors(snapshot: Snapshot, vectors: Floats, k: int, where: Filter | None = None) -> list[list[Hit]]:
    """Return the ``k`` chunks nearest to each query vector, shape ``(n, d)``, by cosine, best first."""
    k = _within(snapshot, k)
    if k == 0:
        return [[] for _ in vectors]
    return _results(
        _Request(snapshot, k, "dense", Fusion(), snapshot.select(where)),
        [""] * len(vectors),
        _vectors(snapshot, (), "dense", vectors),
    )


def search_mmr(
    snapshot: Snapshot, vector: Floats, k: int, fetch_k: int, lambda_mult: float, where: Filter | None = None
) -> list[Hit]:
    """Choose ``k`` of the ``fetch_k`` chunks nearest to a query vector, shape ``(d,)``, that are unlike each other.

    See :func:`ragembed.indexes.search.ranking.mmr`. Hits are in the order of choice.
    """
    if not 0 <= lambda_mult <= 1:
        raise ConfigError(
            f"lambda_mult is {lambda_mult}: expected a number from 0 (unlike each other) to 1 (near the query)"
        )
    [hits] = search_vectors(snapshot, vector[None, :], max(k, fetch_k), where)
    if not hits:
        _within(snapshot, k)
        return []
    vectors = vectors_of(snapshot, hits)
    return [hits[i] for i in mmr(unit_rows(vector[None, :])[0], vectors, _within(snapshot, k), lambda_mult)]


def _vectors(snapshot: Snapshot, queries: Sequence[str], mode: Mode, given: Floats | None = None) -> QueryVectors:
    """Return query vectors: None for lexical search, those ``given``, or those that another thread encodes."""
    if mode == "lexical":
        return lambda start, stop: None  # noqa: ARG005
    if given is None and mode == "hybrid":
        return _EncodedAhead(snapshot.embedder().encode_queries, queries).part
    vectors = snapshot.embedder().encode_queries(queries) if given is None else given
    return lambda start, stop: lambda: vectors[start:stop]


class _EncodedAhead:
    """The vectors of queries. Another thread begins to encode a block when the one before it is needed."""

    def __init__(self, encode: Callable[[Sequence[str]], Floats], queries: Sequence[str]) -> None:
        self._encode, self._queries = encode, queries
        self._blocks: list[Vectors] = []
        self._begin(1)

    def part(self, start: int, stop: int) -> Vectors:
        """Return a function that returns the vectors of the queries from ``start`` up to, not including, ``stop``."""

        def vectors() -> Floats:
            first, last = start // _QUERIES_AT_ONCE, (min(stop, len(self._queries)) - 1) // _QUERIES_AT_ONCE
            self._begin(last + 2)
            found = np.concatenate([block() for block in self._blocks[first : last + 1]])
            return found[start - first * _QUERIES_AT_ONCE :][: stop - start]

        return vectors

    def _begin(self, blocks: int) -> None:
        for start in range(len(self._blocks) * _QUERIES_AT_ONCE, len(self._queries), _QUERIES_AT_ONCE)[
            : max(0, blocks - len(self._blocks))
        ]:
            self._blocks.append(_begun(partial(self._encode, self._queries[start : start + _QUERIES_AT_ONCE])))


def _begun(job: Vectors) -> Vectors:
    """Begin ``job`` in another thread; return a function for its result, which runs it if no thread was free."""
    future = _PROCESSORS.threads.submit(job)
    return cache(lambda: job() if future.cancel() else future.result())


def _results(
    request: _Request, queries: Sequence[str], vectors: QueryVectors, ranking: RankingOptions | None = None
) -> list[list[Hit]]:
    """Return the results for each query."""
    if ranking is not None:
        sources = (_source(request, query, vectors(i, i + 1)) for i, query in enumerate(queries))
        return [rank(source, request.k, ranking) for source in sources]
    found: list[list[Hit]] = []
    size = _QUERIES_AT_ONCE if request.mode == "hybrid" else len(queries)
    for start in range(0, len(queries), size):
        ranked = request.ranked(queries[start : start + size], vectors(start, start + size))
        found += [list(islice(hits, request.k)) for hits in ranked]
    return found


def _source(request: _Request, query: str, vector: Vectors | None) -> Source:
    """Return the candidates of one query, whose vector has shape ``(1, d)``; it is None for lexical search."""
    snapshot = request.snapshot

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        query_vector = snapshot.embedder().encode_queries([query]) if vector is None else vector()
        return unit_rows(query_vector)[0], vectors_of(snapshot, hits)

    def is_deleted(hit: Hit) -> bool:
        return snapshot.file_states([hit], read=False) == ["deleted"]

    [candidates] = request.ranked([query], vector)
    return Source(query, candidates, geometry, is_deleted)


@dataclass(frozen=True, slots=True)
class _Request:
    """The settings of a search, independent of the query.

    Chunks are read ``k`` at once. ``model`` computes the relevance of hits; those with less than ``least`` are left
    out. ``trace`` receives the candidates of hybrid search.
    """

    snapshot: Snapshot
    k: int
    mode: Mode
    fusion: Fusion
    selection: Admission | None
    model: RelevanceModel | None = None
    least: float | None = None
    trace: list[Candidates] | None = None

    def ranked(self, queries: Sequence[str], vectors: Vectors | None) -> list[Iterator[Hit]]:
        """Return the chunks for each query, best first, read as needed; ``vectors`` is None for lexical search."""
        snapshot = self.snapshot
        expressions = [None if self.mode == "dense" else query_expression(snapshot, query) for query in queries]
        if vectors is None:
            by_query = [self._lexical(expression) for expression in expressions]
        else:
            words = {
                i: LexicalMatches.of(snapshot, expression, DEPTH, self.selection).with_vectors(snapshot)
                for i, expression in enumerate(expressions)
                if expression is not None
            }
            encoded = vectors()
            without_words = [i for i in range(len(queries)) if i not in words]
            found = dict(zip(without_words, self._dense(encoded[without_words]), strict=True))
            found |= self._hybrid(queries, unit_rows(encoded), words)
            by_query = [found[i] for i in range(len(queries))]
        together = zip(queries, expressions, by_query, strict=True)
        return [self._hits(of_query, self._relevance(query, expression)) for query, expression, of_query in together]

    def _relevance(self, query: str, expression: str | None) -> Relevance | None:
        """Return the function from cosine and BM25 of a hit of ``query`` to its relevance, or None without a model."""
        model = self.model
        if model is None:
            return None
        highest = None if expression is None else self.snapshot.highest_score(expression)
        read = 1.0 if self.mode == "lexical" else read_weight(unread_share(self.snapshot, query))
        return lambda cosine, bm25: model.of(cosine, matched_share(bm25, highest), read)

    def _lexical(self, expression: str | None) -> Iterator[_Tier]:
        """Yield tiers by BM25: the best matches, and those of deeper and deeper searches."""
        if not expression:
            return
        for depth in _depths(self.snapshot.count()):
            keys, scores = self.snapshot.matches(expression, depth, self.selection)
            yield _Tier(keys, scores, partial(_words_only, scores))
            if len(keys) < depth:
                return

    def _dense(self, vectors: Floats) -> list[Iterator[_Tier]]:
        """Return tiers by cosine: the nearest chunks, and those of deeper and deeper searches."""

        def tier(keys: Keys, cosines: Doubles) -> _Tier:
            order = np.argsort(-cosines, kind="stable")
            return _Tier(keys[order], cosines[order], partial(_vectors_only, cosines[order]))

        def all_tiers(vector: Floats, first: tuple[Keys, Doubles]) -> Iterator[_Tier]:
            yield tier(*first)
            for depth in deeper:
                yield tier(*dense.nearest(self.snapshot, vector[None, :], depth, self.selection)[0])

        start, *deeper = _depths(self.snapshot.count())
        nearest = dense.nearest(self.snapshot, vectors, start, self.selection)
        return [all_tiers(*each) for each in zip(vectors, nearest, strict=True)]

    def _hybrid(
        self, queries: Sequence[str], vectors: Floats, words: Mapping[int, LexicalMatches]
    ) -> dict[int, Iterator[_Tier]]:
        """Return tiers by fused score for the queries that have ``words``, by their position."""
        by_fusion: dict[Fusion, list[int]] = {}
        for i in words:
            by_fusion.setdefault(self.fusion.for_unread(unread_share(self.snapshot, queries[i])), []).append(i)
        found: dict[int, Iterator[_Tier]] = {}
        for fusion, at in by_fusion.items():
            worded = [words[i] for i in at]
            candidates = tiers(self.snapshot, vectors[at], worded, self.selection, fusion)
            for i, of_query in zip(at, candidates, strict=True):
                found[i] = self._by_score(of_query, vectors[i], words[i])
        return found

    def _by_score(self, candidates: Iterator[Candidates], vector: Floats, words: LexicalMatches) -> Iterator[_Tier]:
        """Yield tiers with fused scores, and the cosine and BM25 of the query as it is, not moved by feedback."""
        for each in candidates:
            if self.trace is not None:
                self.trace.append(each)

            def parts(at: Rows, keys: Keys = each.keys) -> Parts:
                cosines = words.chunk_vectors(self.snapshot).cosines(vector, keys[at])
                return list(zip(cosines.tolist(), words.of_chunks(keys[at]).tolist(), strict=True))

            yield _Tier(each.keys, each.scores, parts)

    def _hits(self, tiers: Iterator[_Tier], relevance: Relevance | None) -> Iterator[Hit]:
        """Yield the chunks of each tier that no tier before has, by score, then by file and key.

        A tier that scores them higher than the one before is moved down. The last tier that is read for ``least`` is
        the first in which no chunk is relevant enough.
        """
        seen, last = np.zeros(0, dtype=np.int64), np.inf
        for tier in tiers:
            at = np.flatnonzero(~among(tier.keys, seen))
            if not len(at):
                continue
            scores = np.minimum(tier.scores[at] - max(0.0, tier.scores[at[0]] - last), last)
            seen, last = np.sort(np.concatenate([seen, tier.keys[at]])), scores[-1]
            relevant = yield from self._in_order(tier, at, scores, relevance)
            if not relevant:
                return

    def _in_order(
        self, tier: _Tier, at: Rows, scores: Doubles, relevance: Relevance | None
    ) -> Generator[Hit, None, bool]:
        """Yield the chunks ``at`` in a tier, in blocks of ``k`` and ties; return whether any is relevant enough."""
        any_relevant, start, size = False, 0, max(self.k, 1)
        while start < len(at):
            stop = min(start + size, len(at))
            while stop < len(at) and scores[stop] == scores[stop - 1]:
                stop += 1
            together = zip(
                tier.keys[at[start:stop]].tolist(), scores[start:stop].tolist(), tier.parts(at[start:stop]), strict=True
            )
            block = [(*each, None if relevance is None else relevance(*each[2])) for each in together]
            if self.least is not None:
                block = [each for each in block if each[3] is None or each[3] >= self.least]
            records = self.snapshot.chunks_by_key([key for key, *_ in block])
            for key, score, parts, value in sorted(
                block, key=lambda each: (-each[1], records[each[0]].source or "", each[0])
            ):
                record = records[key]
                yield Hit(record.id, record.chunk, record.source, score, *parts, store=record.store, relevance=value)
            any_relevant = any_relevant or bool(block)
            start, size = stop, min(size, _BLOCK)
        return any_relevant


class _Tier(NamedTuple):
    """Chunks by score, best first; ``parts`` returns cosine and BM25 of those at some positions."""

    keys: Keys
    scores: Doubles
    parts: Callable[[Rows], Parts]


def _words_only(scores: Doubles, at: Rows) -> Parts:
    return [(None, score) for score in scores[at].tolist()]


def _vectors_only(cosines: Doubles, at: Rows) -> Parts:
    return [(cosine, None) for cosine in cosines[at].tolist()]


def _depths(count: int) -> list[int]:
    """Return the depths of searches until all of ``count`` chunks are read."""
    depths = [_DENSE_DEPTH]
    while depths[-1] < count:
        depths.append(DEEPER * depths[-1])
    return depths


def query_expression(snapshot: Snapshot, query: str) -> str | None:
    """Return a query as an FTS5 expression with the terms of the store, or None if it has no words."""
    return fulltext.match_expression(normalise(query), of_language(snapshot.language()))


def _require_mode(mode: Mode) -> None:
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")


def _within(snapshot: Snapshot, k: int) -> int:
    """Return ``k``, limited to the number of chunks; raise :class:`ConfigError` if it is negative."""
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more")
    return min(k, snapshot.count())
