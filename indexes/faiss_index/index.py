"""Open a stored index, search it, read its vectors, and rank its results by the raw vectors."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.indexes.faiss_index.file_check import COUNT, FLAT_TYPES, HEADER, check_index_file
from ragembed.indexes.faiss_index.gpus import MOST_SELECTED, GpuIndex, to_gpus
from ragembed.indexes.faiss_index.records import FLAT, IndexSpec, faiss, require_library
from ragembed.indexes.faiss_index.vectors import (
    PartSearch,
    Vectors,
    above_estimate,
    can_estimate,
    dot_products,
    inner_products,
    k_best,
    places_in,
    ranges,
    rows_in,
)
from ragembed.indexes.types import Rows
from ragembed.resources import ONE_BLAS_THREAD, out_of_memory
from ragembed.types import Bools, Floats

EFFORTS = MappingProxyType({"graph": 256, "lists": 0.25})
"""Default effort of an index that was not tuned: neighbours of a graph search (efSearch), and share of the lists."""

USUAL_K = 18
"""Neighbours that a search for ten hits retrieves; see :mod:`ragembed.indexes.search.snapshot`."""

FEW_QUERIES = 8
"""Maximum number of queries that are searched for in one thread."""

_SUMMING, _HALF_PRECISION = 1e-5, 2.0**-11
"""Errors of a sum of products in float32, and of unit vectors in float16."""

_STEPS, _MIDDLE = 255, 128.0
"""Steps in the range of a code of 8 bits, and its middle."""

_LEAST_PROBED = 8
_LEAST_GRAPH_SHARE = 0.8
_CONTENTS_BYTES = _REFINED_BYTES = 64 * 1024**2
_SEARCHED_BYTES = 4 * 1024**2
_QUERIES = 256


def open_index(
    file: Path, spec: IndexSpec, rows: int, dim: int, threads: int | None = None, gpus: Sequence[int] = ()
) -> StoredIndex:
    """Return the index in ``file``, searched by FAISS, or by NumPy if FAISS is not installed and the index is flat."""
    if faiss.is_installed():
        return SegmentIndex(file, spec, rows, dim, threads, gpus)
    require_library(spec.name)
    check_index_file(file, spec, rows, dim)
    return FlatIndex(file, rows, dim)


class SegmentIndex:
    """A stored, memory-mapped index that FAISS searches. Check the hash of ``file`` first.

    More than :data:`FEW_QUERIES` queries are searched for in ``threads`` (None for FAISS's default), fewer in one.
    ``gpus`` are the numbers of the GPUs to copy the index to; the CPU runs searches with a filter, and for more
    neighbours or lists than FAISS supports on a GPU.
    """

    def __init__(
        self, file: Path, spec: IndexSpec, rows: int, dim: int, threads: int | None = None, gpus: Sequence[int] = ()
    ) -> None:
        self._spec = spec
        self._threads = threads
        self._ids: Rows | None = None
        check_index_file(file, spec, rows, dim)
        flags = faiss.IO_FLAG_MMAP if spec.family == "lists" else faiss.IO_FLAG_MMAP_IFC
        try:
            self._index: Any = faiss.read_index(str(file), flags)
        except (RuntimeError, MemoryError) as error:
            if not file.exists():
                raise FileNotFoundError(errno.ENOENT, "No such file", str(file)) from error
            if (lack := out_of_memory(error)) is not None:
                raise lack from error
            raise StoreDamagedError(f"{file} cannot be read as a FAISS index: {error}") from error
        self._lists: Any = faiss.try_extract_index_ivf(self._index) if spec.family == "lists" else None
        if self._lists is not None:
            self._inverted = faiss.downcast_InvertedLists(self._lists.invlists)
            self._inverted.prefetch_nthread = 0  # the default starts 32 threads for each search
        self._on_gpus: GpuIndex | None = to_gpus(self._index, gpus, file.stat().st_size) if gpus else None

    @property
    def most_effort(self) -> int:
        """The highest useful effort: the number of lists, or of vectors in a graph; 0 for an exhaustive index."""
        if self._spec.family == "exhaustive":
            return 0
        return int(self._index.ntotal if self._lists is None else self._lists.nlist)

    def search(
        self, queries: Floats, k: int, allowed: Bools | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Return inner products and rows of the ``k`` nearest vectors among the ``allowed`` ones, best first.

        ``allowed`` is a mask over rows, or None to allow all; ``share`` is about the share of the index's rows that it
        allows. ``effort`` is efSearch of a graph or nprobe of lists. Both results have shape ``(n, min(k, vectors))``,
        padded with row -1 and score -inf.
        """
        k = min(k, self._index.ntotal)
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if self._on_gpus is not None and allowed is None:
            probes = None if self._lists is None else self._probes(k, 1.0, effort)
            if max(k, probes or 0) <= MOST_SELECTED:
                return self._on_gpus.search(queries, k, probes)
        if self.multiplies(len(queries), k):
            return self._search_by_products(queries, k, 0, self._index.ntotal, allowed)
        with _threads_for(len(queries), self._threads):
            if allowed is not None and self._spec.family == "graph" and share < _LEAST_GRAPH_SHARE:
                scores, rows = self._search_storage(queries, k, allowed)
            else:
                parameters = self._parameters(k, share, effort, allowed)
                scores, rows = self._index.search(queries, k, params=parameters)
        scores[rows < 0] = -np.inf
        return scores, rows

    def multiplies(self, queries: int, k: int, parts: int = 1) -> bool:
        """Return whether a search for so many queries and results multiplies matrices.

        Then each of ``parts`` of the index can be searched in its own thread. FAISS divides queries among threads.
        """
        can_multiply = self._on_gpus is None and self._spec.name in (FLAT, "sq8")
        return can_multiply and queries > FEW_QUERIES and can_estimate(self._index.ntotal // parts, k)

    def compared(self, k: int, effort: int | None) -> int:
        """Return about how many vectors a search on the CPU compares, if it can be divided with :meth:`divided`."""
        if self._lists is not None:
            return int(self._index.ntotal * self._probes(k, 1.0, effort) / self._lists.nlist)
        return int(self._index.ntotal) if self._spec.exact else 0

    def divided(
        self, queries: Floats, k: int, allowed: Bools | None, share: float, effort: int | None, parts: int
    ) -> Sequence[PartSearch]:
        """Return ``parts`` searches for CPU threads, each of other vectors or lists, together as :meth:`search`."""
        if self._lists is None:
            part = partial(self.search_part, queries, k, allowed=allowed)
            return [partial(part, *bounds) for bounds in ranges(self._index.ntotal, parts)]
        queries = transformed(self._index, queries)
        distances, numbers = self._lists.quantizer.search(queries, self._probes(k, share, effort))
        return [
            partial(self._search_lists, queries, k, distances[:, i::parts], numbers[:, i::parts], allowed)
            for i in range(min(parts, numbers.shape[1]))
        ]

    def _search_lists(
        self, queries: Floats, k: int, distances: Floats, numbers: Rows, allowed: Bools | None
    ) -> tuple[Floats, Rows]:
        """Search the lists ``numbers`` for transformed ``queries``; their ``distances`` are those of the centroids."""
        scores = np.empty((len(queries), k), dtype=np.float32)
        rows = np.empty((len(queries), k), dtype=np.int64)
        arrays = np.ascontiguousarray(numbers), np.ascontiguousarray(distances), scores, rows
        settings = {} if allowed is None else {"sel": _selector(allowed)}
        parameters = faiss.SearchParametersIVF(nprobe=numbers.shape[1], **settings)
        with _threads_for(len(queries), self._threads):
            self._lists.search_preassigned_c(
                len(queries), faiss.swig_ptr(queries), k, *map(faiss.swig_ptr, arrays), False, parameters
            )
        scores[rows < 0] = -np.inf
        return scores, rows

    def search_part(
        self, queries: Floats, k: int, start: int, stop: int, allowed: Bools | None = None
    ) -> tuple[Floats, Rows]:
        """Search the vectors ``start`` to ``stop`` (exclusive) of an exhaustive index as :meth:`search`, on the CPU."""
        k = min(k, stop - start)
        if self.multiplies(len(queries), k) and can_estimate(stop - start, k):
            return self._search_by_products(queries, k, start, stop, allowed)
        return self._search_by_faiss(queries, k, start, stop, allowed)

    def _search_by_faiss(
        self, queries: Floats, k: int, start: int, stop: int, allowed: Bools | None
    ) -> tuple[Floats, Rows]:
        if allowed is None:
            selector = faiss.IDSelectorRange(start, stop)
        else:
            selected = _selected(allowed, self.rows())
            selected[:start] = selected[stop:] = False
            selector = _selector(selected)
        inner = faiss.downcast_index(
            self._index.index
        )  # its ids are positions, so FAISS skips all vectors outside a range at once
        with _threads_for(len(queries), self._threads):
            scores, positions = inner.search(
                np.ascontiguousarray(queries, dtype=np.float32), k, params=faiss.SearchParameters(sel=selector)
            )
        return self._at_positions(scores, positions)

    def _search_by_products(
        self, queries: Floats, k: int, start: int, stop: int, allowed: Bools | None
    ) -> tuple[Floats, Rows]:
        """Search the vectors from ``start`` to ``stop`` for many queries, with the results of FAISS.

        The scores of a flat index are exact. Those of codes differ by up to the error of a sum in float32.
        """
        inner, flat = faiss.downcast_index(self._index.index), self._spec.name == FLAT
        numbers = faiss.rev_swig_ptr((inner.get_xb if flat else inner.codes.data)(), inner.ntotal * inner.d)
        codes, rows = numbers.reshape(-1, inner.d)[start:stop], self.rows()[start:stop]
        factor, centre = (np.float32(1.0), 0.0) if flat else (self._code_steps, _MIDDLE)
        origin = np.zeros(len(queries), np.float32) if flat else queries @ (self._code_origin + centre * factor)
        selected = None if allowed is None else _selected(allowed, rows)
        with ONE_BLAS_THREAD:
            lowest, positions, products = above_estimate(queries * factor, k, codes, centre, selected)
        scores = np.empty((len(queries), k), dtype=np.float32)
        nearest_rows = np.empty((len(queries), k), dtype=np.int64)
        missed = []
        for i, (at, values) in enumerate(zip(positions, products, strict=True)):
            least = -np.inf
            if flat and len(at) >= k:  # another vector may be nearer by exact products
                least = np.partition(values, len(values) - k)[len(values) - k] - 2 * _SUMMING
                at = at[values >= least]
                values = inner_products(queries[i : i + 1], codes[at])[0]
            if len(at) < k or -np.inf < least < lowest[i]:
                missed.append(i)
                continue
            order = np.argsort(-values, kind="stable")[:k]
            scores[i], nearest_rows[i] = values[order] + origin[i], rows[at[order]]
        if missed:
            scores[missed], nearest_rows[missed] = self._search_by_faiss(queries[missed], k, start, stop, allowed)
        return scores, nearest_rows

    def rounding(self, queries: Floats) -> Floats:
        """Return for each query the largest difference between an inner product with a code and with its vector.

        The index must be exact, as :attr:`IndexSpec.exact` says; ``queries`` are unit vectors, shape ``(n, d)``, and
        the result has shape ``(n,)``.
        """
        bounds = np.full(len(queries), _SUMMING, dtype=np.float32)
        if self._spec.codes == "SQ8":
            bounds += np.abs(queries) @ (self._code_steps / 2)
        if self._spec.codes == "SQfp16" or self._on_gpus is not None:
            bounds += _HALF_PRECISION
        return bounds

    @cached_property
    def _code_steps(self) -> Floats:
        """The difference between neighbouring codes of 8 bits in each dimension, shape ``(d,)``."""
        return self._code_range()[1] / np.float32(_STEPS)

    @cached_property
    def _code_origin(self) -> Floats:
        """The value of the code 0 in each dimension, shape ``(d,)``."""
        origin: Floats = self._code_range()[0] + self._code_steps / np.float32(2)
        return origin

    def _code_range(self) -> tuple[Floats, Floats]:
        trained: Floats = faiss.vector_to_array(faiss.downcast_index(self._index.index).sq.trained)
        return trained[: self._index.d], trained[self._index.d :]

    def _search_storage(self, queries: Floats, k: int, allowed: Bools) -> tuple[Floats, Rows]:
        """Search all vectors of a graph exhaustively: its links miss allowed vectors that are far from the query."""
        storage = faiss.downcast_index(faiss.downcast_index(self._index.index).storage)
        selector = _selector(_selected(allowed, self.rows()))
        return self._at_positions(*storage.search(queries, k, params=faiss.SearchParameters(sel=selector)))

    def _at_positions(self, scores: Floats, positions: Rows) -> tuple[Floats, Rows]:
        """Return the scores and rows of vectors by position; -1 stays -1 and gets the score -inf."""
        missing = positions < 0
        scores[missing] = -np.inf
        return scores, np.where(missing, -1, self.rows()[positions])

    def _parameters(self, k: int, share: float, effort: int | None, allowed: Bools | None) -> Any:
        settings = {} if allowed is None else {"sel": _selector(allowed)}
        if self._spec.family == "graph":
            tuned = USUAL_K * self._spec.refine_factor
            least = tuned if k <= tuned else 2 * k  # the k of the tuning, or more for a deeper search
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
        neighbours = max(k, USUAL_K * self._spec.refine_factor)
        for_k = 2 * neighbours * lists / self._index.ntotal  # enough lists to hold twice as many vectors
        least = max(_LEAST_PROBED, EFFORTS["lists"] * lists) if effort is None else effort
        return int(min(math.ceil(max(for_k, least) / share), lists))

    def rows(self) -> Rows:
        """Return the rows of the vectors, int64, shape ``(n,)``, ascending."""
        if self._lists is None:
            if self._ids is None:
                self._ids = faiss.vector_to_array(self._index.id_map)
            return self._ids
        return np.sort(np.concatenate([list_ids(self._inverted, number) for number in range(self._lists.nlist)]))

    def contents(self) -> Iterator[tuple[Rows, Floats]]:
        """Yield blocks of rows, int64, shape ``(n,)``, with their decoded vectors, float32, shape ``(n, d)``."""
        size = rows_in(_CONTENTS_BYTES, self._index.d)
        if self._lists is not None:
            yield from self._list_contents()
            return
        rows = self.rows()
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
        """Return ``vectors``, float32, shape ``(n, d)``, after the transforms of the index, before quantisation."""
        return vectors if self._lists is None else transformed(self._index, vectors)

    def kept_of(self, vectors: Floats) -> Floats:
        """Return ``vectors``, float32, shape ``(n, d)``, encoded and decoded as in :meth:`contents`."""
        if self._lists is not None:
            inner, vectors = self._lists, transformed(self._index, vectors)
        else:
            inner = faiss.downcast_index(self._index.index)
            inner = faiss.downcast_index(inner.storage) if self._spec.family == "graph" else inner
        decoded: Floats = inner.sa_decode(inner.sa_encode(np.ascontiguousarray(vectors, dtype=np.float32)))
        return decoded


def transformed(index: Any, vectors: Floats) -> Floats:
    """Return ``vectors``, float32, shape ``(n, d)``, after the transforms that ``index`` applies before its lists."""
    if isinstance(index, faiss.IndexPreTransform):
        for number in range(index.chain.size()):
            vectors = faiss.downcast_VectorTransform(index.chain.at(number)).apply(vectors)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def list_codes(lists: Any, number: int, code_size: int) -> NDArray[np.uint8]:
    """Return a view of the codes of a list, uint8, shape ``(size * code_size,)``; ``lists`` must outlive the view."""
    codes: NDArray[np.uint8] = faiss.rev_swig_ptr(lists.get_codes(number), lists.list_size(number) * code_size)
    return codes


def list_ids(lists: Any, number: int) -> Rows:
    """Return a view of the ids of a list, int64, shape ``(size,)``; ``lists`` must outlive the view."""
    ids: Rows = faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
    return ids


class FlatIndex:
    """A memory-mapped flat index that NumPy searches in one thread, with a few megabytes of memory.

    It has the methods of :class:`SegmentIndex`. Check the headers of ``file`` first.
    """

    most_effort = 0

    def __init__(self, file: Path, rows: int, dim: int) -> None:
        start = len(FLAT_TYPES) * HEADER.size + COUNT.size
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
        self, queries: Floats, k: int, allowed: Bools | None = None, *_approximate: object, **_settings: object
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`SegmentIndex.search` does; the settings of approximate searches do not matter."""
        return self.search_part(queries, k, 0, len(self._rows), allowed)

    def multiplies(self, *_sizes: int) -> bool:
        """Return False: the sums of matrix products would depend on the number of queries."""
        return False

    def compared(self, *_settings: object) -> int:
        """Return the number of vectors: a search compares all of them."""
        return len(self._rows)

    def divided(
        self, queries: Floats, k: int, allowed: Bools | None, _share: float, _effort: int | None, parts: int
    ) -> Sequence[PartSearch]:
        """Divide a search as :meth:`SegmentIndex.divided` does."""
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
            for products, ids in self._products(queries[some], start, stop, allowed):
                for best, best_rows, own in zip(scores[some], rows[some], products, strict=True):
                    better = np.flatnonzero(own > best[-1])
                    if len(better):
                        together = np.concatenate([best, own[better]])
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
                selected = np.flatnonzero(_selected(allowed, ids))
                vectors, ids = vectors[selected], ids[selected]
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
        """Return ``vectors`` unchanged: a flat index neither transforms nor rounds them."""
        return vectors

    kept_of = as_searched


StoredIndex: TypeAlias = SegmentIndex | FlatIndex
"""Return type of :func:`open_index`."""

Run: TypeAlias = "Callable[[Sequence[PartSearch]], Sequence[tuple[Floats, Rows]]]"
"""Runs searches and returns their results in the same order."""


class DividedIndex:
    """Divides each search of ``index``, of ``size`` vectors, into ``parts``; ``run`` runs them, in several threads."""

    def __init__(self, index: StoredIndex, size: int, parts: int, run: Run) -> None:
        self._index = index
        self._size = size
        self._parts = parts
        self._run = run

    def search(
        self, queries: Floats, k: int, allowed: Bools | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`SegmentIndex.search` does."""
        k = min(k, self._size)
        answers = self._run(self._index.divided(queries, k, allowed, share, effort, self._parts))
        scores, rows = (np.concatenate(of_parts, axis=1) for of_parts in zip(*answers, strict=True))
        return k_best(scores, rows, k)

    def rounding(self, queries: Floats) -> Floats:
        """Return the rounding of the index; see :meth:`SegmentIndex.rounding`."""
        return self._index.rounding(queries)


class RefinedIndex:
    """Searches ``index``. If the index is lossy, it retrieves more results and ranks them by ``vectors``.

    It ranks the results of a graph, too: on some processors, FAISS gives equal vectors of a graph scores that differ.

    ``rows``, int64, shape ``(n,)``, ascending, are the ids of the vectors by position.
    """

    def __init__(self, index: StoredIndex | DividedIndex, spec: IndexSpec, vectors: Vectors, rows: Rows) -> None:
        self._index = index
        self._spec = spec
        self._vectors = vectors
        self._rows = rows

    def search(
        self, queries: Floats, k: int, allowed: Bools | None = None, share: float = 1.0, effort: int | None = None
    ) -> tuple[Floats, Rows]:
        """Search as :meth:`SegmentIndex.search` does, but with scores computed from the exact vectors."""
        if self._spec.lossless and self._spec.family != "graph":
            return self._index.search(queries, k, allowed, share, effort)
        search = partial(self._index.search, allowed=allowed, share=share, effort=effort)
        return self._refined(queries, k, k * self._spec.refine_factor, search)

    def _refined(
        self, queries: Floats, k: int, depth: int, search: Callable[[Floats, int], tuple[Floats, Rows]]
    ) -> tuple[Floats, Rows]:
        """Return the ``k`` best of the ``depth`` results of ``search``, ranked by the exact vectors.

        If the index is exact, more results are ranked for those queries for which another vector could be better.
        """
        coarse, rows = search(queries, depth)
        scores, best = self._ranked(queries, rows, k)
        if self._spec.exact and scores.size and rows.shape[1] == depth:
            last = coarse[:, -1]
            unsure = np.flatnonzero((scores[:, -1] <= last + self._index.rounding(queries)) & np.isfinite(last))
            if len(unsure):
                scores[unsure], best[unsure] = self._refined(queries[unsure], k, 2 * depth, search)
        return scores, best

    def _ranked(self, queries: Floats, rows: Rows, k: int) -> tuple[Floats, Rows]:
        """Return the ``k`` best scores of each query with its ``rows``, shape ``(n, m)``, and their rows."""
        together = max(1, rows_in(_REFINED_BYTES, queries.shape[1]) // max(rows.shape[1], 1))
        scores = np.empty(rows.shape, dtype=np.float32)
        for start in range(0, len(queries), together):
            some = slice(start, start + together)
            scores[some] = self._scores(queries[some], rows[some])
        return k_best(scores, rows, min(k, len(self._rows)))

    def _scores(self, queries: Floats, rows: Rows) -> Floats:
        """Return inner products, shape ``(n, m)``, of each query with the vectors of its ``rows``, shape ``(n, m)``."""
        positions = places_in(self._rows, np.maximum(rows, self._rows[0]))
        vectors = self._vectors.at(positions.ravel()).reshape(*rows.shape, -1)
        scores = np.concatenate([inner_products(queries[i : i + 1], near) for i, near in enumerate(vectors)])
        scores[rows < 0] = -np.inf
        return scores


def most_threads() -> int:
    """Return the default number of search threads: FAISS's default, or one per processor without FAISS."""
    return int(faiss.omp_get_max_threads()) if faiss.is_installed() else os.cpu_count() or 1


def _selected(allowed: Bools, rows: Rows) -> Bools:
    """Return by position whether the row of a vector is ``allowed``, a mask over rows."""
    selected = np.zeros(len(rows), dtype=bool)
    is_known = rows < len(allowed)
    selected[is_known] = allowed[rows[is_known]]
    return selected


def _selector(allowed: Bools) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


@contextmanager
def _threads_for(queries: int, most: int | None) -> Iterator[None]:
    """Search for few queries in one thread: more threads would have no work and would busy-wait."""
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
