"""Build an index from any number of vectors and write it as one file in FAISS's CPU format.

Memory holds one block of vectors and the training sample. A graph index is built in memory as a whole. Inverted lists
may be larger than memory: vectors are encoded into temporary files, and the lists are merged from these, one list after
the other, as FAISS's ``merge_ondisk`` does.
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.files import create_file
from ragembed.indexes.faiss_index.file_check import COUNT, FLAT_TYPES, HEADER, INNER_PRODUCT
from ragembed.indexes.faiss_index.gpus import centroids_on_gpus, to_gpus
from ragembed.indexes.faiss_index.index import SegmentIndex, list_codes, list_ids, transformed
from ragembed.indexes.faiss_index.records import FLAT, TRAINING_PER_LIST, IndexSpec, faiss, require_library
from ragembed.indexes.faiss_index.vectors import ArrayVectors, Vectors, stratified, vector_blocks
from ragembed.indexes.types import Rows
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

Advance = Callable[[int], object]
Assign = Callable[[Floats], NDArray[np.int64]]
"""Maps vectors, shape ``(n, d)``, to the numbers of their nearest lists, shape ``(n,)``."""

EF_CONSTRUCTION = 100
_TRAINING = 32_768
_CODED_AT_ONCE = 8_192
_QUANTISER_ROUNDS = 10
_LIST_ROUNDS = 5  # FAISS makes 10, which finds no more neighbours for the same number of comparisons.
_SEED = 0
_UNUSED = 1 << 20  # FAISS writes it into two fields of a header.
_FILE_BYTES = 32 * 1024**2
_LISTS_HEADER = struct.Struct("<4sQQ")
_LISTS, _ALL, _SPARSE = b"ilar", b"full", b"sprs"
_EMPTY_SIZE = _LISTS_HEADER.size + len(_SPARSE) + COUNT.size
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
    advance: Advance = lambda _count: None,
    gpus: Sequence[int] = (),
) -> None:
    """Write an inner-product index of unit ``vectors`` with the ids ``rows`` (int64, shape ``(n,)``, ascending).

    Centroids and quantisers are trained on a sample spread evenly over the vectors.
    """
    if spec.name == FLAT:
        with create_file(file) as stream:
            _write_flat(vectors, rows, stream, advance)
        return
    require_library(spec.name)
    try:
        index = faiss.index_factory(vectors.dim, spec.factory(len(vectors), vectors.dim), faiss.METRIC_INNER_PRODUCT)
        if spec.name == "sq8":  # trained on the range of all vectors, so that rounding is the only error of its codes
            ranges = [np.stack([block.min(axis=0), block.max(axis=0)]) for _, block in vector_blocks(vectors)]
            index.train(np.concatenate(ranges))
        elif not index.is_trained:
            _train(index, vectors, gpus)
        with create_file(file) as stream:
            if spec.family == "lists":
                _write_lists(index, vectors, rows, stream, file.parent, advance, _assigner(index, gpus))
            elif spec.family == "exhaustive" and spec.named:
                _write_codes(index, vectors, rows, stream, advance)
            else:
                _write_whole(index, vectors, rows, stream, advance)
    except RuntimeError as error:
        raise ConfigError(
            f"FAISS cannot build an index of kind {spec.name} from {len(vectors):,} vectors of dimension "
            f"{vectors.dim}: {_reason(error)}; choose another kind"
        ) from error


def _reason(error: BaseException) -> str:
    """Return an error's message, FAISS's without the location in its source code."""
    if not isinstance(error, RuntimeError):
        return str(error)
    return _SOURCE_LINE.sub("", str(error)).rpartition("Error: ")[2].strip() or str(error)


# Training


def _train(index: Any, vectors: Vectors, gpus: Sequence[int]) -> None:
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


# Writing


def _write_flat(vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    for name in FLAT_TYPES:
        stream.write(HEADER.pack(name, vectors.dim, len(vectors), _UNUSED, _UNUSED, True, INNER_PRODUCT))
    stream.write(COUNT.pack(len(vectors) * vectors.dim))
    for _, block in vector_blocks(vectors):
        stream.write(np.ascontiguousarray(block, dtype="<f4").data)
        advance(len(block))
    _write_ids(rows, stream)


def _write_codes(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    """Write scalar-quantised vectors in FAISS's file format, block by block."""
    with_ids = faiss.IndexIDMap(index)
    index.ntotal = with_ids.ntotal = len(vectors)
    empty = faiss.serialize_index(with_ids).tobytes()
    # The serialised empty index ends with two counts of 0, for codes and for ids. They are written with the data.
    stream.write(empty[: -2 * COUNT.size])
    stream.write(COUNT.pack(len(vectors) * index.sa_code_size()))
    for _, block in vector_blocks(vectors):
        stream.write(index.sa_encode(block).tobytes())
        advance(len(block))
    _write_ids(rows, stream)


