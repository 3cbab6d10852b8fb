"""A collection's stores, written in parallel: each worker writes a store of its own, and all stores share one fit.

A first run writes the stores below a hidden folder, and renames this folder when all of them are complete, so a part of
a collection is never visible. A later run writes each changed file to the store that has it, and divides new files so
that the stores have similar numbers of chunks.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from heapq import heapify, heapreplace
from pathlib import Path

from ragembed.distributed.tasks import FINISH, READ, STORE_SECONDS, TASKS, WRITE, ShareFiles, Work, Worker
from ragembed.distributed.workers import TaskReport, WorkerPool
from ragembed.documents.discovery import FileCandidate
from ragembed.documents.places import absolute, from_absolute
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, StoreError
from ragembed.files import sync
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import IndexingReport, IndexRun, StageReport
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.scan import Scan, Scanner, check_scan, sort_paths
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import WorkFolder, require_own
from ragembed.indexes.storage.layout import WORK, is_store, make_folder, require_writable
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord
from ragembed.progress import Progress, SilentProgress
from ragembed.resources import configure_torch


def create_members(
    request: IndexingRequest,
    members: int,
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Create the stores of a collection, each in a worker of its own; with ``dry_run``, only report the work.

    The stores are called ``1``, ``2`` and so on, in the folder ``request.store``, which must be missing or empty; there
    are ``members``, or fewer if there are fewer files. They share one embedder, and appear when all of them are
    complete. The next run continues an interrupted one.

    Raises :class:`StoreError` if the folder holds anything, :class:`WorkerLostError` if workers that perform the same
    task die repeatedly, and errors of :func:`~ragembed.indexes.indexing.index_run.index_files`.
    """
    if members < 1:
        raise ConfigError(f"members is {members}: expected 1 or more stores")
    folder = request.store.absolute()
    unfinished = folder.with_name(f".{folder.name.lstrip('.')}.unfinished")
    require_writable(folder)
    _require_free(folder)
    _require_own(unfinished)
    configure_torch()
    # Names of files are relative to the folder that holds a store, so they are the same for all stores.
    run = IndexRun(replace(request, store=unfinished / "1"), None, progress or SilentProgress())
    if dry_run:
        return run.preview(())
    try:
        with _driver(run, pool, wait_seconds, keep=True) as driver:
            embedder = run.embedder(None)
            files, scan = driver.read(embedder, {}, {}, [0] * members)
            chunks = sum(share.chunks for share in files)
            run.require_files(embedder, chunks, scan)
            used = [number for number, share in enumerate(files) if share.chunks]
            stores = {share: unfinished / str(number) for number, share in enumerate(used, 1)}
            driver.share(stores, scan, {})
            embedder.fit_parts((files[number].part_of_fit() for number in used), chunks)
            _make_stores(driver, list(stores.values()), embedder)
            report = driver.write(list(stores.values()), chunks, 0, scan, wait_seconds)
    except BaseException:
        with suppress(OSError):  # The folder does not exist, or holds what the next run continues.
            unfinished.rmdir()
        raise
    _require_free(folder)  # Check again: another process may have written there meanwhile.
    unfinished.rename(folder)
    sync(folder.parent)
    return report


def update_members(
    request: IndexingRequest,
    stores: Sequence[Path],
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Update the stores of a collection after their files changed; with ``dry_run``, only report the work.

    ``stores`` are the folders of all stores that :func:`create_members` has made, beside each other. ``request.store``
    is not used. Raises :class:`ConfigError` if the stores are not all of a collection, or have different embedders, and
    errors of :func:`create_members`.
    """
    configure_torch()
    with ExitStack() as stack:
        opened = [stack.enter_context(Store.open(path.absolute(), device=request.device)) for path in stores]
        _require_together(opened)
        run = IndexRun(replace(request, store=opened[0].path), opened[0], progress or SilentProgress())
        if dry_run:
            return run.preview(opened)
        with _driver(run, pool, wait_seconds, keep=False) as driver:
            embedders = [run.embedder(store) for store in opened]
            if len({embedder.raw_fingerprint for embedder in embedders}) > 1:
                raise ConfigError(
                    f"the stores in {opened[0].path.parent} have different embedders: make them equal with 'ragembed "
                    "collection refit NAME', then index again"
                )
            known, owners = _known(opened)
            loads = [sum(source.size for source in store.sources().values()) for store in opened]
            files, scan = driver.read(embedders[0], known, owners, loads)
            paths, before = [store.path for store in opened], sum(len(store) for store in opened)
            driver.share(dict(enumerate(paths)), scan, owners)
            for store in opened:
                # SQLite's log works for processes of one machine only, and workers may be on others.
                store.close()
            return driver.write(paths, sum(share.chunks for share in files), before, scan, wait_seconds)


def stores_in(folder: Path) -> dict[str, Path]:
    """Return the stores in the folder of a collection by name; none if the folder does not exist."""
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if not entry.is_symlink() and is_store(entry)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: (len(entry.name), entry.name))}


_REMEDY = "choose another folder for the collection with --store"


def _require_free(folder: Path) -> None:
    """Raise :class:`StoreError` unless the folder is missing or empty."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: {_REMEDY}")
    for entry in folder.iterdir() if folder.exists() else ():
        raise StoreError(f"{folder} holds {entry.name!r}: expected a missing or empty folder; {_REMEDY}")


