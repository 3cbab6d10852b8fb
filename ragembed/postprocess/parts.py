"""A vector as a sum of parts, which post-processors map one by one."""

from __future__ import annotations

from dataclasses import dataclass

from ragembed.types import Doubles


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts of a vector: ``rows``, float64, shape ``(n, d)``, sum to it.

    What a post-processor adds to every vector alike is divided by ``shares``, float64, shape ``(n,)``, sum 1. The last
    row is for what belongs to no other.
    """

    rows: Doubles
    shares: Doubles

    @property
    def whole(self) -> Doubles:
        """The vector, float64, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0)
        return total
