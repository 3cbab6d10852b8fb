"""A pinned generation of a store: one snapshot of the database and the segments that it names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import catalog, lexical
from ragembed.indexes.ann.refined import RefinedIndex
from ragembed.indexes.ann.specs import FLAT
from ragembed.indexes.ann.vectors import Vectors, inner_products, rows_in
from ragembed.indexes.filters import Filter
from ragembed.indexes.postings.ranking import Postings
from ragembed.indexes.records import VectorEncoder
from ragembed.indexes.segments import Segment
from ragembed.indexes.selection import Selection
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

_EXACT_ROWS, _EXACT_SHARE = 5_000, 0.05
"""Rows of an approximate segment, and their share of it, up to which a selection is scored one by one."""

_BLOCK_BYTES = 64 * 1024**2

_TIES, _MOST_TIES = 8, 1000
"""Rows looked at beyond those asked for, at first and at most, to find those that tie with the last."""


@dataclass(frozen=True, slots=True)
class View:
    """What one reader sees: ``connection`` stands in a read transaction for as long as the view is used.

    ``segments``, by key, ``embedder``, ``select`` and ``postings`` are functions: not every question needs them.
    """

    connection: sqlite3.Connection
    segments: Callable[[], Mapping[int, Segment]]
    embedder: Callable[[], VectorEncoder]
    select: Callable[[Filter | None], Selection | None]
    postings: Callable[[], Postings | None]

    def dim(self) -> int | None:
        """Return the dimension of the vectors that are searched, None where there are none yet."""
        return next((record.files.dim for record in catalog.segments(self.connection)), None)

    def nearest_rows(self, queries: Floats, k: int, selection: Selection | None) -> list[dict[int, float]]:
        """Return for each query, shape ``(n, d)``, the cosines of the ``k`` nearest selected rows, best first.

        Rows that tie with the last of them come too, a thousand at most, so that it is not left to the order in
        which rows came into the store which of them is found.
        """
        if not len(queries):
            return []
        queries = unit_rows(queries)
        looked_at = k + _TIES
        while True:
            found = self._nearest(queries, looked_at, selection)
            if looked_at >= k + _MOST_TIES or not any(_cut_off(hits, k, looked_at) for hits in found):
                return [{row: -least for least, row in hits if k and least <= hits[:k][-1][0]} for hits in found]
            looked_at = k + _MOST_TIES

    def _nearest(self, queries: Floats, k: int, selection: Selection | None) -> list[list[tuple[float, int]]]:
        """Return negative cosine and row of the ``k`` nearest for each query, best first."""
        found: list[list[tuple[float, int]]] = [[] for _ in queries]
        for key, segment in self.segments().items():
            scores, rows = self._nearest_in(key, segment, queries, k, selection)
            for hits, row_scores, row_ids in zip(found, scores.tolist(), rows.tolist(), strict=True):
                hits += [(-score, row) for score, row in zip(row_scores, row_ids, strict=True) if row >= 0]
        return [sorted(hits)[:k] for hits in found]

    def _nearest_in(
        self, key: int, segment: Segment, queries: Floats, k: int, selection: Selection | None
    ) -> tuple[Floats, Rows]:
        mask = None if selection is None else selection.mask
        if segment.spec.name == FLAT:
            return segment.index().search(queries, k, mask)
        rows = self._rows_of(key, segment)
        chosen = np.arange(len(rows)) if mask is None else np.flatnonzero(mask[rows])
        share = len(chosen) / len(rows)
        vectors = segment.vectors(self._postprocess)
        if mask is None or (len(chosen) > _EXACT_ROWS and share > _EXACT_SHARE):
            index = RefinedIndex(segment.index(), segment.spec, vectors, rows)
            scores, found = index.search(queries, k, mask, share, self._effort())
            if (found >= 0).sum(axis=1).min() >= min(k, len(chosen)):
                return scores, found
        return _one_by_one(queries, vectors, chosen, rows, k)

    def _rows_of(self, key: int, segment: Segment) -> Rows:
        rows = segment.rows
        if rows is None:
            rows = segment.rows = catalog.rows_of_segment(self.connection, key)
        return rows

    def _effort(self) -> int | None:
        choice = catalog.index_choice(self.connection)
        return None if choice is None else choice.effort

    def _postprocess(self, raw: Floats) -> Floats:
        return self.embedder().postprocess_documents(raw)

    def matches(self, expression: str, limit: int, selection: Selection | None) -> list[tuple[int, float]]:
        """Return what :func:`ragembed.indexes.lexical.search` does, from postings where the store has them."""
        postings = self.postings()
        if postings is None:
            return lexical.search(self.connection, expression, limit, selection)
        return postings.search(self.connection, expression, limit, selection)

    def vectors(self, rows: Sequence[int]) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors."""
        if not rows:
            return np.zeros((0, self.dim() or 0), dtype=np.float32)
        places = catalog.places_of_rows(self.connection, rows)
        segments = self.segments()
        keys, positions = np.array([places[row] for row in rows], dtype=np.int64).T
        found = np.empty((len(rows), next(iter(segments.values())).files.dim), dtype=np.float32)
        for key in np.unique(keys).tolist():
            inside = keys == key
            found[inside] = segments[key].vectors(self._postprocess).at(positions[inside])
        return found


def _one_by_one(queries: Floats, vectors: Vectors, chosen: Rows, rows: Rows, k: int) -> tuple[Floats, Rows]:
    """Compare ``queries`` with the vectors at the positions ``chosen``, whose ids are in ``rows``, block by block."""
    scores = np.empty((len(queries), 0), dtype=np.float32)
    found = np.empty((len(queries), 0), dtype=np.int64)
    step = rows_in(_BLOCK_BYTES, vectors.dim)
    for start in range(0, len(chosen), step):
        block = chosen[start : start + step]
        scores = np.hstack([scores, inner_products(queries, vectors.at(block))])
        found = np.hstack([found, np.broadcast_to(rows[block], (len(queries), len(block)))])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, found = np.take_along_axis(scores, best, axis=1), np.take_along_axis(found, best, axis=1)
    return scores, found


def _cut_off(hits: Sequence[tuple[float, int]], k: int, looked_at: int) -> bool:
    """Tell whether there may be more rows that tie with the ``k``-th of ``hits``."""
    return 0 < k <= len(hits) == looked_at and hits[-1][0] == hits[k - 1][0]
