"""The plan of a run with workers, and the work folder: what one stage leaves for the next.

::

    plan.json                    what is indexed, with what, in how many shards
    known.jsonl                  the files that the store held then
    shards/00000.jsonl           files to be read
    read/00000/                  of each shard: spool.jsonl, index.safetensors, scan.json
    boilerplate.json             lines to be left out of what is searched
    fit/00000.safetensors        of each range of chunks: hashes of their texts, and what the fit adds up
    fitted/                      the embedder, its extractor fitted on all chunks
    blocks.safetensors           which texts are encoded together
    embed/00000.safetensors      of each block: raw vectors, float16

Every file and folder is written whole, under another name, and then renamed: what is there is finished. Nothing in it
is pickle. :mod:`ragembed.indexes.storage.work_folder` knows these names, and removes nothing else.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.documents.boilerplate import BoilerplateCounts
from ragembed.documents.discovery import FileCandidate
from ragembed.documents.places import absolute
from ragembed.errors import ConfigError
from ragembed.files import make_folders, replace_file
from ragembed.indexes.indexing.backend import Sources
from ragembed.indexes.indexing.scan import IndexingOptions, Scan
from ragembed.indexes.storage.work_folder import PLAN, WorkFolder
from ragembed.indexes.types import Progress, SourceRecord
from ragembed.tensor_map import map_tensors

SHARD_BYTES = 8 * 1024 * 1024
"""Bytes of files in a shard, about: what is read again where a worker dies in it."""
_LEAST_SHARDS = 8
"""Shards of a plan that has as many files, so that a few workers share them evenly."""

READ, FIT, EMBED = STAGES = ("read", "fit", "embed")
"""The stages that have a task for each shard, range and block."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """What a run indexes.

    ``id`` tells one plan from another with the same settings; ``store`` is the folder of the store, absolute.
    ``config`` is the embedder's, with what depends on the machine written out, and without post-processors.
    ``generation`` is that of the store when the plan was made, None where there was none. ``digest`` is a hash of all
    shards.
    """

    id: str
    store: str
    paths: tuple[str, ...]
    gone: tuple[str, ...]
    options: Mapping[str, Any]
    config: Mapping[str, Any]
    generation: int | None
    shards: int
    files: int
    size: int
    digest: str

    def same_request(self, other: WorkPlan) -> bool:
        """Tell whether the other asks for the same, of the same files."""
        names = ("store", "paths", "gone", "options", "config", "shards", "digest")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def indexing_options(self) -> IndexingOptions:
        """What is read, and how it is chunked."""
        return IndexingOptions.from_dict(dict(self.options))

    @property
    def embedder_config(self) -> EmbedderConfig:
        """What the embedder is made of."""
        return EmbedderConfig.from_dict(dict(self.config))


class Work:
    """Names and files of a work folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = WorkFolder(folder)

    # The plan

    def begin(self, plan: WorkPlan, known: Mapping[str, SourceRecord], shards: Iterable[list[FileCandidate]]) -> None:
        """Write a plan, in place of another that the folder holds."""
        self.files.restart()
        make_folders(self.folder / "shards")
        for stage in STAGES:
            make_folders(self.folder / stage)
        lines = "".join(json.dumps(asdict(source)) + "\n" for source in known.values())
        replace_file(self.folder / "known.jsonl", lines.encode())
        for number, candidates in enumerate(shards):
            text = "".join(json.dumps(candidate.to_dict()) + "\n" for candidate in candidates)
            replace_file(self._shard(number), text.encode())
        self.files.write_plan(asdict(plan))

    def find_plan(self) -> WorkPlan | None:
        """Return the plan, None where there is none or it was not finished."""
        found = self.files.read_plan()
        return WorkPlan(**{**found, "paths": tuple(found["paths"]), "gone": tuple(found["gone"])}) if found else None

    @cached_property
    def plan(self) -> WorkPlan:
        """The plan, which is there before any task."""
        plan = self.find_plan()
        if plan is None:
            raise ConfigError(f"{self.folder} holds no {PLAN}: it was removed during the run; run the command again")
        return plan

    def known(self) -> dict[str, SourceRecord]:
        """Return the files that the store held when the plan was made, by name."""
        with (self.folder / "known.jsonl").open(encoding="utf-8") as lines:
            sources = [SourceRecord(**json.loads(line)) for line in lines]
        return {source.path: source for source in sources}

    def candidates(self, shard: int) -> list[FileCandidate]:
        """Return the files of a shard."""
        with self._shard(shard).open(encoding="utf-8") as lines:
            return [FileCandidate.from_dict(json.loads(line)) for line in lines]

    def _shard(self, number: int) -> Path:
        return self.folder / "shards" / f"{number:05}.jsonl"

    # Outputs

    def output(self, stage: str, number: int) -> Path:
        """Return the file, or for reading the folder, that a task writes."""
        return self.folder / stage / (f"{number:05}" if stage == READ else f"{number:05}.safetensors")

    def missing(self, stage: str, tasks: int) -> list[int]:
        """Return the tasks, of so many, that are not done."""
        there = {entry.name for entry in (self.folder / stage).iterdir()}
        return [number for number in range(tasks) if self.output(stage, number).name not in there]

    @property
    def boilerplate_file(self) -> Path:
        """The lines that are left out of what is searched."""
        return self.folder / "boilerplate.json"

    def write_boilerplate(self, found: BoilerplateCounts) -> None:
        """Keep what is boilerplate."""
        replace_file(self.boilerplate_file, json.dumps(found).encode())

    def boilerplate(self) -> dict[str, dict[int, int]]:
        """Return what is boilerplate: by kind of file, the number of files for each key of a line."""
        kept = json.loads(self.boilerplate_file.read_bytes())
        return {kind: {int(key): files for key, files in counts.items()} for kind, counts in kept.items()}

    @property
    def blocks_file(self) -> Path:
        """Which texts are encoded together."""
        return self.folder / "blocks.safetensors"

    @property
    def fitted(self) -> Path:
        """Folder of the embedder."""
        return self.folder / "fitted"


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, whole or not at all."""
    from safetensors.numpy import save

    replace_file(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_arrays(file: Path) -> Arrays:
    """Return the arrays of a file, as views of it."""
    return dict(map_tensors(file))


def make_plan(work: Work, sources: Sources, shards: int | None, progress: Progress) -> tuple[WorkPlan, Scan]:
    """Plan the reading of what differs, and return the plan, and what is known without reading.

    A plan of the same files that was begun before is carried on, where the store is as it was then or keeps the plan's
    id. ``shards`` is how many there are to be; as many as the size of the files asks for if it is None.
    """
    former = work.find_plan()
    if former is not None and (sources.generation == former.generation or sources.resume_token == former.id):
        plan, scan, _ = _drawn(replace(sources, known=work.known()), shards or former.shards, progress)
        if former.same_request(plan):
            return former, scan
    plan, scan, waiting = _drawn(sources, shards, progress)
    work.begin(plan, sources.known, balanced(waiting, plan.shards))
    return plan, scan


def _drawn(sources: Sources, shards: int | None, progress: Progress) -> tuple[WorkPlan, Scan, list[FileCandidate]]:
    scan = Scan.of(sources.paths, sources.gone, sources.store)
    progress.start("listing", "files", None)
    waiting = []
    for candidate in sources.scanner().waiting(sources.paths, scan, progress):
        waiting.append(candidate)
        progress.advance(1)
    progress.finish()
    size = sum(candidate.size for candidate in waiting)
    digest = hashlib.sha256()
    for candidate in waiting:
        digest.update(json.dumps(candidate.to_dict()).encode())
    # The chain is fitted when all is encoded; until then a new store has another than it is to have.
    config = sources.embedder.resolved_config().replace(postprocess=(), query_fit="shared")
    plan = WorkPlan(
        id=uuid.uuid4().hex,
        store=str(sources.store.absolute()),
        paths=tuple(absolute(path) for path in sources.paths),
        gone=tuple(absolute(path) for path in sources.gone),
        options=_as_kept(sources.options.to_dict()),
        config=_as_kept(config.to_dict()),
        generation=sources.generation,
        shards=min(shards or max(_LEAST_SHARDS, -(-size // SHARD_BYTES)), len(waiting)),
        files=len(waiting),
        size=size,
        digest=digest.hexdigest(),
    )
    return plan, scan, waiting


def _as_kept(fields: Mapping[str, object]) -> dict[str, object]:
    """Return JSON values as they are read back: lists for tuples."""
    kept: dict[str, object] = json.loads(json.dumps(fields))
    return kept


def balanced(files: Sequence[FileCandidate], shards: int) -> list[list[FileCandidate]]:
    """Return ``files``, in their order, as ``shards`` lists of about equal size in bytes; none is empty."""
    if not shards:
        return []
    ends = np.cumsum([file.size + 1 for file in files])
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, shards) / shards).tolist(), len(files)]
    for i in range(1, shards):
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), len(files) - (shards - i))
    return [list(files[start:stop]) for start, stop in pairwise(cuts)]
