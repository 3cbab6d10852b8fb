"""The tasks of each stage: read a shard of files, collect the statistics of a range of chunks, encode a block of texts.

If the run writes the stores of a collection, two other tasks replace the last one: write a share of the files into a
store, and finish the store with the fit of all stores.

A block contains the texts that a single process would encode together. With bfloat16, the vector of a text depends
slightly on the other texts of its batch, so the blocks make the vectors the same as those of a single process.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ragembed.corpus import grouped
from ragembed.distributed.work import (
    EMBED,
    FINISH,
    FIT,
    READ,
    WRITE,
    Arrays,
    MemberShare,
    Work,
    read_arrays,
    write_arrays,
)
from ragembed.distributed.workers import TaskReport
from ragembed.documents.boilerplate import LineKeys, Stripper
from ragembed.documents.discovery import FileCandidate
from ragembed.documents.model import Chunk
from ragembed.documents.places import from_absolute
from ragembed.embedder import Embedder
from ragembed.files import publish, write_file
from ragembed.indexes.indexing.backend import ChunkedFiles, Known, LocalBackend, RunEncoder
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import IndexRun, finish_store
from ragembed.indexes.indexing.scan import Scan, Scanner
from ragembed.indexes.indexing.spool import Spool, spooled
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import temporary_folder
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.storage.segments import to_raw
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, SilentProgress, SourceRecord, text_hash
from ragembed.indexes.writing.boilerplate_store import StrippingPlan, strip_all
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.types import Floats, Integers

MEMBER_SECONDS = 60.0
"""Time to wait for another process that writes to a store of a collection."""

SPOOL, INDEX, SCAN = "spool.jsonl", "index.safetensors", "scan.json"
MOST_DEATHS = 3
"""Number of workers that may die while they read a file. After that, the file is skipped."""

FIT_BLOCK = 2048
"""Number of texts that a fit processes at once. Ranges of a multiple of this size give the same fit as one pass."""
_MOST_RANGES = 64
_HASHES, _PART = "hashes", "part."

_ENDS, _CHUNKS, _FIRST, _RAW = "ends", "chunks", "first", "raw"


class Worker:
    """Performs tasks on one work folder, and keeps its models between tasks.

    ``device`` is the device for encoding, as for :class:`ragembed.Embedder`.
    """

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
            return read_shard(self._work, self._scanner, number)
        if stage == FIT:
            return count_range(self._work, self._chunked, self._stripper, self._unfitted, number)
        if stage == WRITE:
            return write_share(self._work, self._chunked, number, self._device)
        if stage == FINISH:
            return finish_member(self._work, number, self._device)
        return embed_block(self._work, self._chunked, self._stripper, self._fitted, self._blocks, number)

    @cached_property
    def _unfitted(self) -> Embedder:
        return Embedder(self._work.plan.embedder_config, device=self._device, download=False)

    @cached_property
    def _scanner(self) -> Scanner:
        plan, embedder = self._work.plan, self._unfitted
        room = embedder.text_tokens
        return Scanner(Path(plan.store), plan.indexing_options, self._work.known(), embedder.tokenizer, room)

    @cached_property
    def _chunked(self) -> ChunkedShards:
        return ChunkedShards(self._work)

    @cached_property
    def _stripper(self) -> Stripper:
        return Stripper(self._work.boilerplate())

    @cached_property
    def _fitted(self) -> Embedder:
        return Embedder.load(self._work.fitted, device=self._device)

    @cached_property
    def _blocks(self) -> Blocks:
        return read_blocks(self._work)


def _peak_memory() -> float:
    """Return the peak memory of this process in MiB, or 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123  a path of the system
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0


# Reading


