"""Check an index file completely before FAISS reads it: FAISS crashes on files that do not describe a sound index.

Every header, number, size and link is checked, and the file must end where its contents end. Vectors, codes and ids may
have any value. The formats are those of FAISS's ``index_write.cpp``, as far as the kinds of
:mod:`ragembed.indexes.faiss_index.records` use them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.indexes.faiss_index.records import Codes, Family, IndexSpec

HEADER = struct.Struct("<4siqqq?i")
"""Header of every FAISS index: type, dimension, number of vectors, two unused numbers, is-trained flag, metric."""
COUNT = struct.Struct("<Q")
INNER_PRODUCT = 0
FLAT_TYPES = (b"IxMp", b"IxFI")
"""The types of the headers of a flat index: of the ids, and of the vectors."""

_IDS, _TRANSFORMED, _FLAT, _SCALAR = b"IxMp", b"IxPT", b"IxFI", b"IxSQ"
_GRAPHS, _LISTS = (b"IHNf", b"IHNs"), (b"IwFl", b"IwSq", b"IwPQ")
_SCALAR_KINDS: Mapping[int, tuple[Codes, int]] = MappingProxyType(
    {0: ("SQ8", 8), 1: ("SQ4", 4), 4: ("SQfp16", 16), 6: ("SQ6", 6), 7: ("SQbf16", 16)}
)
"""FAISS's numbers of scalar quantisers, each with its name and its bits per dimension."""
_MOST_BITS = 12
_MOST_VALUE, _MOST_FACTOR = 1e12, 1e20
"""Largest number in a quantiser or transform, and largest factor of all transforms: their products are finite."""
_LINKS_AT_ONCE = 1 << 22


def check_index_file(file: Path, spec: IndexSpec, rows: int, dim: int) -> None:
    """Raise :class:`StoreDamagedError` unless ``file`` is an index of this kind for ``rows`` vectors of ``dim``."""
    kind = None
    try:
        data: NDArray[np.uint8] = (
            np.memmap(file, dtype=np.uint8, mode="r") if file.stat().st_size else np.empty(0, "u1")
        )
        kind = _IndexParts(data).whole(rows, dim, transformed=spec.transformed)
        reason = "" if kind == (spec.family, spec.codes) else f"it is an index of kind {kind[0]} of {kind[1]}"
    except (_InvalidError, struct.error) as error:
        reason = str(error)
    if reason:
        raise StoreDamagedError(
            f"{file} was not made by ragembed ({reason}): expected a FAISS index of kind {spec.name} for {rows:,} "
            f"vectors of dimension {dim:,}; rebuild it with 'ragembed doctor --repair'"
        )


class _InvalidError(ValueError):
    """The file is not a sound index; the message says why."""


def _require(condition: object, reason: str) -> None:
    if not condition:
        raise _InvalidError(reason)