def _require_own(folder: Path) -> None:
    """Raise :class:`StoreError` unless the folder is missing, or holds only stores and a work folder of ragembed."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: {_REMEDY}")
    for entry in sorted(folder.iterdir()) if folder.exists() else ():
        if entry.name == WORK and WorkFolder(entry).is_ours():
            continue
        if not entry.is_dir() or entry.is_symlink():
            raise StoreError(f"{folder} holds {entry.name!r}, which is not a store of a collection: {_REMEDY}")
        require_own(entry, _REMEDY)


def _require_together(opened: Sequence[Store]) -> None:
    """Raise :class:`ConfigError` unless the stores are all parts of the same files, beside each other."""
    if not opened:
        raise ConfigError("there are no stores to update: expected those of a collection")
    if len({store.path.parent for store in opened}) > 1:
        raise ConfigError(
            f"{opened[0].path} and other stores of the collection are in different folders: update each store with "
            "'ragembed index --store STORE'"
        )
    parts = []
    for store in opened:
        if (part := store.part_record) is None:
            raise ConfigError(
                f"{store.path} was not made together with other stores: update it with 'ragembed index --store "
                f"{store.path}'"
            )
        parts.append(part)
    if len({part.collection for part in parts}) > 1:
        raise ConfigError(
            f"the stores of the collection in {opened[0].path.parent} were not made together: update each collection "
            "of stores that were with 'ragembed index --collection NAME'"
        )
    if len(parts) < parts[0].stores:
        raise ConfigError(
            f"some of the stores that were made together with {opened[0].path} are not in the collection: add them "
            "with 'ragembed collection add', because their files would be indexed again"
        )


class _Driver:
    """Runs the stages in one work folder, with one plan."""

    def __init__(self, run: IndexRun, work: Work, pool: WorkerPool) -> None:
        self.run, self.work = run, work
        self._pool = pool
        self._worker = partial(Worker, work.folder, run.request.device)
        self.reports: list[StageReport] = []

    def read(
        self, embedder: Embedder, known: Mapping[str, SourceRecord], owners: Mapping[str, int], loads: Sequence[int]
    ) -> tuple[list[ShareFiles], Scan]:
        """Make a plan, or continue that of an interrupted run, and read the files that differ from those ``known``.

        ``owners`` has the number of the store of each of these. New files go where ``loads``, the bytes of the files of
        each store, are lowest. Return the share of each store.
        """
        run, request, progress = self.run, self.run.request, self.run.progress
        paths, gone, notes = sort_paths(run.paths, request, known)
        # Workers may have a different working directory, so paths must be absolute.
        paths = [from_absolute(absolute(path)) for path in paths]
        scan = Scan.of(paths, gone, request.store)
        scanner = Scanner(request.store, run.options, known, embedder.tokenizer, embedder.text_tokens)
        progress.start("listing", "files", None)
        waiting = []
        for candidate in scanner.waiting(paths, scan, progress):
            waiting.append(candidate)
            progress.advance(1)
        progress.finish()
        shares = divide(waiting, [owners.get(scanner.name_of(file)) for file in waiting], loads)
        plan = self.work.begin(request.store, (paths, gone), run.options, embedder, shares, known)
        self.perform(READ, len(shares), "reading", "files", plan.files)
        files = [ShareFiles(self.work, number) for number in range(len(shares))]
        for share in files:
            scan.add(share.scan)
        scanner.finish(scan)
        scan.warnings += notes
        check_scan(scan, request, run.options.include)
        return files, scan

    def share(self, stores: Mapping[int, Path], scan: Scan, owners: Mapping[str, int]) -> None:
        """Write the task of each store: the number of the share that was read for it, and what else changes in it."""
        index = self.run.request.index
        for number, (share, path) in enumerate(stores.items()):
            own = Scan(
                removed=[name for name in scan.removed if owners[name] == number],
                touched=[source for source in scan.touched if owners[source.path] == number],
                skipped={} if number else scan.skipped,
                roots=scan.roots,
                gone=scan.gone,
            )
            task = {"store": str(path), "share": share, "scan": own.to_dict()}
            self.work.write_json(TASKS, number, {**task, "index": None if index is None else index.to_dict()})

    def perform(self, stage: str, tasks: int, phase: str, unit: str, items: int) -> None:
        """Perform those tasks of a stage that have no output yet, and report the stage."""
        missing, progress = self.work.missing(stage, tasks), self.run.progress
        if not missing:
            return
        started = time.monotonic()
        done: list[TaskReport] = []
        progress.start(phase, unit, items)
        with _following(progress, lambda: self.work.count(stage, missing)):
            done += self._pool.run(self._worker, stage, missing)
        progress.finish()
        seconds, busy = time.monotonic() - started, sum(report.seconds for report in done)
        worked, memory = sum(report.items for report in done), max(report.memory for report in done)
        self.reports.append(StageReport(stage, len(done), worked, seconds, busy, memory))

    def write(self, paths: Sequence[Path], chunks: int, before: int, scan: Scan, wait_seconds: float) -> IndexingReport:
        """Write the shares of ``chunks`` into the stores at ``paths``, which had ``before``, fit and finish them."""
        self.perform(WRITE, len(paths), "embedding", "chunks", chunks)
        scan.warnings += self._fit_if_needed(paths, wait_seconds)
        self.perform(FINISH, len(paths), "finishing", "chunks", chunks + before)
        results = [self.work.read_json(stage, number) for stage in (WRITE, FINISH) for number in range(len(paths))]
        scan.warnings += dict.fromkeys(warning for result in results for warning in result["warnings"])
        return IndexingReport(
            scan,
            sum(result.get("chunks", 0) for result in results),
            sum(result.get("encoded", 0) for result in results),
            time.monotonic() - self.run.started,
            tuple(dict.fromkeys(device for result in results for device in result.get("devices", ()))),
            stages=tuple(self.reports),
        )

    def _fit_if_needed(self, paths: Sequence[Path], wait_seconds: float) -> list[str]:
        """Fit the post-processors on all stores, if needed, for the workers; return warnings."""
        if self.work.has_fit():
            return []
        with ExitStack() as stack:
            opened = []
            for path in paths:
                store = stack.enter_context(Store.open(path, device=self.run.request.device))
                opened.append((store, stack.enter_context(store.writer(max(wait_seconds, STORE_SECONDS)))))
            fit, warnings = fitting.fit_if_needed(opened, self.run.progress)
        if fit is not None:
            self.work.write_fit(fit)
        return warnings


@contextmanager
def _driver(run: IndexRun, pool: WorkerPool, wait_seconds: float, *, keep: bool) -> Iterator[_Driver]:
    """Work in the folder of the first store; with ``keep``, an error leaves the files for the next run."""
    work = Work(run.request.store.parent / WORK if keep else run.request.store / WORK)
    work.files.require_ours()
    make_folder(work.folder)
    is_kept = False
    try:
        with writer_lock(work.folder, wait_seconds, work=True):
            try:
                with pool:
                    yield _Driver(run, work, pool)
            except BaseException:
                plan = work.find_plan()
                is_kept = keep and plan is not None and plan.files > 0
                raise
            finally:
                if not is_kept and work.files.is_ours():
                    work.files.clear()
    finally:
        work.files.leave()


@contextmanager
def _following(progress: Progress, count: Callable[[], int]) -> Iterator[None]:
    """Advance ``progress`` to the number that ``count`` returns, every second and at the end."""
    done = threading.Event()

    def follow() -> None:
        before, is_last = 0, False
        while not is_last:
            is_last = done.wait(1)
            now = max(count(), before)
            progress.advance(now - before)
            before = now

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _make_stores(driver: _Driver, paths: Sequence[Path], embedder: Embedder) -> None:
    """Create empty stores, except those that an interrupted run with the same plan has created."""
    folder, plan = driver.run.request.store.parent, driver.work.plan
    left = [path for path in folder.iterdir() if path.name != WORK and path not in paths]
    record = PartRecord(plan.id, len(paths), None)
    for number, path in enumerate(paths):
        if is_store(path):
            with Store.open(path) as store:
                if store.part_record is not None and replace(store.part_record, indexing=None) == record:
                    continue
        if path.exists():
            left.append(path)
        driver.work.forget(number)
    for path in left:
        require_own(path, _REMEDY)
        shutil.rmtree(path)
    new, config = fitting.without_fit(embedder), embedder.config
    about = {**fitting.wanted_record(config), PART: asdict(record)}
    for path in paths:
        if not path.exists():
            Store.create(path, new, about, language=driver.run.language).close()


def _known(opened: Sequence[Store]) -> tuple[dict[str, SourceRecord], dict[str, int]]:
    """Return the files of the stores, and the number of the store of each, by name."""
    known: dict[str, SourceRecord] = {}
    owners: dict[str, int] = {}
    for number, store in enumerate(opened):
        own = store.sources()
        if double := own.keys() & known.keys():
            raise ConfigError(
                f"two stores in {store.path.parent} have the file {min(double)}: delete it from one of them with "
                f"'ragembed delete --store {store.path}'"
            )
        known |= own
        owners |= dict.fromkeys(own, number)
    return known, owners


def divide(
    files: Sequence[FileCandidate], owners: Sequence[int | None], loads: Sequence[int]
) -> list[list[FileCandidate]]:
    """Divide files into one share for each store, in order. Files without an owner go where there are fewest bytes.

    ``loads`` are the bytes of the files that each store has already.
    """
    chosen = list(owners)
    lightest = [(load, number) for number, load in enumerate(loads)]
    heapify(lightest)
    new = [i for i, owner in enumerate(owners) if owner is None]
    for i in sorted(new, key=lambda i: -files[i].size):
        load, number = lightest[0]
        chosen[i] = number
        heapreplace(lightest, (load + files[i].size + 1, number))
    return [
        [file for file, owner in zip(files, chosen, strict=True) if owner == number] for number in range(len(loads))
    ]
