"""Blocks of postings as they count now: without the chunks that have gone or changed since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.postings.block import Block, Counts, Integers, Positions

Mask = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
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

    def of(self, term: bytes) -> tuple[Positions, Counts]:
        """Return the positions of the live chunks that have ``term``, and how often each does."""
        inside = self.block.of(term)
        return self.of_postings(self.block.positions[inside], inside), self.of_postings(
            self.block.counts[inside], inside
        )

    def of_postings(self, values: NDArray[Scalar], inside: slice) -> NDArray[Scalar]:
        """Return those of ``values``, one for each posting ``inside`` the block's, that are of live chunks."""
        return values if self.live is None else values[self.live[self.block.positions[inside]]]

    def renumbered(self, first: int) -> Integers:
        """Return the position of each chunk where the live ones are numbered from ``first``; of others any number."""
        live = np.ones(len(self.block.chunks), dtype=np.bool_) if self.live is None else self.live
        return np.cumsum(live, dtype=np.int64) - 1 + first
