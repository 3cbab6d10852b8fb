"""``ragembed index``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ragembed.cli import INTERRUPTED_EXIT
from ragembed.cli.options import (
    EMBEDDING_OPTIONS,
    PlacePath,
    WritingCommand,
    boilerplate_option,
    device_option,
    discovery_options,
    embedding_options,
    format_option,
    index_options,
    reading_options,
    require_no,
    store_option,
)
from ragembed.cli.output import counted, print_record, say, say_choice, shown_path
from ragembed.cli.project import choose_store, collections_files, confirm_models
from ragembed.cli.requests import indexing_request
from ragembed.config.settings_files import add_stores, require_name
from ragembed.documents.places import Place
from ragembed.errors import BudgetError, ConfigError
from ragembed.indexes.indexing.index_run import IndexingReport, index_files
from ragembed.indexes.indexing.request import IndexingRequest, open_existing
from ragembed.indexes.indexing.skips import skip_counts
from ragembed.indexes.storage.layout import STORE_FOLDER, file_path, is_store
from ragembed.progress import StderrProgress

if TYPE_CHECKING:
    from ragembed.distributed.workers import WorkerPool

_ENGINES = ("processes", "ray")
UNLISTED = frozenset(EMBEDDING_OPTIONS) - {"preset", "model", "config_file"} | {
    *("text_columns", "title_column", "overlap", "boilerplate", "max_memory", "max_latency_ms"),
    *("min_recall", "num_gpus", "poll"),
}
"""Parameters that ``--help`` only names, because a file can set them."""
_SENTENCE = re.compile(r"(?<=[.])\s|\s+\[")
_NOT_WATCHED = ("workers", "engine", "address", "num_gpus", "collection", "dry_run")
"""Parameters that ``--watch`` does not use."""


class IndexCommand(WritingCommand):
    """A command whose help lists the options that most people need; :data:`UNLISTED` are named below them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence on each listed option, and the names of the others."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = [option.get_help_record(ctx) or ("", "") for option in options if option.name not in UNLISTED]
        with formatter.section("Options"):
            formatter.write_dl([(names, _SENTENCE.split(text)[0]) for names, text in records])
        others = ", ".join(max(option.opts, key=len) for option in options if option.name in UNLISTED)
        text = (
            "Options that few need, also keys of [index] in ragembed.toml or of the file for --config (page "
            f"Configuration): {others}."
        )
        formatter.write(f"\n{textwrap.fill(text, formatter.width, break_on_hyphens=False)}\n")


