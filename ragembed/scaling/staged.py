"""An indexing run in stages: each is a number of tasks that an engine has done, with files between them.

What is not parallel, adding up what the tasks of a stage gave and writing the store, is done here, and so is all that
one process does in the same way, by :mod:`ragembed.indexes.indexing`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.boilerplate import Stripper
from ragembed.documents.places import absolute, from_absolute
from ragembed.embedder import Embedder
from ragembed.indexes.layout import make_folder
from ragembed.indexes.lock import writer_lock
from ragembed.indexes.progress import Progress
from ragembed.indexes.run_encoding import RunEncoder
from ragembed.indexes.scan import Scan
from ragembed.indexes.steps import Gathered, Known, Sources, StageReport
from ragembed.scaling import counting
from ragembed.scaling.blocks import EncodedBlocks, plan_blocks, read_blocks, write_blocks
from ragembed.scaling.engine import Done, Engine
from ragembed.scaling.gathered import GatheredShards
from ragembed.scaling.performer import Performer
from ragembed.scaling.planning import make_plan
from ragembed.scaling.work import EMBED, FIT, READ, Work

Floats = NDArray[np.float32]


class Staged:
    """The parts of a run, done by the workers of an engine; see :class:`ragembed.indexes.steps.Steps`.

    Parameters
    ----------
    folder
        Work folder, which every worker must be able to read and write.
    engine
        Has the tasks done.
    shards
        In how many the files are read; as many as their size asks for if it is None.
    device
        Where workers encode.
    keep_folder
        Whether the work folder stays, empty, when the run is done.
    """

    writing = "storing"

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        shards: int | None = None,
        device: str | None = None,
        *,
        keep_folder: bool = False,
    ) -> None:
        self._work = Work(folder)
        self._engine = engine
        self._shards = shards
        self._keep_folder = keep_folder
        self._worker = partial(Performer, folder, device)
        self._reports: list[StageReport] = []
        self._something_to_keep = True
        self._open = ExitStack()
        self._prepared: tuple[Embedder, EncodedBlocks] | None = None

    @property
    def mark(self) -> str | None:
        """The id of the plan, None before there is one."""
        plan = self._work.find_plan()
        return None if plan is None else plan.id

    @property
    def reports(self) -> Sequence[StageReport]:
        """The stages so far."""
        return self._reports

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that a worker encodes on, where texts were encoded."""
        return () if self._prepared is None else self._prepared[0].device_names()

    def scan(self, sources: Sources, progress: Progress) -> tuple[Gathered, Scan]:
        """Plan, or carry on with the plan of an interrupted run, and read all shards."""
        # Workers may have another working directory.
        sources = replace(sources, paths=[from_absolute(absolute(path)) for path in sources.paths])
        scanner = sources.scanner()
        plan, scan = make_plan(self._work, sources, self._shards, progress)
        self._run(READ, plan.shards, "reading", "files", plan.files, progress)
        self._gathered = GatheredShards(self._work)
        scan.add(self._gathered.scan())
        scanner.finish(scan)
        self._something_to_keep = self._gathered.files > 0
        return self._gathered, scan

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Go through all ranges of chunks, and fit ``embedder`` on the sums."""
        chunks = self._go_through(stripper, progress)
        embedder.fit_parts(counting.parts(self._work, chunks), chunks)

    def _go_through(self, stripper: Stripper, progress: Progress) -> int:
        """Have all ranges of chunks gone through; returns how many chunks there are."""
        chunks = self._gathered.chunks
        if not self._work.boilerplate_file.exists():
            self._work.write_boilerplate(stripper.found)
        self._run(FIT, counting.ranges(chunks), "fitting", "chunks", chunks, progress)
        return chunks

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:
        """Have all blocks of texts encoded; ``embedder`` encodes what none of them holds."""
        chunks = self._go_through(stripper, progress)
        if not self._work.blocks_file.exists():
            embedder.save(self._work.fitted)
            hashes = counting.hashes(self._work, chunks)
            write_blocks(self._work, plan_blocks(self._gathered.sizes.tolist(), hashes, known))
        blocks = read_blocks(self._work)
        self._run(EMBED, len(blocks), "embedding", "chunks", len(blocks.chunks), progress)
        self._prepared = embedder, EncodedBlocks(self._work, blocks)

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the raw vectors of ``texts``: a block's are there, others are encoded here."""
        assert self._prepared is not None, "prepare comes before encode"  # noqa: S101  an order that the run keeps
        embedder, encoded = self._prepared
        raw = encoded.raw(texts)
        if raw is None:
            return RunEncoder(embedder)(texts, progress)
        if progress is not None:
            progress(len(texts))
        return raw

    def _run(self, stage: str, tasks: int, phase: str, unit: str, items: int, progress: Progress) -> None:
        missing = self._work.missing(stage, tasks)
        if not missing:
            return
        started = time.monotonic()
        done: list[Done] = []
        progress.start(phase, unit, items)
        for one in self._engine.run(self._worker, stage, missing):
            progress.advance(one.items)
            done.append(one)
        progress.finish()
        seconds, busy = time.monotonic() - started, sum(one.seconds for one in done)
        worked, memory = sum(one.items for one in done), max(one.memory for one in done)
        self._reports.append(StageReport(stage, len(done), worked, seconds, busy, memory))

    def __enter__(self) -> Staged:
        self._work.files.require_ours()
        make_folder(self._work.folder)
        self._open.enter_context(writer_lock(self._work.folder))
        self._open.enter_context(self._engine)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not self._something_to_keep:
            self._work.files.clear()
        self._open.close()
        self._work.files.leave(remove=not self._keep_folder)
