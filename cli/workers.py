"""Options for indexing with several workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ragembed.cli.options import with_options

if TYPE_CHECKING:
    from ragembed.distributed.workers import WorkerPool

Command = TypeVar("Command", bound=Callable[..., Any])

PROCESSES, RAY = ENGINES = ("processes", "ray")
WORKER_OPTIONS = ("workers", "engine", "address", "num_gpus", "work")
"""Names of the options of :func:`worker_options`."""


class WorkerConfig(NamedTuple):
    """A pool of workers, and the work folder if one was given."""

    pool: WorkerPool
    work: Path | None


def worker_options(command: Command) -> Command:
    """Add the options for workers; each is None if it is not given."""
    return with_options(
        command,
        click.option("--workers", type=click.IntRange(1), help="Processes that read and encode.  [default: this one]"),
        click.option("--engine", type=click.Choice(ENGINES), help="Where workers are.  [default: on this machine]"),
        click.option("--address", metavar="ADDRESS", help="Ray cluster, as in 10.0.0.1:6379.  [default: a local one]"),
        click.option(
            "--num-gpus", type=click.FloatRange(0), help="GPUs of each worker on Ray, as in 0.5.  [default: 0]"
        ),
        click.option(
            "--work",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder for files that workers share, on a disk that all can write.  [default: in the store]",
        ),
    )


def chosen_workers(
    workers: int | None, engine: str | None, address: str | None, num_gpus: float | None, work: Path | None
) -> WorkerConfig | None:
    """Return the workers, None for this process alone; raises a usage error for options that do not fit together."""
    if engine != RAY and (address is not None or num_gpus is not None):
        raise click.UsageError("--address and --num-gpus are for workers on Ray: give --engine ray too")
    if engine == RAY:
        from ragembed.distributed.ray_workers import RayWorkers

        return WorkerConfig(RayWorkers(address, workers=workers, gpus=num_gpus or 0.0), work)
    if workers is None:
        if engine is not None or work is not None:
            raise click.UsageError("--engine processes and --work are for several workers: give --workers too")
        return None
    from ragembed.distributed.workers import ProcessWorkers

    return WorkerConfig(ProcessWorkers(workers), work)
