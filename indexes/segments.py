"""Segments: immutable folders of raw vectors and their index, written whole and named by the database.

``raw.f16`` holds the raw vectors, float16, little-endian, row-major; ``index.faiss`` holds the unit vectors that the
embedder makes of them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.files import create_file
from ragembed.hashing import file_sha256, read_sha256
from ragembed.indexes.ann import factories
from ragembed.indexes.ann.building import build_index
from ragembed.indexes.ann.gpus import Gpu
from ragembed.indexes.ann.index import SegmentIndex
from ragembed.indexes.ann.specs import IndexSpec
from ragembed.indexes.ann.vectors import Vectors
from ragembed.indexes.folders import publish, temporary_folder
from ragembed.indexes.kinds import kind_for, stored_spec
from ragembed.indexes.layout import INDEX, RAW, SEGMENTS
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Rows = NDArray[np.int64]

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


Make = Callable[[Vectors, Rows, Path], IndexSpec]
"""Writes the index of vectors whose ids are rows to a file, and returns of which kind it is."""


def of_kind(wanted: IndexSpec, gpus: Sequence[Gpu] = ()) -> Make:
    """Return what makes indexes of the kind that the store asks for; see :func:`ragembed.indexes.kinds.kind_for`.

    It raises :class:`ragembed.errors.ConfigError` for a factory string that cannot be used.
    """

    def make(vectors: Vectors, rows: Rows, file: Path) -> IndexSpec:
        spec = kind_for(wanted, len(rows))
        factories.check(spec, vectors.dim)
        build_index(spec, vectors, rows, file, gpus=gpus)
        return spec

    return make


def as_it_was(files: SegmentFiles) -> Make:
    """Return what makes the index of a segment anew, of the kind that it had."""

    def make(vectors: Vectors, rows: Rows, file: Path) -> IndexSpec:
        spec = stored_spec(files.kind)
        build_index(spec, vectors, rows, file)
        return spec

    return make


def write_segment(
    store: Path, blocks: Iterable[tuple[Rows, Halves]], postprocess: Callable[[Floats], Floats], make: Make
) -> tuple[SegmentFiles, Rows]:
    """Write a new segment below ``store``; it counts once the database names it. Returns it and its rows.

    ``blocks`` are rows, shape ``(n,)``, ascending over all blocks, and their raw vectors, shape ``(n, d)``, one vector
    or more in all; ``postprocess`` maps raw vectors to vectors. The index is always made from the rounded raw vectors,
    so that rebuilding it gives the same.
    """
    final = store / SEGMENTS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    try:
        rows, width = _write_raw(temporary / RAW, blocks)
        spec, dim = _write_index(temporary, (len(rows), width), rows, postprocess, make)
        hashes = read_sha256(temporary / RAW), read_sha256(temporary / INDEX)
        publish(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # it may be as large as the store, and the next write far away
        raise
    return SegmentFiles(final.name, len(rows), dim, spec.name, *hashes), rows


def _write_raw(file: Path, blocks: Iterable[tuple[Rows, Halves]]) -> tuple[Rows, int]:
    rows, width = [], 0
    with create_file(file) as stream:
        for ids, raw in blocks:
            rows.append(ids)
            width = raw.shape[1]
            stream.write(np.ascontiguousarray(raw, dtype=RAW_TYPE).data)
    return np.concatenate(rows), width


def _write_index(
    folder: Path, shape: tuple[int, int], rows: Rows, postprocess: Callable[[Floats], Floats], make: Make
) -> tuple[IndexSpec, int]:
    """Make the index of the raw vectors in ``folder``; none is mapped any more then, as Windows would not rename it."""
    raw = np.memmap(folder / RAW, dtype=RAW_TYPE, mode="r", shape=shape)
    vectors = RawVectors(raw, postprocess)
    return make(vectors, rows, folder / INDEX), vectors.dim


def to_vectors(raw: Halves, postprocess: Callable[[Floats], Floats]) -> Floats:
    """Return the unit vectors, float32, shape ``(n, d)``, that ``postprocess`` makes of stored raw vectors."""
    return unit_rows(postprocess(raw.astype(np.float32)))


class RawVectors:
    """The vectors that ``postprocess`` makes of raw vectors, float16, shape ``(n, d)``; made whenever they are read."""

    def __init__(self, raw: Halves, postprocess: Callable[[Floats], Floats]) -> None:
        self._raw = raw
        self._postprocess = postprocess

    @cached_property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.block(0, 1).shape[1])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._raw)

    def block(self, start: int, stop: int) -> Floats:
        """Return those from position ``start`` to before ``stop``."""
        return to_vectors(self._raw[start:stop], self._postprocess)

    def at(self, positions: Rows) -> Floats:
        """Return those at ``positions``, int64, shape ``(n,)``."""
        return to_vectors(self._raw[positions], self._postprocess)


class Segment:
    """A committed segment; each of its files is checked against its hash when it is first used.

    ``rows`` are kept here by whoever looks them up in the database: the row of each vector, int64, by position.
    """

    def __init__(self, store: Path, files: SegmentFiles, threads: int | None = None, gpus: Sequence[Gpu] = ()) -> None:
        folder = store / SEGMENTS / files.folder
        self.files = files
        self.raw_file, self.index_file = folder / RAW, folder / INDEX
        self.spec = stored_spec(files.kind)
        self.rows: Rows | None = None
        self._threads = threads
        self._gpus = gpus
        self._raw: Halves | None = None
        self._index: SegmentIndex | None = None

    def index(self) -> SegmentIndex:
        """Return the index, mapped."""
        if self._index is None:
            _check(self.index_file, self.files.index_sha256)
            shape = self.files.rows, self.files.dim
            self._index = SegmentIndex(self.index_file, self.spec, *shape, self._threads, self._gpus)
        return self._index

    def vectors(self, postprocess: Callable[[Floats], Floats]) -> RawVectors:
        """Return the unit vectors that ``postprocess`` makes of the raw ones."""
        return RawVectors(self.raw(), postprocess)

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
