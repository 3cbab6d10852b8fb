"""Search of a snapshot from queries to hits: dense, lexical and hybrid.

Each query has one ranking, whatever the number of results. It is read in tiers: the best chunks of a search, and those
of deeper and deeper searches, which rank below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ragembed.documents.normalisation import normalise
from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.vectors import among
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.analyzer import of_language
from ragembed.indexes.search import feedback
from ragembed.indexes.search.fusion import Fusion, read_weight
from ragembed.indexes.search.hybrid import (
    PROCESSORS,
    QUERIES_AT_ONCE,
    Candidates,
    EncodedAhead,
    LexicalMatches,
    fused,
    nearest_chunks,
    spread_documents,
)
from ragembed.indexes.search.ranking import CandidateStream, RankingOptions, by_rank, mmr, rank
from ragembed.indexes.search.relevance import RelevanceModel, add_note, matched_share, note_unknown
from ragembed.indexes.search.snapshot import Selected, Snapshot
from ragembed.indexes.types import Hit, Keys
from ragembed.postprocess import unit_rows
from ragembed.progress import check
from ragembed.types import Doubles, Floats

Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)

DEPTH, DEEPER = 200, 4
"""Number of best chunks of either search that become candidates, and the factor by which each deeper search grows."""
_DENSE_DEPTH = 50
"""Number of chunks that dense and lexical search find first; it grows by the factor ``DEEPER``."""
_SHOWING_KIND = 10
"""Number of first candidates that show whether a query is about source code."""
FEEDBACK_CHUNKS = 3
"""Number of first hits that feedback assumes to be relevant."""
COMPARED_BY_WORDS = 100
"""Number of candidates whose words are compared."""
_BLOCK = 500


def run_query(
    snapshot: Snapshot,
    queries: Sequence[str],
    k: int,
    mode: Mode = "hybrid",
    where: Filter | None = None,
    fusion: Fusion | None = None,
    ranking: RankingOptions | None = None,
    trace: list[Candidates] | None = None,
    min_relevance: float | None = None,
    vectors: Floats | None = None,
) -> list[list[Hit]]:
    """Return the best ``k`` chunks that match ``where`` for each of ``queries``, best first.

    Ties are ordered by file, then by order of insertion. Hybrid search appends the candidates that it read last to
    ``trace``. Hits with less than ``min_relevance`` are left out; those whose relevance is unknown stay, with a
    warning. ``vectors``, shape ``(n, d)``, replace those that the embedder makes of the queries. Hits of stores whose
    scores cannot be compared are ordered by rank. Raises :class:`ConfigError` for an unknown mode, a negative ``k``, or
    a ``min_relevance`` that is out of range.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    if min_relevance is not None and not 0.0 <= min_relevance <= 1.0:
        raise ConfigError(
            f"the threshold of relevance is {min_relevance}: expected a number from 0 (every result) to 1"
        )
    groups = snapshot.groups(mode) if vectors is None else [snapshot.comparable(mode)]
    k = _within(snapshot, k)
    if k == 0 or not queries:
        return [[] for _ in queries]
    queries = [normalise(query) for query in queries]
    with PROCESSORS.places:
        check()  # the search may have waited for long
        searches = []
        for group in groups:
            embedder = group.embedder().refittable if vectors is None and mode != "lexical" else None
            for note in [] if embedder is None else filter(None, map(embedder.query_note, queries)):
                add_note(note)
            settings = fusion or group.fusion(), group.select(where), group.relevance(), min_relevance, trace
            searches.append(Search(group, min(k, group.count()), mode, *settings))
        if len(searches) == 1:
            results = searches[0].results(queries, vectors, ranking)
        else:
            streams = zip(*(search.streams(queries, None) for search in searches), strict=True)
            results = [rank(by_rank(of_query), k, ranking or RankingOptions()) for of_query in streams]
    if min_relevance is not None:
        for search in searches:
            names = {store.name for store in search.snapshot.stores}
            own_hits = [hit for hits in results for hit in hits if hit.store in names]
            note_unknown(own_hits, min_relevance, search.model, search.snapshot.count())
    return results


def nearest_to(snapshot: Snapshot, vectors: Floats, k: int, where: Filter | None = None) -> list[list[Hit]]:
    """Return the ``k`` chunks nearest to each query vector, shape ``(n, d)``, by cosine, best first."""
    k = _within(snapshot, k)
    if k == 0:
        return [[] for _ in vectors]
    return Search(snapshot, k, "dense", Fusion(), snapshot.select(where)).results([""] * len(vectors), vectors)


