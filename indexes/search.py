"""Searching a view: dense, lexical, and both fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, DimensionError
from ragembed.indexes import catalog, lexical
from ragembed.indexes.ann.vectors import inner_products
from ragembed.indexes.arranging import Arrangement, Source, arranged
from ragembed.indexes.filters import Filter
from ragembed.indexes.fusion import Fusion
from ragembed.indexes.mmr import mmr
from ragembed.indexes.records import Hit
from ragembed.indexes.selection import Selection
from ragembed.indexes.view import View
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)
Parts: TypeAlias = "Mapping[int, tuple[float | None, float | None]]"
"""Cosine and BM25 by chunk key."""

_MIN_CANDIDATES, _CANDIDATES_PER_HIT = 200, 10
_LEXICAL_DEPTH = 2000
_BLOCK = 500

_FEEDBACK_CHUNKS = 3
"""Chunks that a question is moved towards."""


def search(
    view: View,
    queries: Sequence[str],
    k: int,
    mode: Mode,
    where: Filter | None,
    fusion: Fusion,
    arrangement: Arrangement | None = None,
) -> list[list[Hit]]:
    """Return the best ``k`` chunks for each of ``queries`` among those that ``where`` selects, best first.

    Ties come by file, within a file and among chunks of no file in order of insertion. ``arrangement`` says what else
    becomes of the candidates. Raises :class:`ConfigError` for an unknown mode or a negative ``k``.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    k = _within(view, k)
    if k == 0 or not queries:
        return [[] for _ in queries]
    vectors = None if mode == "lexical" else view.embedder().encode_queries(queries)
    ranked = partial(_ranked, view, k=k, mode=mode, where=where, fusion=fusion)
    if arrangement is None:
        return [list(islice(hits, k)) for hits in ranked(queries, vectors, k)]
    return [
        arranged(_source(view, query, None if vectors is None else vectors[i : i + 1], ranked), k, arrangement)
        for i, query in enumerate(queries)
    ]


def search_vectors(view: View, vectors: Floats, k: int, where: Filter | None = None) -> list[list[Hit]]:
    """Return the ``k`` chunks nearest to each query vector, shape ``(n, d)``, by cosine, best first."""
    k = _within(view, k)
    if k == 0:
        return [[] for _ in vectors]
    return [list(islice(hits, k)) for hits in _by_cosine(view, vectors, k, view.select(where))]


def search_mmr(
    view: View, vector: Floats, k: int, fetch_k: int, lambda_mult: float, where: Filter | None = None
) -> list[Hit]:
    """Choose ``k`` of the ``fetch_k`` chunks nearest to a query vector, shape ``(d,)``, that are unlike each other.

    See :func:`ragembed.indexes.mmr.mmr`; hits come in the order in which they are chosen.
    """
    if not 0 <= lambda_mult <= 1:
        raise ConfigError(f"lambda_mult is {lambda_mult}: expected 0 (unlike each other) to 1 (near the query)")
    [hits] = search_vectors(view, vector[None, :], max(k, fetch_k), where)
    if not hits:
        _within(view, k)
        return []
    rows = catalog.rows_of_ids(view.connection, [hit.id for hit in hits])
    vectors = view.vectors([rows[hit.id] for hit in hits])
    return [hits[i] for i in mmr(unit_rows(vector[None, :])[0], vectors, _within(view, k), lambda_mult)]


def _source(view: View, query: str, vector: Floats | None, ranked: Callable[..., list[Iterator[Hit]]]) -> Source:
    """Return the candidates of one question, whose vector has shape ``(1, d)``; lexical search has none."""

    def geometry(hits: Sequence[Hit]) -> tuple[Floats, Floats]:
        question = view.embedder().encode_queries([query]) if vector is None else vector
        rows = catalog.rows_of_ids(view.connection, [hit.id for hit in hits])
        return unit_rows(question)[0], view.vectors([rows[hit.id] for hit in hits])

    return Source(
        query, lambda look: ranked([query], vector, look)[0], catalog.count(view.connection, "chunks"), geometry
    )


