"""What a chunk costs in each stage, computed from measured runs.

Costs are lines, ``fixed + per_chunk · chunks``, through the runs of one worker at two sizes; how much workers are in
each other's way is taken from the runs of several at the larger size. All other runs are there to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scaling.records import BYTES, Part, Run, Stage

PARALLEL = ("read", "count", "embed")
"""Stages whose tasks are done by workers; all others are done by one process alone."""


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed + slope · x``, neither being negative."""

    fixed: float
    slope: float

    def at(self, x: float) -> float:
        """Return the value at ``x``."""
        return self.fixed + self.slope * x


@dataclass(frozen=True, slots=True)
class Together:
    """How fast so many workers of one machine are together, one alone being 1; each pair is (workers, speed)."""

    measured: Sequence[tuple[int, float]] = ((1, 1.0),)

    def at(self, workers: float) -> float:
        """Return the speed: on straight lines between what was measured, and no more after the last."""
        before = (0, 0.0)
        for count, speed in self.measured:
            if workers <= count:
                share = (workers - before[0]) / (count - before[0])
                return before[1] + share * (speed - before[1])
            before = count, speed
        return before[1]

    def slower(self, workers: float) -> float:
        """Return how many times as long a task takes where so many workers are busy."""
        return workers / self.at(workers)


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of a stage.

    ``startup`` is what a worker needs before its first task, or what a stage without workers needs whatever there is
    to do; ``per_chunk`` is a worker's alone on the machine, ``per_task`` what passes between two tasks. ``memory`` is
    the most that a worker had, in MiB.
    """

    startup: float
    per_chunk: float
    per_task: float
    chunks_per_task: float
    together: Together
    memory: float

    def core_seconds(self, cores: int) -> float:
        """Return the seconds of a core for a chunk where all ``cores`` of the measured machine are busy."""
        return (self.per_chunk + self.per_task / self.chunks_per_task) * cores / self.together.at(cores)


@dataclass(frozen=True, slots=True)
class Constants:
    """What a corpus costs on the measured machine.

    ``outside`` are the seconds of a run outside of its stages; ``driver`` and ``worker`` are MiB by chunks; ``bytes``
    are those of a chunk, of each of :data:`ragembed.records.BYTES`; ``answers`` are, for numbers of chunks, the median
    milliseconds of a question by mode.
    """

    machine: str
    date: str
    cores: int
    dim: int
    tokens: float
    outside: float
    stages: Mapping[str, StageCost]
    driver: Line
    worker: float
    bytes: Mapping[str, float]
    answers: Mapping[int, Mapping[str, float]]


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the line through the points of the least and the greatest x.

    Costs are never negative: where the line would begin below 0, it begins at 0 and goes through the last point; where
    it would fall, it is level at the mean.
    """
    (x0, y0), (x1, y1) = min(points), max(points)
    slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
    if x1 == x0:
        return Line(0.0, y1 / x1)
    if slope < 0:
        return Line((y0 + y1) / 2, 0.0)
    if (fixed := y0 - slope * x0) < 0:
        return Line(0.0, y1 / x1)
    return Line(fixed, slope)


def fitted_on(part: Part) -> tuple[list[Run], list[Run]]:
    """Return the runs that give the costs of a chunk, of one worker, and those that give how workers slow each other.

    Raises ValueError where no run of one worker is among the two sizes.
    """
    alone = [run for run in part.staged if run.workers == 1]
    if not alone:
        raise ValueError("no run of one worker was measured: expected one at each size")
    largest = max(run.chunks for run in alone)
    return alone, [run for run in part.staged if run.chunks == largest and run.workers > 1]


def constants_of(part: Part) -> Constants:
    """Return the constants of a corpus."""
    alone, several = fitted_on(part)
    last = max(alone, key=lambda run: run.chunks)
    staged = part.staged
    outside = [run.seconds - sum(stage.seconds for stage in run.stages) for run in alone]
    return Constants(
        part.machine,
        part.date,
        part.cores,
        part.dim,
        last.tokens,
        max(0.0, sum(outside) / len(outside)),
        {stage.stage: _cost(stage, alone, several) for stage in last.stages},
        line([(run.chunks, run.driver) for run in staged]),
        max(max(run.workers_memory, default=0.0) for run in staged),
        {name: last.bytes[name] / last.chunks for name in BYTES},
        {run.chunks: dict(run.answers) for run in staged if run.answers},
    )


def _cost(last: Stage, alone: Sequence[Run], several: Sequence[Run]) -> StageCost:
    name = last.stage
    runs = [(run, run.stage(name)) for run in alone]
    chunks = max(run.chunks for run in alone)
    memory = max(run.stage(name).memory for run in (*alone, *several))
    if name not in PARALLEL:
        whole = line([(run.chunks, stage.seconds) for run, stage in runs])
        return StageCost(whole.fixed, whole.slope, 0.0, chunks, Together(), memory)
    between = line([(stage.tasks, max(0.0, stage.seconds - stage.busy)) for _, stage in runs])
    own = last.busy / chunks
    pairs = [(run.workers, run.workers * own / (run.stage(name).busy / run.chunks)) for run in several]
    together = Together(((1, 1.0), *sorted(pairs)))
    return StageCost(between.fixed, own, between.slope, chunks / last.tasks, together, memory)
