"""Choose GPUs, and copy FAISS indexes into their memory. Files stay in FAISS's CPU format."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ragembed.errors import ConfigError, GpuError
from ragembed.indexes.faiss_index.records import faiss
from ragembed.indexes.types import Rows, VectorEncoder
from ragembed.models.devices import choose_devices
from ragembed.types import Floats
from ragembed.version import install_command

MOST_SELECTED = 2048
"""FAISS's limit on a GPU for the number of neighbours and for the number of lists to search."""

_MEMORY_SHARE = 0.8
"""Share of a GPU's free memory that a copy may take; searches need the rest."""

_LEAST_QUERIES = 64
_LOCK = threading.Lock()
_RESOURCES: defaultdict[int, Any] = defaultdict(lambda: faiss.StandardGpuResources())
"""The FAISS resources of each GPU, which all indexes share because each instance reserves memory."""


def visible_gpus() -> int:
    """Return the number of GPUs that FAISS can use; 0 with its CPU build."""
    return int(faiss.get_num_gpus()) if faiss.is_installed() else 0


def choose_gpus(device: str) -> tuple[int, ...]:
    """Return the numbers of the GPUs that ``device`` selects; empty for the CPU.

    ``device`` is ``auto`` (all GPUs, or the CPU if there are none), ``cpu``, ``gpu`` (all GPUs, at least one), or
    numbers such as ``gpu:0,2``.
    """
    visible = 0 if device == "cpu" else visible_gpus()
    if device.startswith("gpu") and not visible:
        raise GpuError(
            f"device {device!r} is not available because FAISS sees no GPU: install its GPU build instead of faiss-cpu "
            f"({install_command('gpu')}) and NVIDIA's driver, or choose cpu"
        )
    if device not in ("auto", "cpu") and not device.startswith("gpu"):
        raise ConfigError(f"unknown device {device!r}: expected auto, cpu, gpu, or GPU numbers such as gpu:0,2")
    devices = choose_devices(device, visible)
    return tuple(int(name.partition(":")[2]) for name in devices if name != "cpu")


