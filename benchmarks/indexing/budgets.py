"""What ragembed, and as far as it can be told autofaiss, is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_FLOAT32 = 4
_SHARE = 2 / 3


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of an index: bytes of memory, milliseconds for a question, recall@10. None is ragembed's default."""

    name: str
    max_memory: int | None = None
    max_latency_ms: float | None = None
    min_recall: float | None = None

    def given(self) -> dict[str, float]:
        """Return the limits that differ from ragembed's defaults."""
        limits = {"max_memory": self.max_memory, "max_latency_ms": self.max_latency_ms, "min_recall": self.min_recall}
        return {name: value for name, value in limits.items() if value is not None}


LIMITED = "2/3 memory"
NAMES = ("default", LIMITED, "1 ms", "recall 0.99")
_LARGEST = {"recall 0.99": 100_000, LIMITED: 300_000}
"""Vectors beyond which a budget is left out, for the time it takes."""


def budgets_for(names: Sequence[str], size: int, dim: int) -> list[Budget]:
    """Return the budgets called ``names`` for ``size`` vectors of dimension ``dim``.

    The memory is two thirds of what the vectors take in float32: no graph over vectors in float32 fits into it, but
    one over float16 does.
    """
    every = (
        Budget("default"),
        Budget(LIMITED, max_memory=int(size * dim * _FLOAT32 * _SHARE)),
        Budget("1 ms", max_latency_ms=1.0, min_recall=0.95),
        Budget("recall 0.99", min_recall=0.99),
    )
    return [budget for budget in every if budget.name in names and size <= _LARGEST.get(budget.name, size)]
