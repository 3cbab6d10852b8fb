"""The plan and the work folder of a run with workers, and their tasks: read a share, write a store, finish it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ragembed.config.fields import from_json
from ragembed.config.settings import EmbedderConfig
from ragembed.distributed.workers import TaskReport
from ragembed.documents.discovery import FileCandidate
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place, absolute
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.files import make_folders, publish, replace_file, write_file
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing.fitting import Fit, finish_store
from ragembed.indexes.indexing.index_run import finish_files, slow_model, write_files
from ragembed.indexes.indexing.request import IndexingOptions, next_request
from ragembed.indexes.indexing.scan import ChunkedFiles, Scan, Scanner, Spool, spooled
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.embedders import queries_of, query_arrays
from ragembed.indexes.storage.folders import PLAN, WorkFolder, temporary_folder
from ragembed.indexes.storage.layout import NamesInStore, source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord
from ragembed.progress import SilentProgress
from ragembed.tensor_map import map_tensors

READ, WRITE, FINISH = STAGES = ("read", "write", "finish")
"""The stages, each with one task per store."""

TASKS = "tasks"
"""What to do with each store: its path, the number of its share, its scan, and the requested index."""


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """The files and settings of a run.

    ``id`` distinguishes plans with the same settings. ``store`` is the absolute path of the first store. ``config`` is
    the configuration of the embedder without post-processors; settings that depend on the machine are resolved.
    ``shares`` has the number of files in the share of each store, and ``digest`` is a hash of all of them. Token counts
    for a new fit are made while files are read if ``is_new``.
    """

    id: str
    store: str
    paths: list[str]
    gone: list[str]
    options: Mapping[str, Any]
    config: dict[str, Any]
    shares: list[int]
    digest: str
    is_new: bool

    @property
    def files(self) -> int:
        """Number of files to read."""
        return sum(self.shares)


class Work:
    """Reads and writes the files of a work folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = WorkFolder(folder)

    # The plan

    def begin(
        self,
        store: Path,
        places: tuple[Sequence[Place], Sequence[Place]],
        options: IndexingOptions,
        embedder: Embedder,
        shares: Sequence[Sequence[FileCandidate]],
        known: Mapping[str, SourceRecord],
    ) -> WorkPlan:
        """Write a plan to read the files of each store, found in the paths ``places``, which exist or are gone.

        ``known`` are the files in the stores, by name. If the same run was interrupted while it made the stores, its
        plan holds.
        """
        paths, gone = ([absolute(place) for place in group] for group in places)
        # Post-processors are fitted after all texts are encoded, so the configuration of the plan has none.
        config = embedder.resolved_config().replace(postprocess=(), query_fit="shared")
        # A plan is compared with one that was read from JSON, which has lists in place of tuples.
        wanted, settings = json.loads(json.dumps([options.to_dict(), config.to_dict()]))
        listed = json.dumps([[file.to_dict() for file in share] for share in shares])
        plan = WorkPlan(
            id=uuid.uuid4().hex,
            store=str(store.absolute()),
            paths=paths,
            gone=gone,
            options=wanted,
            config=settings,
            shares=[len(share) for share in shares],
            digest=hashlib.sha256(listed.encode()).hexdigest(),
            is_new=not known,
        )
        former = self.find_plan()
        if former is not None and not known and replace(plan, id=former.id) == former:
            return former
        self.files.restart()
        for name in ("files", TASKS, *STAGES):
            make_folders(self.folder / name)
        names = NamesInStore(store)
        for number, share in enumerate(shares):
            sources = (known.get(names.of(file.path)) for file in share)
            pairs = zip(share, sources, strict=True)
            lines = [json.dumps([file.to_dict(), None if known is None else asdict(known)]) for file, known in pairs]
            replace_file(self._listed(number), "\n".join(lines).encode())
        self.files.write_plan(asdict(plan))
        return plan

    def find_plan(self) -> WorkPlan | None:
        """Return the plan, or None if there is no complete plan."""
        fields = self.files.read_plan()
        return WorkPlan(**fields) if fields else None

    @cached_property
    def plan(self) -> WorkPlan:
        """The plan, which must exist before any task runs."""
        plan = self.find_plan()
        if plan is None:
            raise ConfigError(f"{self.folder} has no {PLAN}: it was removed during the run; run the command again")
        return plan

    @cached_property
    def options(self) -> IndexingOptions:
        """The options for reading and chunking."""
        return from_json(IndexingOptions, self.plan.options)

    def candidates(self, share: int) -> tuple[list[FileCandidate], dict[str, SourceRecord]]:
        """Return the files of a share, and those that a store contained when the plan was made, by name."""
        pairs = [json.loads(line) for line in self._listed(share).read_text(encoding="utf-8").splitlines()]
        sources = [SourceRecord(**source) for _, source in pairs if source is not None]
        return [FileCandidate.from_dict(file) for file, _ in pairs], {source.path: source for source in sources}

    def _listed(self, share: int) -> Path:
        return self.folder / "files" / f"{share:05}.jsonl"

    # Tasks

    def output(self, stage: str, number: int) -> Path:
        """Return the file that a task writes, or the folder for a reading task."""
        return self.folder / stage / (f"{number:05}" if stage == READ else f"{number:05}.json")

    def missing(self, stage: str, tasks: int) -> list[int]:
        """Return the numbers of the unfinished tasks of a stage with ``tasks`` tasks."""
        finished = {entry.name for entry in (self.folder / stage).iterdir()}
        return [number for number in range(tasks) if self.output(stage, number).name not in finished]

    def write_json(self, stage: str, number: int, fields: Mapping[str, object]) -> None:
        """Write the result of a task, or of ``TASKS``."""
        replace_file(self.output(stage, number), json.dumps(fields).encode())

    def read_json(self, stage: str, number: int) -> Any:
        """Return the result of a task, or of ``TASKS``."""
        return json.loads(self.output(stage, number).read_bytes())

    def forget(self, number: int) -> None:
        """Remove the results of the tasks of a store."""
        for stage in (WRITE, FINISH):
            self.output(stage, number).unlink(missing_ok=True)

    def write_count(self, stage: str, number: int, count: int) -> None:
        """Write the number of files or chunks that a task has processed so far."""
        replace_file(self._count(stage, number), str(count).encode())

    def count(self, stage: str, numbers: Iterable[int]) -> int:
        """Return the number of files or chunks that the tasks ``numbers`` have processed so far."""
        total = 0
        for number in numbers:
            with suppress(FileNotFoundError):
                total += int(self._count(stage, number).read_bytes())
        return total

    def _count(self, stage: str, number: int) -> Path:
        return self.folder / stage / f"{number:05}.count"

    # What all stores have in common

    def write_fit(self, fit: Fit) -> None:
        """Write the fit that all stores will use."""
        fit.embedder.save(self.folder / "common")
        write_arrays(self._queries, {"none": np.zeros(0)} if fit.queries is None else query_arrays(fit.queries))

    def fit(self, device: str | None) -> Fit | None:
        """Return the fit that all stores will use, or None if they keep theirs."""
        if not self.has_fit():
            return None
        arrays = map_tensors(self._queries)
        queries = None if "none" in arrays else queries_of(arrays)
        return Fit(Embedder.load(self.folder / "common", device=device), queries)

    def has_fit(self) -> bool:
        """Return whether the stores will use a new fit."""
        return self._queries.exists()

    @property
    def _queries(self) -> Path:
        return self.folder / "common" / "queries.safetensors"


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file atomically."""
    from safetensors.numpy import save

    replace_file(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


STORE_SECONDS = 60.0
"""Time to wait for another process that writes to a store of a collection."""

MOST_DEATHS = 3
"""Number of workers that may die while they read a file. After that, the file is skipped."""

_SPOOL, _ABOUT, _FIT = "spool.jsonl", "share.json", "fit.safetensors"


class Worker:
    """Performs tasks on one work folder with the device ``device``, and keeps the model between tasks."""

    def __init__(self, work: Path, device: str | None = None) -> None:
        self._work = Work(work)
        self._device = device

    def __call__(self, stage: str, number: int) -> TaskReport:
        """Perform one task of a stage, unless its output exists."""
        started = time.monotonic()
        seconds, items = 0.0, 0
        if not self._work.output(stage, number).exists():
            if stage == READ:
                items = read_share(self._work, self._unfitted, number)
            else:
                items = (write_share if stage == WRITE else finish_share)(self._work, number, self._device)
            self._work.write_count(stage, number, items)
            seconds = time.monotonic() - started
        return TaskReport(number, items, seconds, _peak_memory(), f"{socket.gethostname()}:{os.getpid()}")

    @cached_property
    def _unfitted(self) -> Embedder:
        """A new embedder with the configuration of the plan."""
        return Embedder(EmbedderConfig.from_dict(self._work.plan.config), device=self._device, download=False)


def _peak_memory() -> float:
    """Return the peak memory of this process in MiB, or 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123  a path of the system
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0


