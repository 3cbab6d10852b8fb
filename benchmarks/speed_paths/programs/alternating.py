"""Calls that take turns in one process, where both are ragembed's or of the same environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def alternate(calls: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Return the wall-clock times, s, of each call, once unmeasured and then in turns, the first one alternating."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns):
        for name in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            started = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - started)
    return times
