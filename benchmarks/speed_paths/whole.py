"""Whole processes that take turns, measured from their start to their exit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from measure import Cost, Runner, own_peak

from speed_paths.setting import say

Command = Sequence[str | Path]


def in_turns(commands: Mapping[str, Callable[[int], Command]], turns: int, runner: Runner) -> dict[str, list[Cost]]:
    """Run each command of each turn, the first alternating, and return what they cost, by name."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(turns):
        for name in list(commands)[:: -1 if turn % 2 else 1]:
            cost, _ = runner.run(commands[name](turn))
            say(f"  turn {turn + 1} of {turns}: {name}, {cost.wall:.3g} s, {cost.memory:.0f} MiB")
            costs[name].append(cost)
    return costs


def check_memory(costs: Mapping[str, Sequence[Cost]]) -> None:
    """Raise RuntimeError where this process is so large that the peak memory of a program cannot be told."""
    lowest = min(cost.memory for several in costs.values() for cost in several)
    if lowest <= (own := own_peak()):
        raise RuntimeError(f"no peak memory can be told: the lowest is {lowest:.0f} MiB, the benchmark's own {own:.0f}")