def diverse(
    snapshot: Snapshot, vector: Floats, k: int, fetch_k: int, lambda_mult: float, where: Filter | None = None
) -> list[Hit]:
    """Choose ``k`` of the ``fetch_k`` chunks nearest to a query vector, shape ``(d,)``, that are unlike each other.

    See :func:`ragembed.indexes.search.ranking.mmr`. Hits are in the order of choice.
    """
    if not 0 <= lambda_mult <= 1:
        raise ConfigError(
            f"lambda_mult is {lambda_mult}: expected a number from 0 (unlike each other) to 1 (near the query)"
        )
    [hits] = nearest_to(snapshot, vector[None, :], max(k, fetch_k), where)
    k = _within(snapshot, k)
    if not hits:
        return []
    return [hits[i] for i in mmr(unit_rows(vector[None, :])[0], snapshot.vectors_of(hits), k, lambda_mult)]


class _Tier(NamedTuple):
    """Chunks by cosine or BM25, best first."""

    keys: Keys
    scores: Doubles


_Scored: TypeAlias = "tuple[int, float, tuple[float | None, float | None], float | None]"
"""The key of a chunk, its score, its cosine and BM25, and its relevance."""
Vectors: TypeAlias = "Callable[[], Floats] | None"
"""Returns the vectors of queries, shape ``(n, d)``, when they are needed; None for lexical search."""


