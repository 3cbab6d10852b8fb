"""Blocks of postings as they count now: without the chunks that have gone or changed since."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.postings.block import Block, Integers

Mask = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


_SEARCH = 16
"""Postings that are gone through in the time in which one is searched for."""


@dataclass(frozen=True, eq=False)
class LiveBlock:
    """A block, and which of its chunks are as they were when it was made, shape ``(n,)``; None where all are."""

    block: Block
    live: Mask | None = None

    @classmethod
    def without(cls, block: Block, stale: Integers) -> LiveBlock:
        """Return ``block`` without the chunks whose keys are ``stale``."""
        return cls(block, ~np.isin(block.chunks, stale) if len(stale) else None)

    def __len__(self) -> int:
        return len(self.block.chunks) if self.live is None else int(self.live.sum())

    def chunks(self) -> Integers:
        """Return the keys of the live chunks."""
        return self.of_chunks(self.block.chunks)

    def lengths(self) -> Integers:
        """Return how many terms each live chunk has."""
        return self.of_chunks(self.block.lengths)

    def of_chunks(self, values: Integers) -> Integers:
        """Return those of ``values``, one for each chunk, that are of live ones."""
        return values if self.live is None else values[self.live]

    @cached_property
    def dead(self) -> Integers:
        """The positions of the chunks that are not live, ascending."""
        return np.zeros(0, dtype=np.int64) if self.live is None else np.flatnonzero(~self.live)

    @cached_property
    def order(self) -> Integers:
        """The positions of the chunks in order of their keys."""
        return np.argsort(self.block.chunks, kind="stable")

    def count(self, inside: slice) -> int:
        """Return how many of the block's postings ``inside``, which are of one term, are of live chunks."""
        positions = self.block.positions[inside]
        if self.live is None or not len(positions):
            return len(positions)
        if len(self.dead) * _SEARCH > len(positions):
            return int(np.count_nonzero(self.live[positions]))
        at = np.minimum(np.searchsorted(positions, self.dead.astype(positions.dtype)), len(positions) - 1)
        return len(positions) - int(np.count_nonzero(positions[at] == self.dead))

    def of_postings(self, values: NDArray[Scalar], inside: slice) -> NDArray[Scalar]:
        """Return those of ``values``, one for each posting ``inside`` the block's, that are of live chunks."""
        return values if self.live is None else values[self.live[self.block.positions[inside]]]

    def renumbered(self, first: int) -> Integers:
        """Return the position of each chunk where the live ones are numbered from ``first``; of others any number."""
        live = np.ones(len(self.block.chunks), dtype=np.bool_) if self.live is None else self.live
        return np.cumsum(live, dtype=np.int64) - 1 + first
