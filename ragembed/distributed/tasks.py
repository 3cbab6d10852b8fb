"""The tasks of workers: read a part of the files, count the tokens of a store, write the store, and finish it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
from typing_extensions import override

from ragembed.distributed.work import FINISH, FIT, READ, WRITE, Arrays, Work, read_arrays, write_arrays
from ragembed.distributed.workers import TaskReport
from ragembed.documents.boilerplate import LineKeys, Stripper
from ragembed.documents.discovery import FileCandidate
from ragembed.documents.model import Chunk
from ragembed.embedder import Embedder
from ragembed.files import publish, write_file
from ragembed.indexes.indexing.file_writing import finish_store, slow_model, write_files
from ragembed.indexes.indexing.request import next_request
from ragembed.indexes.indexing.scan import Scan, Scanner
from ragembed.indexes.indexing.spool import Spool, spooled
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import temporary_folder
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import SilentProgress, SourceRecord
from ragembed.indexes.writing.boilerplate_store import strip_all
from ragembed.types import Integers

STORE_SECONDS = 60.0
"""Time to wait for another process that writes to a store of a collection."""

MOST_DEATHS = 3
"""Number of workers that may die while they read a file. After that, the file is skipped."""

_SPOOL, _INDEX, _SCAN = "spool.jsonl", "index.safetensors", "scan.json"


class Worker:
    """Performs tasks on one work folder with the device ``device``, and keeps what it has loaded between tasks."""

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
            return read_part(self._work, self._scanner, number)
        if stage == FIT:
            return count_share(self._work, self._chunked, self._unfitted, number)
        if stage == WRITE:
            return write_share(self._work, self._chunked, number, self._device)
        return finish_share(self._work, number, self._device)

    @cached_property
    def _unfitted(self) -> Embedder:
        return Embedder(self._work.plan.embedder_config, device=self._device, download=False)

    @cached_property
    def _scanner(self) -> Scanner:
        plan, embedder = self._work.plan, self._unfitted
        room = embedder.text_tokens
        return Scanner(Path(plan.store), plan.indexing_options, self._work.known(), embedder.tokenizer, room)

    @cached_property
    def _chunked(self) -> ChunkedParts:
        return ChunkedParts(self._work)


def _peak_memory() -> float:
    """Return the peak memory of this process in MiB, or 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123  a path of the system
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0


# Reading


