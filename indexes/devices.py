"""On which GPUs a store's indexes are built and searched."""

from __future__ import annotations

from collections.abc import Sequence

from ragembed.embedder import Embedder
from ragembed.indexes.ann.gpu_faiss import visible_gpus
from ragembed.indexes.ann.gpus import Gpu, choose_gpus, describe_choice
from ragembed.indexes.records import VectorEncoder

_AUTO, _CPU, _GPU = "auto", "cpu", "gpu"


def building_gpus(asked: str | None, embedder: VectorEncoder) -> tuple[Sequence[Gpu], str]:
    """Return the GPUs to build on where the device ``asked`` for is one, and what is to be said of it.

    Where PyTorch has the GPUs that are asked for and FAISS is its build for CPUs, indexes are built on the CPU. Raises
    :class:`ragembed.errors.GpuError` where neither has them.
    """
    wanted = asked if asked is not None and (asked == _CPU or asked.startswith(_GPU)) else _AUTO
    visible = () if wanted == _CPU else visible_gpus()
    if not visible and wanted.startswith(_GPU) and _embeds_on_gpu(embedder):
        wanted = _AUTO
    gpus = choose_gpus(wanted, visible)
    return gpus, describe_choice(wanted, gpus)


def searching_gpus(asked: str) -> Sequence[Gpu]:
    """Return the GPUs to search on; raises as :func:`ragembed.indexes.ann.gpus.choose_gpus` does."""
    return () if asked == _CPU else choose_gpus(asked, visible_gpus())


def _embeds_on_gpu(embedder: VectorEncoder) -> bool:
    return isinstance(embedder, Embedder) and embedder.device_names() != (_CPU,)
