"""Encode the documents of a run in parts that are saved one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ragembed.corpus import blocks, grouped
from ragembed.indexes.types import VectorEncoder
from ragembed.resources import give_back
from ragembed.types import Floats

PART = 1 << 17
"""Number of characters of texts that a model on the CPU encodes at once, about a second of work for a small model.

Smaller parts waste time on batches that are not full. GPUs and other extractors encode a whole batch quickly.
"""

_SERVED_PART = 64
"""Number of texts that a model behind a server encodes at once. Fewer paid vectors are lost in an interruption."""


class RunEncoder:
    """Encodes the documents of a run with ``embedder``, without PyTorch if importing it would take longer.

    The decision depends only on the number and length of the texts in a batch, and so do the parts in which the batch
    is encoded.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self._devices: dict[str, None] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that encoded texts; empty for an embedder from outside ragembed."""
        return tuple(self._devices)

    def parts(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of a batch in order, in parts that can be saved one by one."""
        embedder = self._embedder.refittable
        if embedder is None:
            yield self._embedder.raw_documents(texts, progress)
            return
        if embedder.is_remote:
            for part in blocks(texts, _SERVED_PART):
                yield embedder.raw_documents(part, progress)
            return
        without_torch = embedder.raw_without_framework(texts, progress)
        if without_torch is not None:
            self._devices["cpu"] = None
            yield without_torch
            return
        devices = embedder.device_names()
        self._devices.update(dict.fromkeys(devices))
        for part in grouped(texts, len, PART) if set(devices) == {"cpu"} else blocks(texts, len(texts)):
            yield embedder.raw_documents(part, progress)
            give_back()
