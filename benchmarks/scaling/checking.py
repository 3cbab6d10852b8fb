"""The simulated beside the measured time of each run, and of runs that are planned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragembed.distributed.stages import range_size
from ragembed.distributed.work import EMBED, FIT, READ
from ragembed.indexes.writer import BATCH
from scaling.assumptions import Assumptions
from scaling.constants import Constants, constants_of, fitted_on
from scaling.model import ALONE, Encoder, Plan, bandwidth
from scaling.records import Part, Run
from scaling.simulator import Cluster, Task, at_random, simulate, uneven

TOLERANCE = 0.2
_NOTHING = 1e-6
"""Chunks that are left by rounding."""
_ENOUGH_TASKS = 5_000
"""Of a stage that are simulated at the least, where there are more."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A run, what its constants were taken from it for (``""`` where nothing was), and its simulated seconds."""

    part: str
    run: Run
    gave: str
    simulated: float

    @property
    def error(self) -> float:
        """By which share of the measured time the simulated one is more, or less."""
        return self.simulated / self.run.seconds - 1

    @property
    def near(self) -> bool:
        """Whether that is within the tolerance."""
        return abs(self.error) <= TOLERANCE


def check(name: str, part: Part) -> list[Checked]:
    """Simulate each run in stages of a part by the constants that were taken from some of them."""
    constants = constants_of(part)
    alone, several = fitted_on(part)
    return [
        Checked(name, run, "costs" if run in alone else "slowing" if run in several else "", again(constants, run))
        for run in part.staged
    ]


def again(constants: Constants, run: Run) -> float:
    """Return the simulated seconds of a run: one stage after the other, and what one process does alone.

    How many shards were read is taken from the run; what a task takes is not.
    """
    seconds = constants.alone_seconds(run.chunks)
    for stage in run.stages:
        cost = constants.stages[stage.stage]
        cluster = Cluster(run.workers, cores=constants.cores, together=cost.together, startup=cost.startup)
        sizes = task_sizes(stage.stage, stage.tasks, run.files, run.chunks)
        seconds += simulate([Task(cost.per_chunk * size + cost.per_task) for size in sizes], cluster).seconds
    return seconds


def task_sizes(stage: str, tasks: int, files: int, chunks: int) -> list[float]:
    """Return the chunks of each task of a stage over files of the same size, in the order of the tasks.

    Shards are all alike; of ranges the last has what is left; of the files that are written together, so that they
    have ``BATCH`` chunks or more, the first block has ``BATCH``, and the last what is left.
    """
    if stage == READ:
        return [chunks / tasks] * tasks
    if stage == FIT:
        return list(_cut(chunks, range_size(chunks)))
    together = math.ceil(BATCH * files / chunks) * chunks / files
    return [block for part in _cut(chunks, together) for block in _cut(part, BATCH)]


def _cut(whole: float, size: float) -> Iterator[float]:
    """Yield ``size`` as often as it goes into ``whole``, and the rest."""
    while whole > _NOTHING:
        yield min(size, whole)
        whole -= size


def with_mishaps(planned: Plan, constants: Constants, encoder: Encoder, assumed: Assumptions, seed: int) -> float:
    """Return the hours of a plan where tasks are uneven, some slow, and workers are lost.

    What one process does alone takes as long as planned. Where there are many tasks and machines, a slice of the
    machines with its share of the tasks, the network and the driver's time is simulated: machines are alike.
    """
    hours = planned.seconds[ALONE] / 3600
    for stage, cost in constants.stages.items():
        slices = max(1, min(planned.fleet.machines, planned.tasks[stage] // _ENOUGH_TASKS))
        workers, each = planned.workers, cost.core_seconds(constants.cores)
        if stage == EMBED:
            each = encoder.core_seconds
            if encoder.gpu:
                workers = planned.fleet.machines * max(1, planned.fleet.gpus)
                each = max(constants.tokens / assumed.gpu_tokens, each * workers / planned.workers)
        size = constants.bytes["source"] if stage == READ else 0.0
        chunks = planned.chunks / planned.tasks[stage]
        task = Task(each * chunks, size * chunks)
        cluster = Cluster(
            max(1, workers // slices),
            startup=cost.startup,
            restart=assumed.restart,
            dispatch=assumed.dispatch * slices,
            network=bandwidth(planned.fleet, assumed) / slices,
        )
        mishaps = assumed.variation, assumed.slow_share, assumed.slow_factor, seed
        tasks = uneven([task] * math.ceil(planned.tasks[stage] / slices), *mishaps)
        hours += simulate(tasks, cluster, at_random(3600 * assumed.failure_hours, seed)).seconds / 3600
    return hours


def told(checked: Sequence[Checked]) -> list[str]:
    """Return a sentence for each run whose simulated time is too far from the measured one."""
    return [
        f"{one.part}, {one.run.chunks:,} chunks, {one.run.workers} workers: {one.simulated:.1f} s simulated, "
        f"{one.run.seconds:.1f} s measured, {one.error:+.0%}: allowed are {TOLERANCE:.0%}"
        for one in checked
        if not one.near
    ]