def _ranked(
    view: View,
    queries: Sequence[str],
    vectors: Floats | None,
    look: int,
    *,
    k: int,
    mode: Mode,
    where: Filter | None,
    fusion: Fusion,
) -> list[Iterator[Hit]]:
    """Return for each question its best chunks, best first: at least ``look``, or all that there are."""
    expressions = [lexical.match_expression(query) if mode != "dense" else None for query in queries]
    if vectors is None:
        return [_lexical(view, expression, look, where) for expression in expressions]
    selection = view.select(where)
    ranked: list[Iterator[Hit]] = [iter(()) for _ in queries]
    worded = [i for i, expression in enumerate(expressions) if expression is not None]
    wordless = [i for i, expression in enumerate(expressions) if expression is None]
    for i, hits in zip(wordless, _by_cosine(view, vectors[wordless], look, selection), strict=True):
        ranked[i] = hits
    depth = max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * k, look)
    together = _hybrid(view, vectors[worded], [expressions[i] or "" for i in worded], depth, look, selection, fusion)
    for i, hits in zip(worded, together, strict=True):
        ranked[i] = hits
    return ranked


def _lexical(view: View, expression: str | None, k: int, where: Filter | None) -> Iterator[Hit]:
    selection = None if where is None else view.select(where)
    found = dict(lexical.search(view.connection, expression, k, selection)) if expression else {}
    return _in_order(view, found, lambda keys: {key: (None, found[key]) for key in keys}, k)


def _by_cosine(view: View, vectors: Floats, k: int, selection: Selection | None) -> list[Iterator[Hit]]:
    return [_nearest_first(view, cosines, k) for cosines in _dense(view, vectors, k, selection)]


def _nearest_first(view: View, cosines: dict[int, float], k: int) -> Iterator[Hit]:
    return _in_order(view, cosines, lambda keys: {key: (cosines[key], None) for key in keys}, k)


