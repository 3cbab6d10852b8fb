"""How figures are shown: medians with their spread, ratios, and shares of the floor."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from report import significant


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return the median, and in brackets the least and the most, where there is more than one value."""
    middle = significant(statistics.median(values), digits)
    if len(values) == 1:
        return middle
    return f"{middle} ({significant(min(values), digits)}–{significant(max(values), digits)})"


def of_medians(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of ``one`` divided by that of ``other``."""
    return statistics.median(one) / statistics.median(other)


def times(ratio: float) -> str:
    """Return a ratio for people."""
    return f"{significant(ratio, 3)} ×"


def share(value: float) -> str:
    """Return a share in per cent."""
    return f"{significant(100 * value)} %"
