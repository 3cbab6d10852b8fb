"""An indexing run in stages. Each stage is a number of tasks for a pool of workers, with files between the stages.

The driver process combines the results of each stage. It writes the store in the same way as a run in one process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from ragembed.distributed import stages
from ragembed.distributed.stages import ChunkedShards, EncodedBlocks, Worker, plan_blocks, read_blocks, write_blocks
from ragembed.distributed.work import EMBED, FIT, READ, WRITE, Work, make_plan
from ragembed.distributed.workers import TaskReport, WorkerPool
from ragembed.documents.boilerplate import Stripper
from ragembed.documents.places import absolute, from_absolute
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.indexes.indexing.backend import ChunkedFiles, Known, RunEncoder, Sources, StageReport
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import IndexingReport, index_files
from ragembed.indexes.indexing.scan import Scan
from ragembed.indexes.storage.layout import WORK, is_store, make_folder
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.types import Progress
from ragembed.types import Floats


def index_with_workers(
    request: IndexingRequest,
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    work: Path | None = None,
    shards: int | None = None,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Update a store like :func:`ragembed.indexes.indexing.run.index_files`, but with workers.

    The resulting store is the same as with one process: the same chunks with the same ids in the same order, and the
    same fit.

    Parameters
    ----------
    request
        The store, the files and the settings of the run.
    pool
        The workers that perform the tasks.
    progress
        Receives the progress of each stage.
    work
        Work folder for the files between the stages, by default the folder ``work`` in the store. If a run is
        interrupted, the next run continues from the files in it. Files that ragembed did not write are kept, and so is
        a folder that existed before the run.
    shards
        Number of shards into which the files are divided. By default, it depends on their total size.
    wait_seconds
        Time to wait for another process that is writing to the store.

    Raises
    ------
    ConfigError
        If the work folder is inside the store, or contains other files and no plan.
    WorkerLostError
        If workers that perform the same task die repeatedly.
    RagembedError
        Any other error of :func:`~ragembed.indexes.indexing.run.index_files`.
    """
    folder = (work or request.store / WORK).absolute()
    store = request.store.absolute()
    if folder == store or (store in folder.parents and folder != store / WORK):
        raise ConfigError(f"the work folder {folder} is inside the store {store}: choose another folder with --work")
    made_store_folder = not request.store.exists()
    keep_folder = work is not None and folder.exists()
    backend = DistributedBackend(folder, pool, shards, request.device, keep_folder=keep_folder)
    try:
        return index_files(request, progress, wait_seconds=wait_seconds, backend=backend)
    finally:
        if made_store_folder and not is_store(request.store):
            with suppress(OSError):  # the folder does not exist, or contains the work of an interrupted run
                request.store.rmdir()


