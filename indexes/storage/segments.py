"""Segments: immutable folders of raw vectors with their index, written atomically and named by the database.

``raw.f16`` holds the raw vectors, float16, little-endian, row-major. ``index.faiss`` holds the unit vectors that the
embedder makes from them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.files import create_file, publish, read_sha256
from ragembed.indexes.faiss_index.building import IndexInput, build_index, require_buildable
from ragembed.indexes.faiss_index.index import StoredIndex, open_index
from ragembed.indexes.faiss_index.records import FLAT, IndexSpec, parse_spec
from ragembed.indexes.storage.folders import require_committed, temporary_folder
from ragembed.indexes.storage.layout import INDEX, RAW, SEGMENTS
from ragembed.indexes.types import Rows
from ragembed.postprocess import unit_rows
from ragembed.types import Floats, Halves

RAW_TYPE = np.dtype("<f2")
_LARGEST_EXPONENT, _SIGN_COPIES = np.int16(0x7C00), np.int32(0x70000000)
_FRACTION_BITS = 13
"""Bits by which the fraction of float32 is longer than that of float16."""
_CONVERTED_ROWS = 8_192
"""Number of raw vectors that are converted at a time."""

LEAST_APPROXIMATE = 10_000
"""Segments below this number of vectors get a flat index while a store grows; exact search is as fast there."""


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The contents of a segment's folder."""

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
    """Round raw vectors to float16; raise :class:`ConfigError` if a value is not finite in float16."""
    with np.errstate(over="ignore"):
        halves = vectors.astype(RAW_TYPE)
    finite = np.isfinite(halves).all(axis=1)
    if not finite.all():
        raise ConfigError(
            f"the embedder returned vectors that cannot be stored: vector {int(np.flatnonzero(~finite)[0])} holds a "
            "value that is not finite in float16"
        )
    return halves


Make = Callable[[IndexInput], IndexSpec]
"""Writes an index to its file, and returns its kind."""

Written: TypeAlias = "tuple[SegmentFiles, Rows]"
"""A new segment, and the row of each of its vectors by position."""


def of_kind(wanted: IndexSpec, gpus: Sequence[int] = ()) -> Make:
    """Return a function that builds indexes of the kind of :func:`kind_for`; it raises ConfigError if FAISS cannot."""

    def make(index_input: IndexInput) -> IndexSpec:
        spec = kind_for(wanted, len(index_input.rows))
        require_buildable(spec, index_input.vectors.dim)
        build_index(spec, index_input.vectors, index_input.rows, index_input.file, gpus=gpus)
        return spec

    return make


def same_kind(files: SegmentFiles) -> Make:
    """Return a function that rebuilds the index of a segment, keeping its kind."""

    def make(index_input: IndexInput) -> IndexSpec:
        spec = stored_spec(files.kind)
        build_index(spec, index_input.vectors, index_input.rows, index_input.file)
        return spec

    return make


def write_segment(
    store: Path, blocks: Iterable[tuple[Rows, Halves]], postprocess: Callable[[Floats], Floats], make: Make
) -> Written:
    """Write a new segment below ``store``. It becomes part of the store when the database names it.

    ``blocks`` are rows, shape ``(n,)``, ascending over all blocks, with their raw vectors, shape ``(n, d)``; one vector
    or more in total. ``postprocess`` maps raw vectors to vectors. The index is built from the rounded raw vectors, so
    rebuilding it gives the same vectors.
    """
    final = store / SEGMENTS / str(uuid.uuid4())
    temporary = temporary_folder(final)
    try:
        rows, width = _write_raw(temporary / RAW, blocks)
        spec, dim = _write_index(temporary, rows, width, postprocess, make)
        hashes = read_sha256(temporary / RAW), read_sha256(temporary / INDEX)
        publish(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)  # It may be as large as the store, so remove it now.
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
    folder: Path, rows: Rows, width: int, postprocess: Callable[[Floats], Floats], make: Make
) -> tuple[IndexSpec, int]:
    """Build the index of the raw vectors in ``folder``; return its kind and the dimension of the vectors.

    ``width`` is the dimension of the raw vectors. On return, no file is mapped any more, because Windows cannot rename
    the folder of a mapped file.
    """
    raw = np.memmap(folder / RAW, dtype=RAW_TYPE, mode="r", shape=(len(rows), width))
    index_input = IndexInput(SegmentVectors(raw, postprocess), rows, folder / INDEX)
    return make(index_input), index_input.vectors.dim


