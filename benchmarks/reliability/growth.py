"""What a store costs as it grows to a million chunks: opening it, the memory of a reader, and adding one document.

Opening takes less than a second, vectors are mapped and not loaded, and what one more document writes to the disk does
not grow with the store.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from report import significant, table

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.writer import BATCH
from reliability.common import finish, parser, scratch, told
from reliability.corpus import Floats, HashedEncoder, words

SIZES = (10_000, 100_000, 1_000_000)
OPENED_WITHIN = 1.0
"""Seconds."""
LARGEST_GROWTH = 2.0
"""Of the median and the mean of what one add writes, from the smallest to the largest store."""

_WORDS = 24
_STEPS = ("open", "stage", "commit", "merge", "settle", "close")
_MIB = 2**20


@dataclass
class Adds:
    """Bytes that single adds wrote: of each, by step; ``document`` is the mean size of the text that was added."""

    document: float
    steps: list[dict[str, int]] = field(default_factory=list)

    def totals(self) -> list[int]:
        """Return what each add wrote."""
        return [sum(step.values()) for step in self.steps]

    def worst(self) -> dict[str, int]:
        """Return the steps of the add that wrote most."""
        return max(self.steps, key=lambda step: sum(step.values()))


@dataclass
class Reader:
    """A fresh process: seconds until a store is open and counted, and of two dense searches; memory in MiB.

    Memory is what the process has of its own, and pages of files that are mapped; before opening, after it, and after
    the searches.
    """

    opened: float = 0.0
    searched: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    mapped: list[float] = field(default_factory=list)


@dataclass
class Grown:
    """What was measured of a store of one size."""

    chunks: int
    built: float
    size: int
    segments: int
    first_reader: Reader
    reader: Reader
    adds: Adds


def grow(path: Path, sizes: Sequence[int], dim: int, adds: int, seed: int) -> Iterator[Grown]:
    """Let a new store grow to each of the sizes, and measure it there."""
    rng = np.random.default_rng(seed)
    encoder = HashedEncoder(dim)
    Store.create(path, encoder, index="flat").close()  # another index is built anew when a store has doubled
    count, built = 0, 0.0
    for size in sizes:
        started = time.perf_counter()
        _fill(path, encoder, range(count, size), rng)
        built += time.perf_counter() - started
        count = size
        told(f"{count:,} chunks after {built:.0f} s")
        first, again = (_in_a_fresh_process(path, dim) for _ in range(2))
        with Store.open(path, encoder) as store:
            segments = len(store.status()["segments"])
        disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        measured = _adds(path, encoder, range(count, count + adds), rng)
        count += adds
        yield Grown(size, built, disk, segments, first, again, measured)


def _fill(path: Path, encoder: HashedEncoder, numbers: range, rng: np.random.Generator) -> None:
    with Store.open(path, encoder) as store, store.writer() as writer:
        for start in range(numbers.start, numbers.stop, BATCH):
            records = [_record(i, rng) for i in range(start, min(start + BATCH, numbers.stop))]
            texts = [record.chunk.embedded_text for record in records]
            writer.stage_vectors(texts, _vectors(len(texts), encoder.dim, rng))
            writer.commit(chunks=records)
            writer.merge()
        writer.settle()


def _record(number: int, rng: np.random.Generator) -> ChunkRecord:
    text = f"document{number} {words(rng, _WORDS)}"
    return ChunkRecord(str(number), Chunk(text, tokens=_WORDS, metadata={"number": number}))


def _vectors(count: int, dim: int, rng: np.random.Generator) -> Floats:
    return rng.standard_normal((count, dim), dtype=np.float32)


def _adds(path: Path, encoder: HashedEncoder, numbers: range, rng: np.random.Generator) -> Adds:
    """Add documents one by one as :meth:`Store.add` does, and count what each step writes."""
    records = [_record(i, rng) for i in numbers]
    adds = Adds(statistics.fmean(len(record.chunk.text.encode()) for record in records))
    with Store.open(path, encoder) as store:
        for record in records:
            marks = [_written()]
            with store.writer() as writer:
                marks.append(_written())
                writer.stage([record.chunk.embedded_text])
                marks.append(_written())
                writer.commit(chunks=[record])
                marks.append(_written())
                writer.merge()
                marks.append(_written())
                writer.settle()
                marks.append(_written())
            marks.append(_written())
            adds.steps.append(dict(zip(_STEPS, np.diff(marks).tolist(), strict=True)))
    return adds


def _written() -> int:
    """Return how many bytes this process has caused to be written to a disk so far, in whole pages."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["write_bytes"])


def _in_a_fresh_process(path: Path, dim: int) -> Reader:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(path, dim, sender))
    process.start()
    reader: Reader = receiver.recv()
    process.join()
    return reader


