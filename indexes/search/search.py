"""Search of a snapshot: dense, lexical and hybrid."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice, zip_longest
from typing import Literal, TypeAlias, get_args

import numpy as np

from ragembed.documents.normalisation import normalise
from ragembed.errors import ConfigError
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search import dense
from ragembed.indexes.search.fusion import Fusion, read_weight
from ragembed.indexes.search.hybrid import DEPTH, Candidates, LexicalMatches, candidates
from ragembed.indexes.search.ranking import RankingOptions, Source, mmr, rank
from ragembed.indexes.search.relevance import RelevanceModel, at_least, check_least, with_relevance
from ragembed.indexes.search.snapshot import Snapshot, unread_share, vectors_of
from ragembed.indexes.storage.selection import Admission
from ragembed.indexes.text.analyzer import of_language
from ragembed.indexes.types import Hit, Keys
from ragembed.postprocess import unit_rows
from ragembed.resources import processors
from ragembed.types import Doubles, Floats

Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)
Parts: TypeAlias = "Sequence[tuple[float | None, float | None]]"
"""Cosine and BM25 of chunks."""
Vectors: TypeAlias = "Callable[[], Floats]"
"""Returns the vectors of queries, shape ``(n, d)``, when they are needed."""


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

_CANDIDATES_PER_HIT = 10
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
    less than ``min_relevance`` are left out. Raises :class:`ConfigError` for an unknown mode, a negative ``k``, or a
    ``min_relevance`` that is out of range, or that the store cannot compare with. ``given`` are vectors of the queries,
    shape ``(n, d)``, to search with instead of those that the embedder makes.
    """
    _require_mode(mode)
    model = snapshot.relevance()
    check_least(min_relevance, model)
    k = _within(snapshot, k)
    if k == 0 or not queries:
        return [[] for _ in queries]
    queries = [normalise(query) for query in queries]
    with _PROCESSORS.places:
        request = _Request(snapshot, k, mode, fusion, snapshot.select(where), trace)
        vectors = _vectors(snapshot, queries, mode, given)
        highest = [None if model is None else request.highest(query) for query in queries]
        found = _results(request, queries, vectors, ranking)
    if model is not None:
        read = [request.read_share(query) for query in queries]
        found = [with_relevance(model, *of_one) for of_one in zip(found, highest, read, strict=True)]
    return found if min_relevance is None else [at_least(hits, min_relevance) for hits in found]


def sources(
    snapshot: Snapshot, queries: Sequence[str], k: int, mode: Mode, where: Filter | None, fusion: Fusion
) -> list[Source]:
    """Return the candidates of each query, with their relevance; raise as :func:`search` does."""
    _require_mode(mode)
    model = snapshot.relevance()
    request = _Request(snapshot, _within(snapshot, k), mode, fusion, snapshot.select(where))
    queries = [normalise(query) for query in queries]
    vectors = _vectors(snapshot, queries, mode)
    found = [_source(request, query, vectors(i, i + 1)) for i, query in enumerate(queries)]
    if model is None:
        return found
    return [_with_relevance(each, model, request.highest(each.query), request.read_share(each.query)) for each in found]


def _with_relevance(source: Source, model: RelevanceModel, highest: float | None, read: float) -> Source:
    def candidates(depth: int) -> Iterator[Hit]:
        return (with_relevance(model, [hit], highest, read)[0] for hit in source.candidates(depth))

    return replace(source, candidates=candidates)


