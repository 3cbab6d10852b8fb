"""A vector as a sum of parts that a post-processor maps separately."""

from __future__ import annotations

from dataclasses import dataclass

from ragembed.types import Doubles


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A vector as a sum of float64 parts; the last row holds what belongs to none of the others."""

    rows: Doubles  # (n, d)
    shares: Doubles  # (n,), sum 1, of the parts in a constant that a post-processor adds to every vector

    @property
    def whole(self) -> Doubles:
        """The sum of the parts, float64, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0)
        return total
