"""A snapshot of a store: a read transaction of the database, and the segments that it names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ragembed.embedder import Embedder
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.bm25 import Postings
from ragembed.indexes.lexical.highest import HighestScores
from ragembed.indexes.search.segment_search import SegmentHits
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.hubness import Hubness
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.selection import Selection
from ragembed.indexes.storage.token_vectors import StoredTokens
from ragembed.indexes.types import Rows, VectorEncoder
from ragembed.postprocess import unit_rows
from ragembed.types import Bools, Floats

_TIES, _MOST_TIES = 8, 1000
"""Rows read beyond ``k``, at first and at most, to find those that tie with the last one."""


class SegmentSearch(Protocol):
    """Searches every segment of a snapshot, in this process (:mod:`fanout`) or in others (:mod:`ray_search`)."""

    def nearest(self, snapshot: Snapshot, queries: Floats, k: int, mask: Bools | None) -> Sequence[SegmentHits]:
        """Return the hits of each segment of ``snapshot``, in any order, for all queries at once or in parts.

        ``queries`` are unit vectors, shape ``(n, d)``. ``mask`` says for each row whether it may be returned; None
        allows all rows. Raises :class:`FileNotFoundError` if a writer has removed a segment meanwhile.
        """
        ...

    def close(self) -> None:
        """Release the resources that are kept between queries. The next query acquires them again."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that one reader sees; ``connection`` is in a read transaction while the snapshot is used.

    ``segments`` (by key), ``embedder``, ``select``, ``postings``, ``hubness`` and ``tokens`` are functions, because not
    every query needs them. ``searcher`` searches the segments. ``highest`` keeps the term frequencies of earlier
    queries.
    """

    connection: sqlite3.Connection
    segments: Callable[[], Mapping[int, Segment]]
    embedder: Callable[[], VectorEncoder]
    select: Callable[[Filter | None], Selection | None]
    postings: Callable[[], Postings | None]
    hubness: Callable[[], Hubness | None]
    tokens: Callable[[], StoredTokens | None]
    highest: HighestScores
    searcher: SegmentSearch

    def dim(self) -> int | None:
        """Return the dimension of the searched vectors, or None if there are no vectors yet."""
        return next((record.files.dim for record in catalog.segments(self.connection)), None)

    def nearest_rows(self, queries: Floats, k: int, selection: Selection | None) -> list[dict[int, float]]:
        """Return for each query, shape ``(n, d)``, the cosines of the ``k`` nearest selected rows, best first.

        Rows that tie with the last one are included, up to a thousand, so the result does not depend on the order in
        which rows were inserted.
        """
        if not len(queries):
            return []
        queries = unit_rows(queries)
        candidate_depth = k + _TIES
        while True:
            found = self._nearest(queries, candidate_depth, selection)
            if candidate_depth >= k + _MOST_TIES or not any(_cut_off(hits, k, candidate_depth) for hits in found):
                return [{row: -least for least, row in hits if k and least <= hits[:k][-1][0]} for hits in found]
            candidate_depth = k + _MOST_TIES

    def _nearest(self, queries: Floats, k: int, selection: Selection | None) -> list[list[tuple[float, int]]]:
        """Return negative cosine and row of the ``k`` nearest rows for each query, best first."""
        found: list[list[tuple[float, int]]] = [[] for _ in queries]
        for part in self.searcher.nearest(self, queries, k, None if selection is None else selection.mask):
            of_part = found[part.first : part.first + len(part.rows)]
            for hits, row_scores, row_ids in zip(of_part, part.scores.tolist(), part.rows.tolist(), strict=True):
                hits += [(-score, row) for score, row in zip(row_scores, row_ids, strict=True) if row >= 0]
        return [sorted(hits)[:k] for hits in found]

    def rows_of(self, key: int) -> Rows:
        """Return the row of each vector of a segment by position, int64, ascending."""
        segment = self.segments()[key]
        rows = segment.rows
        if rows is None:
            in_order = segment.spec.family != "lists"  # the index has the rows in order; a list has its own
            rows = segment.rows = segment.index().rows() if in_order else catalog.rows_of_segment(self.connection, key)
        return rows

    def effort(self) -> int | None:
        """Return the search effort of an approximate index (efSearch or nprobe), or None if it was not measured."""
        choice = catalog.index_choice(self.connection)
        return None if choice is None else choice.effort

    def _postprocess(self, raw: Floats) -> Floats:
        return self.embedder().postprocess_documents(raw)

    def matches(self, expression: str, limit: int, selection: Selection | None) -> list[tuple[int, float]]:
        """Return the result of :func:`ragembed.indexes.lexical.fulltext.search`, from postings if the store has any."""
        postings = self.postings()
        if postings is None:
            return fulltext.search(self.connection, expression, limit, selection)
        return postings.search(self.connection, expression, limit, selection)

    def highest_score(self, expression: str) -> float:
        """Return the highest BM25 that a text could have for an expression."""
        return self.highest.of(self.connection, expression, self.postings())

    def unread_share(self, query: str) -> float:
        """Return the share of the letters of a query that the model cannot read, 0 if the model is not known."""
        if query.isascii():
            return 0.0
        embedder = self.embedder()
        return embedder.unread_share(query) if isinstance(embedder, Embedder) else 0.0

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


def _cut_off(hits: Sequence[tuple[float, int]], k: int, candidate_depth: int) -> bool:
    """Return whether more rows than those in ``hits`` may tie with the ``k``-th."""
    return 0 < k <= len(hits) == candidate_depth and hits[-1][0] == hits[k - 1][0]
