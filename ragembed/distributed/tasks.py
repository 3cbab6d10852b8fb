"""The tasks of workers: read a part of the files, count the tokens of a store, write the store, and finish it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
from typing_extensions import override

from ragembed.distributed.work import FINISH, FIT, READ, WRITE, Work, write_arrays
from ragembed.distributed.workers import TaskReport
from ragembed.documents.boilerplate import Stripper
from ragembed.documents.model import Chunk
from ragembed.embedder import Embedder
from ragembed.files import publish, write_file
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing.file_writing import finish_files, slow_model, write_files
from ragembed.indexes.indexing.fitting import finish_store
from ragembed.indexes.indexing.request import next_request
from ragembed.indexes.indexing.scan import ChunkedFiles, Scan, Scanner, Spool, spooled
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import temporary_folder
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord
from ragembed.indexes.writing.boilerplate_store import strip_all
from ragembed.progress import SilentProgress

STORE_SECONDS = 60.0
"""Time to wait for another process that writes to a store of a collection."""

MOST_DEATHS = 3
"""Number of workers that may die while they read a file. After that, the file is skipped."""

_SPOOL, _PART = "spool.jsonl", "part.json"
_KEY = np.dtype("<u8")


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
            items = self._perform(stage, number)
            seconds = time.monotonic() - started
        return TaskReport(number, items, seconds, _peak_memory(), f"{socket.gethostname()}:{os.getpid()}")

    def _perform(self, stage: str, number: int) -> int:
        if stage == READ:
            return read_part(self._work, self._unfitted, number)
        if stage == FIT:
            return count_share(self._work, self._unfitted, number)
        return (write_share if stage == WRITE else finish_share)(self._work, number, self._device)

    @cached_property
    def _unfitted(self) -> Embedder:
        return self._work.unfitted(self._device)


def _peak_memory() -> float:
    """Return the peak memory of this process in MiB, or 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123  a path of the system
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0


# Reading


def read_part(work: Work, embedder: Embedder, part: int) -> int:
    """Write chunks of a part, except of files during which ``MOST_DEATHS`` workers died; return the number of files."""
    store = Path(work.plan.store)
    files, known = work.candidates(part)
    scanner = Scanner(store, work.options, known, embedder.tokenizer, embedder.text_tokens)
    final = work.output(READ, part)
    trial = _ReadingRecord(final.with_name(f"{final.name}.trying"))
    # Another worker that is only unreachable may still be reading the same part, so the temporary folder is unique.
    temporary = temporary_folder(final.with_name(f"{final.name}.{uuid.uuid4().hex}"))
    result = Scan()
    with Spool(temporary / _SPOOL) as spool:
        for file in files:
            name = source_path(file.path, store)
            if (deaths := trial.deaths.get(name, 0)) >= MOST_DEATHS:
                result.skipped[name] = f"{deaths} processes died while they read it"
                continue
            with trial.of(name):
                scanner.read([file], result, spool)
    trial.write(None)
    lines = [
        (name, sha256, base64.b64encode(keys.astype(_KEY).tobytes()).decode())
        for name, (sha256, keys) in spool.lines.items()
    ]
    about = {"scan": result.to_dict(), "chunks": spool.chunks, "lines": lines}
    write_file(temporary / _PART, json.dumps(about).encode())
    try:
        publish(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(temporary)  # another worker has finished the same part first
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


class PartFiles(ChunkedFiles):
    """The chunked files of parts. ``sizes`` are the numbers of chunks of the parts, and ``scan`` their joint result."""

    def __init__(self, work: Work, parts: Iterable[int]) -> None:
        super().__init__()
        self._folders = [work.output(READ, part) for part in parts]
        self.scan = Scan()
        self.sizes: list[int] = []
        for folder in self._folders:
            about = json.loads((folder / _PART).read_bytes())
            self.scan.add(Scan.from_dict(about["scan"]))
            self.sizes.append(int(about["chunks"]))
            for name, sha256, keys in about["lines"]:
                self.lines[name] = sha256, np.frombuffer(base64.b64decode(keys), _KEY).astype(np.uint64)
        self.chunks = sum(self.sizes)

    @override
    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        for folder in self._folders:
            with (folder / _SPOOL).open(encoding="ascii") as lines:
                yield from spooled(lines)


# Stores


def count_share(work: Work, embedder: Embedder, number: int) -> int:
    """Write what the files of a new store contribute to the fit. Return the number of chunks."""
    files, stripper = PartFiles(work, work.share(number)["parts"]), Stripper(work.boilerplate() or {})
    texts = (chunk.embedded_text for source, chunks in files for chunk in strip_all(stripper, source, chunks))
    write_arrays(work.output(FIT, number), embedder._part_of_fit(texts))
    return files.chunks


class _CountedChunks(SilentProgress):
    """Writes the number of chunks that are encoded to the work folder, at most once per second."""

    def __init__(self, work: Work, number: int) -> None:
        self._work, self._number = work, number
        self._done, self._written = 0, time.monotonic()

    @override
    def advance(self, count: int, detail: str = "") -> None:
        self._done += count
        if time.monotonic() - self._written >= 1:
            self._written = time.monotonic()
            self._work.write_count(self._number, self._done)


def write_share(work: Work, number: int, device: str | None) -> int:
    """Encode a share, write it into its store after what was committed before, and return the number of chunks."""
    share, options = work.share(number), work.options
    files, scan = PartFiles(work, share["parts"]), Scan.from_dict(share["scan"])
    with Store.open(share["store"], device=device) as store, store.writer(STORE_SECONDS) as writer:
        part = PartRecord.from_dict(writer.meta(PART))
        if (request := next_request(part.indexing, scan.roots, scan.gone, options)) != part.indexing:
            writer.set_meta({PART: PartRecord(part.collection, part.stores, request).to_dict()})
        plan = writer.plan_stripping(files.lines, scan.removed, options.boilerplate, work.boilerplate())
        progress = _CountedChunks(work, number)
        encoded, devices = write_files(store, writer, files, scan, plan, progress, store.sources())
        warnings = slow_model(store, encoded, fitted=False)
    work.write_result(WRITE, number, {"encoded": encoded, "devices": devices, "warnings": warnings})
    return files.chunks


def finish_share(work: Work, number: int, device: str | None) -> int:
    """Make a store use the fit of all stores, if there is one, and build its index. Return the number of chunks."""
    share, silent = work.share(number), SilentProgress()
    index = None if share["index"] is None else IndexConfig.from_dict(share["index"])
    with Store.open(share["store"], device=device) as store, store.writer(STORE_SECONDS) as writer:
        if (fit := work.fit(device)) is not None:
            fit.adopt(writer, silent)
        finish_files(writer, work.options.boilerplate)
        warnings = finish_store(store, writer, silent, index=index, for_collection=True)
        chunks = len(store)
    work.write_result(FINISH, number, {"chunks": chunks, "warnings": warnings})
    return chunks
