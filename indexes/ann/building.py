"""Building an index from vectors of any number, into one file of FAISS's CPU format.

What is kept in memory is a block of vectors, the sample that is trained on, and for a graph the whole of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ragembed.errors import ConfigError
from ragembed.files import create_file
from ragembed.indexes.ann import gpu_faiss
from ragembed.indexes.ann.gpus import Gpu, GpuPlan, flat_load, plan_gpus
from ragembed.indexes.ann.library import faiss
from ragembed.indexes.ann.lists import Assign, write_lists
from ragembed.indexes.ann.specs import TRAINING_PER_LIST, IndexSpec
from ragembed.indexes.ann.vectors import Rows, Vectors, blocks, stratified

Advance = Callable[[int], None]
EF_CONSTRUCTION = 200
_TRAINING = 65_536
_QUANTISER_ROUNDS = 10
_SEED = 0
_COUNT = struct.Struct("<Q")
_WHERE = re.compile(r"Error in .* at \S+:\d+: ")


def build_index(
    spec: IndexSpec,
    vectors: Vectors,
    rows: Rows,
    file: Path,
    advance: Advance | None = None,
    gpus: Sequence[Gpu] = (),
) -> None:
    """Write an inner-product index of unit ``vectors`` whose ids are ``rows``, int64, shape ``(n,)``, ascending.

    Centroids and quantisers learn from a sample that is spread evenly over the vectors. ``advance`` is told how many
    more vectors are in the index, now and then. On ``gpus``, where there are some, the centroids of lists are found and
    vectors are assigned to them. Raises :class:`ConfigError` where FAISS cannot make an index of this kind of these
    vectors, :class:`ragembed.errors.GpuError` where the memory of the GPUs does not suffice.
    """
    advance = advance or _ignore
    try:
        index = faiss.index_factory(vectors.dim, spec.factory(len(vectors), vectors.dim), faiss.METRIC_INNER_PRODUCT)
        _train(index, vectors, gpus)
        with create_file(file) as stream:
            if spec.family == "lists":
                _require_plain_lists(index)
                write_lists(index, vectors, rows, stream, file.parent, advance, _assigner(index, gpus))
            elif spec.family == "exhaustive" and spec.named:
                _write_codes(index, vectors, rows, stream, advance)
            else:
                _require_plain_graph(index, spec)
                _write_whole(index, vectors, rows, stream, advance)
    except RuntimeError as error:
        raise ConfigError(
            f"FAISS cannot make an index of kind {spec.name} of {len(vectors):,} vectors of dimension {vectors.dim}: "
            f"{reason(error)}"
        ) from error


def reason(error: RuntimeError) -> str:
    """Return what FAISS says went wrong, without where in its sources it did."""
    said = _WHERE.sub("", str(error)).rpartition("Error: ")[2].strip()
    return said or str(error)


def _ignore(_count: int) -> None:
    pass


def _require_plain_lists(index: Any) -> None:
    lists = faiss.downcast_InvertedLists(faiss.extract_index_ivf(index).invlists)
    if not isinstance(lists, faiss.ArrayInvertedLists):
        raise RuntimeError("Error: codes packed for fast scanning (fs) cannot be merged list by list")


def _require_plain_graph(index: Any, spec: IndexSpec) -> None:
    if spec.family == "graph" and not isinstance(index, faiss.IndexHNSW):
        raise RuntimeError("Error: a graph cannot be searched under a filter below a transform")


def _train(index: Any, vectors: Vectors, gpus: Sequence[Gpu]) -> None:
    if index.is_trained:
        return
    lists = faiss.downcast_index(faiss.try_extract_index_ivf(index))
    if isinstance(lists, faiss.IndexIVFPQ):
        lists.do_polysemous_training = False  # for a way of filtering that is not used here, and very slow
        lists.pq.cp.max_points_per_centroid = TRAINING_PER_LIST
        lists.pq.cp.min_points_per_centroid = 1
        lists.pq.cp.niter = _QUANTISER_ROUNDS
    count = _TRAINING
    if lists is not None:
        lists.cp.max_points_per_centroid = TRAINING_PER_LIST
        lists.cp.min_points_per_centroid = 1
        lists.cp.seed = _SEED
        count = max(count, TRAINING_PER_LIST * lists.nlist)
    sample = vectors.at(stratified(len(vectors), count, _SEED))
    if lists is not None and gpus:
        gpu_faiss.train(index, sample, _plan(lists, gpus))
    else:
        index.train(sample)


def _assigner(index: Any, gpus: Sequence[Gpu]) -> Assign:
    """Return what gives the nearest list of each vector."""
    lists = faiss.extract_index_ivf(index)
    centroids = faiss.downcast_index(lists.quantizer)
    if not gpus or not isinstance(centroids, faiss.IndexFlat):
        return lambda block: centroids.search(block, 1)[1].ravel()
    on_gpus = gpu_faiss.to_gpus(centroids, _plan(lists, gpus))
    return lambda block: on_gpus.search(block, 1)[1].ravel()


def _plan(lists: Any, gpus: Sequence[Gpu]) -> GpuPlan:
    return plan_gpus(gpus, flat_load(lists.nlist, lists.d, half_allowed=True))


def _write_codes(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    """Write what FAISS would for an index of all the vectors, without holding them."""
    with_ids = faiss.IndexIDMap(index)
    index.ntotal = with_ids.ntotal = len(vectors)
    empty = faiss.serialize_index(with_ids).tobytes()
    stream.write(empty[: -2 * _COUNT.size])  # but the numbers of codes and of ids, which come last and are 0
    unit = np.dtype(np.float32).itemsize if isinstance(index, faiss.IndexFlat) else 1
    stream.write(_COUNT.pack(len(vectors) * index.sa_code_size() // unit))
    for _, block in blocks(vectors):
        stream.write(index.sa_encode(block).tobytes())
        advance(len(block))
    stream.write(_COUNT.pack(len(rows)))
    stream.write(np.ascontiguousarray(rows, dtype="<i8").data)


def _write_whole(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efConstruction = EF_CONSTRUCTION
    with_ids = faiss.IndexIDMap(index)
    for start, block in blocks(vectors):
        with_ids.add_with_ids(block, rows[start : start + len(block)])
        advance(len(block))
    faiss.write_index(with_ids, faiss.PyCallbackIOWriter(stream.write))
