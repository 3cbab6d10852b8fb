"""Build an index from any number of vectors and write it as one file in FAISS's CPU format.

Memory holds one block of vectors and the training sample. A graph index is built in memory as a whole.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.files import create_file
from ragembed.indexes.faiss_index.flat import COUNT, write_flat_index
from ragembed.indexes.faiss_index.gpus import centroids_on_gpus, to_gpus
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.faiss_index.library import faiss, require_library
from ragembed.indexes.faiss_index.lists import Assign, write_lists
from ragembed.indexes.faiss_index.specs import FLAT, TRAINING_PER_LIST, IndexSpec
from ragembed.indexes.faiss_index.vectors import ArrayVectors, Vectors, blocks, stratified
from ragembed.indexes.types import Rows
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

Advance = Callable[[int], None]
EF_CONSTRUCTION = 100
_TRAINING = 32_768
_CODED_AT_ONCE = 8_192
_QUANTISER_ROUNDS = 10
_LIST_ROUNDS = 5  # FAISS makes 10, which finds no more neighbours for the same number of comparisons.
_SEED = 0
_SOURCE_LINE = re.compile(r"Error in .* at \S+:\d+: ")
_TRIAL_ROWS, _TRIAL_QUERIES, _TRIAL_K = 1_024, 8, 10


@dataclass(frozen=True, slots=True)
class IndexInput:
    """The vectors of an index, their ids ``rows`` (int64, shape ``(n,)``, ascending), and the ``file`` to write."""

    vectors: Vectors
    rows: Rows
    file: Path


def build_index(
    spec: IndexSpec,
    vectors: Vectors,
    rows: Rows,
    file: Path,
    advance: Advance | None = None,
    gpus: Sequence[int] = (),
) -> None:
    """Write an inner-product index of unit ``vectors`` with the ids ``rows`` (int64, shape ``(n,)``, ascending).

    Centroids and quantisers are trained on a sample spread evenly over the vectors. ``advance`` is called with the
    number of vectors added since the last call. If ``gpus`` lists GPU numbers, k-means and the assignment of vectors to
    lists run on these GPUs. Raise :class:`ConfigError` if FAISS cannot build this kind, :class:`MissingExtraError`
    without FAISS, and :class:`GpuError` if the GPUs have too little memory.
    """
    advance = advance or _ignore
    if spec.name == FLAT:
        with create_file(file) as stream:
            write_flat_index(vectors, rows, stream, advance)
        return
    require_library(spec.name)
    try:
        index = faiss.index_factory(vectors.dim, spec.factory(len(vectors), vectors.dim), faiss.METRIC_INNER_PRODUCT)
        if spec.name == "sq8":
            _train_on_range(index, vectors)
        else:
            _train(index, vectors, gpus)
        with create_file(file) as stream:
            if spec.family == "lists":
                write_lists(index, vectors, rows, stream, file.parent, advance, _assigner(index, gpus))
            elif spec.family == "exhaustive" and spec.named:
                _write_codes(index, vectors, rows, stream, advance)
            else:
                _write_whole(index, vectors, rows, stream, advance)
    except RuntimeError as error:
        raise ConfigError(
            f"FAISS cannot build an index of kind {spec.name} from {len(vectors):,} vectors of dimension "
            f"{vectors.dim}: {reason(error)}; choose another kind"
        ) from error


def reason(error: RuntimeError) -> str:
    """Return FAISS's error message without the location in its source code."""
    message = _SOURCE_LINE.sub("", str(error)).rpartition("Error: ")[2].strip()
    return message or str(error)


def _ignore(_count: int) -> None:
    pass


def _train(index: Any, vectors: Vectors, gpus: Sequence[int]) -> None:
    if index.is_trained:
        return
    lists = faiss.downcast_index(faiss.try_extract_index_ivf(index))
    if isinstance(lists, faiss.IndexIVFPQ):
        lists.do_polysemous_training = False  # slow, and search does not use polysemous codes
        lists.pq.cp.max_points_per_centroid = TRAINING_PER_LIST
        lists.pq.cp.min_points_per_centroid = 1
        lists.pq.cp.niter = _QUANTISER_ROUNDS
    if lists is not None:
        lists.cp.max_points_per_centroid = TRAINING_PER_LIST
        lists.cp.min_points_per_centroid = 1
        lists.cp.niter = _LIST_ROUNDS
        lists.cp.seed = _SEED
        with centroids_on_gpus(lists, gpus) if gpus else nullcontext(faiss.IndexFlatIP(lists.d)) as nearest:
            if isinstance(index, faiss.IndexPreTransform):
                _train_whole(index, lists, vectors, nearest)
                return
            _find_centroids(lists, vectors, nearest)
    index.train(vectors.at(stratified(len(vectors), _TRAINING, _SEED)))


def _train_whole(index: Any, lists: Any, vectors: Vectors, nearest: Any) -> None:
    """Train the transforms and the lists of ``index`` on one sample; ``nearest`` is an empty index for k-means."""
    lists.clustering_index = nearest
    try:
        index.train(vectors.at(stratified(len(vectors), max(_TRAINING, TRAINING_PER_LIST * lists.nlist), _SEED)))
    finally:
        lists.clustering_index = None


