"""On which GPUs a store's indexes are built and searched."""

from __future__ import annotations

from collections.abc import Sequence

from ragembed.embedder import Embedder
from ragembed.indexes.ann.gpus import choose_gpus, describe_choice, visible_gpus
from ragembed.indexes.records import VectorEncoder

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
