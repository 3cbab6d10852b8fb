"""``ragembed stage``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.commands.index import summary
from ragembed.cli.options import (
    PlacePath,
    device_option,
    discovery_options,
    embedding_options,
    index_options,
    reading_options,
    store_option,
)
from ragembed.cli.output import say
from ragembed.cli.progress import StderrProgress
from ragembed.cli.requests import indexing_request
from ragembed.cli.waiting import WritingCommand
from ragembed.documents.places import Place
from ragembed.indexes.boilerplate_store import MODES
from ragembed.indexes.layout import choose_store
from ragembed.scaling import stages
from ragembed.scaling.work import EMBED, FIT, READ

_work = click.option(
    "--work", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder that the stages share."
)


@click.group()
def command() -> None:
    """Index in stages, each in as many processes as you like, on machines that share a disk.

    \b
    ragembed stage plan docs/ --work /shared/work --tasks 100
    ragembed stage read --work /shared/work --task 0 --task 1   (…)
    ragembed stage fit --work /shared/work
    ragembed stage embed --work /shared/work
    ragembed stage build --work /shared/work

    Without --task a stage does all of its tasks that are not done. Whatever was interrupted is run again. With
    ragembed index --workers N one machine does all of it.
    """  # noqa: D301  the escape is the character that keeps click from wrapping lines


@command.command()
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@_work
@click.option("--tasks", type=click.IntRange(1), help="Tasks of reading.  [default: one for each 8 MB, at least 8]")
@store_option
@embedding_options
@discovery_options
@reading_options
@click.option("--boilerplate", type=click.Choice(MODES), help="As of ragembed index.  [default: strip]")
@index_options
@click.option("--language", metavar="LANGUAGE", help="As of ragembed index.  [default: english]")
def plan(
    paths: tuple[Place, ...], work: Path, tasks: int | None, store: Path | None, language: str | None, **given: Any
) -> None:
    """List the files below PATH that the store does not hold as they are, in tasks of about one size."""
    request = indexing_request(choose_store(store), paths, given, language=language)
    made = stages.plan_stages(request, work, tasks)
    say(f"{made.files:,} files, {made.size:,} bytes, in {made.shards:,} tasks of reading")


def _stage(name: str, text: str) -> None:
    @command.command(name=name, help=text, short_help=text)
    @_work
    @click.option("--task", "numbers", type=click.IntRange(0), multiple=True, help="A task by number; may be repeated.")
    @device_option
    def run(work: Path, numbers: tuple[int, ...], device: str | None) -> None:
        for done in stages.perform(work, name, numbers, device):
            say(f"{name} {done.number}: {done.items:,} done, {done.seconds:.1f} s, {done.memory:.0f} MiB")


_stage(READ, "Read the files of shards, and split them into chunks.")
_stage(FIT, "Go through ranges of chunks, for what the embeddings are fitted by.")
_stage(EMBED, "Encode blocks of texts.")


@command.command(cls=WritingCommand)
@_work
@device_option
def build(work: Path, device: str | None, wait_seconds: float) -> None:
    """Write the store of what the other stages have left, and remove that."""
    report = stages.build(work, device, StderrProgress(), wait_seconds)
    for warning in report.scan.warnings:
        say(f"note: {warning}", err=True)
    say(summary(report, dry_run=False), err=True)
