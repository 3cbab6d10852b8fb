"""GPUs: the choice of devices, and copies of FAISS indexes in their memory. Files keep FAISS's CPU format."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, GpuError
from ragembed.indexes.ann.library import faiss, has_faiss
from ragembed.indexes.types import Rows, VectorEncoder
from ragembed.models.devices import choose_devices
from ragembed.types import Floats

MOST_SELECTED = 2048
"""Most neighbours, and most lists, that FAISS picks on a GPU."""

_MEMORY_SHARE = 0.8
"""Share of a GPU's free memory that a copy may take; the rest is for what a search needs."""

_LEAST_QUERIES = 64
_LOCK = threading.Lock()


def visible_gpus() -> int:
    """Return how many GPUs FAISS can use: none with its CPU build."""
    return int(faiss.get_num_gpus()) if has_faiss() else 0


def choose_gpus(asked: str) -> tuple[int, ...]:
    """Return the numbers of the GPUs that are ``asked`` for, none for the CPU.

    ``asked`` is ``auto`` (all that there are, if any), ``cpu``, ``gpu`` (all, at least one), or numbers, as in
    ``gpu:0,2``. Raises :class:`ConfigError` for anything else, :class:`GpuError` if a GPU is not visible to FAISS.
    """
    visible = 0 if asked == "cpu" else visible_gpus()
    if asked.startswith("gpu") and not visible:
        raise GpuError(
            f"{asked} was asked for, but FAISS sees no GPU: install its build for GPUs instead of faiss-cpu "
            "(pip install 'ragembed[gpu]') and NVIDIA's driver, or ask for cpu"
        )
    if asked not in ("auto", "cpu") and not asked.startswith("gpu"):
        raise ConfigError(f"unknown device {asked!r}: expected auto, cpu, gpu, or numbers of GPUs as in gpu:0,2")
    devices = choose_devices(asked, visible)
    return tuple(int(name.partition(":")[2]) for name in devices if name != "cpu")


def describe_choice(asked: str, gpus: Sequence[int]) -> str:
    """Return in a few words what :func:`choose_gpus` made of ``asked``."""
    if gpus:
        return f"on {_named(gpus)}"
    return "on the CPU" if asked == "cpu" else "on the CPU, as FAISS sees no GPU"


class GpuIndex:
    """A copy of an index on GPUs; one thread at a time searches any of them."""

    def __init__(self, index: Any, rows: Rows | None, gpus: Sequence[int]) -> None:
        self._index = index
        self._rows = rows
        self._gpus = gpus

    def search(self, queries: Floats, k: int, probes: int | None = None) -> tuple[Floats, Rows]:
        """Return inner products and ids of the ``k`` nearest vectors, at most :data:`MOST_SELECTED`, best first.

        ``queries`` is float32, shape ``(n, d)``; ``probes`` is how many lists are searched, None for an index without.
        Both results have shape ``(n, min(k, vectors))``, with id -1 and score -inf if fewer are found. Raises
        :class:`GpuError` if memory runs out even for a few queries at once.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        with _LOCK:
            if probes is not None:  # set in the index, as copies on several GPUs take no parameters of a search
                faiss.GpuParameterSpace().set_index_parameter(self._index, "nprobe", probes)
            scores, found = self._in_blocks(queries, min(k, self._index.ntotal), max(1, len(queries)))
        missing = found < 0
        scores[missing] = -np.inf
        return scores, found if self._rows is None else np.where(missing, -1, self._rows[found])

    def _in_blocks(self, queries: Floats, k: int, size: int) -> tuple[Floats, Rows]:
        """Search for ``size`` queries at a time, and for fewer where memory runs out."""
        scores, found = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        start = 0
        while start < len(queries) and k:
            block = slice(start, start + size)
            least = size <= _LEAST_QUERIES
            try:
                scores[block], found[block] = self._index.search(queries[block], k)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                if least:
                    raise GpuError(
                        f"the memory of {_named(self._gpus)} does not suffice to search for {size} queries at once: "
                        f"free memory there, use more GPUs, or use the CPU ({error})"
                    ) from error
                size = max(_LEAST_QUERIES, size // 2)
            else:
                start += size
        return scores, found


def to_gpus(index: Any, gpus: Sequence[int], size: int | None = None) -> GpuIndex:
    """Return a copy of ``index``, which may be mapped into memory, on ``gpus``.

    Each GPU gets all of it; if that does not fit, a part. ``size`` is about how many bytes it takes, by default those
    of a flat index. Vectors in float16 and product quantisers are searched in float16. Raises :class:`ConfigError` if
    FAISS has no such index on GPUs, :class:`GpuError` if their memory does not suffice.
    """
    index, rows = faiss.downcast_index(index), None
    if isinstance(index, faiss.IndexIDMap):
        rows = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    half = isinstance(inner, faiss.IndexIVFPQ)
    if type(index) is faiss.IndexScalarQuantizer and index.sq.qtype == faiss.ScalarQuantizer.QT_fp16:
        index, half = _decoded(index), True  # FAISS copies float16 to one GPU only
    elif type(inner) not in (
        *(faiss.IndexFlat, faiss.IndexFlatIP),
        *(faiss.IndexIVFFlat, faiss.IndexIVFScalarQuantizer, faiss.IndexIVFPQ),
    ):
        raise _unsupported(inner)
    return GpuIndex(_copied(index, gpus, size or 4 * index.ntotal * index.d, half), rows, gpus)


def train_on_gpus(index: Any, sample: Floats, gpus: Sequence[int]) -> None:
    """Train ``index``, which has inverted lists, with k-means on ``gpus``; all else is trained on the CPU.

    ``sample`` is float32, shape ``(n, d)``. Raises :class:`GpuError` if the memory of the GPUs does not suffice.
    """
    lists = faiss.extract_index_ivf(index)
    centroids = _copied(faiss.IndexFlatIP(lists.d), gpus, 4 * lists.nlist * lists.d, half=False)
    lists.clustering_index = centroids  # which does not keep it alive
    try:
        index.train(sample)
    except RuntimeError as error:
        if _out_of_memory(error):
            raise _no_room(gpus, f"{lists.nlist:,} centroids", str(error)) from error
        raise
    finally:
        lists.clustering_index = None


def _copied(index: Any, gpus: Sequence[int], size: int, half: bool) -> Any:
    options = faiss.GpuMultipleClonerOptions()
    options.useFloat16 = half
    room = [_room(gpu) for gpu in gpus]
    known = [free for free in room if free is not None]
    if any(size > free for free in known):
        # A part that does not fit ends the process, so that an index is split only where there is room for all of them.
        options.shard = True
        if len(known) < len(gpus) or len(gpus) == 1 or any(size // len(gpus) > free for free in known):
            raise _no_room(gpus, f"{size / 1e6:,.0f} MB", f"{min(known) / 1e6:,.0f} MB may be used on one of them")
    try:
        return faiss.index_cpu_to_gpu_multiple_py([_resources(gpu) for gpu in gpus], index, options, list(gpus))
    except RuntimeError as error:
        if _out_of_memory(error):
            raise _no_room(gpus, f"{size / 1e6:,.0f} MB", str(error)) from error
        raise _unsupported(index, f" ({error})") from error


@cache
def _resources(gpu: int) -> Any:  # noqa: ARG001  the key of the cache
    """Return what searches on a GPU share: FAISS sets memory aside in it, which each index need not have of its own."""
    return faiss.StandardGpuResources()


def _room(gpu: int) -> int | None:
    """Return how many bytes may be taken of a GPU's memory, None if PyTorch, which tells, is not installed."""
    try:
        import torch
    except ImportError:
        return None
    try:
        free, _ = torch.cuda.mem_get_info(gpu)
    except (RuntimeError, AssertionError) as error:  # its build for CPUs has the function too
        if torch.cuda.is_available():
            raise GpuError(f"CUDA does not tell the free memory of GPU {gpu}: {error}; use the CPU") from error
        return None
    return int(_MEMORY_SHARE * free)