def to_vectors(raw: Halves, postprocess: Callable[[Floats], Floats], positions: Rows | None = None) -> Floats:
    """Return the unit vectors, float32, shape ``(n, d)``, that ``postprocess`` makes from stored raw vectors.

    ``positions``, int64, shape ``(n,)``, chooses raw vectors. They are read and converted in blocks, to save memory.
    """
    count = len(raw) if positions is None else len(positions)
    vectors = np.empty((0, 0), dtype=np.float32)
    for start in range(0, max(count, 1), _CONVERTED_ROWS):
        part = slice(start, start + _CONVERTED_ROWS)
        made = unit_rows(postprocess(_floats(raw[part] if positions is None else raw[positions[part]])))
        if count <= _CONVERTED_ROWS:
            return made
        if not start:
            vectors = np.empty((count, made.shape[1]), dtype=np.float32)
        vectors[part] = made
    return vectors


def _floats(halves: Halves) -> Floats:
    """Return float16 numbers as float32, shape ``(n, d)``, in a sixth of the time that NumPy takes.

    A shift moves the exponent and the fraction to their places in float32, where the same exponent is 2^112 less.
    """
    bits = halves.view("<i2").astype(np.int32)
    if (bits & _LARGEST_EXPONENT == _LARGEST_EXPONENT).any():  # infinite or not a number
        return halves.astype(np.float32)
    bits <<= _FRACTION_BITS
    bits &= ~_SIGN_COPIES
    floats: Floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)
    return floats


class SegmentVectors:
    """The vectors that ``postprocess`` makes from raw vectors, float16, shape ``(n, d)``; computed on every read."""

    def __init__(self, raw: Halves, postprocess: Callable[[Floats], Floats]) -> None:
        self._raw = raw
        self._postprocess = postprocess

    @cached_property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.block(0, 1).shape[1])

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._raw)

    def block(self, start: int, stop: int) -> Floats:
        """Return the vectors from position ``start`` up to, not including, ``stop``."""
        return to_vectors(self._raw[start:stop], self._postprocess)

    def at(self, positions: Rows) -> Floats:
        """Return the vectors at ``positions``, int64, shape ``(n,)``."""
        return to_vectors(self._raw, self._postprocess, positions)


class Segment:
    """A committed segment; its files are checked on first use.

    ``rows`` caches each vector's row by position, int64. A ``flat`` index holds the vectors one after the other.
    """

    def __init__(self, store: Path, files: SegmentFiles, threads: int | None = None, gpus: Sequence[int] = ()) -> None:
        folder = store / SEGMENTS / files.folder
        self._store = store
        self.files = files
        self.raw_file, self.index_file = folder / RAW, folder / INDEX
        self.spec = stored_spec(files.kind)
        self.flat = self.spec.name == FLAT
        self.rows: Rows | None = None
        self._threads = threads
        self._gpus = gpus
        self._raw: Halves | None = None
        self._index: StoredIndex | None = None

    def index(self) -> StoredIndex:
        """Return the index, memory-mapped."""
        if self._index is None:
            require_committed(self.index_file, self.files.index_sha256, self._store)
            shape = self.files.rows, self.files.dim
            self._index = open_index(self.index_file, self.spec, *shape, self._threads, self._gpus)
        return self._index

    def vectors(self, postprocess: Callable[[Floats], Floats]) -> SegmentVectors:
        """Return the unit vectors that ``postprocess`` makes from the raw vectors."""
        return SegmentVectors(self.raw(), postprocess)

    def raw(self) -> Halves:
        """Return the raw vectors, float16, shape ``(rows, d)``, memory-mapped."""
        if self._raw is None:
            require_committed(self.raw_file, self.files.raw_sha256, self._store)
            numbers, remainder = divmod(self.raw_file.stat().st_size, RAW_TYPE.itemsize)
            if self.files.rows < 1 or remainder or numbers % self.files.rows or not numbers:
                raise StoreDamagedError(
                    f"{self.raw_file} has the wrong size: expected {self.files.rows:,} vectors; run "
                    "'ragembed doctor --repair'"
                )
            shape = (self.files.rows, numbers // self.files.rows)
            self._raw = np.memmap(self.raw_file, dtype=RAW_TYPE, mode="r", shape=shape)
        return self._raw


def stored_spec(kind: str) -> IndexSpec:
    """Return the index kind that a store's database names; raise :class:`StoreDamagedError` if it is unknown."""
    try:
        return parse_spec(kind)
    except ConfigError as error:
        raise StoreDamagedError(f"the store's database names an index: {error}") from error


def kind_for(wanted: IndexSpec, rows: int) -> IndexSpec:
    """Return the index kind of a segment of ``rows`` vectors in a store whose kind is ``wanted``."""
    return wanted if rows >= max(LEAST_APPROXIMATE, wanted.least_rows) else parse_spec(FLAT)
