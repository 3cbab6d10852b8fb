"""``ragembed index``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli import INTERRUPTED_EXIT
from ragembed.cli.options import (
    LocalPath,
    PlacePath,
    WritingCommand,
    device_option,
    discovery_options,
    embedding_options,
    format_option,
    index_options,
    reading_options,
    store_option,
)
from ragembed.cli.output import print_record, say, say_choice, shown_path
from ragembed.cli.progress import StderrProgress
from ragembed.cli.requests import indexing_request
from ragembed.documents.places import Place
from ragembed.errors import BudgetError
from ragembed.indexes.indexing.request import open_existing
from ragembed.indexes.indexing.run import IndexingReport, index_files
from ragembed.indexes.storage.layout import choose_store, file_path, is_store
from ragembed.indexes.types import SilentProgress
from ragembed.indexes.writing.boilerplate_store import MODES

if TYPE_CHECKING:
    from ragembed.distributed.workers import WorkerPool

_LISTED = 20
_ENGINES = ("processes", "ray")


@click.command(cls=WritingCommand)
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@store_option
@embedding_options
@discovery_options
@reading_options
@click.option(
    "--boilerplate",
    type=click.Choice(MODES),
    help="Leave lines that many files repeat out of searches, or keep them.  [default: strip]",
)
@index_options
@click.option(
    "--language",
    metavar="LANGUAGE",
    help="Whose stems words are found by: english, none, or a language of Snowball's.  [default: english]",
)
@device_option
@click.option("--workers", type=click.IntRange(1), help="Processes that read and encode.  [default: this one]")
@click.option("--engine", type=click.Choice(_ENGINES), help="Where workers are.  [default: on this machine]")
@click.option("--address", metavar="ADDRESS", help="Ray cluster, as in 10.0.0.1:6379.  [default: a local one]")
@click.option("--num-gpus", type=click.FloatRange(0), help="GPUs of each worker on Ray, as in 0.5.  [default: 0]")
@click.option(
    "--work",
    type=LocalPath(file_okay=False),
    help="Folder for files that workers share, on a disk that all can write.  [default: in the store]",
)
@click.option("--reset-options", is_flag=True, help="Forget the options kept in the store; those given now hold.")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@format_option
def command(
    paths: tuple[Place, ...],
    store: Path | None,
    device: str | None,
    language: str | None,
    workers: int | None,
    engine: str | None,
    address: str | None,
    num_gpus: float | None,
    work: Path | None,
    reset_options: bool,
    dry_run: bool,
    wait_seconds: float,
    quiet: bool,
    output: str,
    **given: Any,
) -> None:
    """Index files and folders, or bring a store up to date with them.

    What is new or changed is read, split into chunks and embedded; what is gone is removed; the rest costs nothing.
    PATH may be a URL that fsspec reads, as in s3://bucket/docs (extra remote, and the driver of the scheme).
    Without PATH, all paths indexed so far; a PATH that does not exist any more leaves the store. Options that decide
    what is read, and those of the index, are kept in the store and hold for the next run until they are given again.
    An interrupted run is carried on by the next. With --workers or --engine ray other processes read and encode; the
    store is the same.
    """
    where = choose_store(store)
    pool = _worker_pool(workers, engine, address, num_gpus, work)
    progress = SilentProgress() if quiet else StderrProgress()
    try:
        with open_existing(where, device) as opened:
            request = indexing_request(
                where, opened, paths, given, reset=reset_options, device=device, language=language
            )
            if pool is None or dry_run:
                report = index_files(request, progress, dry_run=dry_run, wait_seconds=wait_seconds)
            else:
                from ragembed.distributed.backend import index_with_workers

                report = index_with_workers(request, pool, progress, work=work, wait_seconds=wait_seconds)
    except BudgetError as error:
        raise BudgetError(f"{error}; the documents are indexed, and the index is as it was before") from error
    except KeyboardInterrupt:
        progress.finish()
        kept = is_store(where) or pool is not None
        carry_on = "finished batches are kept; run the same command to carry on" if kept else "nothing was kept"
        click.echo(f"interrupted: {carry_on}", err=True)
        raise click.exceptions.Exit(INTERRUPTED_EXIT) from None
    if not quiet:
        _print_skipped(report, where)
    if not print_record(_as_dict(report), output) and not quiet:
        if report.picked is not None and report.check is not None:
            say_choice(report.picked, report.check)
        say(_summary(report, dry_run=dry_run), err=True)


def _worker_pool(
    workers: int | None, engine: str | None, address: str | None, num_gpus: float | None, work: Path | None
) -> WorkerPool | None:
    """Return the workers, None for this process alone; raises a usage error for options that do not fit together."""
    if engine != "ray" and (address is not None or num_gpus is not None):
        raise click.UsageError("--address and --num-gpus are for workers on Ray: give --engine ray too")
    if engine == "ray":
        from ragembed.distributed.ray_workers import RayWorkers

        return RayWorkers(address, workers=workers, gpus=num_gpus or 0.0)
    if workers is None:
        if engine is not None or work is not None:
            raise click.UsageError("--engine processes and --work are for several workers: give --workers too")
        return None
    from ragembed.distributed.workers import ProcessWorkers

    return ProcessWorkers(workers)


def _summary(report: IndexingReport, *, dry_run: bool) -> str:
    """Return the one line at the end."""
    scan = report.scan
    files = (
        f"{len(scan.added)} added, {len(scan.changed)} changed, {len(scan.removed)} removed, "
        f"{scan.unchanged} unchanged, {len(scan.skipped)} skipped"
    )
    where = f" on {', '.join(report.devices)}" if report.devices else ""
    embedded = f"{report.chunks:,} chunks, {report.encoded:,} embedded{where}"
    chunks = f"{report.chunks:,} chunks to look at" if dry_run else embedded
    return f"{'dry run: ' if dry_run else ''}files: {files}; {chunks}; {report.seconds:.1f} s"


def _print_skipped(report: IndexingReport, store: Path) -> None:
    for warning in report.scan.warnings:
        say(f"note: {warning}", err=True)
    for name, reason in list(report.scan.skipped.items())[:_LISTED]:
        say(f"skipped {shown_path(file_path(name, store))}: {reason}", err=True)
    if (more := len(report.scan.skipped) - _LISTED) > 0:
        click.echo(f"skipped {more:,} more files: ragembed status --skipped lists them", err=True)


def _as_dict(report: IndexingReport) -> dict[str, Any]:
    scan = report.scan
    return {
        "added": scan.added,
        "changed": scan.changed,
        "removed": scan.removed,
        "unchanged": scan.unchanged,
        "skipped": [{"path": name, "reason": reason} for name, reason in scan.skipped.items()],
        "warnings": scan.warnings,
        "index": None if report.picked is None else report.picked.to_dict(),
        "check": None if report.check is None else report.check.to_dict(),
        "chunks": report.chunks,
        "encoded": report.encoded,
        "devices": list(report.devices),
        "seconds": round(report.seconds, 3),
        "stages": [asdict(stage) for stage in report.stages],
    }