def _find_centroids(lists: Any, vectors: Vectors, nearest: Any) -> None:
    """Set the centroids of ``lists`` with k-means in the empty index ``nearest``, on 8-bit codes to save memory."""
    codec = faiss.IndexScalarQuantizer(vectors.dim, faiss.ScalarQuantizer.QT_8bit)
    codec.train(vectors.at(stratified(len(vectors), _CODED_AT_ONCE, _SEED)))
    positions = stratified(len(vectors), TRAINING_PER_LIST * lists.nlist, _SEED)
    codes = np.empty((len(positions), codec.sa_code_size()), dtype=np.uint8)
    for start in range(0, len(codes), _CODED_AT_ONCE):
        part = slice(start, start + _CODED_AT_ONCE)
        codes[part] = codec.sa_encode(vectors.at(positions[part]))
    lists.cp.decode_block_size = _CODED_AT_ONCE
    clustering = faiss.Clustering(vectors.dim, lists.nlist, lists.cp)
    clustering.train_encoded(codes, codec, nearest)
    lists.quantizer.add(faiss.vector_to_array(clustering.centroids).reshape(lists.nlist, vectors.dim))


def _train_on_range(index: Any, vectors: Vectors) -> None:
    """Train a scalar quantiser on the range of all ``vectors``, so that rounding is the only error of its codes."""
    parts = [np.stack([block.min(axis=0), block.max(axis=0)]) for _, block in blocks(vectors)]
    index.train(np.concatenate(parts))


def _assigner(index: Any, gpus: Sequence[int]) -> Assign:
    """Return a function that maps vectors to the numbers of their nearest lists."""
    lists = faiss.extract_index_ivf(index)
    centroids = faiss.downcast_index(lists.quantizer)
    if not gpus or not isinstance(centroids, faiss.IndexFlat):
        return lambda block: centroids.search(block, 1)[1].ravel()
    on_gpus = to_gpus(centroids, gpus)
    return lambda block: on_gpus.search(block, 1)[1].ravel()


def _write_codes(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    """Write scalar-quantised vectors in FAISS's file format, block by block."""
    with_ids = faiss.IndexIDMap(index)
    index.ntotal = with_ids.ntotal = len(vectors)
    empty = faiss.serialize_index(with_ids).tobytes()
    # The serialised empty index ends with two counts of 0, for codes and for ids. They are written with the data.
    stream.write(empty[: -2 * COUNT.size])
    stream.write(COUNT.pack(len(vectors) * index.sa_code_size()))
    for _, block in blocks(vectors):
        stream.write(index.sa_encode(block).tobytes())
        advance(len(block))
    stream.write(COUNT.pack(len(rows)))
    stream.write(np.ascontiguousarray(rows, dtype="<i8").data)


def _write_whole(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efConstruction = EF_CONSTRUCTION
    with_ids = faiss.IndexIDMap(index)
    for start, block in blocks(vectors):
        with_ids.add_with_ids(block, rows[start : start + len(block)])
        advance(len(block))
    faiss.write_index(with_ids, faiss.PyCallbackIOWriter(stream.write))


def check(spec: IndexSpec, dim: int) -> None:
    """Raise :class:`ConfigError` unless an index of this kind can be built, stored, searched with a filter and read.

    The check builds a small index of random vectors with few lists. Named kinds are known to work and skip it. Raises
    :class:`MissingExtraError` if the kind needs FAISS and FAISS is not installed.
    """
    require_library(spec.name)
    if spec.named:
        return
    small = IndexSpec(re.sub(r"\bIVF\d+", "IVF4", spec.name))
    draw = np.random.default_rng(0)
    vectors = unit_rows(draw.normal(size=(_TRIAL_ROWS, dim)).astype(np.float32))
    rows = np.arange(1, 2 * _TRIAL_ROWS, 2, dtype=np.int64)
    allowed = np.zeros(2 * _TRIAL_ROWS, dtype=bool)
    allowed[rows[::4]] = True
    try:
        with tempfile.TemporaryDirectory(prefix="ragembed-") as folder:
            file = Path(folder) / "index.faiss"
            _build(small, spec, vectors, rows, file)
            index = SegmentIndex(file, small, _TRIAL_ROWS, dim)
            _, found = index.search(vectors[:_TRIAL_QUERIES], _TRIAL_K, allowed, 0.25, index.most_effort or None)
            if not allowed[found].all() or (found < 0).any():
                raise ConfigError(f"an index of kind {spec.name} cannot be searched with a filter: choose another kind")
            if sum(len(part) for part, _ in index.contents()) != _TRIAL_ROWS:
                raise ConfigError(f"an index of kind {spec.name} does not return its vectors: choose another kind")
            index.kept_of(vectors[:1])
    except (RuntimeError, StoreDamagedError) as error:
        raise _unusable(spec, error) from error


def _build(small: IndexSpec, spec: IndexSpec, vectors: Floats, rows: Rows, file: Path) -> None:
    try:
        build_index(small, ArrayVectors(vectors), rows, file)
    except ConfigError as error:
        raise _unusable(spec, error.__cause__ or error) from error


def _unusable(spec: IndexSpec, error: BaseException) -> ConfigError:
    message = reason(error) if isinstance(error, RuntimeError) else str(error)
    return ConfigError(f"an index of kind {spec.name} cannot be used: {message}; choose another kind")