def _read(path: Path, dim: int, sender: multiprocessing.connection.Connection) -> None:
    reader, encoder = Reader(), HashedEncoder(dim)
    _remember(reader)
    started = time.perf_counter()
    with Store.open(path, encoder) as store:
        len(store)
        reader.opened = time.perf_counter() - started
        _remember(reader)
        for number in range(2):
            started = time.perf_counter()
            store.search(f"question {number}", 10, "dense")
            reader.searched.append(time.perf_counter() - started)
        _remember(reader)
    sender.send(reader)


def _remember(reader: Reader) -> None:
    """Take note of the memory that this process has now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, mapped = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    reader.own.append(own)
    reader.mapped.append(mapped)


def kept(grown: Sequence[Grown]) -> list[str]:
    """Return a sentence for each promise that was broken."""
    broken = [
        f"a store of {one.chunks:,} chunks took {reader.opened:.2f} s to open"
        for one in grown
        for reader in (one.first_reader, one.reader)
        if reader.opened >= OPENED_WITHIN
    ]
    vectors = grown[-1].first_reader
    if vectors.own[-1] - vectors.own[0] > grown[-1].size / _MIB / 4:
        broken.append(f"a reader has {vectors.own[-1]:.0f} MiB of its own for a store of {grown[-1].size / _MIB:.0f}")
    for name, value in (("median", statistics.median), ("mean", statistics.fmean)):
        least, most = value(grown[0].adds.totals()), value(grown[-1].adds.totals())
        if most > LARGEST_GROWTH * least:
            broken.append(f"the {name} of what an add writes grew from {least:,.0f} to {most:,.0f} bytes")
    return broken


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    options = parser(__doc__, "about six minutes, and 6 GB of disk; a trial five seconds")
    options.add_argument("--dim", type=int, default=384, help="of the vectors (default: 384)")
    options.add_argument("--adds", type=int, default=50, help="single documents at each size (default: 50)")
    options.add_argument("--sizes", type=int, nargs="+", help=f"default: {SIZES}, in a trial (2000, 10000)")
    arguments = options.parse_args()
    sizes = arguments.sizes or ((2_000, 10_000) if arguments.trial else SIZES)
    with scratch(arguments.folder) as folder:
        grown = list(grow(folder / "store", sizes, arguments.dim, arguments.adds, arguments.seed))
    if not sum(grown[-1].adds.totals()):
        sys.exit("nothing was written to a disk: choose another place than memory with --folder")
    about = (
        f"Chunks of {_WORDS} words with drawn vectors of dimension {arguments.dim}, written {BATCH:,} at a time into "
        f"flat indexes; seed {arguments.seed}. A reader is a new process; opening is `Store.open` and `len`. Memory is "
        "the process's own (before opening it, after, after two dense searches) and, apart from it, the pages of "
        "mapped files after the searches, which the system takes back as it needs. The first reader's first search "
        "compares the hashes of all files."
    )
    single = (
        f"{arguments.adds} documents added one by one, each with its own writer as `Store.add` has it: what the "
        "process caused to be written to the disk (`write_bytes` of `/proc/self/io`, whole pages). In brackets "
        "multiples of the document's text."
    )
    opening = [
        "chunks",
        "store, MiB",
        "segments",
        "open, s",
        "first search, s",
        "next, s",
        "first search, hashes known, s",
    ]
    opening += ["own memory, MiB", "mapped, MiB"]
    writing = ["chunks", "document, bytes", "median, bytes", "mean, bytes", "worst, bytes", "worst by step, bytes"]
    parts = [
        about,
        table(opening, [_opening(one) for one in grown]),
        single,
        table(writing, [_writing(one) for one in grown]),
    ]
    finish("growth", "growth", parts, kept(grown), trial=arguments.trial)


def _opening(one: Grown) -> list[str]:
    first, again = one.first_reader, one.reader
    seconds = (first.opened, *first.searched, again.searched[0])
    memory = " / ".join(f"{value:.0f}" for value in again.own)
    sizes = [f"{one.chunks:,}", f"{one.size / _MIB:,.0f}", str(one.segments)]
    return [*sizes, *(significant(value) for value in seconds), memory, f"{again.mapped[-1]:,.0f}"]


def _writing(one: Grown) -> list[str]:
    totals, document = one.adds.totals(), one.adds.document
    values = (statistics.median(totals), statistics.fmean(totals), max(totals))
    shown = [f"{value:,.0f} ({value / document:,.0f}×)" for value in values]
    steps = ", ".join(f"{name} {count:,}" for name, count in one.adds.worst().items() if count)
    return [f"{one.chunks:,}", f"{document:.0f}", *shown, steps]


if __name__ == "__main__":
    main()
