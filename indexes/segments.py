"""Segments: immutable folders of raw vectors and their index, written whole and named by the database.

``raw.f16`` holds the raw vectors, float16, little-endian, row-major; ``index.faiss`` holds the unit vectors that the
embedder makes of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.hashing import file_sha256, read_sha256
from ragembed.indexes.faiss_index import FLAT, SegmentIndex, write_flat
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.layout import INDEX, RAW, SEGMENTS
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Rows = NDArray[np.int64]

_RAW_TYPE = np.dtype("<f2")


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the database names it."""

    id: str
    rows: int
    dim: int
    kind: str
    raw_sha256: str
    index_sha256: str


def to_raw(vectors: Floats) -> Halves:
    """Round raw vectors to the stored precision; raises :class:`ValueError` when one is not finite in it."""
    with np.errstate(over="ignore"):
        halves = vectors.astype(_RAW_TYPE)
    finite = np.isfinite(halves).all(axis=1)
    if not finite.all():
        raise ValueError(f"vector {int(np.flatnonzero(~finite)[0])} holds a value that is not finite in float16")
    return halves


def write_segment(store: Path, raw: Halves, rows: Rows, postprocess: Callable[[Floats], Floats]) -> SegmentRecord:
    """Write a new segment below ``store`` and return its record; it counts once the database names it.

    ``raw`` has shape ``(n, d)``; ``rows``, shape ``(n,)``, are the ids in the index; ``postprocess`` maps raw vectors
    to vectors. The index is always made from the rounded raw vectors, so that rebuilding it gives the same.
    """
    final = store / SEGMENTS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    (temporary / RAW).write_bytes(np.ascontiguousarray(raw, dtype=_RAW_TYPE).tobytes())
    vectors = unit_rows(postprocess(raw.astype(np.float32)))
    write_flat(vectors, rows, temporary / INDEX)
    hashes = read_sha256(temporary / RAW), read_sha256(temporary / INDEX)
    publish(temporary, final)
    return SegmentRecord(final.name, len(raw), vectors.shape[1], FLAT, *hashes)


class Segment:
    """A committed segment; each of its files is checked against its hash when it is first used."""

    def __init__(self, store: Path, record: SegmentRecord) -> None:
        folder = store / SEGMENTS / record.id
        self.record = record
        self._raw_file, self._index_file = folder / RAW, folder / INDEX
        self._raw: Halves | None = None
        self._index: SegmentIndex | None = None

    def search(self, queries: Floats, k: int, dead: Collection[int]) -> tuple[Floats, Rows]:
        """Search the index; see :meth:`ragembed.indexes.faiss_index.SegmentIndex.search`."""
        if self._index is None:
            _check(self._index_file, self.record.index_sha256)
            self._index = SegmentIndex(self._index_file, self.record.rows, self.record.dim)
        return self._index.search(queries, k, dead)

    def raw(self) -> Halves:
        """Return the raw vectors, float16, shape ``(rows, d)``, mapped."""
        if self._raw is None:
            _check(self._raw_file, self.record.raw_sha256)
            mapped = np.memmap(self._raw_file, dtype=_RAW_TYPE, mode="r")
            self._raw = mapped.reshape(self.record.rows, -1)
        return self._raw


def _check(file: Path, expected: str) -> None:
    found = file_sha256(file)
    if found != expected:
        raise StoreDamagedError(
            f"{file} is not the file that was committed (sha256 {found[:12]}…, expected {expected[:12]}…): "
            "delete the store and index again"
        )