def read_shard(work: Work, scanner: Scanner, shard: int) -> int:
    """Read the files of a shard and write their chunks. Return the number of files.

    A file is skipped if ``MOST_DEATHS`` workers died while they read it.
    """
    files = work.candidates(shard)
    final = work.output(READ, shard)
    trial = _ReadingRecord(final.with_name(f"{final.name}.trying"))
    # Another worker that is only unreachable may still be reading the same shard, so the temporary folder is unique.
    temporary = temporary_folder(final.with_name(f"{final.name}.{uuid.uuid4().hex}"))
    result = Scan()
    with Spool(temporary / SPOOL) as spool:
        for file in files:
            _read_one(work, scanner, file, result, spool, trial)
    trial.pause()
    counts = [len(keys) for _, keys in spool.lines.values()]
    keys = [keys for _, keys in spool.lines.values()]
    write_arrays(
        temporary / INDEX,
        {
            "starts": np.array(spool.starts, dtype=np.int64),
            "sizes": np.array(spool.sizes, dtype=np.int64),
            "key_counts": np.array(counts, dtype=np.int64),
            "keys": np.concatenate([np.empty(0, np.uint64), *keys]).view(np.int64),
        },
    )
    contents = [(path, sha256) for path, (sha256, _) in spool.lines.items()]
    write_file(temporary / SCAN, json.dumps({"scan": result.to_dict(), "contents": contents}).encode())
    try:
        publish(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(temporary)  # another worker has finished the same shard first
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


class ChunkedShards:
    """The files of all shards, in the order of discovery, read from the work folder when needed."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._indexes: list[Arrays] = [read_arrays(self._file(shard, INDEX)) for shard in range(work.plan.shards)]
        files = [len(index["starts"]) for index in self._indexes]
        self._shards = np.repeat(np.arange(len(files)), np.array(files, dtype=np.int64))
        self._starts = self._whole("starts")
        self.sizes = self._whole("sizes")
        """Number of chunks of each file."""
        self.ends = np.cumsum(self.sizes)
        """Cumulative number of chunks up to the end of each file."""

    def _whole(self, name: str) -> Integers:
        return np.concatenate([np.empty(0, dtype=np.int64), *(index[name] for index in self._indexes)])

    def _file(self, shard: int, name: str) -> Path:
        return self._work.output(READ, shard) / name

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.sizes)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def lines(self) -> dict[str, tuple[str, LineKeys]]:
        """For each file name, the hash of the content and the keys of the lines."""
        return self.lines_of(range(self.files))

    def lines_of(self, numbers: Iterable[int]) -> dict[str, tuple[str, LineKeys]]:
        """Return the same for the files ``numbers``, ascending."""
        lines: dict[str, tuple[str, LineKeys]] = {}
        for shard, of_shard in groupby(numbers, key=lambda number: int(self._shards[number])):
            index, first = self._indexes[shard], int(np.searchsorted(self._shards, shard))
            contents = json.loads(self._file(shard, SCAN).read_bytes())["contents"]
            ends = np.cumsum(index["key_counts"])
            for number in of_shard:
                path, sha256 = contents[number - first]
                end = int(ends[number - first])
                start = end - int(index["key_counts"][number - first])
                lines[path] = sha256, index["keys"][start:end].view(np.uint64)
        return lines

    def scan(self) -> Scan:
        """Return the result of comparing the files with the store."""
        whole = Scan()
        for shard in range(len(self._indexes)):
            whole.add(Scan.from_dict(json.loads(self._file(shard, SCAN).read_bytes())["scan"]))
        return whole

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        return self.of(range(self.files))

    def of(self, numbers: Iterable[int]) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield the files ``numbers``, ascending, each with its chunks."""
        for shard, of_shard in groupby(numbers, key=lambda number: int(self._shards[number])):
            with self._file(shard, SPOOL).open("rb") as spool:
                for number in of_shard:
                    spool.seek(int(self._starts[number]))
                    yield spooled(spool.readline())

    def texts(self, start: int, stop: int, stripper: Stripper) -> Iterator[str]:
        """Yield the embedded texts of the chunks from ``start`` to ``stop`` (exclusive), without boilerplate."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, stop, side="left"))
        position = int(self.ends[first] - self.sizes[first])
        for source, chunks in self.of(range(first, min(last + 1, self.files))):
            wanted = strip_all(stripper, source, chunks)[max(start - position, 0) : stop - position]
            yield from (chunk.embedded_text for chunk in wanted)
            position += len(chunks)


# Fitting


def range_size(chunks: int) -> int:
    """Return the number of chunks of each range except the last."""
    return FIT_BLOCK * max(1, -(-chunks // (FIT_BLOCK * _MOST_RANGES)))


def ranges(chunks: int) -> int:
    """Return the number of ranges."""
    return -(-chunks // range_size(chunks))


def count_range(work: Work, chunked: ChunkedShards, stripper: Stripper, embedder: Embedder, number: int) -> int:
    """Write the text hashes of a range of chunks and its part of the fit. Return the number of chunks.

    If a store exists, its extractor is already fitted, and only the hashes are written.
    """
    size = range_size(chunked.chunks)
    start = number * size
    hashes: list[bytes] = []
    texts = _hashed(chunked.texts(start, min(start + size, chunked.chunks), stripper), hashes)
    part: Arrays = {}
    if work.plan.generation is None:
        part = embedder._part_of_fit(texts)
    else:
        for _ in texts:
            pass
    arrays = {_HASHES: np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 16)}
    write_arrays(work.output(FIT, number), {**arrays, **{_PART + name: array for name, array in part.items()}})
    return len(hashes)


def _hashed(texts: Iterable[str], hashes: list[bytes]) -> Iterator[str]:
    for text in texts:
        hashes.append(text_hash(text))
        yield text


def parts(work: Work, chunks: int) -> Iterator[Arrays]:
    """Yield the part of the fit from each range."""
    for number in range(ranges(chunks)):
        arrays = read_arrays(work.output(FIT, number))
        yield {name.removeprefix(_PART): array for name, array in arrays.items() if name.startswith(_PART)}


def hashes(work: Work, chunks: int) -> list[bytes]:
    """Return the hash of each chunk's text."""
    found = (read_arrays(work.output(FIT, number))[_HASHES] for number in range(ranges(chunks)))
    return list(chain.from_iterable((bytes(row) for row in block) for block in found))


# Encoding


@dataclass(frozen=True, slots=True)
class Blocks:
    """The chunks whose texts are encoded, grouped into blocks.

    ``chunks[ends[i - 1]:ends[i]]`` are the chunks of block ``i``. ``first`` has the hash of the first text of each
    block, as uint8 of shape ``(blocks, 16)``.
    """

    ends: Integers
    chunks: Integers
    first: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, number: int) -> Integers:
        """Return the chunk numbers of a block, ascending."""
        return self.chunks[self.ends[number - 1] if number else 0 : self.ends[number]]