# Reading


def read_share(work: Work, embedder: Embedder, number: int) -> int:
    """Write the chunks of a share, and what they contribute to the fit of new stores; return the number of files.

    Files during which ``MOST_DEATHS`` workers died are left out.
    """
    store = Path(work.plan.store)
    files, known = work.candidates(number)
    scanner = Scanner(store, work.options, known, embedder.tokenizer, embedder.text_tokens)
    final = work.output(READ, number)
    trial, counted = _ReadingRecord(final.with_name(f"{final.name}.trying")), _Counted(work, READ, number, "reading")
    # Another worker that is only unreachable may still be reading the same share, so the temporary folder is unique.
    temporary = temporary_folder(final.with_name(f"{final.name}.{uuid.uuid4().hex}"))
    result = Scan()
    counted.start("reading", "files", len(files))
    with Spool(temporary / _SPOOL) as spool:
        for file in files:
            name = source_path(file.path, store)
            if (deaths := trial.deaths.get(name, 0)) >= MOST_DEATHS:
                result.skipped[name] = f"{deaths} processes died while they read it"
                continue
            with trial.of(name):
                scanner.read([file], result, spool)
            counted.advance(1)
        if work.plan.is_new and spool.chunks:
            write_arrays(temporary / _FIT, embedder.part_of_fit(spool.texts()))
    trial.write(None)
    write_file(temporary / _ABOUT, json.dumps({"scan": result.to_dict(), "chunks": spool.chunks}).encode())
    try:
        publish(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(temporary)  # another worker has finished the same share first
    trial.file.unlink(missing_ok=True)
    return len(files)


class _ReadingRecord:
    """Records the file that is being read in a file on disk. If the process dies, the next one knows the cause."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.deaths: dict[str, int] = {}
        try:
            record = json.loads(file.read_bytes())
        except (FileNotFoundError, ValueError):  # no record, or an incomplete one
            return
        self.deaths = record["deaths"]
        if (name := record["reading"]) is not None:
            self.deaths[name] = self.deaths.get(name, 0) + 1

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self.write(name)
        try:
            yield
        except BaseException:  # an interruption or an exception does not count as a death
            self.write(None)
            raise

    def write(self, name: str | None) -> None:
        write_file(self.file, json.dumps({"reading": name, "deaths": self.deaths}).encode())


class ShareFiles(ChunkedFiles):
    """The chunked files of a share, and the result of reading it, ``scan``."""

    def __init__(self, work: Work, number: int) -> None:
        self._folder = work.output(READ, number)
        about = json.loads((self._folder / _ABOUT).read_bytes())
        self.scan, self.chunks = from_json(Scan, about["scan"]), about["chunks"]

    @override
    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        with (self._folder / _SPOOL).open(encoding="ascii") as lines:
            yield from spooled(lines)

    def part_of_fit(self) -> Mapping[str, NDArray[Any]]:
        """Return what the texts contribute to a fit."""
        return dict(map_tensors(self._folder / _FIT))


# Stores


class _Counted(SilentProgress):
    """Writes the number of files or chunks that a task has processed in ``phase`` to the work folder.

    It does so at most once per second; at the end, the worker writes the number of the whole task.
    """

    def __init__(self, work: Work, stage: str, number: int, phase: str) -> None:
        self._work, self._stage, self._number, self._phase = work, stage, number, phase
        self._done, self._written, self._is_counted = 0, time.monotonic(), False

    @override
    def start(self, phase: str, unit: str, total: int | None) -> None:
        self._is_counted = phase == self._phase

    @override
    def advance(self, count: int, detail: str = "") -> None:
        self._done += count if self._is_counted else 0
        if time.monotonic() - self._written >= 1:
            self._written = time.monotonic()
            self._work.write_count(self._stage, self._number, self._done)


def write_share(work: Work, number: int, device: str | None) -> int:
    """Encode a share, write it into its store after what was committed before, and return the number of chunks."""
    task, options = work.read_json(TASKS, number), work.options
    files, scan = ShareFiles(work, task["share"]), from_json(Scan, task["scan"])
    with Store.open(task["store"], device=device) as store, store.writer(STORE_SECONDS) as writer:
        part = from_json(PartRecord, writer.meta(PART))
        if (request := next_request(part.indexing, scan.roots, scan.gone, options)) != part.indexing:
            writer.set_meta({PART: asdict(replace(part, indexing=request))})
        progress = _Counted(work, WRITE, number, "embedding")
        encoded, devices = write_files(store, writer, files, scan, progress, store.sources())
        warnings = slow_model(store, encoded, fitted=False)
    work.write_json(WRITE, number, {"encoded": encoded, "devices": devices, "warnings": warnings})
    return files.chunks


def finish_share(work: Work, number: int, device: str | None) -> int:
    """Make a store use the fit of all stores, if there is one, and build its index. Return the number of chunks."""
    task, silent = work.read_json(TASKS, number), SilentProgress()
    index = None if task["index"] is None else IndexConfig.from_dict(task["index"])
    with Store.open(task["store"], device=device) as store, store.writer(STORE_SECONDS) as writer:
        if (fit := work.fit(device)) is not None:
            fit.adopt(writer, silent)
        finish_files(writer)
        warnings = finish_store(store, writer, silent, index=index, for_collection=True)
        chunks = len(store)
    work.write_json(FINISH, number, {"chunks": chunks, "warnings": warnings})
    return chunks