def _write_ids(rows: Rows, stream: BinaryIO) -> None:
    stream.write(COUNT.pack(len(rows)))
    stream.write(np.ascontiguousarray(rows, dtype="<i8").data)


def _write_whole(index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, advance: Advance) -> None:
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efConstruction = EF_CONSTRUCTION
    with_ids = faiss.IndexIDMap(index)
    for start, block in vector_blocks(vectors):
        with_ids.add_with_ids(block, rows[start : start + len(block)])
        advance(len(block))
    faiss.write_index(with_ids, faiss.PyCallbackIOWriter(stream.write))


def _assigner(index: Any, gpus: Sequence[int]) -> Assign:
    centroids = faiss.downcast_index(faiss.extract_index_ivf(index).quantizer)
    if gpus and isinstance(centroids, faiss.IndexFlat):
        centroids = to_gpus(centroids, gpus)
    return lambda block: centroids.search(block, 1)[1].ravel()


def _write_lists(
    index: Any, vectors: Vectors, rows: Rows, stream: BinaryIO, folder: Path, advance: Advance, assign: Assign
) -> None:
    """Write ``index``, which is trained and empty, with ``vectors`` in its lists; temporary files go to ``folder``."""
    lists = faiss.extract_index_ivf(index)
    scratch = Path(tempfile.mkdtemp(prefix=".lists-", dir=folder))
    try:
        files: list[Path] = []
        for start, block in vector_blocks(vectors):
            searched = transformed(index, block)
            ids = np.ascontiguousarray(rows[start : start + len(block)], dtype=np.int64)
            numbers = np.ascontiguousarray(assign(searched), dtype=np.int64)
            lists.add_core(len(searched), *(faiss.swig_ptr(array) for array in (searched, ids, numbers)))
            if lists.ntotal * lists.code_size >= _FILE_BYTES or start + len(block) == len(vectors):
                files.append(scratch / str(len(files)))
                with create_file(files[-1]) as part:
                    faiss.write_index(lists, faiss.PyCallbackIOWriter(part.write))
                lists.reset()
            advance(len(block))
        lists.ntotal = index.ntotal = len(vectors)
        stream.write(_without_lists(index))
        _merge([faiss.read_index(str(file), faiss.IO_FLAG_MMAP) for file in files], lists, stream)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _without_lists(index: Any) -> bytes:
    whole: bytes = faiss.serialize_index(index).tobytes()
    tail = whole[-_EMPTY_SIZE:]
    if not tail.startswith(_LISTS) or not tail.endswith(_SPARSE + COUNT.pack(0)):
        raise RuntimeError(f"inverted lists in the format {tail[:4]!r} cannot be merged")
    return whole[:-_EMPTY_SIZE]


def _merge(parts: Sequence[Any], lists: Any, stream: BinaryIO) -> None:
    sources = [part.invlists for part in parts]
    sizes = np.array([[source.list_size(n) for n in range(lists.nlist)] for source in sources], dtype="<u8")
    stream.write(_LISTS_HEADER.pack(_LISTS, lists.nlist, lists.code_size) + _ALL + COUNT.pack(lists.nlist))
    stream.write(sizes.sum(axis=0, dtype="<u8").tobytes())
    for number in range(lists.nlist):
        filled = [source for source, size in zip(sources, sizes[:, number], strict=True) if size]
        for source in filled:
            stream.write(list_codes(source, number, lists.code_size).data)
        for source in filled:
            stream.write(list_ids(source, number).data)


# A trial of kinds that FAISS's factory strings name


def require_buildable(spec: IndexSpec, dim: int) -> None:
    """Raise :class:`ConfigError` unless an index of this kind can be built, stored, searched with a filter and read.

    The check builds a small index of random vectors with few lists. Named kinds are known to work and skip it.
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
            try:
                build_index(small, ArrayVectors(vectors), rows, file)
            except ConfigError as error:
                raise _unusable(spec, error.__cause__ or error) from error
            index = SegmentIndex(file, small, _TRIAL_ROWS, dim)
            _, hits = index.search(vectors[:_TRIAL_QUERIES], _TRIAL_K, allowed, 0.25, index.most_effort or None)
            if not allowed[hits].all() or (hits < 0).any():
                raise ConfigError(f"an index of kind {spec.name} cannot be searched with a filter: choose another kind")
            if sum(len(part) for part, _ in index.contents()) != _TRIAL_ROWS:
                raise ConfigError(f"an index of kind {spec.name} does not return its vectors: choose another kind")
            index.kept_of(vectors[:1])
    except (RuntimeError, StoreDamagedError) as error:
        raise _unusable(spec, error) from error


def _unusable(spec: IndexSpec, error: BaseException) -> ConfigError:
    return ConfigError(f"an index of kind {spec.name} cannot be used: {_reason(error)}; choose another kind")