@click.command(name="index", cls=IndexCommand)
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@store_option
@embedding_options
@discovery_options
@reading_options
@boilerplate_option
@index_options
@click.option(
    "--language",
    metavar="LANGUAGE",
    help="Language whose word endings lexical search ignores: english, none, or another Snowball language, such as "
    "german.  [default: english]",
)
@device_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Write the stores of a collection in parallel with N workers; a new collection gets N stores.  [default: no "
    "workers, only this process]",
)
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    help="Where workers run: processes on this machine, or a Ray cluster.  [default: processes]",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Address of the Ray cluster, such as 10.0.0.1:6379.  [default: $RAY_ADDRESS, else a local cluster]",
)
@click.option(
    "--num-gpus",
    type=click.FloatRange(0),
    metavar="N",
    help="Number of GPUs per Ray worker; with 0.5, two workers share one.  [default: 0]",
)
@click.option(
    "--collection",
    metavar="NAME",
    help="Name of the collection that --workers makes, or of one to update. --store is the folder of its stores, by "
    "default .ragembed-NAME.  [default with --workers: the name of this folder]",
)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="Remove the files of a PATH that is missing or empty. By default they stay in the store, because the disk of "
    "PATH may not be mounted.",
)
@click.option(
    "--reset-options", is_flag=True, help="Forget the options saved in the store and use only those given now."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Count the files that would be added, changed and removed, and the tokens to encode, without changing the "
    "store; --json lists the files.",
)
@click.option("--watch", is_flag=True, help="Then update the store whenever files change, until you press Ctrl-C.")
@click.option(
    "--poll",
    is_flag=True,
    help="With --watch, compare the files with the store every few seconds, as on network drives, whose changes the "
    "operating system does not report.",
)
@click.option("-v", "--verbose", is_flag=True, help="Name each skipped file, with the reason.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors, no progress, notes or summary.")
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
    collection: str | None,
    reset_options: bool,
    dry_run: bool,
    watch: bool,
    poll: bool,
    wait_seconds: float,
    verbose: bool,
    quiet: bool,
    output: str,
    **given: Any,
) -> None:
    """Index files and folders, or update a store.

    \b
    ragembed index docs/ notes.md
    ragembed index docs/ --exclude 'tmp*' --chunk-tokens 128
    ragembed index --watch
    ragembed index big/ --workers 8 --collection big

    Reads new and changed files, and embeds their chunks; removes deleted files from the store. Without PATH, updates
    all paths indexed so far. PATH can be a URL that fsspec reads, such as s3://bucket/docs (ragembed[documents]).

    The first run creates the store and saves its options; later runs use them until you give new ones. An interrupted
    run continues with the next. Each of --workers writes a store of its own: search them with ragembed query --in NAME.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    context = click.get_current_context()
    confirm_models(context)
    _require_watchable(context, watch=watch)
    pool = _worker_pool(workers, engine, address, num_gpus)
    known = None if pool is None and collection is None else _known_collection(collection, store)
    where = choose_store(store) if known is None else known.folder
    if known is not None and not known.stores and workers is None:
        raise click.UsageError("a new collection needs --workers N: it gets a store for each worker")
    progress = StderrProgress(quiet=quiet)
    first = where if known is None else next(iter(known.stores.values()), where)
    try:
        with open_existing(first, device) as opened:
            request = indexing_request(
                where, opened, paths, given, reset=reset_options, device=device, language=language
            )
            if watch:
                from ragembed.cli.watching import watch_files

                watch_files(request, progress, output, poll=poll, wait_seconds=wait_seconds)
                return
            if known is not None:
                report = _index_collection(known, request, workers, pool, progress, dry_run, wait_seconds)
            else:
                report = index_files(request, progress, dry_run=dry_run, wait_seconds=wait_seconds)
    except BudgetError as error:
        raise BudgetError(f"{error}; the documents were added, and the index was not changed") from error
    except KeyboardInterrupt:
        progress.finish()
        click.echo(f"interrupted: {_kept(progress, where, has_workers=pool is not None)}", err=True)
        raise click.exceptions.Exit(INTERRUPTED_EXIT) from None
    if not quiet:
        # Names of files are relative to the folder that holds a store.
        _print_skipped(report, where if known is None else where / "1", verbose=verbose)
    if not print_record(_as_dict(report), output) and not quiet:
        if report.picked is not None and report.check is not None:
            say_choice(report.picked, report.check)
        say(_summary(report, dry_run=dry_run), err=True)


@dataclass(frozen=True, slots=True)
class _WrittenCollection:
    """A collection that ``ragembed index`` writes: the stores that exist, by name, and the folder for new ones."""

    name: str
    folder: Path
    stores: Mapping[str, Path]
    is_named: bool


def _require_watchable(context: click.Context, *, watch: bool) -> None:
    """Raise a usage error for options that do not go with ``--watch``, or without it."""
    if watch:
        require_no(_NOT_WATCHED, "--watch")
    elif context.get_parameter_source("poll") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--poll applies only with --watch: add --watch")


def _known_collection(name: str | None, folder: Path | None) -> _WrittenCollection:
    """Return the collection to write. Without a name, it has that of the folder, or of the working directory."""
    from ragembed.distributed.members import stores_in

    is_implied = name is None
    if name is None:
        single = choose_store(folder)
        if is_store(single):
            raise ConfigError(
                f"{shown_path(single)} is a store that one process writes: update it without --workers, or name a "
                "collection of several stores with --collection"
            )
        name = (folder or Path.cwd()).absolute().name.removeprefix(f"{STORE_FOLDER}-").lstrip(".")
        folder = folder or Path(f"{STORE_FOLDER}-{name}")
    require_name(name, "choose the name of the collection with --collection: " if is_implied else "")
    named = next((file.collections[name] for file in collections_files() if name in file.collections), None)
    if named is None:
        folder = (folder or Path(f"{STORE_FOLDER}-{name}")).absolute()
        return _WrittenCollection(name, folder, stores_in(folder), is_named=False)
    own = next((path.parent for path in named.stores.values()), Path())
    if folder is not None and folder.absolute() != own:
        remedy = "choose another name with --collection" if is_implied else "leave out --store"
        raise ConfigError(f"the collection {name} has its stores in {own}, not in {folder}: {remedy}")
    return _WrittenCollection(name, own, named.stores, is_named=True)


def _index_collection(
    known: _WrittenCollection,
    request: IndexingRequest,
    workers: int | None,
    pool: WorkerPool | None,
    progress: StderrProgress,
    dry_run: bool,
    wait_seconds: float,
) -> IndexingReport:
    from ragembed.distributed.members import create_members, stores_in, update_members
    from ragembed.distributed.workers import ThisProcess

    pool = pool or ThisProcess()
    if known.stores:
        stores = list(known.stores.values())
        report = update_members(request, stores, pool, progress, dry_run=dry_run, wait_seconds=wait_seconds)
    else:
        report = create_members(request, workers or 1, pool, progress, dry_run=dry_run, wait_seconds=wait_seconds)
    if not (known.is_named or dry_run):
        stores_by_name = stores_in(known.folder)
        add_stores(known.name, stores_by_name)
        report.scan.warnings.append(
            f"{known.name}: {counted(len(stores_by_name), 'store')} in {shown_path(known.folder)}; search them with "
            f"'ragembed query --in {known.name} QUERY'"
        )
    return report


def _worker_pool(
    workers: int | None, engine: str | None, address: str | None, num_gpus: float | None
) -> WorkerPool | None:
    """Return the pool of workers, or None to use only this process; raise a usage error for conflicting options."""
    if engine != "ray" and (address is not None or num_gpus is not None):
        raise click.UsageError("--address and --num-gpus apply only to Ray: add --engine ray")
    if engine == "ray":
        from ragembed.distributed.ray_workers import RayWorkers

        return RayWorkers(address, workers=workers, gpus=num_gpus or 0.0)
    if workers is None:
        if engine is not None:
            raise click.UsageError("--engine processes applies only to worker processes: add --workers N")
        return None
    from ragembed.distributed.workers import ProcessWorkers

    return ProcessWorkers(workers)


def _kept(progress: StderrProgress, store: Path, *, has_workers: bool) -> str:
    """Return where an interrupted run was, what it has kept, and what to do."""
    if has_workers:
        kept = "finished tasks are kept"
    elif is_store(store):
        kept = "finished chunks are kept"
    else:
        return "nothing was saved"
    if progress.phase == "embedding" and progress.total:
        kept = f"{progress.done:,} of {counted(progress.total, 'chunk')} were embedded, {kept}"
    return f"{kept}; run the same command to continue"


def _summary(report: IndexingReport, *, dry_run: bool) -> str:
    """Return the line that is printed at the end."""
    scan, chunks = report.scan, counted(report.chunks, "chunk")
    if not dry_run:
        chunks += f", {report.encoded:,} embedded{' on ' if report.devices else ''}{', '.join(report.devices)}"
    elif report.requests is None:
        chunks += f" to process, {counted(report.tokens or 0, 'token')} to encode"
    else:
        chunks += (
            f" to process, about {counted(report.tokens or 0, 'token')} to send in "
            f"{counted(report.requests, 'request')}: for the cost, multiply the tokens by the price of the provider"
        )
    return (
        f"{'dry run: ' if dry_run else ''}files: {len(scan.added)} added, {len(scan.changed)} changed, "
        f"{len(scan.removed)} removed, {scan.unchanged} unchanged, {len(scan.skipped)} skipped; {chunks}; "
        f"{report.seconds:.1f} s"
    )


def _print_skipped(report: IndexingReport, store: Path, *, verbose: bool) -> None:
    """Print the warnings and a line with the numbers of skipped files, or with ``verbose`` a line for each."""
    places: dict[str, list[str]] = {}
    for warning in report.scan.warnings:
        place, colon, problem = warning.partition(": ")
        places.setdefault(warning if verbose or not colon else problem, []).append(place)
    for problem, names in places.items():
        more = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
        say(f"note: {problem}" if problem.startswith(names[0]) else f"note: {names[0]}{more}: {problem}", err=True)
    if verbose:
        for name, reason in report.scan.skipped.items():
            say(f"skipped {shown_path(file_path(name, store))}: {reason}", err=True)
    elif report.scan.skipped:
        say(f"skipped {skip_counts(report.scan.skipped)} (-v, or ragembed status --skipped, names them)", err=True)


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
        **({} if report.tokens is None else {"tokens": report.tokens, "requests": report.requests}),
    }
