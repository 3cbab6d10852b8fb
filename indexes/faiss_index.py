"""FAISS indexes over unit vectors, with rows as ids. The only importer of faiss."""

from __future__ import annotations

import errno
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import MissingExtraError, StoreDamagedError
from ragembed.files import write_file
from ragembed.indexes.kinds import Kind

try:
    import faiss
except ImportError as error:
    raise MissingExtraError("faiss", "cpu", "searching and indexing") from error

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LINKS, _EF_CONSTRUCTION, _EF_SEARCH = 32, 200, 256
_LISTS_PER_ROOT, _TRAINING_PER_LIST, _PROBED_SHARE, _LEAST_PROBED = 4, 64, 0.25, 8
_LEAST_GRAPH_SHARE = 0.8
_FEW_QUERIES = 8
_HEADER = struct.Struct("<4siqqq?i")
"""Type, dimension, number of vectors, two unused numbers, whether it is trained, metric: how every index begins."""
_TYPES: Mapping[Kind, tuple[bytes, ...]] = {"flat": (b"IxMp", b"IxFI"), "hnsw": (b"IxMp", b"IHNf"), "ivf": (b"IwFl",)}
"""The types that an index's file names, from the outermost inwards."""


def write_index(kind: Kind, vectors: Floats, rows: Rows, file: Path) -> None:
    """Write an inner-product index of ``vectors``, shape ``(n, d)``, whose ids are ``rows``, shape ``(n,)``."""
    index = _EMPTY[kind](len(vectors), vectors.shape[1])
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    index.train(vectors)
    index.add_with_ids(vectors, rows)
    write_file(file, faiss.serialize_index(index))


def _flat(rows: int, dim: int) -> Any:  # noqa: ARG001  the signature of the others
    return faiss.IndexIDMap(faiss.IndexFlatIP(dim))


def _hnsw(rows: int, dim: int) -> Any:  # noqa: ARG001  as above
    graph = faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _EF_CONSTRUCTION
    return faiss.IndexIDMap(graph)


def _ivf(rows: int, dim: int) -> Any:
    lists = max(1, min(int(_LISTS_PER_ROOT * math.sqrt(rows)), rows // _TRAINING_PER_LIST))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = _TRAINING_PER_LIST
    return index


_EMPTY: Mapping[Kind, Callable[[int, int], Any]] = {"flat": _flat, "hnsw": _hnsw, "ivf": _ivf}


class SegmentIndex:
    """A stored index, mapped into memory; ``file``'s hash must have been checked.

    Raises :class:`StoreDamagedError` when the file does not begin as an index of this kind, number of vectors and
    dimension does, or when FAISS cannot read it.
    """

    def __init__(self, file: Path, kind: Kind, rows: int, dim: int) -> None:
        self._kind = kind
        _require_type(file, kind, rows, dim)
        try:
            self._index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            if not file.exists():
                raise FileNotFoundError(errno.ENOENT, "No such file", str(file)) from error
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {error}") from error

    def search(self, queries: Floats, k: int, allowed: Mask | None, share: float) -> tuple[Floats, Rows]:
        """Return inner products and rows of the ``k`` nearest vectors among those ``allowed``.

        ``queries`` is float32, shape ``(n, d)``; ``allowed`` tells of each row whether it counts, None that all do;
        ``share`` is about how many of the index's rows do, from 0 to 1, and makes an approximate search look at more.
        Both results have shape ``(n, min(k, vectors))``, best first, with row -1 and score -inf where there are fewer.
        """
        k = min(k, self._index.ntotal)
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        with _few_threads(len(queries)):
            if allowed is not None and self._kind == "hnsw" and share < _LEAST_GRAPH_SHARE:
                scores, rows = self._search_storage(queries, k, allowed)
            else:
                parameters = self._parameters(k, share, {} if allowed is None else {"sel": _selector(allowed)})
                scores, rows = self._index.search(queries, k, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows

    def _search_storage(self, queries: Floats, k: int, allowed: Mask) -> tuple[Floats, Rows]:
        """Search the vectors of a graph one by one: its links lead past what a filter selects far from the query."""
        row_of = faiss.vector_to_array(self._index.id_map)
        storage = faiss.downcast_index(faiss.downcast_index(self._index.index).storage)
        selected = np.zeros(len(row_of), dtype=bool)
        known = row_of < len(allowed)
        selected[known] = allowed[row_of[known]]
        scores, positions = storage.search(queries, k, params=faiss.SearchParameters(sel=_selector(selected)))
        return scores, np.where(positions < 0, -1, row_of[positions])

    def _parameters(self, k: int, share: float, settings: dict[str, Any]) -> Any:
        if self._kind == "hnsw":
            looked_at = int(max(_EF_SEARCH, 2 * k) / share)
            return faiss.SearchParametersHNSW(efSearch=min(looked_at, self._index.ntotal), **settings)
        if self._kind == "ivf":
            lists = self._index.nlist
            for_k = 2 * k * lists / self._index.ntotal  # so that the lists hold twice as many as are asked for
            probed = math.ceil(max(_LEAST_PROBED, for_k / share, _PROBED_SHARE * lists / share))
            return faiss.SearchParametersIVF(nprobe=min(probed, lists), **settings)
        return faiss.SearchParameters(**settings)

    def contents(self) -> tuple[Rows, Floats]:
        """Return the rows, int64, shape ``(n,)``, in ascending order, and the vectors, float32, shape ``(n, d)``."""
        if self._kind == "ivf":
            rows, vectors = _inverted_lists(self._index)
        else:
            rows = faiss.vector_to_array(self._index.id_map)
            vectors = faiss.downcast_index(self._index.index).reconstruct_n(0, len(rows))
        order = np.argsort(rows, kind="stable")
        return rows[order], vectors[order]


def _selector(allowed: Mask) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


@contextmanager
def _few_threads(queries: int) -> Iterator[None]:
    """Search for few queries in one thread: others have nothing to do, and wait for it by spinning."""
    if queries > _FEW_QUERIES:
        yield
        return
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _inverted_lists(index: Any) -> tuple[Rows, Floats]:
    lists = index.invlists
    rows, vectors = [], []
    for number in range(index.nlist):
        size = lists.list_size(number)
        if size:
            rows.append(faiss.rev_swig_ptr(lists.get_ids(number), size).copy())
            codes = faiss.rev_swig_ptr(lists.get_codes(number), size * lists.code_size).copy()
            vectors.append(codes.view(np.float32).reshape(size, index.d))
    return np.concatenate(rows), np.concatenate(vectors)


def _require_type(file: Path, kind: Kind, rows: int, dim: int) -> None:
    """Raise :class:`StoreDamagedError` unless the file begins as such an index does, before FAISS reads it."""
    types = _TYPES[kind]
    with file.open("rb") as stream:
        header = stream.read(_HEADER.size * len(types))
    found = [_HEADER.unpack_from(header, at)[:3] for at in range(0, len(header) - _HEADER.size + 1, _HEADER.size)]
    expected = [(name, dim, rows) for name in types]
    if found != expected:
        raise StoreDamagedError(
            f"{file} begins as {found or header[:4]!r}: expected a FAISS index of kind {kind}, {expected}"
        )
