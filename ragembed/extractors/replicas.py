"""One model on one or several devices: spread batches over them and return hidden states in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.extractors.forward import Batch
    from ragembed.models.protocol import Backbone

Take = Callable[["Batch", list[Floats]], None]

_BATCHES_PER_DEVICE = 2
THREAD_NAME = "ragembed-device"


class Replicas:
    """The same model on each of several devices, one loader per device, loaded on as many as a run has batches."""

    def __init__(self, loaders: Sequence[Callable[[], Backbone]]) -> None:
        self._loaders = loaders
        self._loaded: Sequence[Backbone] = ()

    def run(self, batches: Iterable[Batch], layers: tuple[int, ...], take: Take) -> None:
        """Compute ``layers`` of each batch and call ``take`` with both, in the order of ``batches``, in this thread.

        With several devices, each has a thread, and at most two batches per device are in progress. An exception in the
        model, in ``batches`` or in ``take`` ends the run: batches that have started are completed, the others are
        dropped.
        """
        rest = iter(batches)
        first = list(islice(rest, len(self._loaders)))
        backbones = self._load(len(first))
        if len(backbones) > 1:
            _spread(backbones, chain(first, rest), layers, take)
            return
        for batch in chain(first, rest):
            take(batch, backbones[0].states(batch.ids, batch.lengths, layers))

    def _load(self, number: int) -> Sequence[Backbone]:
        # Load all models before the first batch, because transformers changes PyTorch's defaults while it loads one.
        """Return the model on the first ``number`` devices."""
        if len(self._loaded) < number:
            self._loaded = [load() for load in self._loaders[:number]]
        return self._loaded[:number]


def _spread(backbones: Sequence[Backbone], batches: Iterable[Batch], layers: tuple[int, ...], take: Take) -> None:
    """Run batches on several devices, one thread per device."""
    idle: SimpleQueue[Backbone] = SimpleQueue()
    for backbone in backbones:
        idle.put(backbone)

    def states(batch: Batch) -> list[Floats]:
        backbone = idle.get()
        try:
            return backbone.states(batch.ids, batch.lengths, layers)
        finally:
            idle.put(backbone)

    begun: deque[tuple[Batch, Future[list[Floats]]]] = deque()

    def take_first() -> None:
        batch, future = begun.popleft()
        take(batch, future.result())

    pool = ThreadPoolExecutor(len(backbones), THREAD_NAME)
    try:
        for batch in batches:
            if len(begun) == _BATCHES_PER_DEVICE * len(backbones):
                take_first()
            begun.append((batch, pool.submit(states, batch)))
        while begun:
            take_first()
    finally:
        pool.shutdown(cancel_futures=True)