def plan_blocks(sizes: Sequence[int], hashes: Sequence[bytes], known: Known) -> Blocks:
    """Return the blocks to encode. Texts that the store already has are left out.

    ``sizes`` is the number of chunks of each file, and ``hashes`` has the hash of each chunk's text. Like the writer,
    the function collects whole files of at most ``BATCH`` chunks together. The new texts among them form blocks of at
    most ``BATCH`` texts. A text is new if no earlier chunk has it.
    """
    seen = set(known(hashes))
    ends: list[int] = []
    chunks: list[int] = []
    for start, stop in _file_groups(sizes):
        new = []
        for chunk in range(start, stop):
            if hashes[chunk] not in seen:
                seen.add(hashes[chunk])
                new.append(chunk)
        for i in range(0, len(new), BATCH):
            chunks += new[i : i + BATCH]
            ends.append(len(chunks))
    firsts = b"".join(hashes[chunks[end]] for end in [0, *ends[:-1]]) if ends else b""
    first = np.frombuffer(firsts, dtype=np.uint8).reshape(-1, 16)
    return Blocks(np.array(ends, dtype=np.int64), np.array(chunks, dtype=np.int64), first)


def _file_groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the chunk range ``(start, stop)`` of each group of files that the writer writes together."""
    stop = 0
    for group in grouped(sizes, int, BATCH):
        start, stop = stop, stop + sum(group)
        if stop > start:
            yield start, stop


def write_blocks(work: Work, blocks: Blocks) -> None:
    """Write the blocks to the work folder, for the workers."""
    write_arrays(work.blocks_file, {_ENDS: blocks.ends, _CHUNKS: blocks.chunks, _FIRST: blocks.first})


def read_blocks(work: Work) -> Blocks:
    """Read the blocks from the work folder."""
    arrays = read_arrays(work.blocks_file)
    return Blocks(arrays[_ENDS], arrays[_CHUNKS], arrays[_FIRST])


def embed_block(
    work: Work, chunked: ChunkedShards, stripper: Stripper, embedder: Embedder, blocks: Blocks, number: int
) -> int:
    """Encode the texts of a block and write their raw vectors, part by part. Return the number of texts.

    An interrupted task continues after the parts that were written.
    """
    chunks = blocks.of(number)
    start, stop = int(chunks[0]), int(chunks[-1]) + 1
    wanted = np.zeros(stop - start, dtype=bool)
    wanted[chunks - start] = True
    texts = [text for text, take in zip(chunked.texts(start, stop, stripper), wanted, strict=True) if take]
    unfinished = work.unfinished(number)
    raws = [read_arrays(unfinished)[_RAW]] if unfinished.exists() else []
    for raw in RunEncoder(embedder).parts(texts, done=sum(map(len, raws))):
        raws.append(to_raw(raw))
        write_arrays(unfinished, {_RAW: np.concatenate(raws)})
    write_arrays(work.output(EMBED, number), {_RAW: np.concatenate(raws)})
    unfinished.unlink(missing_ok=True)
    return len(texts)


class EncodedBlocks:
    """The raw vectors that the encoding tasks wrote, looked up by text."""

    def __init__(self, work: Work, blocks: Blocks) -> None:
        self._work = work
        self._numbers = {bytes(first): number for number, first in enumerate(blocks.first)}
        self._sizes = np.diff(blocks.ends, prepend=0)

    def raw(self, texts: Sequence[str]) -> Floats | None:
        """Return the raw vectors of ``texts``, float32 of shape ``(n, d)``, or None if the texts are not a block."""
        number = self._numbers.get(text_hash(texts[0]))
        if number is None or self._sizes[number] != len(texts):
            return None
        raw: Floats = read_arrays(self._work.output(EMBED, number))[_RAW].astype(np.float32)
        return raw


# Stores of a collection


class _SharedFiles:
    """The files of a share; implements :class:`ragembed.indexes.indexing.backend.ChunkedFiles`."""

    def __init__(self, chunked: ChunkedShards, numbers: Sequence[int]) -> None:
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


class _ShareRun(IndexRun):
    """Writes a share into a store. Boilerplate comes from the files of all stores, and the store is not finished."""

    def __init__(
        self, work: Work, share: MemberShare, files: _SharedFiles, store: Store, device: str | None, progress: Progress
    ) -> None:
        plan = work.plan
        paths = tuple(from_absolute(path) for path in (*plan.paths, *plan.gone))
        request = IndexingRequest(store.path, paths, plan.indexing_options, device=device)
        super().__init__(request, store, progress, LocalBackend(plan.id))
        self._found = work.boilerplate() if work.boilerplate_file.exists() else None
        self._share = files, share.scan

    @override
    def _scan(self) -> tuple[Embedder, ChunkedFiles, Scan]:
        assert self._opened is not None, "set by __init__"  # noqa: S101
        return self._stored_embedder(self._opened), *self._share

    @override
    def _keep_request(self, writer: StoreWriter, scan: Scan) -> None:
        part = PartRecord.from_dict(writer.meta(PART))
        kept = replace(part, indexing=self._request_after(part.indexing, scan))
        if kept != part:
            writer.set_meta({PART: kept.to_dict()})

    @override
    def _plan(self, writer: StoreWriter, chunked: ChunkedFiles, scan: Scan) -> StrippingPlan:
        return writer.plan_stripping(chunked.lines, scan.removed, self._options.boilerplate, self._found)

    @override
    def _finish(self, store: Store, writer: StoreWriter) -> list[str]:
        return []


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


def write_share(work: Work, chunked: ChunkedShards, number: int, device: str | None) -> int:
    """Encode the files of a share and write them into its store. Return the number of chunks.

    If the task is repeated, it continues after the batches that were committed.
    """
    share = work.share(number)
    assert share is not None, "the driver writes shares before the tasks"  # noqa: S101
    files = _SharedFiles(chunked, share.files)
    with Store.open(share.store, device=device) as store:
        run = _ShareRun(work, share, files, store, device, _SavedChunks(work, number))
        report = run.run(dry_run=False, wait_seconds=MEMBER_SECONDS)
    result = {"encoded": report.encoded, "devices": report.devices, "warnings": report.scan.warnings}
    work.write_result(WRITE, number, result)
    return files.chunks


def finish_member(work: Work, number: int, device: str | None) -> int:
    """Make a store use the fit of all stores, if there is one, and build its index. Return the number of chunks."""
    share = work.share(number)
    assert share is not None, "as in write_share"  # noqa: S101
    silent = SilentProgress()
    with Store.open(share.store, device=device) as store, store.writer(MEMBER_SECONDS) as writer:
        if (fit := work.fit(device)) is not None:
            fit.adopt(writer, silent)
        boilerplate = work.plan.indexing_options.boilerplate
        warnings = finish_store(store, writer, boilerplate, share.index, silent, for_collection=True)
        chunks = len(store)
    work.write_result(FINISH, number, {"chunks": chunks, "warnings": warnings})
    return chunks