def by_rank(sources: Sequence[Source]) -> Source:
    """Return the candidates of several sources, ordered by their ranks there (Cormack, Clarke & Büttcher 2009).

    The score is ``1 / (60 + rank)``. Candidates of the same rank are ordered by their relevance, if it is known.
    """

    def candidates(depth: int) -> Iterator[Hit]:
        streams = [each.candidates(min(depth, each.most)) for each in sources if each.most]
        for place, tier in enumerate(zip_longest(*streams), 1):
            hits = [hit for hit in tier if hit is not None]
            for hit in sorted(hits, key=lambda hit: -(hit.relevance or 0.0)):
                yield replace(hit, score=1.0 / (_RANK_CONSTANT + place))

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        raise ConfigError(
            f"{len(hits)} hits come from stores with different embedders, whose vectors cannot be compared: leave out "
            "mmr, or search stores with the same embedder"
        )

    return Source(sources[0].query, candidates, sum(each.most for each in sources), geometry)


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
    """Return the vectors of the queries, which are None for lexical search: those ``given``, or those of the embedder.

    For hybrid search, another thread encodes them, a block ahead.
    """
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
    """Begin ``job`` in another thread, and return a function that returns its result.

    The caller runs the job itself if no thread has begun it by then.
    """
    future = _PROCESSORS.threads.submit(job)
    return cache(lambda: job() if future.cancel() else future.result())


def _results(
    request: _Request, queries: Sequence[str], vectors: QueryVectors, ranking: RankingOptions | None = None
) -> list[list[Hit]]:
    """Return the results for each query."""
    if ranking is None:
        found: list[list[Hit]] = []
        size = _QUERIES_AT_ONCE if request.mode == "hybrid" else len(queries)
        for start in range(0, len(queries), size):
            some, part = queries[start : start + size], vectors(start, start + size)
            found += [list(islice(hits, request.k)) for hits in request.ranked(some, part, request.k)]
        return found
    return [rank(_source(request, query, vectors(i, i + 1)), request.k, ranking) for i, query in enumerate(queries)]


def _source(request: _Request, query: str, vector: Vectors | None) -> Source:
    """Return the candidates of one query, whose vector has shape ``(1, d)``; it is None for lexical search."""
    snapshot = request.snapshot

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        query_vector = snapshot.embedder().encode_queries([query]) if vector is None else vector()
        return unit_rows(query_vector)[0], vectors_of(snapshot, hits)

    most = snapshot.count()
    return Source(query, lambda candidate_depth: request.ranked([query], vector, candidate_depth)[0], most, geometry)


@dataclass(frozen=True, slots=True)
class _Request:
    """The settings of a search, independent of the query. ``trace`` receives the candidates of hybrid search."""

    snapshot: Snapshot
    k: int
    mode: Mode
    fusion: Fusion
    selection: Admission | None
    trace: list[Candidates] | None = None

    def ranked(self, queries: Sequence[str], vectors: Vectors | None, candidate_depth: int) -> list[Iterator[Hit]]:
        """Return the best chunks for each query, best first: at least ``candidate_depth``, or all if there are fewer.

        ``vectors`` returns the query vectors; it is None for lexical search.
        """
        expressions = [None if self.mode == "dense" else query_expression(self.snapshot, query) for query in queries]
        if vectors is None:
            return [_lexical(self.snapshot, expression, candidate_depth, self.selection) for expression in expressions]
        depth = max(DEPTH, _CANDIDATES_PER_HIT * self.k, candidate_depth)
        words = {
            i: LexicalMatches.of(self.snapshot, expression, depth, self.selection).with_vectors(self.snapshot)
            for i, expression in enumerate(expressions)
            if expression is not None
        }
        without_words = [i for i in range(len(queries)) if i not in words]
        ranked: list[Iterator[Hit]] = [iter(()) for _ in queries]
        nearest = dense.nearest(self.snapshot, vectors()[without_words], candidate_depth, self.selection)
        for i, cosines in zip(without_words, nearest, strict=True):
            ranked[i] = _nearest_first(self.snapshot, *cosines, candidate_depth)
        with_words = list(words)
        texts = [queries[i] for i in with_words]
        hybrid = self._hybrid(texts, vectors()[with_words], list(words.values()), depth, candidate_depth)
        for i, hits in zip(with_words, hybrid, strict=True):
            ranked[i] = hits
        return ranked

    def highest(self, query: str) -> float | None:
        """Return the highest BM25 that a text could have for a query, or None if the mode does not compute BM25."""
        expression = None if self.mode == "dense" else query_expression(self.snapshot, query)
        return None if expression is None else self.snapshot.highest_score(expression)

    def read_share(self, query: str) -> float:
        """Return the weight of the vector of a query, from 1 to 0, by how much of it the model can read."""
        return 1.0 if self.mode == "lexical" else read_weight(unread_share(self.snapshot, query))

    def _hybrid(
        self,
        queries: Sequence[str],
        vectors: Floats,
        words: Sequence[LexicalMatches],
        depth: int,
        candidate_depth: int,
    ) -> list[Iterator[Hit]]:
        if not words:
            return []
        vectors = unit_rows(vectors)
        fusions = [self.fusion.for_unread(unread_share(self.snapshot, query)) for query in queries]
        fused: dict[int, Candidates] = {}
        for fusion in dict.fromkeys(fusions):
            at = [i for i, each in enumerate(fusions) if each == fusion]
            some = [words[i] for i in at]
            texts = [queries[i] for i in at]
            of_fusion = candidates(
                self.snapshot, vectors[at], some, depth, candidate_depth, self.selection, fusion, queries=texts
            )
            fused.update(zip(at, of_fusion, strict=True))
        found = [fused[i] for i in range(len(queries))]
        if self.trace is not None:
            self.trace.extend(found)
        together = zip(vectors, found, words, strict=True)
        return [_hybrid_hits(self.snapshot, vector, each, of_one, candidate_depth) for vector, each, of_one in together]


