"""FAISS on GPUs: which there are, k-means and assignment to lists there, and searching a copy of a stored index.

What is stored stays in FAISS's CPU format; :mod:`ragembed.indexes.ann.gpus` plans what is done here.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ragembed.errors import ConfigError, GpuError
from ragembed.indexes.ann.gpus import MOST_SELECTED, Gpu, GpuPlan, Load, flat_load, lists_load, with_retry
from ragembed.indexes.ann.library import faiss
from ragembed.indexes.ann.vectors import Floats, Rows

Read = Callable[[int, int], Floats]
"""Gives the vectors from one position to before another, float32, shape ``(n, d)``."""

_DRIVER = "libcuda.so.1"
_PQ_CODES = frozenset({1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96})
_MOST_FULL_PQ_CODES = 48
"""How many bytes a product quantiser's codes can have on a GPU, and up to how many with its tables in float32."""
_SQ_TYPES = frozenset(
    {
        faiss.ScalarQuantizer.QT_8bit,
        faiss.ScalarQuantizer.QT_8bit_uniform,
        faiss.ScalarQuantizer.QT_8bit_direct,
        faiss.ScalarQuantizer.QT_4bit,
        faiss.ScalarQuantizer.QT_4bit_uniform,
        faiss.ScalarQuantizer.QT_fp16,
    }
)


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that FAISS can use: none with its CPU build, or without a driver.

    Raises :class:`GpuError` where the driver does not answer.
    """
    count = faiss.get_num_gpus()
    if not count:
        return ()
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise GpuError(f"FAISS sees {count} GPUs, but CUDA's driver cannot be loaded: {error}; ask for cpu") from error
    _call(driver.cuInit, 0)
    return tuple(_gpu(driver, number) for number in range(count))


def _gpu(driver: Any, number: int) -> Gpu:
    """Ask CUDA's driver, as FAISS has no call for it; a GPU that no context can be made on has nothing free for us."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    total, free = ctypes.c_size_t(), ctypes.c_size_t()
    _call(driver.cuDeviceGet, ctypes.byref(device), number)
    _call(driver.cuDeviceTotalMem_v2, ctypes.byref(total), device)
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return Gpu(number, total.value, 0)
    try:
        _call(driver.cuCtxPushCurrent_v2, context)
        _call(driver.cuMemGetInfo_v2, ctypes.byref(free), ctypes.byref(total))
        _call(driver.cuCtxPopCurrent_v2, ctypes.byref(context))
    finally:
        _call(driver.cuDevicePrimaryCtxRelease_v2, device)
    return Gpu(number, total.value, free.value)


def _call(function: Callable[..., int], *arguments: Any) -> None:
    code = function(*arguments)
    if code:
        raise GpuError(
            f"CUDA's driver answers {function.__name__} with error {code}: look at nvidia-smi, or ask for cpu"
        )


class _OnGpus:
    """A FAISS index on GPUs, searched by one thread at a time: its working memory there is one search's."""

    def __init__(self, index: Any, resources: list[Any], plan: GpuPlan, rows: Rows | None) -> None:
        self.index = index
        self._resources = resources
        self.rows = rows
        self._lock = threading.Lock()
        self.plan = plan

    def _search(self, queries: Floats, k: int, probes: int | None) -> tuple[Floats, Rows]:
        k = _selectable("neighbours", min(k, self.index.ntotal))
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        with self._lock:
            if probes is not None:  # in the index itself, as copies on several GPUs take no parameters of a search
                parameters = faiss.GpuParameterSpace()
                parameters.set_index_parameter(self.index, "nprobe", _selectable("lists", probes))
            (scores, found), self.plan = with_retry(self.plan, lambda plan: self._in_blocks(plan, queries, k))
        missing = found < 0
        scores[missing] = -np.inf
        return scores, found if self.rows is None else np.where(missing, -1, self.rows[found])

    def _in_blocks(self, plan: GpuPlan, queries: Floats, k: int) -> tuple[Floats, Rows]:
        if plan is not self.plan:
            for resources in self._resources:
                resources.setTempMemory(plan.temp_bytes)
        scores, found = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        for start in range(0, len(queries) if k else 0, plan.block_rows):
            block = slice(start, start + plan.block_rows)
            scores[block], found[block] = self.index.search(queries[block], k)
        return scores, found


