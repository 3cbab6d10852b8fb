"""What a chunk costs in each stage, computed from measured runs.

Costs are lines, ``fixed + per_chunk · chunks``, through the runs of one worker at two sizes; how much workers are in
each other's way is taken from the runs of several at the larger size. All other runs are there to be predicted. What
is outside of the stages of workers, one process does alone: it lists the files, adds up, and writes the store, whose
lists of words and segments are merged again and again; its line is one through ``n ln n``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragembed.distributed.work import STAGES
from scaling.records import BYTES, Part, Run


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

    ``startup`` is what a worker needs once, to start and to load what it keeps between tasks; ``per_chunk`` is a
    worker's alone on the machine, ``per_task`` what passes between two tasks. ``memory`` is the most that a worker had,
    with the pages of files, in MiB.
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

    ``alone`` are the seconds by :func:`sorting` in which one process works and all others wait, as measured up to
    ``chunks`` chunks; ``driver`` and ``worker`` are MiB by chunks of one process; ``bytes`` are those of a chunk, of
    each of :data:`scaling.records.BYTES`; ``answers`` are, for numbers of chunks, the median milliseconds of a question
    by mode.
    """

    machine: str
    date: str
    cores: int
    dim: int
    tokens: float
    chunks: int
    alone: Line
    stages: Mapping[str, StageCost]
    driver: Line
    worker: Line
    bytes: Mapping[str, float]
    answers: Mapping[int, Mapping[str, float]]

    def alone_seconds(self, chunks: float) -> float:
        """Return the seconds in which one process works and all others wait."""
        return self.alone.at(sorting(chunks))


def sorting(chunks: float) -> float:
    """Return how often chunks are copied in sorting them: what is merged again and again takes ``n ln n``."""
    return chunks * math.log(max(chunks, 1.0))


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

    Raises ValueError where there is no run of one worker.
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
    return Constants(
        part.machine,
        part.date,
        part.cores,
        part.dim,
        last.tokens,
        last.chunks,
        line([(sorting(run.chunks), run.alone) for run in alone]),
        {name: _cost(name, alone, several) for name in STAGES},
        line([(run.chunks, run.driver) for run in staged]),
        line([(run.chunks, max(run.workers_memory)) for run in staged]),
        {name: last.bytes[name] / last.chunks for name in BYTES},
        {run.chunks: dict(run.answers) for run in staged if run.answers},
    )


def _cost(name: str, alone: Sequence[Run], several: Sequence[Run]) -> StageCost:
    """Return the cost of a stage; what a worker loads at its first task is in the seconds of that task."""
    last = max(alone, key=lambda run: run.chunks)
    runs = [(run.chunks, run.stage(name)) for run in alone]
    busy = line([(chunks, stage.busy) for chunks, stage in runs])
    between = line([(stage.tasks, max(0.0, stage.seconds - stage.busy)) for _, stage in runs])

    def slower(run: Run) -> float:
        stage = run.stage(name)
        return stage.busy / (min(run.workers, stage.tasks) * busy.fixed + busy.slope * run.chunks)

    return StageCost(
        startup=busy.fixed + between.fixed,
        per_chunk=busy.slope,
        per_task=between.slope,
        chunks_per_task=last.chunks / last.stage(name).tasks,
        together=Together(((1, 1.0), *sorted((run.workers, run.workers / slower(run)) for run in several))),
        memory=max(run.stage(name).memory for run in (*alone, *several)),
    )
