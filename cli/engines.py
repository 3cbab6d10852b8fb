"""Options that say who does the work of indexing, and the engine that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ragembed.cli.options import with_options
from ragembed.scaling.engine import Engine

Command = TypeVar("Command", bound=Callable[..., Any])

PROCESSES, RAY = ENGINES = ("processes", "ray")
ENGINE_OPTIONS = ("workers", "engine", "address", "num_gpus", "work")
"""Names of the options of :func:`engine_options`."""


class Crew(NamedTuple):
    """An engine, and the work folder that was asked for."""

    engine: Engine
    work: Path | None


def engine_options(command: Command) -> Command:
    """Add the options that say who does the work; each is None where it is not given."""
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


def chosen_crew(
    workers: int | None, engine: str | None, address: str | None, num_gpus: float | None, work: Path | None
) -> Crew | None:
    """Return who is to do the work, None where it is this process; raises a usage error for what does not fit."""
    if engine != RAY and (address is not None or num_gpus is not None):
        raise click.UsageError("--address and --num-gpus are for workers on Ray: give --engine ray too")
    if engine == RAY:
        from ragembed.scaling.ray_engine import RayEngine

        return Crew(RayEngine(address, workers=workers, gpus=num_gpus or 0.0), work)
    if workers is None:
        if engine is not None or work is not None:
            raise click.UsageError("--engine processes and --work are for several workers: give --workers too")
        return None
    from ragembed.scaling.processes import Processes

    return Crew(Processes(workers), work)
