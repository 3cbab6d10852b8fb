"""What a training has come to: written to ``training.json`` of the model's folder, and printed."""

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
    """Mean and standard deviation (of the sample, 0 for one value) over the runs of a step."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return those of ``values``, of which there is at least one."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), deviation)

    def to_dict(self) -> dict[str, float]:
        """Return the fields as JSON values."""
        return {"mean": self.mean, "deviation": self.deviation}


def summary(runs: Sequence[JsonObject]) -> dict[str, Any]:
    """Return mean and standard deviation of every number that all ``runs`` have measured, under its own names."""
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