@dataclass(frozen=True, slots=True)
class Search:
    """The settings of a search, independent of the query.

    Chunks are read ``k`` at once. ``model`` computes the relevance of hits; those with less than ``least`` are left
    out. ``trace`` receives the candidates of hybrid search.
    """

    snapshot: Snapshot
    k: int
    mode: Mode
    fusion: Fusion
    selection: Selected
    model: RelevanceModel | None = None
    least: float | None = None
    trace: list[Candidates] | None = None

    def results(
        self, queries: Sequence[str], vectors: Floats | None, ranking: RankingOptions | None = None
    ) -> list[list[Hit]]:
        """Return the results of each query. Hybrid search encodes a block of queries while it searches for another."""
        if ranking is not None:
            return [rank(stream, self.k, ranking) for stream in self.streams(queries, vectors)]
        encoded = self._encoded(queries, vectors)
        results: list[list[Hit]] = []
        size = QUERIES_AT_ONCE if self.mode == "hybrid" else len(queries)
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            ranked = self._ranked(block, encoded and partial(encoded, start, start + len(block)))
            results += [list(islice(hits, self.k)) for hits in ranked]
        return results

    def streams(self, queries: Sequence[str], vectors: Floats | None) -> Iterator[CandidateStream]:
        """Yield the candidates of each query, which are read as needed."""
        encoded = self._encoded(queries, vectors)

        def is_deleted(hit: Hit) -> bool:
            return self.snapshot.file_states([hit], read=False) == ["deleted"]

        for i, query in enumerate(queries):
            vector = encoded and partial(encoded, i, i + 1)

            def geometry(hits: Sequence[Hit], query: str = query, vector: Vectors = vector) -> tuple[Floats, Floats]:
                of_query = self.snapshot.embedder().encode_queries([query]) if vector is None else vector()
                return unit_rows(of_query)[0], self.snapshot.vectors_of(hits)

            [candidates] = self._ranked([query], vector)
            yield CandidateStream(query, candidates, geometry, is_deleted)

    def _encoded(self, queries: Sequence[str], vectors: Floats | None) -> Callable[[int, int], Floats] | None:
        """Return a function for the vectors of the queries from a number up to, not including, another."""
        if self.mode == "lexical" or self.snapshot.dim() is None:  # words alone are known, at the start of a run
            return None
        if vectors is None and self.mode == "hybrid":
            return EncodedAhead(self.snapshot.embedder().encode_queries, queries)
        encoded = self.snapshot.embedder().encode_queries(queries) if vectors is None else vectors
        return lambda start, stop: encoded[start:stop]

    def _ranked(self, queries: Sequence[str], vectors: Vectors) -> list[Iterator[Hit]]:
        """Return the chunks for each query, best first, read as needed."""
        snapshot = self.snapshot
        expressions = [None if self.mode == "dense" else query_expression(snapshot, query) for query in queries]
        if vectors is None:
            return [
                self._hits(self._lexical_tiers(expression), query, expression)
                for query, expression in zip(queries, expressions, strict=True)
            ]
        # Another thread encodes the queries meanwhile.
        words = {
            i: LexicalMatches.of(snapshot, expression, DEPTH, self.selection)
            for i, expression in enumerate(expressions)
            if expression is not None
        }
        for matches in words.values():
            matches.vectors.of(matches.likely)
        encoded = vectors()
        wordless = [i for i in range(len(queries)) if i not in words]
        hits = {}
        if wordless:
            for i, tiers in zip(wordless, self._dense_tiers(encoded[wordless]), strict=True):
                hits[i] = self._hits(tiers, queries[i], None)
        if words:
            units = unit_rows(encoded)
            fusions = [self.fusion.for_unread(snapshot.unread_share(queries[i])) for i in words]
            pools = score_candidates(snapshot, units[list(words)], list(words.values()), self.selection, fusions)
            for (i, matches), pool in zip(words.items(), pools, strict=True):
                hits[i] = spread_documents(self._hits(pool, queries[i], expressions[i], units[i], matches))
        return [hits[i] for i in range(len(queries))]

    def _lexical_tiers(self, expression: str | None) -> Iterator[_Tier]:
        if expression is None:
            return
        for depth in _depths(self.snapshot.count()):
            keys, scores = self.snapshot.matches(expression, depth, self.selection)
            yield _Tier(keys, scores)
            if len(keys) < depth:
                return

    def _dense_tiers(self, vectors: Floats) -> list[Iterator[_Tier]]:
        start, *deeper = _depths(self.snapshot.count())

        def tiers(vector: Floats, first: tuple[Keys, Doubles]) -> Iterator[_Tier]:
            searches = (nearest_chunks(self.snapshot, vector[None, :], depth, self.selection)[0] for depth in deeper)
            for keys, cosines in chain([first], searches):
                order = np.argsort(-cosines, kind="stable")
                yield _Tier(keys[order], cosines[order])

        nearest = nearest_chunks(self.snapshot, vectors, start, self.selection)
        return [tiers(*pair) for pair in zip(vectors, nearest, strict=True)]

    def _hits(
        self,
        tiers: Iterator[_Tier] | Iterator[Candidates],
        query: str,
        expression: str | None,
        vector: Floats | None = None,
        words: LexicalMatches | None = None,
    ) -> Iterator[Hit]:
        """Yield the chunks of each tier that no tier before has, by score, then by file and key.

        A tier that scores them higher than the one before is moved down. The last tier that is read for ``least`` is
        the first in which no chunk is relevant enough. Hybrid search gives the unit vector and the words of the query.
        """
        model, highest, read = self.model, None, 1.0
        if model is not None:
            highest = None if expression is None else self.snapshot.highest_score(expression)
            read = 1.0 if self.mode == "lexical" else read_weight(self.snapshot.unread_share(query))
        seen, last = np.zeros(0, dtype=np.int64), np.inf
        for tier in tiers:
            if self.trace is not None and isinstance(tier, Candidates):
                self.trace.append(tier)
            at = np.flatnonzero(~among(tier.keys, seen))
            if not len(at):
                continue
            scores = np.minimum(tier.scores[at] - max(0.0, tier.scores[at[0]] - last), last)
            seen, last = np.sort(np.concatenate([seen, tier.keys[at]])), scores[-1]
            any_relevant, start, size = False, 0, max(self.k, 1)
            while start < len(at):  # in blocks of ``k`` and ties
                stop = min(start + size, len(at))
                while stop < len(at) and scores[stop] == scores[stop - 1]:
                    stop += 1
                chosen = at[start:stop]
                keys, block = tier.keys[chosen], []
                if vector is not None and words is not None:
                    values = self._parts(keys, vector, words)
                else:  # the scores are cosines or BM25
                    values = [(n, None) if expression is None else (None, n) for n in tier.scores[chosen].tolist()]
                for key, score, parts in zip(keys.tolist(), scores[start:stop].tolist(), values, strict=True):
                    value = None if model is None else model.of(parts[0], matched_share(parts[1], highest), read)
                    if self.least is None or value is None or value >= self.least:
                        block.append((key, score, parts, value))
                yield from self._in_order(block)
                any_relevant = any_relevant or bool(block)
                start, size = stop, min(size, _BLOCK)
            if not any_relevant:
                return

    def _parts(self, keys: Keys, vector: Floats, words: LexicalMatches) -> list[tuple[float | None, float | None]]:
        """Return the cosine and BM25 of each of the chunks for a query as it is, not moved by feedback."""
        cosines: list[float | None] = words.vectors.cosines(vector, keys).tolist()
        if self.snapshot.waiting():
            missing = words.vectors.missing(keys).tolist()
            cosines = [None if no else cosine for no, cosine in zip(missing, cosines, strict=True)]
        return list(zip(cosines, words.of_chunks(keys).tolist(), strict=True))

    def _in_order(self, block: Sequence[_Scored]) -> Iterator[Hit]:
        """Yield hits by score, then by file and key."""
        records = self.snapshot.chunks_by_key([key for key, *_ in block])
        for key, score, parts, relevance in sorted(
            block, key=lambda scored: (-scored[1], records[scored[0]].source or "", scored[0])
        ):
            record = records[key]
            yield Hit(record.id, record.chunk, record.source, score, *parts, store=record.store, relevance=relevance)


