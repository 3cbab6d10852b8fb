"""Searching a view: dense, lexical, and both fused."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.indexes import catalog, lexical
from ragembed.indexes.filters import Filter
from ragembed.indexes.fusion import zscore_fusion
from ragembed.indexes.records import Hit
from ragembed.indexes.selection import Selection
from ragembed.indexes.view import View

Floats = NDArray[np.float32]
Mode = Literal["hybrid", "dense", "lexical"]
MODES: tuple[Mode, ...] = get_args(Mode)

_MIN_CANDIDATES, _CANDIDATES_PER_HIT = 200, 10
_LEXICAL_DEPTH = 2000


def search(view: View, query: str, k: int, mode: Mode, where: Filter | None = None) -> list[Hit]:
    """Return the best ``k`` chunks for ``query`` among those that ``where`` selects, best first.

    Ties come by file, within a file and among chunks of no file in order of insertion. Raises :class:`ConfigError` for
    an unknown mode or a negative ``k``.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    k = _within(view, k)
    expression = lexical.match_expression(query) if mode != "dense" else None
    if mode == "lexical":
        selection = None if where is None else view.select(where)
        found = lexical.search(view.connection, expression, k, selection) if expression else []
        return _hits(view, {key: (score, None, score) for key, score in found}, k)
    if k == 0:
        return []
    vector = view.embedder().encode_queries([query])
    if expression is None:
        return search_vector(view, vector[0], k, where)
    return _hybrid(view, vector, expression, k, view.select(where))


def search_vector(view: View, vector: Floats, k: int, where: Filter | None = None) -> list[Hit]:
    """Return the ``k`` chunks nearest to a query vector, shape ``(d,)``, by cosine, best first."""
    k = _within(view, k)
    if k == 0:
        return []
    cosines = _dense(view, vector[None, :], k, view.select(where))
    return _hits(view, {key: (cosine, cosine, None) for key, cosine in cosines.items()}, k)


def _hybrid(view: View, vector: Floats, expression: str, k: int, selection: Selection | None) -> list[Hit]:
    depth = max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * k)
    cosines = _dense(view, vector, depth, selection)
    # Both scores of every candidate: one that only one of the two searches brought up is not thereby a 0 in the other.
    limit = max(_LEXICAL_DEPTH, depth)
    matches = lexical.search(view.connection, expression, limit, selection)
    likely = lexical.with_ties(matches, depth)
    cosines.update(_cosines(view, vector, [key for key, _ in likely if key not in cosines]))
    scores = dict(matches)
    # Below the deepest match listed, its score is the closest bound that is known without searching again.
    floor = matches[-1][1] if len(matches) >= limit else 0.0
    keys = sorted(cosines)
    dense = np.array([cosines[key] for key in keys])
    words = np.array([scores.get(key, floor) for key in keys])
    fused = zscore_fusion(dense, words)
    scored = zip(keys, fused.tolist(), dense.tolist(), words.tolist(), strict=True)
    return _hits(view, {key: (score, cosine, word) for key, score, cosine, word in scored}, k)


def _dense(view: View, vector: Floats, k: int, selection: Selection | None) -> dict[int, float]:
    """Return the cosines of the chunks of the ``k`` nearest rows by chunk key; ``vector`` has shape ``(1, d)``."""
    dim = view.dim()
    if dim not in (None, vector.shape[1]):
        raise IncompatibleStoreError(
            f"the query vector has dimension {vector.shape[1]}, the store holds vectors of dimension {dim}: search it "
            "with the embedder that it was made with"
        )
    nearest = view.nearest_rows(vector, k, selection)[0]
    keys, rows = catalog.chunks_of_rows(view.connection, list(nearest))
    admitted = slice(None) if selection is None else selection.admits(keys)
    return {key: nearest[row] for key, row in zip(keys[admitted].tolist(), rows[admitted].tolist(), strict=True)}


def _cosines(view: View, vector: Floats, keys: list[int]) -> dict[int, float]:
    """Return the exact cosines of the chunks ``keys`` with the query vector, shape ``(1, d)``."""
    if not keys:
        return {}
    rows = catalog.rows_of_keys(view.connection, keys)
    unit = vector[0] / (np.linalg.norm(vector[0]) or 1.0)
    cosines = view.vectors([rows[key] for key in keys]) @ unit
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
