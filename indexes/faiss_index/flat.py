"""Flat indexes: writing them in FAISS's file format, and searching them with NumPy if FAISS is not installed.

A file holds the headers of an ``IndexIDMap`` and of an ``IndexFlat``, the vectors and their ids. The documentation page
"Store format" describes it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ragembed.errors import StoreDamagedError
from ragembed.indexes.faiss_index.vectors import PartSearch, Vectors, blocks, dot_products, ranges, rows_in
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

HEADER = struct.Struct("<4siqqq?i")
"""Header of every FAISS index: type, dimension, number of vectors, two unused numbers, is-trained flag, metric."""
COUNT = struct.Struct("<Q")
TYPES = (b"IxMp", b"IxFI")

_UNUSED, _INNER_PRODUCT = 1 << 20, 0
_SEARCHED_BYTES, _CONTENTS_BYTES = 4 * 1024**2, 64 * 1024**2
_QUERIES = 256


def write_flat_index(vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Callable[[int], None]) -> None:
    """Write a flat index of ``vectors`` with the ids ``rows`` in FAISS's file format, block by block."""
    for name in TYPES:
        stream.write(HEADER.pack(name, vectors.dim, len(vectors), _UNUSED, _UNUSED, True, _INNER_PRODUCT))
    stream.write(COUNT.pack(len(vectors) * vectors.dim))
    for _, block in blocks(vectors):
        stream.write(np.ascontiguousarray(block, dtype="<f4").data)
        advance(len(block))
    stream.write(COUNT.pack(len(rows)))
    stream.write(np.ascontiguousarray(rows, dtype="<i8").data)


class FlatIndex:
    """A memory-mapped flat index that NumPy searches in one thread, with a few megabytes of memory.

    It has the methods of :class:`.index.SegmentIndex`. Check the headers of ``file`` first. Raises
    :class:`StoreDamagedError` if the size of the file does not match ``rows`` vectors of dimension ``dim``.
    """

    most_effort = 0

    def __init__(self, file: Path, rows: int, dim: int) -> None:
        start = len(TYPES) * HEADER.size + COUNT.size
        stop = start + 4 * rows * dim
        data = np.memmap(file, dtype=np.uint8, mode="r")
        counts = bytes(data[start - COUNT.size : start]) + bytes(data[stop : stop + COUNT.size])
        if len(data) != stop + COUNT.size + 8 * rows or counts != COUNT.pack(rows * dim) + COUNT.pack(rows):
            raise StoreDamagedError(
                f"{file} has {len(data):,} bytes: expected a flat index of {rows:,} vectors of dimension {dim}"
            )
        self._vectors: Floats = data[start:stop].view("<f4").reshape(rows, dim)
        self._rows: Rows = data[stop + COUNT.size :].view("<i8").astype(np.int64)

    def search(
        self,
        queries: Floats,
        k: int,
        allowed: Bools | None = None,
        share: float = 1.0,  # noqa: ARG002  only approximate indexes use it
        effort: int | None = None,  # noqa: ARG002
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`ragembed.indexes.faiss_index.index.SegmentIndex.search` does."""
        return self.search_part(queries, k, 0, len(self._rows), allowed)

    def multiplies(self, queries: int, k: int, parts: int = 1) -> bool:  # noqa: ARG002
        """Return False: the sums of matrix products would depend on the number of queries."""
        return False

    def compared(self, k: int, effort: int | None) -> int:  # noqa: ARG002
        """Return the number of vectors: a search compares all of them."""
        return len(self._rows)

    def divided(
        self,
        queries: Floats,
        k: int,
        allowed: Bools | None,
        share: float,  # noqa: ARG002
        effort: int | None,  # noqa: ARG002
        parts: int,
    ) -> Sequence[PartSearch]:
        """Divide a search as :meth:`ragembed.indexes.faiss_index.index.SegmentIndex.divided` does."""
        part = partial(self.search_part, queries, k, allowed=allowed)
        return [partial(part, *bounds) for bounds in ranges(len(self._rows), parts)]

    def search_part(
        self, queries: Floats, k: int, start: int, stop: int, allowed: Bools | None = None
    ) -> tuple[Floats, Rows]:
        """Search the vectors at positions ``start`` (inclusive) to ``stop`` (exclusive)."""
        shape = len(queries), min(k, stop - start)
        scores = np.full(shape, -np.inf, dtype=np.float32)
        rows = np.full(shape, -1, dtype=np.int64)
        if not shape[1]:
            return scores, rows
        for first in range(0, len(queries), _QUERIES):
            some = slice(first, first + _QUERIES)
            for found, ids in self._products(queries[some], start, stop, allowed):
                for best, best_rows, each in zip(scores[some], rows[some], found, strict=True):
                    better = np.flatnonzero(each > best[-1])
                    if len(better):
                        together = np.concatenate([best, each[better]])
                        order = np.argsort(-together, kind="stable")[: shape[1]]
                        best_rows[:] = np.concatenate([best_rows, ids[better]])[order]
                        best[:] = together[order]
        return scores, rows

    def _products(self, queries: Floats, start: int, stop: int, allowed: Bools | None) -> Iterator[tuple[Floats, Rows]]:
        """Yield blocks of inner products of ``queries`` with the ``allowed`` vectors, and the ids of these vectors."""
        size = rows_in(_SEARCHED_BYTES, self._vectors.shape[1])
        for first in range(start, stop, size):
            part = slice(first, min(first + size, stop))
            vectors, ids = self._vectors[part], self._rows[part]
            if allowed is not None:
                known = ids < len(allowed)
                kept = np.flatnonzero(known)[allowed[ids[known]]]
                vectors, ids = vectors[kept], ids[kept]
            if len(ids):
                # The vectors are not aligned to four bytes in the file; arithmetic on unaligned data is slow.
                yield dot_products(queries, np.require(vectors, np.float32, ["C", "ALIGNED"])), ids

    def rounding(self, queries: Floats) -> Floats:
        """Return zeros, shape ``(n,)``: a flat index does not round vectors."""
        return np.zeros(len(queries), dtype=np.float32)

    def rows(self) -> Rows:
        """Return the rows of the vectors, int64, shape ``(n,)``, ascending."""
        return self._rows

    def contents(self) -> Iterator[tuple[Rows, Floats]]:
        """Yield blocks of rows, int64, shape ``(n,)``, with their vectors, float32, shape ``(n, d)``."""
        size = rows_in(_CONTENTS_BYTES, self._vectors.shape[1])
        for start in range(0, len(self._rows), size):
            part = slice(start, start + size)
            yield self._rows[part], np.require(self._vectors[part], np.float32, ["C", "ALIGNED"])

    def as_searched(self, vectors: Floats) -> Floats:
        """Return ``vectors`` unchanged: a flat index does not transform them."""
        return vectors

    def kept_of(self, vectors: Floats) -> Floats:
        """Return ``vectors`` unchanged: a flat index stores them as float32."""
        return vectors
