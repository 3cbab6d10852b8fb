"""Uniform samples of streams, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import blocks
from ragembed.errors import ConfigError
from ragembed.types import Floats

Item = TypeVar("Item")

_BLOCK = 1024


class _Places:
    """The place of each item of a stream in a sample of ``limit`` items; every item has the same chance to stay.

    Item ``i`` (from 0) takes place ``i`` while places are free. After that, a place is drawn from 0 to ``i``; the item
    is dropped if the place does not exist (Vitter 1985, algorithm R). Each item draws exactly one random number, so the
    sample depends on the order of the stream and the seed, but not on the block sizes.
    """

    def __init__(self, limit: int, seed: int) -> None:
        if limit < 1:
            raise ConfigError(f"the limit of the reservoir is {limit}: expected at least 1")
        self.limit = limit
        self.seen = 0
        self._rng = np.random.default_rng(seed)

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the next ``count`` items are kept, and the place of each; a place may occur twice."""
        numbers = np.arange(self.seen, self.seen + count)
        drawn = (self._rng.random(count) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < self.limit, numbers, drawn)
        self.seen += count
        kept = np.flatnonzero(places < self.limit)
        return kept, places[kept]


class Reservoir:
    """A uniform sample of at most ``limit`` rows of a stream. It depends only on the rows, their order and the seed."""

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self._rows: Floats | None = None

    @property
    def limit(self) -> int:
        """Maximum number of rows in the sample."""
        return self._places.limit

    @property
    def seen(self) -> int:
        """Number of rows read so far."""
        return self._places.seen

    def add(self, block: NDArray[np.floating[Any]]) -> None:
        """Add the next rows of the stream, float32 or float16, shape ``(n, d)``; they are copied.

        Raises :class:`ConfigError` if ``d`` differs from that of earlier rows.
        """
        if self._rows is None:
            self._rows = np.empty((self.limit, block.shape[1]), dtype=np.float32)
        if block.shape[1] != self._rows.shape[1]:
            raise ConfigError(
                f"the rows have {block.shape[1]} dimensions: expected {self._rows.shape[1]}, as in the rows before"
            )
        kept, places = self._places.take(len(block))
        # NumPy assigns in order: if a place is drawn twice, the later row stays.
        self._rows[places] = block[kept]

    def rows(self) -> Floats:
        """Return the sample, float32, shape ``(min(limit, seen), d)``: a view that is valid until the next block.

        Raises :class:`ConfigError` before the first block, because the dimension is unknown.
        """
        if self._rows is None:
            raise ConfigError("the reservoir is empty: add at least one block of rows first")
        return self._rows[: self.seen]


class ItemReservoir(Generic[Item]):
    """A uniform sample of a stream of arbitrary items, drawn like :class:`Reservoir`."""

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self.items: list[Item] = []

    @property
    def seen(self) -> int:
        """Number of items read so far."""
        return self._places.seen

    def watch(self, stream: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of ``stream`` unchanged and sample them on the way."""
        for block in blocks(stream, _BLOCK):
            for number, place in zip(*self._places.take(len(block)), strict=True):
                self.items[place : place + 1] = [block[number]]
            yield from block