class _IndexParts:
    """Reads the parts of an index in the order of the file."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._bytes = data, data.data
        self._at = 0
        self._vectors = np.empty(0, dtype=np.float32)
        self._factor = 1.0  # by which the transforms can lengthen a vector

    def whole(self, rows: int, dim: int, *, transformed: bool) -> tuple[Family, Codes]:
        """Read the whole file; return how the index is searched, and how it keeps vectors."""
        family: Family = "lists"
        kind = self._header(rows, dim)
        has_ids = kind == _IDS
        if has_ids:
            kind = self._header(rows, dim)
        if transformed:
            _require(kind == _TRANSFORMED, f"its type is {kind!r}")
            dim = self._transforms(dim)
            kind = self._header(rows, dim)
        if has_ids:
            family = "graph" if kind in _GRAPHS else "exhaustive"
            codes = self._graph(kind, rows, dim) if kind in _GRAPHS else self._exhaustive(kind, rows, dim)
            ids = self._vector("<i8", rows)
            _require(not rows or (int(ids[0]) >= 0 and (ids[1:] > ids[:-1]).all()), "its ids do not ascend")
        else:
            _require(kind in _LISTS, f"its type is {kind!r}")
            codes = self._lists(kind, rows, dim)
        _require(self._at == len(self._data), f"it has {len(self._data) - self._at:,} bytes after its end")
        return family, codes

    def _numbers(self, layout: str) -> tuple[Any, ...]:
        numbers = struct.Struct(f"<{layout}")
        values = numbers.unpack_from(self._bytes, self._at)
        self._at += numbers.size
        return values

    def _vector(self, dtype: str, length: int | None = None) -> NDArray[Any]:
        """Read a counted array, of ``length`` elements if that is given."""
        (count,) = COUNT.unpack_from(self._bytes, self._at)
        size = count * np.dtype(dtype).itemsize
        start = self._at + COUNT.size
        _require(size <= len(self._data) - start, f"an array of {count:,} elements lies outside the file")
        _require(length is None or count == length, f"an array has {count:,} elements instead of {length}")
        self._at = start + size
        return self._data[start : self._at].view(dtype)

    def _flag(self) -> bool:
        (value,) = self._numbers("B")
        _require(value in (0, 1), f"a flag is {value}")
        return bool(value)

    def _header(self, rows: int, dim: int) -> bytes:
        """Read the header of an index of ``rows`` vectors; return its type."""
        kind, found_dim, found_rows, _, _, _, metric = HEADER.unpack_from(self._bytes, self._at)
        trained = self._data[self._at + HEADER.size - 5]
        self._at += HEADER.size
        _require(
            (found_rows, found_dim, metric, int(trained)) == (rows, dim, INNER_PRODUCT, 1),
            f"a header {kind!r} has {found_rows:,} vectors of dimension {found_dim:,} and the metric {metric}",
        )
        return bytes(kind)

    def _transforms(self, dim: int) -> int:
        """Return the dimension after the transforms; FAISS would end the process if a vector is not finite there."""
        (count,) = self._numbers("i")
        _require(0 < count <= 8, f"it has {count:,} transforms")
        for _ in range(count):
            (kind,) = self._numbers("4s")
            linear = shift = scattered = None
            if kind in (b"rrot", b"LTra", b"Pcam"):
                if kind == b"Pcam":
                    self._numbers("ff")
                    self._flag()
                    self._numbers("i")
                    for _ in range(3):
                        self._vector("<f4")
                biased, linear, shift = self._flag(), self._vector("<f4"), self._vector("<f4")
            elif kind == b"RmDT":
                scattered = self._vector("<i4")
            else:
                _require(kind == b"VNrm", f"it has a transform {kind!r}")
                _require(self._numbers("f") == (2.0,), "its norm is not Euclidean")
            before, after = self._numbers("ii")
            _require(self._flag(), "a transform is not trained")
            _require(before == dim and after >= 1, f"a transform takes {before:,} dimensions instead of {dim:,}")
            if linear is not None and shift is not None:
                _require(len(linear) == before * after, "a matrix has the wrong size")
                _require(len(shift) == after if biased else len(shift) in (0, after), "a bias has the wrong size")
                self._factor = self._factor * before * _largest(linear) + _largest(shift)
            elif scattered is not None:
                _require(len(scattered) == after, "a map of dimensions has the wrong size")
                _require(_all_between(scattered, -1, before - 1), "a map of dimensions leaves the vector")
            else:
                _require(before == after, "a normalisation changes the dimension")
            dim = after
        _require(self._factor < _MOST_FACTOR, "its transforms make infinite vectors")
        return int(dim)

    def _exhaustive(self, kind: bytes, rows: int, dim: int) -> Codes:
        """Read an index that keeps its vectors one after the other; return how it does."""
        if kind == _FLAT:
            self._vectors = self._vector("<f4", rows * dim)
            return "Flat"
        _require(kind == _SCALAR, f"its type is {kind!r}")
        codes, size = self._scalar_quantiser(dim)
        self._vector("u1", rows * size)
        return codes

    def _scalar_quantiser(self, dim: int) -> tuple[Codes, int]:
        """Read a scalar quantiser; return its name and the bytes of a vector."""
        kind, _, _, found_dim, size = self._numbers("iifQQ")
        _require(kind in _SCALAR_KINDS, f"its scalar quantiser has the number {kind}")
        codes, bits = _SCALAR_KINDS[kind]
        _require((found_dim, size) == (dim, (dim * bits + 7) // 8), "its scalar quantiser has the wrong size")
        _largest(self._vector("<f4", 0 if bits == 16 else 2 * dim))
        return codes, int(size)

    def _graph(self, kind: bytes, rows: int, dim: int) -> Codes:
        """Read an HNSW graph and its vectors; return how it keeps them."""
        self._vector("<f8")
        ends, levels = self._vector("<i4").astype(np.int64), self._vector("<i4", rows).astype(np.int64)
        offsets, links = self._vector("<u8", rows + 1).astype(np.int64), self._vector("<i4")
        entry, top, _, _, _ = self._numbers("iiiii")
        _require(rows > 0 and len(ends) > 1 and ends[0] == 0 and _all_between(np.diff(ends), 0, 1 << 16), "its levels")
        _require(_all_between(levels, 1, len(ends) - 1) and top == levels.max() - 1, "a node has an unknown level")
        _require(0 <= entry < rows and levels[entry] == top + 1, "its entry point is not on the highest level")
        _require(
            offsets[0] == 0 and np.array_equal(np.diff(offsets), ends[levels]), "its links do not match its levels"
        )
        _require(len(links) == offsets[-1], "it has a wrong number of links")
        for start in range(0, len(links), _LINKS_AT_ONCE):
            _require(_all_between(links[start : start + _LINKS_AT_ONCE], -1, rows - 1), "a link leaves the graph")
        for level in range(1, int(top) + 1):
            nodes = np.flatnonzero(levels > level)
            starts = offsets[nodes] + ends[level]
            above = links[(starts[:, None] + np.arange(ends[level + 1] - ends[level])).ravel()]
            _require((levels[above[above >= 0]] > level).all(), "a link leads to a node below its level")
        storage = self._header(rows, dim)
        _require(storage == (_FLAT if kind == _GRAPHS[0] else _SCALAR), f"its vectors are of the type {storage!r}")
        return self._exhaustive(storage, rows, dim)

    def _lists(self, kind: bytes, rows: int, dim: int) -> Codes:
        """Read inverted lists; return how they keep vectors."""
        count, _ = self._numbers("QQ")
        _require(0 < count <= len(self._data), f"it has {count:,} lists")
        quantiser = self._header(count, dim)
        if quantiser == _GRAPHS[0]:
            self._graph(quantiser, count, dim)
        else:
            _require(quantiser == _FLAT, f"its lists are found by an index of the type {quantiser!r}")
            self._exhaustive(quantiser, count, dim)
        _largest(self._vectors)
        _require(self._numbers("B") == (0,), "it has a map of ids")
        self._vector("<i8", 0)
        codes: Codes = "Flat"
        size = 4 * dim
        if kind == b"IwSq":
            codes, size = self._scalar_quantiser(dim)
            _require(self._numbers("Q") == (size,), "its codes have the wrong size")
            self._flag()
        elif kind == b"IwPQ":
            self._flag()
            (size,) = self._numbers("Q")
            codes = "PQ"
            _require(self._product_quantiser(dim) == size, "its codes have the wrong size")
        self._inverted_lists(rows, count, size)
        return codes

    def _product_quantiser(self, dim: int) -> int:
        """Read a product quantiser; return the bytes of a vector."""
        found_dim, parts, bits = self._numbers("QQQ")
        _require(found_dim == dim and 0 < parts <= dim and dim % parts == 0, "its product quantiser has the wrong size")
        _require(0 < bits <= _MOST_BITS, f"its product quantiser has {bits:,} bits")
        _largest(self._vector("<f4", dim << bits))
        return int(parts * bits + 7) // 8

    def _inverted_lists(self, rows: int, count: int, size: int) -> None:
        kind, found_count, found_size, layout = self._numbers("4sQQ4s")
        _require((kind, found_count, found_size, layout) == (b"ilar", count, size, b"full"), f"its lists are {kind!r}")
        sizes = self._vector("<u8", count)
        _require(int(sizes.max()) <= rows and int(sizes.sum()) == rows, f"its lists do not have {rows:,} vectors")
        self._at += rows * (size + 8)
        _require(self._at <= len(self._data), "its lists lie outside the file")


def _largest(values: NDArray[np.float32]) -> float:
    """Return the largest absolute value."""
    largest = float(np.abs(values).max(initial=0.0))
    _require(largest < _MOST_VALUE, f"it has the value {largest}")
    return largest


def _all_between(values: NDArray[Any], low: int, high: int) -> bool:
    return not len(values) or (int(values.min()) >= low and int(values.max()) <= high)