def query_expression(snapshot: Snapshot, query: str) -> str | None:
    """Return a query as an FTS5 expression with the terms of the store, or None if it has no words."""
    return fulltext.match_expression(normalise(query), of_language(snapshot.language()))


def _lexical(snapshot: Snapshot, expression: str | None, k: int, selection: Admission | None) -> Iterator[Hit]:
    if not expression:
        return iter(())
    keys, scores = snapshot.matches(expression, k, selection)
    return _in_order(snapshot, keys, scores, lambda part: [(None, score) for score in scores[part].tolist()], k)


def _nearest_first(snapshot: Snapshot, keys: Keys, cosines: Doubles, k: int) -> Iterator[Hit]:
    order = np.argsort(-cosines, kind="stable")
    keys, cosines = keys[order], cosines[order]
    return _in_order(snapshot, keys, cosines, lambda part: [(cosine, None) for cosine in cosines[part].tolist()], k)


def _hybrid_hits(snapshot: Snapshot, vector: Floats, found: Candidates, words: LexicalMatches, k: int) -> Iterator[Hit]:
    """Yield the best chunks first, with fused scores, and the cosine and BM25 of the unmoved query."""

    def parts(part: slice) -> Parts:
        keys = found.keys[part]
        cosines = words.chunk_vectors(snapshot).cosines(vector, keys)
        return list(zip(cosines.tolist(), words.of_chunks(keys).tolist(), strict=True))

    return _in_order(snapshot, found.keys, found.scores, parts, k)


def _in_order(
    snapshot: Snapshot, keys: Keys, scores: Doubles, parts: Callable[[slice], Parts], k: int
) -> Iterator[Hit]:
    """Yield chunks by score, best first. Their ``keys`` are given by score, then ascending.

    Chunks are read in blocks. The first block has ``k`` chunks and those that tie with the last. ``parts`` returns the
    cosine and BM25 for a slice of the keys.
    """
    start, size = 0, max(k, 1)
    while start < len(keys):
        stop = min(start + size, len(keys))
        while stop < len(keys) and scores[stop] == scores[stop - 1]:
            stop += 1
        block = slice(start, stop)
        records = snapshot.chunks_by_key(keys[block].tolist())
        together = zip(keys[block].tolist(), scores[block].tolist(), parts(block), strict=True)
        for key, score, both in sorted(together, key=lambda each: (-each[1], records[each[0]].source or "", each[0])):
            record = records[key]
            yield Hit(record.id, record.chunk, record.source, score, *both, store=record.store)
        start, size = stop, min(size, _BLOCK)


def _require_mode(mode: Mode) -> None:
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")


def _within(snapshot: Snapshot, k: int) -> int:
    """Return ``k``, limited to the number of chunks; raise :class:`ConfigError` if it is negative."""
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more")
    return min(k, snapshot.count())