def read_part(work: Work, scanner: Scanner, part: int) -> int:
    """Write chunks of a part, except of files during which ``MOST_DEATHS`` workers died; return the number of files."""
    files = work.candidates(part)
    final = work.output(READ, part)
    trial = _ReadingRecord(final.with_name(f"{final.name}.trying"))
    # Another worker that is only unreachable may still be reading the same part, so the temporary folder is unique.
    temporary = temporary_folder(final.with_name(f"{final.name}.{uuid.uuid4().hex}"))
    result = Scan()
    with Spool(temporary / _SPOOL) as spool:
        for file in files:
            _read_one(work, scanner, file, result, spool, trial)
    trial.pause()
    keys = [keys for _, keys in spool.lines.values()]
    write_arrays(
        temporary / _INDEX,
        {
            "starts": np.array(spool.starts, dtype=np.int64),
            "sizes": np.array(spool.sizes, dtype=np.int64),
            "key_counts": np.array([len(each) for each in keys], dtype=np.int64),
            "keys": np.concatenate([np.empty(0, np.uint64), *keys]).view(np.int64),
        },
    )
    contents = [(path, sha256) for path, (sha256, _) in spool.lines.items()]
    write_file(temporary / _SCAN, json.dumps({"scan": result.to_dict(), "contents": contents}).encode())
    try:
        publish(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(temporary)  # another worker has finished the same part first
    trial.remove()
    return len(files)


def _read_one(
    work: Work, scanner: Scanner, file: FileCandidate, result: Scan, spool: Spool, trial: _ReadingRecord
) -> None:
    name = source_path(file.path, Path(work.plan.store))
    if (deaths := trial.deaths_in(name)) >= MOST_DEATHS:
        result.skipped[name] = f"{deaths} processes died while they read it"
        return
    with trial.of(name):
        scanner.read([file], result, spool)


class _ReadingRecord:
    """Records the file that is being read in a file on disk. If the process dies, the next one knows the cause."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._deaths: dict[str, int] = {}
        try:
            kept = json.loads(file.read_bytes())
        except (FileNotFoundError, ValueError):  # no record, or an incomplete one
            return
        self._deaths = kept["deaths"]
        if kept["reading"] is not None:
            self._deaths[kept["reading"]] = self._deaths.get(kept["reading"], 0) + 1

    def deaths_in(self, name: str) -> int:
        return self._deaths.get(name, 0)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self._write(name)
        try:
            yield
        except BaseException:  # an interruption or an exception does not count as a death
            self.pause()
            raise

    def pause(self) -> None:
        self._write(None)

    def _write(self, name: str | None) -> None:
        write_file(self._file, json.dumps({"reading": name, "deaths": self._deaths}).encode())

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)


class ChunkedParts:
    """The files of all parts, in the order of discovery, read from the work folder when needed."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._indexes: list[Arrays] = [read_arrays(self._file(part, _INDEX)) for part in range(work.plan.parts)]
        files = [len(index["starts"]) for index in self._indexes]
        self._parts = np.repeat(np.arange(len(files)), np.array(files, dtype=np.int64))
        self._starts = self._whole("starts")
        self.sizes = self._whole("sizes")
        """Number of chunks of each file."""

    def _whole(self, name: str) -> Integers:
        return np.concatenate([np.empty(0, dtype=np.int64), *(index[name] for index in self._indexes)])

    def _file(self, part: int, name: str) -> Path:
        return self._work.output(READ, part) / name

    @cached_property
    def lines(self) -> dict[str, tuple[str, LineKeys]]:
        """For each file name, the hash of the content and the keys of the lines."""
        return self.lines_of(range(len(self.sizes)))

    def lines_of(self, numbers: Iterable[int]) -> dict[str, tuple[str, LineKeys]]:
        """Return the same for the files ``numbers``, ascending."""
        lines: dict[str, tuple[str, LineKeys]] = {}
        for part, of_part in groupby(numbers, key=lambda number: int(self._parts[number])):
            index, first = self._indexes[part], int(np.searchsorted(self._parts, part))
            contents = json.loads(self._file(part, _SCAN).read_bytes())["contents"]
            ends = np.cumsum(index["key_counts"])
            for number in of_part:
                path, sha256 = contents[number - first]
                end = int(ends[number - first])
                start = end - int(index["key_counts"][number - first])
                lines[path] = sha256, index["keys"][start:end].view(np.uint64)
        return lines

    def scan(self) -> Scan:
        """Return the result of comparing the files with the stores."""
        whole = Scan()
        for part in range(len(self._indexes)):
            whole.add(Scan.from_dict(json.loads(self._file(part, _SCAN).read_bytes())["scan"]))
        return whole

    def of(self, numbers: Iterable[int]) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield the files ``numbers``, ascending, each with its chunks."""
        for part, of_part in groupby(numbers, key=lambda number: int(self._parts[number])):
            with self._file(part, _SPOOL).open("rb") as spool:
                for number in of_part:
                    spool.seek(int(self._starts[number]))
                    yield spooled(spool.readline())


class ShareFiles:
    """The files of a share; implements :class:`ragembed.indexes.indexing.spool.ChunkedFiles`."""

    def __init__(self, chunked: ChunkedParts, numbers: Sequence[int]) -> None:
        self._chunked = chunked
        self._numbers = numbers
        self.files = len(numbers)
        self.chunks = int(chunked.sizes[np.array(numbers, dtype=np.int64)].sum())

    @cached_property
    def lines(self) -> dict[str, tuple[str, LineKeys]]:
        """For each file name, the hash of the content and the keys of the lines."""
        return self._chunked.lines_of(self._numbers)

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        return self._chunked.of(self._numbers)


# Stores


def count_share(work: Work, chunked: ChunkedParts, embedder: Embedder, number: int) -> int:
    """Write what the files of a new store contribute to the fit. Return the number of chunks."""
    files, stripper = ShareFiles(chunked, work.share(number).files), Stripper(work.boilerplate() or {})
    texts = (chunk.embedded_text for source, chunks in files for chunk in strip_all(stripper, source, chunks))
    write_arrays(work.output(FIT, number), embedder._part_of_fit(texts))
    return files.chunks


class _SavedChunks(SilentProgress):
    """Writes the number of chunks that are saved to the work folder, at most once per second."""

    def __init__(self, work: Work, number: int) -> None:
        self._work, self._number = work, number
        self._saved, self._written = 0, time.monotonic()

    @override
    def keep(self, count: int) -> None:
        self._saved += count
        if time.monotonic() - self._written >= 1:
            self._written = time.monotonic()
            self._work.write_count(self._number, self._saved)


def write_share(work: Work, chunked: ChunkedParts, number: int, device: str | None) -> int:
    """Encode a share, write it into its store after what was committed before, and return the number of chunks."""
    share, options = work.share(number), work.plan.indexing_options
    with Store.open(share.store, device=device) as store, store.writer(STORE_SECONDS) as writer:
        files = ShareFiles(chunked, share.files)
        part = PartRecord.from_dict(writer.meta(PART))
        if (request := next_request(part.indexing, share.scan.roots, share.scan.gone, options)) != part.indexing:
            writer.set_meta({PART: PartRecord(part.collection, part.stores, request).to_dict()})
        plan = writer.plan_stripping(files.lines, share.scan.removed, options.boilerplate, work.boilerplate())
        encoded, devices = write_files(
            store, writer, files, share.scan, plan, _SavedChunks(work, number), store.sources()
        )
        warnings = slow_model(store, encoded, fitted=False)
    work.write_result(WRITE, number, {"encoded": encoded, "devices": devices, "warnings": warnings})
    return files.chunks


def finish_share(work: Work, number: int, device: str | None) -> int:
    """Make a store use the fit of all stores, if there is one, and build its index. Return the number of chunks."""
    share, silent = work.share(number), SilentProgress()
    with Store.open(share.store, device=device) as store, store.writer(STORE_SECONDS) as writer:
        if (fit := work.fit(device)) is not None:
            fit.adopt(writer, silent)
        boilerplate = work.plan.indexing_options.boilerplate
        warnings = finish_store(store, writer, boilerplate, share.index, silent, for_collection=True)
        chunks = len(store)
    work.write_result(FINISH, number, {"chunks": chunks, "warnings": warnings})
    return chunks