def query_expression(snapshot: Snapshot, query: str) -> str | None:
    """Return a query as an FTS5 expression with the terms of the store, or None if it has no words."""
    return fulltext.match_expression(normalise(query), of_language(snapshot.language()))


def score_candidates(
    snapshot: Snapshot, vectors: Floats, words: Sequence[LexicalMatches], selection: Selected, fusions: Sequence[Fusion]
) -> list[Iterator[Candidates]]:
    """Return the candidates of each query in tiers. The chunks that a tier adds rank below those of the tiers before.

    The unit vectors of the queries have shape ``(n, d)``; ``words`` are the best :data:`DEPTH` matches and more. The
    best :data:`DEPTH` chunks of both searches are fused; if the first of them are source code, with other weights. With
    feedback, they are fused again after feedback from vectors. The best :data:`COMPARED_BY_WORDS` of them are fused
    again after feedback from words: these are the first tier. The others are the second. Each further tier has the best
    chunks of searches that are deeper by the factor :data:`DEEPER`, until all chunks are read. So the order of the
    chunks does not depend on how many of them are read.
    """
    unmoved: list[Mapping[int, float]] = [{} for _ in words]
    pools = fused(snapshot, vectors, words, DEPTH, selection, fusions, unmoved)
    for i, pool in enumerate(pools):
        if snapshot.are_code(pool.keys[:_SHOWING_KIND].tolist()):
            code = pool.fusion.for_code()
            pools[i] = Candidates.fused(pool.vector, pool.towards, pool.keys, pool.dense, pool.lexical, code)
    fed = [i for i, pool in enumerate(pools) if pool.fusion.feedback and pool.fusion.alpha]
    towards, moved = [], []
    for i in fed:
        best, weight = pools[i].keys[:FEEDBACK_CHUNKS], pools[i].fusion.feedback
        weights = weight * feedback.shares(pools[i].scores, FEEDBACK_CHUNKS)
        towards.append(dict(zip(best.tolist(), weights.tolist(), strict=True)))
        moved.append(feedback.moved(vectors[i], words[i].vectors.of(best), weights))
    if fed:
        of_fed = [words[i] for i in fed], DEPTH, selection, [pools[i].fusion for i in fed], towards
        for i, pool in zip(fed, fused(snapshot, np.stack(moved), *of_fed), strict=True):
            pools[i] = pool
    return [_tiers(snapshot, pool, of_query, selection) for pool, of_query in zip(pools, words, strict=True)]


def _tiers(snapshot: Snapshot, pool: Candidates, words: LexicalMatches, selection: Selected) -> Iterator[Candidates]:
    """Yield the best of ``pool``, compared by words, then ``pool``, then the candidates of deeper searches."""
    fusion = pool.fusion
    if fusion.feedback and fusion.alpha < 1:
        stop = len(pool.keys)
        if stop > COMPARED_BY_WORDS:  # with those that tie with the last
            stop = int((pool.scores >= pool.scores[COMPARED_BY_WORDS - 1]).sum())
        keys, dense, lexical = pool.keys[:stop], pool.dense[:stop], pool.lexical[:stop]
        like = tuple(keys[:FEEDBACK_CHUNKS].tolist())
        shared = feedback.likeness(snapshot.words(keys.tolist()), len(like))
        yield Candidates.fused(pool.vector, pool.towards, keys, dense, lexical, fusion, shared, like)
    yield pool
    depth, count = DEPTH, snapshot.count()
    while depth < count:
        depth *= DEEPER
        words = LexicalMatches.of(snapshot, words.expression, depth, selection, words.vectors)
        yield from fused(snapshot, pool.vector[None, :], [words], depth, selection, [fusion], [pool.towards])


def _depths(count: int) -> list[int]:
    """Return the depths of dense or lexical searches until all of ``count`` chunks are read."""
    depths = [_DENSE_DEPTH]
    while depths[-1] < count:
        depths.append(DEEPER * depths[-1])
    return depths


def _within(snapshot: Snapshot, k: int) -> int:
    """Return ``k``, limited to the number of chunks; raise :class:`ConfigError` if it is negative."""
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more")
    return min(k, snapshot.count())
