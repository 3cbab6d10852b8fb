"""Searching one segment: by its index, or vector by vector where few rows are selected or the index is not sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ragembed.indexes.ann.index import RefinedIndex
from ragembed.indexes.ann.vectors import Vectors, inner_products, rows_in
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

_EXACT_ROWS, _EXACT_SHARE = 5_000, 0.05
"""Rows of an approximate segment, and their share of it, up to which a selection is scored one by one."""

_BLOCK_BYTES = 64 * 1024**2


class SegmentHits(NamedTuple):
    """Cosines and rows, shapes ``(n, m)``, best first, of ``n`` queries, of which the first has the number ``first``.

    The row is -1 where there is none.
    """

    scores: Floats
    rows: Rows
    first: int = 0


def search_segment(
    segment: Segment,
    queries: Floats,
    k: int,
    mask: Bools | None,
    rows: Rows | None,
    effort: int | None,
    postprocess: Callable[[Floats], Floats],
) -> SegmentHits:
    """Return the ``k`` nearest of a segment for each of ``queries``, unit vectors, shape ``(n, d)``.

    ``mask`` tells of each row whether it may be found, None that all may. ``rows`` has the row of each vector by
    position, int64, ascending, None for a flat segment, which needs it as little as ``effort``, that of
    :meth:`ragembed.indexes.ann.index.SegmentIndex.search`, and ``postprocess``, which maps raw vectors to vectors.
    """
    if rows is None:
        return SegmentHits(*segment.index().search(queries, k, mask))
    chosen = np.arange(len(rows)) if mask is None else np.flatnonzero(mask[rows])
    share = len(chosen) / len(rows)
    vectors = segment.vectors(postprocess)
    if mask is None or (len(chosen) > _EXACT_ROWS and share > _EXACT_SHARE):
        index = RefinedIndex(segment.index(), segment.spec, vectors, rows)
        scores, found = index.search(queries, k, mask, share, effort)
        if (found >= 0).sum(axis=1).min() >= min(k, len(chosen)):
            return SegmentHits(scores, found)
    return _one_by_one(queries, vectors, chosen, rows, k)


def search_part(segment: Segment, queries: Floats, k: int, mask: Bools | None, start: int, stop: int) -> SegmentHits:
    """Return the ``k`` nearest among the vectors ``start`` to before ``stop`` of a flat segment, as a search of all."""
    return SegmentHits(*segment.index().search_part(queries, k, start, stop, mask))


def _one_by_one(queries: Floats, vectors: Vectors, chosen: Rows, rows: Rows, k: int) -> SegmentHits:
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
    return SegmentHits(scores, found)