class GpuIndex:
    """A copy of an index on GPUs, with the ids ``rows`` if it knows positions only. One thread at a time searches."""

    def __init__(self, index: Any, rows: Rows | None, gpus: Sequence[int]) -> None:
        self._index = index
        self._rows = rows
        self._gpus = gpus

    def search(self, queries: Floats, k: int, probes: int | None = None) -> tuple[Floats, Rows]:
        """Return inner products and ids of the ``k`` nearest vectors, best first; ``k`` is at most MOST_SELECTED.

        ``probes`` is the number of lists to search, None for an index without lists. Both results have shape ``(n,
        min(k, vectors))``, padded with id -1 and score -inf.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        with _LOCK:
            if probes is not None:  # set on the index: copies on several GPUs ignore the parameters of a search
                faiss.GpuParameterSpace().set_index_parameter(self._index, "nprobe", probes)
            scores, numbers = self._in_blocks(queries, min(k, self._index.ntotal), max(1, len(queries)))
        missing = numbers < 0
        scores[missing] = -np.inf
        return scores, numbers if self._rows is None else np.where(missing, -1, self._rows[numbers])

    def _in_blocks(self, queries: Floats, k: int, size: int) -> tuple[Floats, Rows]:
        """Search for ``size`` queries at a time, or for fewer if memory runs out."""
        scores, numbers = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        start = 0
        while start < len(queries) and k:
            block = slice(start, start + size)
            least = size <= _LEAST_QUERIES
            try:
                scores[block], numbers[block] = self._index.search(queries[block], k)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                if least:
                    raise GpuError(
                        f"the memory of {_named(self._gpus)} is too small to search for {size} queries at once: "
                        f"free memory there, use more GPUs, or use the CPU ({error})"
                    ) from error
                size = max(_LEAST_QUERIES, size // 2)
            else:
                start += size
        return scores, numbers


def to_gpus(index: Any, gpus: Sequence[int], size: int | None = None) -> GpuIndex:
    """Return a copy of ``index``, which may be memory-mapped, on ``gpus``.

    Each GPU gets a full copy, or a part if its ``size`` (approximate, in bytes) does not fit.
    """
    index, rows = faiss.downcast_index(index), None
    if isinstance(index, faiss.IndexIDMap):
        rows = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    half = isinstance(inner, faiss.IndexIVFPQ)
    if type(index) is faiss.IndexScalarQuantizer and index.sq.qtype in (
        faiss.ScalarQuantizer.QT_fp16,
        faiss.ScalarQuantizer.QT_8bit,
    ):
        index, half = _decoded(index), True  # FAISS can copy an index of codes to a single GPU only
    elif type(inner) not in (
        *(faiss.IndexFlat, faiss.IndexFlatIP),
        *(faiss.IndexIVFFlat, faiss.IndexIVFScalarQuantizer, faiss.IndexIVFPQ),
    ):
        raise _unsupported(inner)
    return GpuIndex(_copied(index, gpus, size or 4 * index.ntotal * index.d, half), rows, gpus)


@contextmanager
def centroids_on_gpus(lists: Any, gpus: Sequence[int]) -> Iterator[Any]:
    """Yield an empty index on ``gpus`` for the k-means of ``lists``."""
    centroids = _copied(faiss.IndexFlatIP(lists.d), gpus, 4 * lists.nlist * lists.d, half=False)
    try:
        yield centroids
    except RuntimeError as error:
        if _out_of_memory(error):
            raise _no_room(gpus, f"{lists.nlist:,} centroids", str(error)) from error
        raise


def _copied(index: Any, gpus: Sequence[int], size: int, half: bool) -> Any:
    options = faiss.GpuMultipleClonerOptions()
    options.useFloat16 = half
    room = [_room(gpu) for gpu in gpus]
    known = [free for free in room if free is not None]
    if any(size > free for free in known):
        # FAISS ends the process if a part does not fit. Split only if all parts are known to fit.
        options.shard = True
        if len(known) < len(gpus) or len(gpus) == 1 or any(size // len(gpus) > free for free in known):
            raise _no_room(gpus, f"{size / 1e6:,.0f} MB", f"only {min(known) / 1e6:,.0f} MB may be used on one of them")
    try:
        return faiss.index_cpu_to_gpu_multiple_py([_RESOURCES[gpu] for gpu in gpus], index, options, list(gpus))
    except RuntimeError as error:
        if _out_of_memory(error):
            raise _no_room(gpus, f"{size / 1e6:,.0f} MB", str(error)) from error
        raise _unsupported(index, f" ({error})") from error


def _room(gpu: int) -> int | None:
    """Return how many bytes of a GPU's memory may be used, None if PyTorch is not installed to measure it."""
    try:
        import torch
    except ImportError:
        return None
    try:
        free, _ = torch.cuda.mem_get_info(gpu)
    except (RuntimeError, AssertionError) as error:  # also raised by PyTorch's CPU build
        if torch.cuda.is_available():
            raise GpuError(f"cannot read the free memory of GPU {gpu}: {error}; use the CPU") from error
        return None
    return int(_MEMORY_SHARE * free)


def _decoded(index: Any) -> Any:
    flat = faiss.IndexFlatIP(index.d)
    for start in range(0, index.ntotal, 65_536):
        flat.add(index.reconstruct_n(start, min(65_536, index.ntotal - start)))
    return flat


def _unsupported(index: Any, why: str = "") -> ConfigError:
    return ConfigError(
        f"an index of FAISS type {type(faiss.downcast_index(index)).__name__} cannot be searched on a GPU: search it "
        f"on the CPU, or build an index of kind flat, fp16, sq8, ivf or ivf-sq8{why}"
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


def building_gpus(device: str | None, embedder: VectorEncoder) -> tuple[Sequence[int], str]:
    """Return the GPUs to build indexes on for ``device``, and a short description of them.

    Devices other than GPUs and the CPU matter to the embedder only; here they mean "auto".
    """
    wanted = device if device is not None and (device == "cpu" or device.startswith("gpu")) else "auto"
    embeds_on_gpu = any(name != "cpu" for name in embedder.device_names())
    if wanted.startswith("gpu") and not visible_gpus() and embeds_on_gpu:
        wanted = "auto"
    gpus = choose_gpus(wanted)
    on_cpu = "on the CPU" if wanted == "cpu" else "on the CPU, as FAISS sees no GPU"
    return gpus, f"on {_named(gpus)}" if gpus else on_cpu
