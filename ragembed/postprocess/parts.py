"""A vector as a sum of parts that a post-processor maps separately."""

from __future__ import annotations

from dataclasses import dataclass

from ragembed.types import Doubles


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A vector as a sum of parts.

    Attributes
    ----------
    rows
        The parts, float64, shape ``(n, d)``. The last row holds what belongs to none of the others.
    shares
        The shares of the parts in a constant that a post-processor adds to every vector, float64, shape ``(n,)``, with
        sum 1.
    """

    rows: Doubles
    shares: Doubles

    @property
    def whole(self) -> Doubles:
        """The sum of the parts, float64, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0)
        return total