class GpuFlat(_OnGpus):
    """Vectors on GPUs that are searched by brute force, for the largest inner product.

    Parameters
    ----------
    plan
        Where they are placed; as an attribute, a smaller one once memory has run out in a search.
    read
        Gives the vectors that the plan is for; None to begin without any, as k-means does.
    rows
        The id of each vector, int64, shape ``(n,)``; None for its position.
    """

    def __init__(self, plan: GpuPlan, read: Read | None = None, rows: Rows | None = None) -> None:
        resources = _resources(plan)
        parts = [_flat_part(plan, gpu, its) for gpu, its in zip(plan.gpus, resources, strict=True)]
        if read is not None:
            for part, (start, stop) in zip(parts, plan.ranges, strict=True):
                if start < stop:  # all at once, as what is added later makes FAISS copy what is there
                    part.add(np.ascontiguousarray(read(start, stop), dtype=np.float32))
        super().__init__(_together(plan, parts), resources, plan, rows)

    def search(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """Return inner products and ids of the ``k`` nearest vectors.

        ``queries`` is float32, shape ``(n, d)``. Both results have shape ``(n, min(k, vectors))``, best first, with id
        -1 and score -inf where there are fewer. Raises :class:`ConfigError` for more neighbours than FAISS picks on a
        GPU, :class:`GpuError` where memory runs out even for few queries at once.
        """
        return self._search(queries, k, None)

    def assign(self, vectors: Floats) -> Rows:
        """Return the id of what is nearest to each of ``vectors``, float32, shape ``(n, d)``: int64, shape ``(n,)``."""
        return self.search(vectors, 1)[1].ravel()

    def clustering_index(self) -> Any:
        """Return the FAISS index itself, which k-means fills and searches; keep this object for as long."""
        return self.index


class GpuLists(_OnGpus):
    """A copy on GPUs of an index of inverted lists; :func:`to_gpus` makes it."""

    def search(self, queries: Floats, k: int, probes: int | None = None) -> tuple[Floats, Rows]:
        """Return the same as :meth:`GpuFlat.search` of the vectors in the ``probes`` nearest lists.

        None for as many as the last time, at first as many as the CPU's index was set to. The errors are the same.
        """
        return self._search(queries, k, probes)


def train(index: Any, sample: Floats, plan: GpuPlan) -> GpuPlan:
    """Train ``index``, which has inverted lists, with k-means on GPUs; return the plan that memory sufficed for.

    ``sample`` is float32, shape ``(n, d)``. ``plan`` is for as many vectors as there are lists, of the dimension of the
    lists. Transforms and quantisers of codes are trained on the CPU. Raises :class:`GpuError` where memory runs out.
    """
    lists = faiss.extract_index_ivf(index)

    def run(plan: GpuPlan) -> None:
        centroids = GpuFlat(plan)
        lists.clustering_index = centroids.clustering_index()
        try:
            index.train(sample)
        finally:
            lists.clustering_index = None

    return with_retry(plan, run)[1]


def can_search_on_gpu(index: Any) -> bool:
    """Tell whether there is an index like this one, of FAISS's CPU format, on GPUs: flat ones and inverted lists."""
    flat, _ = _flat_of(index)
    return flat is not None or _lists_of(index) is not None


def load_of(index: Any, *, neighbours: int, probes: int = 1, half_allowed: bool = False) -> Load:
    """Return what :func:`plan_gpus` is told of ``index`` for searching it; ``probes`` as in :meth:`GpuLists.search`.

    Lists keep on a GPU what they have on the CPU, whether float16 is allowed or not. Raises :class:`ConfigError` for an
    index that cannot be searched there.
    """
    flat, _ = _flat_of(index)
    if flat is not None:
        return flat_load(flat.ntotal, flat.d, neighbours=neighbours, half_allowed=half_allowed)
    lists = _lists_of(index)
    if lists is None:
        raise _unsupported(index)
    coded = isinstance(lists, faiss.IndexIVFPQ)
    return lists_load(
        lists.ntotal,
        lists.d,
        code_bytes=lists.code_size,
        lists=lists.nlist,
        longest=max(lists.invlists.list_size(number) for number in range(lists.nlist)),
        probes=probes,
        neighbours=neighbours,
        residual=lists.by_residual and not coded,
        codes=lists.pq.M if coded else 0,
    )


def to_gpus(index: Any, plan: GpuPlan) -> GpuFlat | GpuLists:
    """Return a copy of ``index``, which may be mapped into memory, on the GPUs of ``plan``.

    A flat index in float16 is decoded on the way, what one GPU gets of it at a time. Raises :class:`ConfigError` for an
    index that cannot be searched there, or that the plan is not for, :class:`GpuError` where memory runs out.
    """
    flat, rows = _flat_of(index)
    lists = _lists_of(index)
    if flat is None and lists is None:
        raise _unsupported(index)
    inner = lists if flat is None else flat
    if (inner.ntotal, inner.d) != (plan.load.vectors, plan.load.dim):
        raise ConfigError(
            f"the plan is for {plan.load.vectors:,} vectors of dimension {plan.load.dim}, but the index has "
            f"{inner.ntotal:,} of dimension {inner.d}: plan for the load of this index"
        )
    if flat is None:
        lists_there, _ = with_retry(plan, lambda plan: _lists_on_gpus(index, lists, plan))
        return lists_there
    flat_there, _ = with_retry(plan, lambda plan: GpuFlat(plan, _reader(flat), rows))
    return flat_there


def to_cpu(on_gpus: GpuFlat | GpuLists) -> Any:
    """Return an index of FAISS's CPU format with what is on the GPUs: flat in float32, or lists of the same kind."""
    index = faiss.index_gpu_to_cpu(on_gpus.index)
    if on_gpus.rows is None:
        return index
    with_ids = faiss.IndexIDMap(faiss.IndexFlatIP(index.d))
    with_ids.add_with_ids(index.reconstruct_n(0, index.ntotal), on_gpus.rows)
    return with_ids


def _lists_on_gpus(index: Any, lists: Any, plan: GpuPlan) -> GpuLists:
    options = faiss.GpuMultipleClonerOptions()
    options.shard = plan.placement == "sharded"
    options.usePrecomputed = False
    options.useFloat16 = isinstance(lists, faiss.IndexIVFPQ) and lists.pq.M > _MOST_FULL_PQ_CODES
    resources = _resources(plan)
    numbers = [gpu.number for gpu in plan.gpus]
    return GpuLists(faiss.index_cpu_to_gpu_multiple_py(resources, index, options, numbers), resources, plan, None)


def _resources(plan: GpuPlan) -> list[Any]:
    made = []
    for _ in plan.gpus:
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(plan.temp_bytes)
        resources.setPinnedMemory(2 * plan.page_bytes)  # FAISS copies one half while it searches with the other
        made.append(resources)
    return made


def _flat_part(plan: GpuPlan, gpu: Gpu, resources: Any) -> Any:
    config = faiss.GpuIndexFlatConfig()
    config.device = gpu.number
    config.useFloat16 = plan.half
    flat = faiss.GpuIndexFlatIP(resources, plan.load.dim, config)
    flat.setMinPagingSize(plan.page_bytes)  # so that k-means, which asks for all of its sample, keeps to blocks too
    return flat


def _together(plan: GpuPlan, parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if plan.placement == "replicated":
        replicas = faiss.IndexReplicas(plan.load.dim, True)
        for part in parts:
            replicas.addIndex(part)
        return replicas
    shards = faiss.IndexShards(plan.load.dim, True, True)
    for part in parts:
        shards.add_shard(part)
    return shards


def _flat_of(index: Any) -> tuple[Any, Rows | None]:
    """Return the flat index that ``index`` is or that it adds ids to, and the ids, or None."""
    index = faiss.downcast_index(index)
    rows = None
    if isinstance(index, faiss.IndexIDMap):
        rows = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    plain = type(index) in (faiss.IndexFlat, faiss.IndexFlatIP) and index.metric_type == faiss.METRIC_INNER_PRODUCT
    return (index, rows) if plain or _in_half(index) else (None, None)


def _in_half(index: Any) -> bool:
    return (
        type(index) is faiss.IndexScalarQuantizer
        and index.sq.qtype == faiss.ScalarQuantizer.QT_fp16
        and index.metric_type == faiss.METRIC_INNER_PRODUCT
    )


def _reader(flat: Any) -> Read:
    if _in_half(flat):
        return lambda start, stop: flat.reconstruct_n(start, stop - start)
    vectors = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
    return lambda start, stop: vectors[start:stop]


def _lists_of(index: Any) -> Any:
    """Return the inverted lists that ``index`` is or that it transforms vectors for, or None if GPUs have no such."""
    index = faiss.downcast_index(index)
    lists = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    if type(lists) is faiss.IndexIVFFlat:
        known = True
    elif type(lists) is faiss.IndexIVFScalarQuantizer:
        known = lists.sq.qtype in _SQ_TYPES
    elif type(lists) is faiss.IndexIVFPQ:
        plain = lists.by_residual and not lists.polysemous_ht
        known = plain and lists.pq.nbits == 8 and lists.pq.M in _PQ_CODES
    else:
        return None
    centroids = faiss.downcast_index(lists.quantizer)
    known = known and type(centroids) in (faiss.IndexFlat, faiss.IndexFlatIP)
    return lists if known and lists.metric_type == faiss.METRIC_INNER_PRODUCT else None


def _unsupported(index: Any) -> ConfigError:
    return ConfigError(
        f"an index of FAISS's type {type(faiss.downcast_index(index)).__name__}, as it is, cannot be searched on a "
        "GPU: search it on the CPU, or build one of kind flat, fp16, ivf or ivf-sq8"
    )


def _selectable(what: str, count: int) -> int:
    if count > MOST_SELECTED:
        raise ConfigError(
            f"a search on a GPU picks at most {MOST_SELECTED:,} {what}, not {count:,}: take fewer, or use the CPU"
        )
    return count
