"""``ragembed index``."""

from __future__ import annotations

import re
import signal
import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ragembed.cli import INTERRUPTED_EXIT
from ragembed.cli.options import (
    EMBEDDING_OPTIONS,
    PlacePath,
    WritingCommand,
    embedding_options,
    format_option,
    index_options,
    require_no,
    settings,
    shared,
    takes,
)
from ragembed.cli.output import counted, print_record, say, say_choice, shown_path
from ragembed.cli.project import choose_store, choose_store_with_origin, collections_files, confirm_models
from ragembed.cli.requests import embedder_config, index_config, indexing_options
from ragembed.config.fields import setting
from ragembed.config.settings_files import add_stores, require_name
from ragembed.documents.places import Place
from ragembed.errors import BudgetError, ConfigError
from ragembed.indexes import IndexingOptions, Store
from ragembed.indexes.indexing.index_run import IndexingReport, index_files, skip_counts
from ragembed.indexes.indexing.request import IndexingRequest, open_existing
from ragembed.indexes.storage.layout import STORE_FOLDER, file_path, is_store, root_of
from ragembed.progress import StderrProgress

if TYPE_CHECKING:
    from ragembed.distributed.workers import WorkerPool

UNLISTED = frozenset(EMBEDDING_OPTIONS) - {"preset", "model", "config_file"} | {
    *("text_columns", "title_column", "overlap", "max_memory", "max_latency_ms"),
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
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        records = [option.get_help_record(ctx) or ("", "") for option in options if option.name not in UNLISTED]
        with formatter.section("Options"):
            formatter.write_dl([(names, _SENTENCE.split(text)[0]) for names, text in records])
        others = ", ".join(max(option.opts, key=len) for option in options if option.name in UNLISTED)
        text = (
            "Options that few need, also keys of [index] in ragembed.toml or of the file for --config (page "
            f"Configuration): {others}."
        )
        formatter.write(f"\n{textwrap.fill(text, formatter.width, break_on_hyphens=False)}\n")


@dataclass(frozen=True, slots=True)
class _IndexRunOptions:
    """The options of ``ragembed index`` that are not settings of the store."""

    language: str | None = setting(
        None,
        "Language whose word endings lexical search ignores: english, none, or another Snowball language, such as "
        "german.",
        *("--language", "LANGUAGE"),
        default="english",
    )
    workers: int | None = setting(
        None,
        "Write the stores of a collection in parallel with N workers; a new collection gets N stores.",
        *("--workers", "N"),
        default="no workers, only this process",
        least=1,
    )
    engine: str | None = setting(
        None,
        "Where workers run: processes on this machine, or a Ray cluster.",
        "--engine",
        choices=("processes", "ray"),
        default="processes",
    )
    address: str | None = setting(
        None,
        "Address of the Ray cluster, such as 10.0.0.1:6379.",
        *("--address", "ADDRESS"),
        default="$RAY_ADDRESS, else a local cluster",
    )
    num_gpus: float | None = setting(
        None, "Number of GPUs per Ray worker; with 0.5, two workers share one.", "--num-gpus", "N", default="0", least=0
    )
    collection: str | None = setting(
        None,
        "Name of the collection that --workers makes, or of one to update. --store is the folder of its stores, by "
        "default .ragembed-NAME.",
        *("--collection", "NAME"),
        default="with --workers, the name of this folder",
    )
    allow_empty: bool = setting(
        False,
        "Remove the files of a PATH that is missing or empty. By default they stay in the store, because the disk of "
        "PATH may not be mounted.",
        "--allow-empty",
    )
    reset_options: bool = setting(
        False, "Forget the options saved in the store and use only those given now.", "--reset-options"
    )
    dry_run: bool = setting(
        False,
        "Count the files that would be added, changed and removed, and the tokens to encode, without changing the "
        "store; --json lists the files.",
        "--dry-run",
    )
    watch: bool = setting(False, "Then update the store whenever files change, until you press Ctrl-C.", "--watch")
    poll: bool = setting(
        False,
        "With --watch, compare the files with the store every few seconds, as on network drives, whose changes the "
        "operating system does not report.",
        "--poll",
    )
    verbose: bool = setting(False, "Name each skipped file, with the reason.", "-v, --verbose")
    quiet: bool = setting(False, "Print only errors, no progress, notes or summary.", "-q, --quiet")


@click.command(name="index", cls=IndexCommand)
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@shared("store")
@embedding_options
@settings(IndexingOptions)
@index_options
@shared("device")
@takes(_IndexRunOptions)
@format_option
def command(
    paths: tuple[Place, ...],
    store: Path | None,
    device: str | None,
    wait_seconds: float,
    output: str,
    options: _IndexRunOptions,
    **given: Any,
) -> None:
    """Index files and folders, or update a store.

    \b
    ragembed index docs/ notes.md
    ragembed index docs/ --exclude 'tmp*' --chunk-tokens 128
    ragembed index --watch
    ragembed index big/ --workers 8 --collection big

    Reads new and changed files, and embeds their chunks; removes deleted files from the store. Without PATH, updates
    all paths indexed so far. PATH can be a URL that fsspec reads, such as s3://bucket/docs (the extra documents).

    The first run creates the store and saves its options; later runs use them until you give new ones. An interrupted
    run continues with the next. Each of --workers writes a store of its own: search them with ragembed query --in NAME.
    """
    context = click.get_current_context()
    confirm_models(context)
    if options.watch:
        require_no(_NOT_WATCHED, "--watch")
    elif context.get_parameter_source("poll") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--poll applies only with --watch: add --watch")
    pool = _worker_pool(options)
    written = None if pool is None and options.collection is None else _collection_to_write(options.collection, store)
    where = choose_store(store) if written is None else written.folder
    if written is not None and not written.stores and options.workers is None:
        raise click.UsageError("a new collection needs --workers N: it gets a store for each worker")
    progress = StderrProgress(quiet=options.quiet)
    if paths and written is None and choose_store_with_origin(store)[1] == "default" and root_of(where) != Path.cwd():
        progress.note(f"the store is {shown_path(where)}; for one in this folder, add --store {STORE_FOLDER}")
    first = where if written is None else next(iter(written.stores.values()), where)
    try:
        with open_existing(first, device) as opened:
            request = IndexingRequest(
                where,
                paths,
                indexing_options(opened, given, reset=options.reset_options),
                embedder_config(given, opened),
                index_config(given, opened, reset=options.reset_options),
                device,
                options.language,
                allow_empty=options.allow_empty,
                opened=opened,
            )
            if options.watch:
                _watch(request, progress, output, poll=options.poll, wait_seconds=wait_seconds)
                return
            run: Callable[..., IndexingReport] = index_files
            if written is not None:
                run = partial(_index_collection, written, options.workers, pool)
            report = run(request, progress, dry_run=options.dry_run, wait_seconds=wait_seconds)
    except BudgetError as error:
        raise BudgetError(f"{error}; the documents were added, and the index was not changed") from error
    except KeyboardInterrupt:
        progress.finish()
        click.echo(f"interrupted: {_kept(where, has_workers=pool is not None)}", err=True)
        raise click.exceptions.Exit(INTERRUPTED_EXIT) from None
    if not options.quiet:
        # Names of files are relative to the folder that holds a store.
        _print_skipped(report, where if written is None else where / "1", verbose=options.verbose)
    if not print_record(report.to_dict(), output) and not options.quiet:
        if report.picked is not None and report.check is not None:
            say_choice(report.picked, report.check)
        say(str(report), err=True)


@dataclass(frozen=True, slots=True)
class _WrittenCollection:
    """A collection that ``ragembed index`` writes: the stores that exist, by name, and the folder for new ones."""

    name: str
    folder: Path
    stores: Mapping[str, Path]
    is_named: bool


def _collection_to_write(name: str | None, folder: Path | None) -> _WrittenCollection:
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
    written: _WrittenCollection,
    workers: int | None,
    pool: WorkerPool | None,
    request: IndexingRequest,
    progress: StderrProgress,
    *,
    dry_run: bool,
    wait_seconds: float,
) -> IndexingReport:
    from ragembed.distributed.members import create_members, stores_in, update_members
    from ragembed.distributed.workers import WorkerPool

    create = partial(create_members, request, workers or 1)
    write = partial(update_members, request, list(written.stores.values())) if written.stores else create
    report = write(pool or WorkerPool(), progress, dry_run=dry_run, wait_seconds=wait_seconds)
    if not (written.is_named or dry_run):
        stores_by_name = stores_in(written.folder)
        add_stores(written.name, stores_by_name)
        report.scan.warnings.append(
            f"{written.name}: {counted(len(stores_by_name), 'store')} in {shown_path(written.folder)}; search them "
            f"with 'ragembed query --in {written.name} QUERY'"
        )
    return report


