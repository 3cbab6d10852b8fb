"""A uniform sample of a stream of vectors, in memory that does not grow with the stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError

Floats = NDArray[np.float32]


class Reservoir:
    """Up to ``limit`` rows of a stream, each row of the stream as likely as any other to be among them.

    Row i of the stream (from 0) takes place i; once all places are taken, a place drawn from 0 to i, if there is such
    a place (Vitter 1985, algorithm R). One number is drawn for each row in turn, so that the sample depends on the
    rows, their order and the seed, and not on the blocks in which they come.

    Parameters
    ----------
    limit
        Most rows kept.
    seed
        Seed of the draw.
    """

    def __init__(self, limit: int, seed: int) -> None:
        if limit < 1:
            raise ConfigError(f"the reservoir's limit is {limit}: expected at least 1")
        self.limit = limit
        self.seen = 0
        """Rows of the stream so far."""
        self._rng = np.random.default_rng(seed)
        self._rows: Floats | None = None

    def add(self, block: Floats) -> None:
        """Take the next rows of the stream, float32, shape ``(n, d)``; they are copied.

        Raises :class:`ConfigError` where ``d`` is not that of the rows before.
        """
        if self._rows is None:
            self._rows = np.empty((self.limit, block.shape[1]), dtype=np.float32)
        if block.shape[1] != self._rows.shape[1]:
            raise ConfigError(f"the rows have {block.shape[1]} dimensions: those before have {self._rows.shape[1]}")
        numbers = np.arange(self.seen, self.seen + len(block))
        drawn = (self._rng.random(len(block)) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < self.limit, numbers, drawn)
        kept = np.flatnonzero(places < self.limit)
        # Where a place is drawn twice in a block the later row has it: NumPy assigns in order.
        self._rows[places[kept]] = block[kept]
        self.seen += len(block)

    def rows(self) -> Floats:
        """Return the sample so far, float32, shape ``(min(limit, seen), d)``: a view, valid until the next block.

        Raises :class:`ConfigError` before the first block, when the dimension is not known.
        """
        if self._rows is None:
            raise ConfigError("the reservoir is empty: add at least one block of rows")
        return self._rows[: self.seen]
