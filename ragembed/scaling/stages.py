"""The stages one by one, without an engine: plan, read, fit and embed, each in any number of processes, then build.

Each can be run again at any time. Between two stages the tasks of the first are added up, by whoever begins the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import numpy as np

from ragembed.config import EmbedderConfig
from ragembed.documents.places import absolute, from_absolute
from ragembed.errors import ConfigError
from ragembed.files import replace_file
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.asked import IndexingRequest
from ragembed.indexes.indexing import IndexingReport, index_files
from ragembed.indexes.layout import make_folder
from ragembed.indexes.progress import Progress
from ragembed.indexes.scan import IndexingOptions
from ragembed.scaling.blocks import read_blocks
from ragembed.scaling.counting import ranges
from ragembed.scaling.engine import Done, Perform
from ragembed.scaling.gathered import GatheredShards
from ragembed.scaling.performer import Performer
from ragembed.scaling.staged import Staged, StageReachedError
from ragembed.scaling.work import FIT, READ, STAGES, Plan, Work

_AS_LONG_AS_IT_TAKES = -1.0


def plan_stages(request: IndexingRequest, folder: Path, shards: int | None, progress: Progress | None = None) -> Plan:
    """Plan the indexing that is asked for in the work folder, and return the plan.

    Nothing is read but the lists of files. A plan of the same is kept, with all that was done of it. Raises what
    :func:`ragembed.indexes.indexing.index_files` raises.
    """
    work = Work(folder)
    work.files.require_ours()
    make_folder(folder)
    replace_file(work.request_file, json.dumps(_request_fields(request)).encode())
    steps = Staged(folder.absolute(), _Unfinished(work), shards, request.device, halt_at=READ)
    _advance(request, steps, progress)
    return work.plan


def tasks(folder: Path, stage: str, device: str | None = None) -> range:
    """Return the tasks of a stage; where the stage before it is done, it is added up for them first.

    Raises :class:`ConfigError` where it is not done, or the files have changed since the plan.
    """
    work = Work(folder)
    if stage == READ:
        return range(work.plan.shards)
    before = STAGES[STAGES.index(stage) - 1]
    added_up = work.boilerplate_file if stage == FIT else work.blocks_file
    if not added_up.exists():
        work.require(before, len(tasks(folder, before, device)))
        steps = Staged(folder.absolute(), _Unfinished(work), None, device, anew=False, halt_at=stage)
        _advance(_request(work, device), steps, None)
    return range(ranges(GatheredShards(work).chunks) if stage == FIT else len(read_blocks(work)))


def perform(folder: Path, stage: str, numbers: Sequence[int] = (), device: str | None = None) -> Iterator[Done]:
    """Do tasks of a stage in this process, and yield each when it is done; others may do others meanwhile.

    Without ``numbers`` all are done that nobody has done, in an order of this process's own. Raises
    :class:`ConfigError` for a task that there is not.
    """
    there = tasks(folder, stage, device)
    numbers = numbers or np.random.default_rng().permutation(Work(folder).missing(stage, len(there))).tolist()
    if wrong := [number for number in numbers if number not in there]:
        raise ConfigError(f"there is no task {wrong[0]} of the stage {stage!r}: expected 0 to {len(there) - 1}")
    worker = Performer(folder.absolute(), device)
    for number in numbers:
        yield worker(stage, number)


def build(
    folder: Path, device: str | None = None, progress: Progress | None = None, wait_seconds: float = 0.0
) -> IndexingReport:
    """Write the store of what the stages have left, fit the post-processors and build the index.

    The work folder is removed at the end. Raises :class:`ConfigError` where tasks are still to be done.
    """
    work = Work(folder)
    steps = Staged(folder.absolute(), _Unfinished(work), None, device, anew=False)
    return index_files(_request(work, device), progress, wait_seconds=wait_seconds, steps=steps)


class _Unfinished(AbstractContextManager["_Unfinished"]):
    """An engine for a run that has no tasks left to do."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> NoReturn:  # noqa: ARG002  the protocol's signature
        raise self._work.unfinished(stage, numbers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to let go of."""


def _advance(request: IndexingRequest, steps: Staged, progress: Progress | None) -> None:
    """Go on with the run up to the tasks of a stage."""
    with suppress(StageReachedError):
        index_files(request, progress, wait_seconds=_AS_LONG_AS_IT_TAKES, steps=steps)


def _request_fields(request: IndexingRequest) -> dict[str, object]:
    return {
        "store": str(request.store.absolute()),
        "paths": [absolute(path) for path in request.paths],
        "options": None if request.options is None else request.options.to_dict(),
        "embedder": None if request.embedder is None else request.embedder.to_dict(),
        "index": None if request.index is None else request.index.to_dict(),
        "language": request.language,
    }


def _request(work: Work, device: str | None) -> IndexingRequest:
    work.plan  # noqa: B018  whoever has none is told how to make one
    kept = json.loads(work.request_file.read_bytes())
    return IndexingRequest(
        Path(kept["store"]),
        tuple(from_absolute(path) for path in kept["paths"]),
        None if kept["options"] is None else IndexingOptions.from_dict(kept["options"]),
        None if kept["embedder"] is None else EmbedderConfig.from_dict(kept["embedder"]),
        None if kept["index"] is None else Wanted.from_dict(kept["index"]),
        device,
        kept["language"],
    )
