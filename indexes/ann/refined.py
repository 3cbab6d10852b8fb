"""An index together with the vectors that it was made from, which rank anew what a lossy index finds."""

from __future__ import annotations

import numpy as np

from ragembed.indexes.ann.index import Mask, SegmentIndex
from ragembed.indexes.ann.specs import IndexSpec
from ragembed.indexes.ann.vectors import Floats, Rows, Vectors, inner_products, rows_in

_BLOCK_BYTES = 64 * 1024**2


class RefinedIndex:
    """Searches ``index``; where that does not keep vectors as they are, more are found and ranked by ``vectors``.

    ``rows``, int64, shape ``(n,)``, ascending, are the ids of the vectors by position.
    """

    def __init__(self, index: SegmentIndex, spec: IndexSpec, vectors: Vectors, rows: Rows) -> None:
        self._index = index
        self._spec = spec
        self._vectors = vectors
        self._rows = rows

    def search(
        self, queries: Floats, k: int, allowed: Mask | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`SegmentIndex.search` does; scores are those of the vectors, not of their codes."""
        if self._spec.lossless:
            return self._index.search(queries, k, allowed, share, effort)
        _, rows = self._index.search(queries, k * self._spec.looked_at, allowed, share, effort)
        together = max(1, rows_in(_BLOCK_BYTES, queries.shape[1]) // max(rows.shape[1], 1))
        scores = np.empty(rows.shape, dtype=np.float32)
        for start in range(0, len(queries), together):
            some = slice(start, start + together)
            scores[some] = self._scores(queries[some], rows[some])
        best = np.argsort(-scores, axis=1, kind="stable")[:, : min(k, len(self._rows))]
        each = np.arange(len(queries))[:, None]  # indexing by it takes a tenth of take_along_axis for one query
        return scores[each, best], rows[each, best]

    def _scores(self, queries: Floats, rows: Rows) -> Floats:
        """Return the inner product of each query, shape ``(n, d)``, with the vectors of its ``rows``, ``(n, m)``."""
        positions = np.searchsorted(self._rows, np.maximum(rows, self._rows[0]))
        vectors = self._vectors.at(positions.ravel()).reshape(*rows.shape, -1)
        scores = np.concatenate([inner_products(queries[i : i + 1], near) for i, near in enumerate(vectors)])
        scores[rows < 0] = -np.inf
        return scores