def _decoded(index: Any) -> Any:
    flat = faiss.IndexFlatIP(index.d)
    for start in range(0, index.ntotal, 65_536):
        flat.add(index.reconstruct_n(start, min(65_536, index.ntotal - start)))
    return flat


def _unsupported(index: Any, why: str = "") -> ConfigError:
    return ConfigError(
        f"an index of FAISS's type {type(faiss.downcast_index(index)).__name__} cannot be searched on a GPU: search it "
        f"on the CPU, or build one of kind flat, fp16, ivf or ivf-sq8{why}"
    )


def _no_room(gpus: Sequence[int], what: str, why: str) -> GpuError:
    return GpuError(
        f"{what} do not fit in the memory of {_named(gpus)}: free memory there, use more GPUs, or use the CPU ({why})"
    )


def _out_of_memory(error: RuntimeError) -> bool:
    text = str(error).lower()
    return "out of memory" in text or "cudaerrormemoryallocation" in text


def _named(gpus: Sequence[int]) -> str:
    return f"GPU{'s' * (len(gpus) > 1)} {', '.join(map(str, gpus))}"


_AUTO, _CPU, _GPU = "auto", "cpu", "gpu"


def building_gpus(asked: str | None, embedder: VectorEncoder) -> tuple[Sequence[int], str]:
    """Return the GPUs to build on for the device ``asked`` for, and a few words about them.

    Other devices than GPUs and the CPU are the embedder's, and mean "auto" here. If PyTorch has the GPUs that are asked
    for and FAISS is its build for CPUs, or missing, indexes are built on the CPU. Raises
    :class:`ragembed.errors.GpuError` if neither has them.
    """
    wanted = asked if asked is not None and (asked == _CPU or asked.startswith(_GPU)) else _AUTO
    if wanted.startswith(_GPU) and not visible_gpus() and _embeds_on_gpu(embedder):
        wanted = _AUTO
    gpus = choose_gpus(wanted)
    return gpus, describe_choice(wanted, gpus)


def searching_gpus(asked: str) -> Sequence[int]:
    """Return the GPUs to search on; raises as :func:`ragembed.indexes.ann.gpus.choose_gpus` does."""
    return choose_gpus(asked)


def _embeds_on_gpu(embedder: VectorEncoder) -> bool:
    return isinstance(embedder, Embedder) and embedder.device_names() != (_CPU,)