def _worker_pool(options: _IndexRunOptions) -> WorkerPool | None:
    """Return the pool of workers, or None to use only this process; raise a usage error for conflicting options."""
    if options.engine != "ray" and (options.address is not None or options.num_gpus is not None):
        raise click.UsageError("--address and --num-gpus apply only to Ray: add --engine ray")
    if options.engine == "ray":
        from ragembed.distributed.ray_workers import RayWorkers

        return RayWorkers(options.address, workers=options.workers, gpus=options.num_gpus or 0.0)
    if options.workers is None:
        if options.engine is not None:
            raise click.UsageError("--engine processes applies only to worker processes: add --workers N")
        return None
    from ragembed.distributed.workers import ProcessWorkers

    return ProcessWorkers(options.workers)


def _kept(store: Path, *, has_workers: bool) -> str:
    """Return what an interrupted run has kept, and what to do."""
    if has_workers:
        return "finished tasks are kept; run the same command to continue"
    if not is_store(store):
        return "nothing was saved"
    with Store.open(store) as opened:
        kept = f"{counted(len(opened), 'chunk')}, and vectors for {int(100 * opened.vector_share)} % of them"
    return f"{kept}, are kept; run the same command to continue"


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


def _watch(request: IndexingRequest, progress: StderrProgress, output: str, *, poll: bool, wait_seconds: float) -> None:
    """Index as ``request`` says, then update the store after each change of a file, until a signal ends the process."""
    from ragembed.indexes.indexing.watch import Watcher

    stop = threading.Event()

    def terminate(_signal: int, _frame: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    def show(report: IndexingReport) -> None:
        scan = report.scan
        if not (scan.added or scan.changed or scan.removed):
            return
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        whole = {"time": now, **report.to_dict()}
        names = ("time", "added", "changed", "removed", "chunks", "encoded", "seconds")
        if not print_record({name: whole[name] for name in names}, output if output == "text" else "jsonl"):
            say(
                f"{now}  {counted(len(scan.added), 'file')} added, {len(scan.changed):,} changed, "
                f"{len(scan.removed):,} removed; {counted(report.chunks, 'chunk')}; {report.seconds:.1f} s"
            )

    watcher = Watcher(
        request.store,
        request.paths,
        device=request.device,
        opened=request.opened,
        first_run=lambda: index_files(request, progress, wait_seconds=wait_seconds),
        poll=poll,
        progress=progress,
        on_run=show,
        on_note=lambda text: say(f"note: {text}", err=True),
    )
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        watcher.run(stop)
    except KeyboardInterrupt:
        progress.finish()
        if not stop.is_set():
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED_EXIT) from None
    finally:
        signal.signal(signal.SIGTERM, before)
