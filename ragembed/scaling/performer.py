"""A worker: does the tasks of stages, and keeps between them what costs time to make, the model above all."""

from __future__ import annotations

import os
import socket
import time
from functools import cached_property
from pathlib import Path

from ragembed.documents.boilerplate import Stripper
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.indexes.scan import Scanner
from ragembed.scaling.blocks import Blocks, embed_block, read_blocks
from ragembed.scaling.counting import count_range
from ragembed.scaling.engine import Done
from ragembed.scaling.gathered import GatheredShards
from ragembed.scaling.reading import read_shard
from ragembed.scaling.work import EMBED, FIT, READ, STAGES, Work


class Performer:
    """Does tasks over one work folder. Documents are encoded on ``device``, as :class:`ragembed.Embedder` takes it."""

    def __init__(self, work: Path, device: str | None = None) -> None:
        self._work = Work(work)
        self._device = device

    def __call__(self, stage: str, number: int) -> Done:
        """Do the task of a stage that has the number, unless its output is there.

        Raises :class:`ConfigError` for a stage that there is not, or one before it that is not done.
        """
        started = time.monotonic()
        seconds, items = 0.0, 0
        if not self._work.output(stage, number).exists():
            items = self._perform(stage, number)
            seconds = time.monotonic() - started
        return Done(number, items, seconds, _peak_memory(), f"{socket.gethostname()}:{os.getpid()}")

    def _perform(self, stage: str, number: int) -> int:
        if stage == READ:
            return read_shard(self._work, self._scanner, number)
        if stage == FIT:
            return count_range(self._work, self._gathered, self._stripper, self._unfitted, number)
        if stage == EMBED:
            return embed_block(self._work, self._gathered, self._stripper, self._fitted, self._blocks, number)
        raise ConfigError(f"there is no stage {stage!r}: expected one of {', '.join(STAGES)}")

    @cached_property
    def _unfitted(self) -> Embedder:
        return Embedder(self._work.plan.embedder_config, device=self._device, download=False)

    @cached_property
    def _scanner(self) -> Scanner:
        plan, embedder = self._work.plan, self._unfitted
        room = embedder.text_tokens
        return Scanner(Path(plan.store), plan.indexing_options, self._work.known(), embedder.tokenizer, room)

    @cached_property
    def _gathered(self) -> GatheredShards:
        return GatheredShards(self._work)

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
    """Return the most memory that this process has had, in MiB; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123  no path of ours
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0
