"""Segments: immutable folders of raw vectors and their index, written whole and named by the database.

``raw.f16`` holds the raw vectors, float16, little-endian, row-major; ``index.faiss`` holds the unit vectors that the
embedder makes of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.files import write_file
from ragembed.hashing import file_sha256, read_sha256
from ragembed.indexes.faiss_index import SegmentIndex, write_index
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.kinds import Kind, checked_kind, kind_for
from ragembed.indexes.layout import INDEX, RAW, SEGMENTS
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

RAW_TYPE = np.dtype("<f2")


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """What a segment's folder holds."""

    folder: str
    rows: int
    dim: int
    kind: str
    raw_sha256: str
    index_sha256: str


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the database names it."""

    key: int
    files: SegmentFiles


def to_raw(vectors: Floats) -> Halves:
    """Round raw vectors to the stored precision; raises :class:`ValueError` when one is not finite in it."""
    with np.errstate(over="ignore"):
        halves = vectors.astype(RAW_TYPE)
    finite = np.isfinite(halves).all(axis=1)
    if not finite.all():
        raise ValueError(f"vector {int(np.flatnonzero(~finite)[0])} holds a value that is not finite in float16")
    return halves


def write_segment(
    store: Path, raw: Halves, rows: Rows, postprocess: Callable[[Floats], Floats], wanted: Kind
) -> SegmentFiles:
    """Write a new segment below ``store``; it counts once the database names it.

    ``raw`` has shape ``(n, d)``; ``rows``, shape ``(n,)``, ascending, are the ids in the index; ``postprocess`` maps
    raw vectors to vectors; ``wanted`` is the kind of index that the store asks for. The index is always made from the
    rounded raw vectors, so that rebuilding it gives the same.
    """
    final = store / SEGMENTS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    write_file(temporary / RAW, np.ascontiguousarray(raw, dtype=RAW_TYPE).data)
    vectors = to_vectors(raw, postprocess)
    kind = kind_for(wanted, len(raw))
    write_index(kind, vectors, rows, temporary / INDEX)
    hashes = read_sha256(temporary / RAW), read_sha256(temporary / INDEX)
    publish(temporary, final)
    return SegmentFiles(final.name, len(raw), vectors.shape[1], kind, *hashes)


def to_vectors(raw: Halves, postprocess: Callable[[Floats], Floats]) -> Floats:
    """Return the unit vectors, float32, shape ``(n, d)``, that ``postprocess`` makes of stored raw vectors."""
    return unit_rows(postprocess(raw.astype(np.float32)))


class Segment:
    """A committed segment; each of its files is checked against its hash when it is first used.

    ``rows`` are kept here by whoever looks them up in the database: the row of each vector, int64, by position.
    """

    def __init__(self, store: Path, files: SegmentFiles) -> None:
        folder = store / SEGMENTS / files.folder
        self.files = files
        self.raw_file, self.index_file = folder / RAW, folder / INDEX
        self.kind = checked_kind(files.kind)
        self.rows: Rows | None = None
        self._raw: Halves | None = None
        self._index: SegmentIndex | None = None

    def search(self, queries: Floats, k: int, allowed: Mask | None, share: float) -> tuple[Floats, Rows]:
        """Search the index; see :meth:`ragembed.indexes.faiss_index.SegmentIndex.search`."""
        return self.index().search(queries, k, allowed, share)

    def index(self) -> SegmentIndex:
        """Return the index, mapped."""
        if self._index is None:
            _check(self.index_file, self.files.index_sha256)
            self._index = SegmentIndex(self.index_file, self.kind, self.files.rows, self.files.dim)
        return self._index

    def raw(self) -> Halves:
        """Return the raw vectors, float16, shape ``(rows, d)``, mapped."""
        if self._raw is None:
            _check(self.raw_file, self.files.raw_sha256)
            numbers, rest = divmod(self.raw_file.stat().st_size, RAW_TYPE.itemsize)
            if self.files.rows < 1 or rest or numbers % self.files.rows or not numbers:
                raise StoreDamagedError(f"{self.raw_file} does not hold {self.files.rows:,} vectors")
            shape = (self.files.rows, numbers // self.files.rows)
            self._raw = np.memmap(self.raw_file, dtype=RAW_TYPE, mode="r", shape=shape)
        return self._raw


def _check(file: Path, expected: str) -> None:
    found = file_sha256(file)
    if found != expected:
        raise StoreDamagedError(
            f"{file} is not the file that was committed (sha256 {found[:12]}…, expected {expected[:12]}…): "
            "rebuild it with: ragembed verify --repair"
        )
