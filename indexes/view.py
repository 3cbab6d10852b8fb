"""A pinned generation of a store: one snapshot of the database and the segments that it names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import catalog
from ragembed.indexes.records import VectorEncoder
from ragembed.indexes.segments import Segment
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class View:
    """What one reader sees: ``connection`` stands in a read transaction for as long as the view is used.

    ``segments`` and ``embedder`` are functions, because lexical search needs neither.
    """

    connection: sqlite3.Connection
    segments: Callable[[], Mapping[str, Segment]]
    embedder: Callable[[], VectorEncoder]

    def dim(self) -> int | None:
        """Return the dimension of the vectors that are searched, None where there are none yet."""
        return next((record.dim for record in catalog.segments(self.connection)), None)

    def nearest_rows(self, queries: Floats, k: int) -> list[dict[int, float]]:
        """Return for each query, shape ``(n, d)``, the cosines of the ``k`` nearest live rows, best first."""
        found: list[list[tuple[float, int]]] = [[] for _ in queries]
        dead = catalog.dead_rows(self.connection)
        for segment in self.segments().values():
            scores, rows = segment.search(unit_rows(queries), k, dead)
            for hits, row_scores, row_ids in zip(found, scores.tolist(), rows.tolist(), strict=True):
                hits += [(-score, row) for score, row in zip(row_scores, row_ids, strict=True) if row >= 0]
        return [{row: -negative for negative, row in sorted(hits)[:k]} for hits in found]

    def vectors(self, rows: Sequence[int]) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors."""
        if not rows:
            return np.zeros((0, self.dim() or 0), dtype=np.float32)
        places = catalog.places_of_rows(self.connection, rows)
        segments = self.segments()
        raw = np.stack([segments[segment].raw()[position] for segment, position in (places[row] for row in rows)])
        return unit_rows(self.embedder().postprocess_documents(raw.astype(np.float32)))
