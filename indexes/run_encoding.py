"""Encoding the documents of a run over files: without PyTorch where importing it takes longer than to do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.embedder import Embedder
from ragembed.indexes.records import VectorEncoder
from ragembed.memory import give_back

Floats = NDArray[np.float32]


class RunEncoder:
    """Encodes with ``embedder``, and takes note of the ``devices``.

    The number and length of texts that are encoded together decide whether PyTorch is needed, and nothing else, so that
    a run that was interrupted, one by many workers, and one that was not make the same vectors.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self._devices: dict[str, None] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that texts were encoded on; none where the embedder is not ragembed's own."""
        return tuple(self._devices)

    def __call__(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; ``progress`` is told how many more are done, now and then."""
        embedder = self._embedder
        if not isinstance(embedder, Embedder):
            return embedder.raw_documents(texts, progress)
        alone = embedder.raw_without_framework(texts, progress)
        if alone is not None:
            self._devices["cpu"] = None
            return alone
        self._devices.update(dict.fromkeys(embedder.device_names()))
        vectors = embedder.raw_documents(texts, progress)
        give_back()
        return vectors
