"""Search of one segment: by its index, or by exact comparison if few rows are selected or the index finds too few."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ragembed.indexes.faiss_index.index import DividedIndex, RefinedIndex
from ragembed.indexes.faiss_index.vectors import Vectors, inner_products, rows_in
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

_EXACT_ROWS, _EXACT_SHARE = 5_000, 0.05
"""Number and share of selected rows in an approximate segment up to which each row is compared exactly."""

_BLOCK_BYTES = 16 * 1024**2


class SegmentHits(NamedTuple):
    """Cosines and rows of ``n`` queries, shapes ``(n, m)``, best first. The row is -1 if there is no hit."""

    scores: Floats
    rows: Rows


def search_segment(
    segment: Segment,
    queries: Floats,
    k: int,
    mask: Bools | None,
    rows: Rows | None,
    effort: int | None,
    postprocess: Callable[[Floats], Floats],
    divided: DividedIndex | None = None,
) -> SegmentHits:
    """Return the ``k`` nearest vectors of a segment for each of ``queries``, unit vectors, shape ``(n, d)``.

    ``mask`` says for each row whether it may be returned; None allows all rows. ``rows`` holds the row of each vector
    by position, int64, ascending. A flat segment needs no ``rows`` (None), ``effort`` or ``postprocess``. ``effort`` is
    that of :meth:`SegmentIndex.search`, and ``postprocess`` maps raw vectors to vectors.
    ``divided`` is searched instead of the index of the segment.
    """
    opened = divided or segment.index()
    if rows is None:
        return SegmentHits(*opened.search(queries, k, mask))
    chosen = np.arange(len(rows)) if mask is None else np.flatnonzero(mask[rows])
    share = len(chosen) / len(rows)
    vectors = segment.vectors(postprocess)
    if mask is None or (len(chosen) > _EXACT_ROWS and share > _EXACT_SHARE):
        index = RefinedIndex(opened, segment.spec, vectors, rows)
        scores, found = index.search(queries, k, mask, share, effort)
        if (found >= 0).sum(axis=1).min() >= min(k, len(chosen)):
            return SegmentHits(scores, found)
    return _one_by_one(queries, vectors, chosen, rows, k)


def _one_by_one(queries: Floats, vectors: Vectors, chosen: Rows, rows: Rows, k: int) -> SegmentHits:
    """Compare ``queries`` exactly with the vectors at positions ``chosen``, block by block; ``rows`` has their rows."""
    scores = np.empty((len(queries), 0), dtype=np.float32)
    found = np.empty((len(queries), 0), dtype=np.int64)
    step = rows_in(_BLOCK_BYTES, vectors.dim)
    for start in range(0, len(chosen), step):
        block = chosen[start : start + step]
        scores = np.hstack([scores, inner_products(queries, vectors.at(block))])
        found = np.hstack([found, np.broadcast_to(rows[block], (len(queries), len(block)))])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, found = np.take_along_axis(scores, best, axis=1), np.take_along_axis(found, best, axis=1)
    return SegmentHits(scores, found)
