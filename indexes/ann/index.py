"""A stored index: opened, searched, read back, and its hits ranked by the raw vectors."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ragembed.errors import StoreDamagedError
from ragembed.indexes.ann.flat import HEADER, TYPES, FlatIndex
from ragembed.indexes.ann.gpus import MOST_SELECTED, GpuIndex, to_gpus
from ragembed.indexes.ann.library import faiss, has_faiss, require_library
from ragembed.indexes.ann.lists import list_codes, list_ids, transformed
from ragembed.indexes.ann.specs import FLAT, IndexSpec
from ragembed.indexes.ann.vectors import Vectors, inner_products, rows_in
from ragembed.indexes.types import Rows
from ragembed.types import Bools, Floats

EFFORTS = MappingProxyType({"graph": 256, "lists": 0.25})
"""How much is looked at where no effort was found by measuring: neighbours, and the share of the lists."""

USUAL_K = 18
"""Neighbours that are searched for when ten are asked for; see :mod:`ragembed.indexes.search.snapshot`."""

FEW_QUERIES = 8
"""Queries up to which an index is searched in one thread."""

_LEAST_PROBED = 8
_LEAST_GRAPH_SHARE = 0.8
_CONTENTS_BYTES = _REFINED_BYTES = 64 * 1024**2
_TYPES: Mapping[str, tuple[bytes, ...]] = MappingProxyType(
    {
        FLAT: TYPES,
        "fp16": (b"IxMp", b"IxSQ"),
        "hnsw": (b"IxMp", b"IHNf"),
        "hnsw-sq8": (b"IxMp", b"IHNs"),
        "ivf": (b"IwFl",),
        "ivf-sq8": (b"IwSq",),
        "ivf-pq": (b"IwPQ",),
    }
)
"""The types that an index's file names, from the outermost inwards."""


def open_index(
    file: Path, spec: IndexSpec, rows: int, dim: int, threads: int | None = None, gpus: Sequence[int] = ()
) -> StoredIndex:
    """Return the index in ``file``: by FAISS, or without it by NumPy if it is flat.

    The arguments and errors are those of :class:`SegmentIndex`. Raises :class:`MissingExtraError` for another kind.
    """
    if has_faiss():
        return SegmentIndex(file, spec, rows, dim, threads, gpus)
    require_library(spec.name)
    _require_type(file, spec, rows, dim)
    return FlatIndex(file, rows, dim)


