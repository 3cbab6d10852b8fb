"""Searching a view: dense, lexical, and both fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, DimensionError
from ragembed.indexes import catalog, lexical
from ragembed.indexes.ann.vectors import inner_products
from ragembed.indexes.filters import Filter
from ragembed.indexes.fusion import Fusion
from ragembed.indexes.mmr import mmr
from ragembed.indexes.records import Hit
from ragembed.indexes.selection import Selection
from ragembed.indexes.terms import of_language
from ragembed.indexes.view import View
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)

_MIN_CANDIDATES, _CANDIDATES_PER_HIT = 200, 10
_LEXICAL_DEPTH = 2000

_FEEDBACK_CHUNKS = 3
"""Chunks that a question is moved towards."""


def search(
    view: View,
    queries: Sequence[str],
    k: int,
    mode: Mode,
    where: Filter | None,
    fusion: Fusion,
) -> list[list[Hit]]:
    """Return the best ``k`` chunks for each of ``queries`` among those that ``where`` selects, best first.

    Ties come by file, within a file and among chunks of no file in order of insertion. Chunks of nothing but
    boilerplate come after all others, whatever their score. Raises :class:`ConfigError` for an unknown mode or a
    negative ``k``.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    k = _within(view, k)
    expressions = [None] * len(queries) if mode == "dense" else _expressions(view, queries)
    if k == 0 or not queries:
        return [[] for _ in queries]
    selection = view.select(where)
    if mode == "lexical":
        return _with_last(
            selection, k, lambda chosen: [_lexical(view, expression, k, chosen) for expression in expressions]
        )
    vectors = view.embedder().encode_queries(queries)
    return _with_last(selection, k, lambda chosen: _by_meaning(view, vectors, expressions, k, chosen, fusion))


def _with_last(
    selection: Selection | None, k: int, search_in: Callable[[Selection | None], list[list[Hit]]]
) -> list[list[Hit]]:
    """Return what is found in ``selection``, and where that is less than ``k``, after it, what comes last."""
    found = search_in(selection)
    if selection is None or selection.last is None or all(len(hits) >= k for hits in found):
        return found
    return [(hits + more)[:k] for hits, more in zip(found, search_in(selection.last), strict=True)]


def _by_meaning(
    view: View,
    vectors: Floats,
    expressions: Sequence[str | None],
    k: int,
    selection: Selection | None,
    fusion: Fusion,
) -> list[list[Hit]]:
    """Search by vectors, shape ``(n, d)``, of questions, and by their words too where they have any."""
    found: list[list[Hit]] = [[] for _ in vectors]
    worded = [i for i, expression in enumerate(expressions) if expression is not None]
    wordless = [i for i, expression in enumerate(expressions) if expression is None]
    for i, hits in zip(wordless, _by_cosine(view, vectors[wordless], k, selection), strict=True):
        found[i] = hits
    together = _hybrid(view, vectors[worded], [expressions[i] or "" for i in worded], k, selection, fusion)
    for i, hits in zip(worded, together, strict=True):
        found[i] = hits
    return found


def search_vectors(view: View, vectors: Floats, k: int, where: Filter | None = None) -> list[list[Hit]]:
    """Return the ``k`` chunks nearest to each query vector, shape ``(n, d)``, by cosine, best first."""
    k = _within(view, k)
    if k == 0:
        return [[] for _ in vectors]
    return _with_last(view.select(where), k, lambda chosen: _by_cosine(view, vectors, k, chosen))


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


def _expressions(view: View, queries: Sequence[str]) -> list[str | None]:
    terms = of_language(catalog.words(view.connection).language)
    return [lexical.match_expression(query, terms) for query in queries]


def _lexical(view: View, expression: str | None, k: int, selection: Selection | None) -> list[Hit]:
    found = lexical.search(view.connection, expression, k, selection) if expression else []
    return _hits(view, {key: (score, None, score) for key, score in found}, k)


def _by_cosine(view: View, vectors: Floats, k: int, selection: Selection | None) -> list[list[Hit]]:
    found = _dense(view, vectors, k, selection)
    return [_hits(view, {key: (cosine, cosine, None) for key, cosine in cosines.items()}, k) for cosines in found]


def _hybrid(
    view: View, vectors: Floats, expressions: Sequence[str], k: int, selection: Selection | None, fusion: Fusion
) -> list[list[Hit]]:
    """Fuse dense and lexical search, with feedback twice: the second time with queries moved towards the best found."""
    if not expressions:
        return []
    depth = max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * k)
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


def _hybrid_hits(view: View, vector: Floats, scores: dict[int, float], words: _Words, k: int) -> list[Hit]:
    """Return the best ``k`` with their fused scores, and the cosine and BM25 of the question itself."""
    least = sorted(scores.values(), reverse=True)[: max(k, 1)][-1] if scores else 0.0
    shown = [key for key, score in scores.items() if score >= least]
    cosines = _cosines(view, vector, shown)
    return _hits(view, {key: (scores[key], cosines[key], words.of_chunk(key)) for key in shown}, k)


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


def _hits(view: View, scored: dict[int, tuple[float, float | None, float | None]], k: int) -> list[Hit]:
    best = sorted(scored, key=lambda key: -scored[key][0])
    tied = [key for key in best if scored[key][0] >= scored[best[min(k, len(best)) - 1]][0]] if k else []
    records = catalog.chunks_by_key(view.connection, tied)
    tied.sort(key=lambda key: (-scored[key][0], records[key].source or "", key))
    return [Hit(records[key].id, records[key].chunk, records[key].source, *scored[key]) for key in tied[:k]]


def _within(view: View, k: int) -> int:
    """Return ``k``, at most the number of chunks; raises :class:`ConfigError` where it is negative."""
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more results")
    return min(k, catalog.count(view.connection, "chunks"))