@contextmanager
def _following(progress: Progress, count: Callable[[], int]) -> Iterator[None]:
    """Advance ``progress`` to the number that ``count`` returns, every second."""
    done = threading.Event()

    def follow() -> None:
        before = 0
        while not done.wait(1):
            now = max(count(), before)
            progress.advance(now - before)
            progress.keep(now - before)
            before = now

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class DistributedBackend:
    """Reads, fits and encodes with a pool of workers.

    Implements :class:`ragembed.indexes.indexing.backend.IndexingBackend`.

    Parameters
    ----------
    folder
        Work folder. All workers must be able to read and write it.
    pool
        The workers that perform the tasks.
    shards
        Number of shards into which the files are divided. By default, it depends on their total size.
    device
        Device on which workers encode.
    keep_folder
        If true, the empty work folder is kept after the run.
    """

    writing = "storing"

    def __init__(
        self,
        folder: Path,
        pool: WorkerPool,
        shards: int | None = None,
        device: str | None = None,
        *,
        keep_folder: bool = False,
    ) -> None:
        self.work = Work(folder)
        self._pool = pool
        self._shards = shards
        self._keep_folder = keep_folder
        self._worker = partial(Worker, folder, device)
        self._reports: list[StageReport] = []
        self._something_to_keep = True
        self._open = ExitStack()
        self._prepared: tuple[Embedder, EncodedBlocks] | None = None

    @property
    def resume_token(self) -> str | None:
        """The id of the plan, or None if there is no plan yet."""
        plan = self.work.find_plan()
        return None if plan is None else plan.id

    @property
    def reports(self) -> Sequence[StageReport]:
        """The reports of the stages so far."""
        return self._reports

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices on which a worker encodes. Empty if no texts were encoded."""
        return () if self._prepared is None else self._prepared[0].device_names()

    def scan(self, sources: Sources, progress: Progress) -> tuple[ChunkedFiles, Scan]:
        """Make a plan, or reuse the plan of an interrupted run, and read all shards."""
        # Workers may have a different working directory, so paths must be absolute.
        sources = replace(sources, paths=[from_absolute(absolute(path)) for path in sources.paths])
        scanner = sources.scanner()
        plan, scan = make_plan(self.work, sources, self._shards, progress)
        self.perform(READ, plan.shards, "reading", "files", plan.files, progress)
        self._chunked = ChunkedShards(self.work)
        scan.add(self._chunked.scan())
        scanner.finish(scan)
        self._something_to_keep = self._chunked.files > 0
        return self._chunked, scan

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Collect the statistics of all ranges of chunks, and fit ``embedder`` on their sums."""
        chunks = self._count(stripper, progress)
        embedder._fit_parts(stages.parts(self.work, chunks), chunks)

    def _count(self, stripper: Stripper, progress: Progress) -> int:
        """Collect the statistics of all ranges of chunks. Return the number of chunks."""
        chunks = self._chunked.chunks
        if not self.work.boilerplate_file.exists():
            self.work.write_boilerplate(stripper.found)
        self.perform(FIT, stages.ranges(chunks), "fitting", "chunks", chunks, progress)
        return chunks

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:
        """Encode all blocks of texts with workers. Later, ``embedder`` encodes texts that are in no block."""
        chunks = self._count(stripper, progress)
        if not self.work.blocks_file.exists():
            embedder.save(self.work.fitted)
            hashes = stages.hashes(self.work, chunks)
            write_blocks(self.work, plan_blocks(self._chunked.sizes.tolist(), hashes, known))
        blocks = read_blocks(self.work)
        self.perform(EMBED, len(blocks), "embedding", "chunks", len(blocks.chunks), progress)
        self._prepared = embedder, EncodedBlocks(self.work, blocks)

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of ``texts``, from their block if there is one, otherwise encoded in this process."""
        assert self._prepared is not None, "prepare must be called before encode"  # noqa: S101  the run ensures it
        embedder, encoded = self._prepared
        raw = encoded.raw(texts)
        if raw is None:
            yield from RunEncoder(embedder).parts(texts, progress)
            return
        if progress is not None:
            progress(len(texts))
        yield raw

    def perform(self, stage: str, tasks: int, phase: str, unit: str, items: int, progress: Progress) -> None:
        """Perform those tasks of a stage that have no output yet, and report the stage."""
        missing = self.work.missing(stage, tasks)
        if not missing:
            return
        started = time.monotonic()
        done: list[TaskReport] = []
        progress.start(phase, unit, items)
        if stage == WRITE:
            with _following(progress, lambda: self.work.count(missing)):
                done = list(self._pool.run(self._worker, stage, missing))
        else:
            for one in self._pool.run(self._worker, stage, missing):
                progress.advance(one.items)
                done.append(one)
        progress.finish()
        seconds, busy = time.monotonic() - started, sum(one.seconds for one in done)
        worked, memory = sum(one.items for one in done), max(one.memory for one in done)
        self._reports.append(StageReport(stage, len(done), worked, seconds, busy, memory))

    def __enter__(self) -> DistributedBackend:
        self.work.files.require_ours()
        make_folder(self.work.folder)
        self._open.enter_context(writer_lock(self.work.folder, work=True))
        self._open.enter_context(self._pool)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not self._something_to_keep:
            self.work.files.clear()
        self._open.close()
        self.work.files.leave(remove=not self._keep_folder)
