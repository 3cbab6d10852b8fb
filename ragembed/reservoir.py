"""Uniform samples of streams, in memory that does not grow with the stream."""

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
    """Which of ``limit`` places each item of a stream takes, each item as likely as any other to keep one.

    Item i of the stream (from 0) takes place i; once all places are taken, a place drawn from 0 to i, if there is such
    a place (Vitter 1985, algorithm R). One number is drawn for each item in turn, so that the places depend on the
    order of the stream and the seed, and not on the blocks in which it comes.
    """

    def __init__(self, limit: int, seed: int) -> None:
        if limit < 1:
            raise ConfigError(f"the reservoir's limit is {limit}: expected at least 1")
        self.limit = limit
        self.seen = 0
        self._rng = np.random.default_rng(seed)

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the next ``count`` items are kept for now, and their places; a place may come twice."""
        numbers = np.arange(self.seen, self.seen + count)
        drawn = (self._rng.random(count) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < self.limit, numbers, drawn)
        self.seen += count
        kept = np.flatnonzero(places < self.limit)
        return kept, places[kept]


class Reservoir:
    """Up to ``limit`` rows of a stream of vectors; the sample depends on the rows, their order and the seed alone.

    Parameters
    ----------
    limit
        Most rows kept.
    seed
        Seed of the draw.
    """

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self._rows: Floats | None = None

    @property
    def limit(self) -> int:
        """Most rows kept."""
        return self._places.limit

    @property
    def seen(self) -> int:
        """Rows of the stream so far."""
        return self._places.seen

    def add(self, block: NDArray[np.floating[Any]]) -> None:
        """Take the next rows of the stream, float32 or float16, shape ``(n, d)``; they are copied.

        Raises :class:`ConfigError` where ``d`` is not that of the rows before.
        """
        if self._rows is None:
            self._rows = np.empty((self.limit, block.shape[1]), dtype=np.float32)
        if block.shape[1] != self._rows.shape[1]:
            raise ConfigError(f"the rows have {block.shape[1]} dimensions: those before have {self._rows.shape[1]}")
        kept, places = self._places.take(len(block))
        # NumPy assigns in order: where a place is drawn twice, the later row has it.
        self._rows[places] = block[kept]

    def rows(self) -> Floats:
        """Return the sample so far, float32, shape ``(min(limit, seen), d)``: a view, valid until the next block.

        Raises :class:`ConfigError` before the first block, when the dimension is not known.
        """
        if self._rows is None:
            raise ConfigError("the reservoir is empty: add at least one block of rows")
        return self._rows[: self.seen]


class ItemReservoir(Generic[Item]):
    """Up to ``limit`` items of a stream of anything, drawn as :class:`Reservoir` draws rows."""

    def __init__(self, limit: int, seed: int) -> None:
        self._places = _Places(limit, seed)
        self.items: list[Item] = []

    @property
    def seen(self) -> int:
        """Items of the stream so far."""
        return self._places.seen

    def watch(self, stream: Iterable[Item]) -> Iterator[Item]:
        """Yield ``stream``, taking each item that goes by."""
        for block in blocks(stream, _BLOCK):
            for number, place in zip(*self._places.take(len(block)), strict=True):
                self.items[place : place + 1] = [block[number]]
            yield from block