class SegmentIndex:
    """A stored index that FAISS searches, mapped into memory; ``file``'s hash must have been checked.

    Parameters
    ----------
    file, spec
        The file, and the kind of index in it.
    rows, dim
        How many vectors it has, and of which dimension.
    threads
        Most threads that search for several queries at once; None for as many as FAISS takes. One or a few queries
        are always searched for in one thread.
    gpus
        Numbers of the GPUs that a copy of the index lies on. Searches under a filter, and those for more neighbours or
        lists than FAISS picks there, stay on the CPU.

    Raises
    ------
    StoreDamagedError
        Where the file does not begin as such an index does, or FAISS cannot read it.
    ConfigError, GpuError
        Where there is no such index on GPUs, or not enough memory.
    """

    def __init__(
        self, file: Path, spec: IndexSpec, rows: int, dim: int, threads: int | None = None, gpus: Sequence[int] = ()
    ) -> None:
        self._spec = spec
        self._threads = threads
        self._last: tuple[tuple[int, float, int | None], Any] | None = None
        _require_type(file, spec, rows, dim)
        flags = faiss.IO_FLAG_MMAP if spec.family == "lists" else faiss.IO_FLAG_MMAP_IFC
        try:
            self._index: Any = faiss.read_index(str(file), flags)
        except RuntimeError as error:
            if not file.exists():
                raise FileNotFoundError(errno.ENOENT, "No such file", str(file)) from error
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {error}") from error
        self._lists: Any = faiss.try_extract_index_ivf(self._index) if spec.family == "lists" else None
        if self._lists is not None:
            self._inverted = faiss.downcast_InvertedLists(self._lists.invlists)
            self._inverted.prefetch_nthread = 0  # else 32 threads are started for each search
        self._on_gpus: GpuIndex | None = to_gpus(self._index, gpus, file.stat().st_size) if gpus else None

    @property
    def most_effort(self) -> int:
        """The highest effort that makes a difference: all lists, or all vectors; 0 where there is none to make."""
        if self._spec.family == "exhaustive":
            return 0
        return int(self._index.ntotal if self._lists is None else self._lists.nlist)

    def search(
        self, queries: Floats, k: int, allowed: Bools | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Return inner products and rows of the ``k`` nearest vectors among those ``allowed``.

        ``queries`` is float32, shape ``(n, d)``; ``allowed`` tells of each row whether it counts, None that all do;
        ``share`` is about how many of the index's rows do, from 0 to 1, and makes an approximate search look at more.
        ``effort`` is how many neighbours are kept in sight (efSearch), or how many lists are looked into (nprobe).
        Both results have shape ``(n, min(k, vectors))``, best first, with row -1 and score -inf where there are fewer.
        """
        k = min(k, self._index.ntotal)
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if self._on_gpus is not None and allowed is None:
            probes = None if self._lists is None else self._probes(k, 1.0, effort)
            if max(k, probes or 0) <= MOST_SELECTED:
                return self._on_gpus.search(queries, k, probes)
        with _threads_for(len(queries), self._threads):
            if allowed is not None and self._spec.family == "graph" and share < _LEAST_GRAPH_SHARE:
                scores, rows = self._search_storage(queries, k, allowed)
            else:
                if allowed is not None:
                    parameters = self._parameters(k, share, effort, {"sel": _selector(allowed)})
                else:
                    parameters = self._kept_parameters(k, share, effort)
                scores, rows = self._index.search(queries, k, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows

    def search_part(
        self, queries: Floats, k: int, start: int, stop: int, allowed: Bools | None = None
    ) -> tuple[Floats, Rows]:
        """Return what :meth:`search` does, of the vectors at the positions ``start`` to before ``stop`` alone.

        The index must be exhaustive, and is searched on the CPU.
        """
        row_at = self._index.id_map.at
        among = faiss.IDSelectorRange(row_at(start), row_at(stop - 1) + 1)
        if allowed is not None:
            among = faiss.IDSelectorAnd(among, _selector(allowed))
        with _threads_for(len(queries), self._threads):
            scores, rows = self._index.search(
                np.ascontiguousarray(queries), min(k, stop - start), params=faiss.SearchParameters(sel=among)
            )
        scores[rows < 0] = -np.inf
        return scores, rows

    def _search_storage(self, queries: Floats, k: int, allowed: Bools) -> tuple[Floats, Rows]:
        """Search the vectors of a graph one by one: its links lead past what a filter selects far from the query."""
        row_of = faiss.vector_to_array(self._index.id_map)
        storage = faiss.downcast_index(faiss.downcast_index(self._index.index).storage)
        selected = np.zeros(len(row_of), dtype=bool)
        known = row_of < len(allowed)
        selected[known] = allowed[row_of[known]]
        scores, positions = storage.search(queries, k, params=faiss.SearchParameters(sel=_selector(selected)))
        return scores, np.where(positions < 0, -1, row_of[positions])

    def _kept_parameters(self, k: int, share: float, effort: int | None) -> Any:
        """Return what :meth:`_parameters` does, made once for the same search again and again."""
        asked, last = (k, share, effort), self._last
        if last is None or last[0] != asked:
            last = self._last = asked, self._parameters(k, share, effort, {})
        return last[1]  # and not self._last's, which another thread may have put there meanwhile

    def _parameters(self, k: int, share: float, effort: int | None, settings: dict[str, Any]) -> Any:
        if self._spec.family == "graph":
            tuned = USUAL_K * self._spec.refine_factor
            least = tuned if k <= tuned else 2 * k  # what the effort was measured with, or for a deeper search
            neighbours = int(max(EFFORTS["graph"] if effort is None else effort, least) / share)
            return faiss.SearchParametersHNSW(efSearch=min(neighbours, self._index.ntotal), **settings)
        if self._spec.family == "exhaustive":
            return faiss.SearchParameters(**settings)
        parameters = faiss.SearchParametersIVF(nprobe=self._probes(k, share, effort), **settings)
        if isinstance(self._index, faiss.IndexPreTransform):
            return faiss.SearchParametersPreTransform(index_params=parameters)
        return parameters

    def _probes(self, k: int, share: float, effort: int | None) -> int:
        lists: int = self._lists.nlist
        asked = max(k, USUAL_K * self._spec.refine_factor)
        for_k = 2 * asked * lists / self._index.ntotal  # so that the lists hold twice as many as are asked for
        least = max(_LEAST_PROBED, EFFORTS["lists"] * lists) if effort is None else effort
        return int(min(math.ceil(max(for_k, least) / share), lists))

    def rows(self) -> Rows:
        """Return the rows of the vectors, int64, shape ``(n,)``, ascending."""
        if self._lists is None:
            found: Rows = faiss.vector_to_array(self._index.id_map)
            return found
        return np.sort(np.concatenate([list_ids(self._inverted, number) for number in range(self._lists.nlist)]))

    def contents(self) -> Iterator[tuple[Rows, Floats]]:
        """Yield rows, int64, shape ``(n,)``, and vectors as they are kept, float32, shape ``(n, d)``, in blocks."""
        size = rows_in(_CONTENTS_BYTES, self._index.d)
        if self._lists is not None:
            yield from self._list_contents()
            return
        rows = faiss.vector_to_array(self._index.id_map)
        inner = faiss.downcast_index(self._index.index)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield part, inner.reconstruct_n(start, len(part))

    def _list_contents(self) -> Iterator[tuple[Rows, Floats]]:
        lists = self._lists
        for number in range(lists.nlist):
            size = self._inverted.list_size(number)
            if not size:
                continue
            codes = list_codes(self._inverted, number, lists.code_size).reshape(size, -1)
            prefix = np.frombuffer(number.to_bytes(lists.coarse_code_size(), "little"), dtype=np.uint8)
            vectors = lists.sa_decode(np.hstack([np.broadcast_to(prefix, (size, len(prefix))), codes]))
            yield list_ids(self._inverted, number).copy(), vectors

    def as_searched(self, vectors: Floats) -> Floats:
        """Return what is kept, but for rounding, of ``vectors``, float32, shape ``(n, d)``."""
        return vectors if self._lists is None else transformed(self._index, vectors)

    def kept_of(self, vectors: Floats) -> Floats:
        """Return what the index keeps of ``vectors``, float32, shape ``(n, d)``, as :meth:`contents` gives it."""
        if self._lists is not None:
            inner, vectors = self._lists, transformed(self._index, vectors)
        else:
            inner = faiss.downcast_index(self._index.index)
            inner = faiss.downcast_index(inner.storage) if self._spec.family == "graph" else inner
        kept: Floats = inner.sa_decode(inner.sa_encode(np.ascontiguousarray(vectors, dtype=np.float32)))
        return kept


StoredIndex: TypeAlias = SegmentIndex | FlatIndex
"""What :func:`open_index` returns."""


class RefinedIndex:
    """Searches ``index``; where that does not keep vectors as they are, more are found and ranked by ``vectors``.

    ``rows``, int64, shape ``(n,)``, ascending, are the ids of the vectors by position.
    """

    def __init__(self, index: StoredIndex, spec: IndexSpec, vectors: Vectors, rows: Rows) -> None:
        self._index = index
        self._spec = spec
        self._vectors = vectors
        self._rows = rows

    def search(
        self, queries: Floats, k: int, allowed: Bools | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`SegmentIndex.search` does; scores are those of the vectors, not of their codes."""
        if self._spec.lossless:
            return self._index.search(queries, k, allowed, share, effort)
        _, rows = self._index.search(queries, k * self._spec.refine_factor, allowed, share, effort)
        together = max(1, rows_in(_REFINED_BYTES, queries.shape[1]) // max(rows.shape[1], 1))
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


def most_threads() -> int:
    """Return how many threads search by default: as many as FAISS takes, without it one for each processor."""
    return int(faiss.omp_get_max_threads()) if has_faiss() else os.cpu_count() or 1


def _selector(allowed: Bools) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


@contextmanager
def _threads_for(queries: int, most: int | None) -> Iterator[None]:
    """Search for few queries in one thread: others have nothing to do, and wait for it by spinning."""
    wanted = 1 if queries <= FEW_QUERIES else most
    if wanted is None:
        yield
        return
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(min(wanted, threads))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _require_type(file: Path, spec: IndexSpec, rows: int, dim: int) -> None:
    """Raise :class:`StoreDamagedError` unless the file begins as such an index does, before FAISS reads it."""
    types = _TYPES.get(spec.name) or _factory_types(file, spec, dim)
    with file.open("rb") as stream:
        header = stream.read(HEADER.size * len(types))
    found = [HEADER.unpack_from(header, at)[:3] for at in range(0, len(header) - HEADER.size + 1, HEADER.size)]
    expected = [(name, dim, rows) for name in types]
    if found != expected:
        raise StoreDamagedError(
            f"{file} begins as {found or header[:4]!r}: expected a FAISS index of kind {spec.name}, {expected}"
        )


def _factory_types(file: Path, spec: IndexSpec, dim: int) -> tuple[bytes, ...]:
    """Return the types that the file of a kind that has no name begins with, from an empty index of that kind."""
    try:
        index = faiss.index_factory(dim, spec.name, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise StoreDamagedError(
            f"{file} is said to be of kind {spec.name}, which FAISS cannot make: {error}"
        ) from error
    if spec.family == "lists":
        return (faiss.serialize_index(index).tobytes()[:4],)
    empty = faiss.serialize_index(faiss.IndexIDMap(index)).tobytes()
    return empty[:4], empty[HEADER.size : HEADER.size + 4]
