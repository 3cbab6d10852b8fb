"""Statistics of the report, which is written to ``training.json`` in the model folder and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FORMAT = 1
FILE = "training.json"

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation (0 for a single value) over the runs of a step."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the mean and standard deviation of at least one value."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), deviation)

    def to_dict(self) -> dict[str, float]:
        """Return the fields as JSON values."""
        return {"mean": self.mean, "deviation": self.deviation}


def summary(runs: Sequence[JsonObject]) -> dict[str, Any]:
    """Return the mean and standard deviation over ``runs`` for each of their numbers, under the same keys."""
    found: dict[str, Any] = {}
    for name, value in runs[0].items():
        if name in ("run", "seed"):
            continue
        values = [run[name] for run in runs]
        if isinstance(value, (int, float)):
            found[name] = Spread.of(values).to_dict()
        elif isinstance(value, Mapping):
            found[name] = summary(values)
    return found