def _hybrid(
    view: View,
    vectors: Floats,
    expressions: Sequence[str],
    depth: int,
    k: int,
    selection: Selection | None,
    fusion: Fusion,
) -> list[Iterator[Hit]]:
    """Fuse dense and lexical search, with feedback twice: the second time with queries moved towards the best found.

    The best ``depth`` of both are candidates, of which about ``k`` will be asked for.
    """
    if not expressions:
        return []
    worded = [_Words.of(view, expression, depth, selection) for expression in expressions]
    vectors = unit_rows(vectors)
    scored = _fused(view, vectors, worded, depth, selection, fusion)
    if fusion.feedback and fusion.alpha:
        moved = _moved(view, vectors, scored, fusion.feedback)
        scored = _fused(view, moved, worded, depth, selection, fusion)
    return [
        _hybrid_hits(view, vector, scores, words, k)
        for vector, scores, words in zip(vectors, scored, worded, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Words:
    """What lexical search says of a question: BM25 by chunk key, ``floor`` for chunks it does not list.

    ``likely`` are the keys that are good enough by words alone.
    """

    scores: dict[int, float]
    floor: float
    likely: Sequence[int]

    @classmethod
    def of(cls, view: View, expression: str, depth: int, selection: Selection | None) -> _Words:
        limit = max(_LEXICAL_DEPTH, depth)
        matches = lexical.search(view.connection, expression, limit, selection)
        # Below the deepest match listed, its score is the closest bound that is known without searching again.
        floor = matches[-1][1] if len(matches) >= limit else 0.0
        return cls(dict(matches), floor, [key for key, _ in lexical.with_ties(matches, depth)])

    def of_chunk(self, key: int) -> float:
        return self.scores.get(key, self.floor)


def _fused(
    view: View, vectors: Floats, worded: Sequence[_Words], depth: int, selection: Selection | None, fusion: Fusion
) -> list[dict[int, float]]:
    """Return for each query vector, shape ``(n, d)``, the fused scores of the candidates, by chunk key."""
    fused: list[dict[int, float]] = []
    for vector, words, cosines in zip(vectors, worded, _dense(view, vectors, depth, selection), strict=True):
        # Both scores of every candidate: one that only one of the two brought up is not thereby a 0 in the other.
        both = cosines | _cosines(view, vector, [key for key in words.likely if key not in cosines])
        keys = sorted(both)
        scores = fusion.scores(np.array([both[key] for key in keys]), np.array([words.of_chunk(key) for key in keys]))
        fused.append(dict(zip(keys, scores.tolist(), strict=True)))
    return fused


def _moved(view: View, vectors: Floats, fused: Sequence[dict[int, float]], weight: float) -> Floats:
    """Return query vectors, shape ``(n, d)``, moved towards the mean of the best chunks that were found with them.

    This is the feedback of Rocchio 1971, section 14.4, with the weight 1 for the question and none for what is not
    relevant; the best found are taken to be relevant.
    """
    moved = vectors.copy()
    for vector, scores in zip(moved, fused, strict=True):
        best = sorted(scores, key=lambda key: (-scores[key], key))[:_FEEDBACK_CHUNKS]
        rows = catalog.rows_of_keys(view.connection, best)
        if best:
            vector += weight * view.vectors([rows[key] for key in best]).mean(axis=0)
    return unit_rows(moved)


def _hybrid_hits(view: View, vector: Floats, scores: dict[int, float], words: _Words, k: int) -> Iterator[Hit]:
    """Yield the best first with their fused scores, and the cosine and BM25 of the question itself."""

    def parts(keys: list[int]) -> Parts:
        return {key: (cosine, words.of_chunk(key)) for key, cosine in _cosines(view, vector, keys).items()}

    return _in_order(view, scores, parts, k)


def _dense(view: View, vectors: Floats, k: int, selection: Selection | None) -> list[dict[int, float]]:
    """Return for each of ``vectors``, shape ``(n, d)``, the cosines of the chunks of its ``k`` nearest rows, by key."""
    dim = view.dim()
    if dim not in (None, vectors.shape[1]):
        raise DimensionError(
            f"the query vector has dimension {vectors.shape[1]}, the store holds vectors of dimension {dim}: search it "
            "with the embedder that it was made with"
        )
    return [_chunk_cosines(view, nearest, selection) for nearest in view.nearest_rows(vectors, k, selection)]


def _chunk_cosines(view: View, nearest: dict[int, float], selection: Selection | None) -> dict[int, float]:
    keys, rows = catalog.chunks_of_rows(view.connection, list(nearest))
    admitted = slice(None) if selection is None else selection.admits(keys)
    return {key: nearest[row] for key, row in zip(keys[admitted].tolist(), rows[admitted].tolist(), strict=True)}


def _cosines(view: View, vector: Floats, keys: list[int]) -> dict[int, float]:
    """Return the exact cosines of the chunks ``keys`` with the query vector, shape ``(d,)``."""
    if not keys:
        return {}
    rows = catalog.rows_of_keys(view.connection, keys)
    cosines = inner_products(unit_rows(vector[None, :]), view.vectors([rows[key] for key in keys]))[0]
    return dict(zip(keys, cosines.tolist(), strict=True))


def _in_order(view: View, scores: Mapping[int, float], parts: Callable[[list[int]], Parts], k: int) -> Iterator[Hit]:
    """Yield chunks by score, best first; they are read in blocks, the first of ``k`` and those that tie with its last.

    ``parts`` returns for chunk keys the cosine and BM25 of each.
    """
    best = sorted(scores, key=lambda key: (-scores[key], key))
    start, size = 0, max(k, 1)
    while start < len(best):
        stop = min(start + size, len(best))
        while stop < len(best) and scores[best[stop]] == scores[best[stop - 1]]:
            stop += 1
        block = best[start:stop]
        records = catalog.chunks_by_key(view.connection, block)
        block.sort(key=lambda key: (-scores[key], records[key].source or "", key))
        told = parts(block)
        for key in block:
            yield Hit(records[key].id, records[key].chunk, records[key].source, scores[key], *told[key])
        start, size = stop, min(size, _BLOCK)


def _within(view: View, k: int) -> int:
    """Return ``k``, at most the number of chunks; raises :class:`ConfigError` where it is negative."""
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more results")
    return min(k, catalog.count(view.connection, "chunks"))
