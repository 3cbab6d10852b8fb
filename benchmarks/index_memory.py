"""The memory in which an index of inverted lists is built as a store grows, and what that says of ten million vectors.

Each size is built in a process of its own, as a store builds a segment: raw vectors stream to the disk, a sample of
them is trained on, and blocks are added and merged. What counts is memory of the process's own (``RssAnon``, sampled);
pages of mapped files are the system's to take back.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from report import machine, significant, table, write_section

from ragembed.indexes.ann.specs import parse_spec
from ragembed.indexes.segments import Floats, Halves, Rows, of_kind, to_raw, write_segment
from ragembed.postprocess import unit_rows

SIZES = (250_000, 500_000, 1_000_000, 2_000_000)
DIM, RANK, TOPICS = 384, 64, 5_000
GOAL_VECTORS, GOAL_BYTES = 10_000_000, 8 * 1024**3

_BLOCK = 50_000
_SAMPLED_SECONDS = 0.02
_GIB, _MIB = 2**30, 2**20


@dataclass(frozen=True, slots=True)
class Built:
    """Seconds, own memory before and at the most in bytes, and bytes of the index."""

    seconds: float
    before: int
    peak: int
    size: int


def main() -> None:
    """Build each size, print the table, and put it into the page of results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kind", default="ivf-sq8", help="kind of index, with inverted lists")
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options.add_argument("--trial", action="store_true", help="20,000 vectors; prints, and writes nothing")
    options.add_argument("--folder", type=Path, help="where files are written, 1.5 kB a vector")
    arguments = options.parse_args()
    sizes = (20_000, 40_000) if arguments.trial else arguments.sizes
    built = [measure(arguments.kind, size, arguments.folder) for size in sizes]
    report = _report(arguments.kind, sizes, built)
    print(report)
    if not arguments.trial:
        write_section("index-memory", report)


def measure(kind: str, size: int, folder: Path | None) -> Built:
    """Build an index of ``size`` vectors in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-", dir=folder) as name:
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=_build, args=(kind, size, Path(name), there))
        process.start()
        there.close()
        try:
            built: Built = here.recv()
        finally:
            process.join()
        return built


def _build(kind: str, size: int, folder: Path, answer: Connection) -> None:
    (folder / "segments").mkdir()
    before = _own_memory()
    with _Peak() as peak:
        start = time.perf_counter()
        files, _ = write_segment(folder, vectors(size), _as_it_is, of_kind(parse_spec(kind)))
        seconds = time.perf_counter() - start
    index = folder / "segments" / files.folder / "index.faiss"
    answer.send(Built(seconds, before, peak.bytes, index.stat().st_size))


def vectors(size: int) -> Iterator[tuple[Rows, Halves]]:
    """Yield rows and raw vectors in blocks: around some thousand topics, and of low rank, as those of texts are."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(RANK, DIM)).astype(np.float32) / np.sqrt(np.arange(1, RANK + 1))[:, None]
    topics = rng.normal(size=(TOPICS, RANK)).astype(np.float32)
    for start in range(0, size, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, size), dtype=np.int64)
        drawn = topics[rng.integers(TOPICS, size=len(rows))] + rng.normal(scale=0.5, size=(len(rows), RANK))
        yield rows, to_raw(unit_rows((drawn @ directions).astype(np.float32)))


def _as_it_is(raw: Floats) -> Floats:
    return raw


def _own_memory() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status does not tell RssAnon: run this on Linux")


class _Peak:
    """Samples the memory of this process for as long as it is entered."""

    def __enter__(self) -> _Peak:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLED_SECONDS):
            self.bytes = max(self.bytes, _own_memory())


def _report(kind: str, sizes: Sequence[int], built: Sequence[Built]) -> str:
    rows = [
        [
            f"{size:,}",
            significant(one.peak / _MIB, 3),
            significant((one.peak - one.before) / size, 3),
            significant(size * DIM * 4 / _MIB, 3),
            significant(one.size / _MIB, 3),
            significant(one.seconds),
        ]
        for size, one in zip(sizes, built, strict=True)
    ]
    header = ["vectors", "peak, MiB", "a vector, bytes", "vectors in float32, MiB", "index, MiB", "seconds"]
    slope, fixed = np.polyfit(sizes, [one.peak for one in built], 1)
    expected = fixed + slope * GOAL_VECTORS
    verdict = "within" if expected <= GOAL_BYTES else "NOT within"
    now = f"{date.today().isoformat()}; {machine()}"
    return f"""## Index building: memory

{table(header, rows)}

A straight line through these gives {expected / _GIB:.1f} GiB at {GOAL_VECTORS:,} vectors, {verdict}
{GOAL_BYTES / _GIB:.0f} GiB; that size was not built. Kind {kind}, dimension {DIM}, made-up vectors of rank {RANK}, with
{TOPICS:,} topics. The peak is of the process's own memory, sampled every {1000 * _SAMPLED_SECONDS:.0f} ms.
{now}.
"""


if __name__ == "__main__":
    main()
