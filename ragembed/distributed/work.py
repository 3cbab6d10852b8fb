"""The plan of a run with workers, and the work folder with the files between the stages.

::

    plan.json                    paths, settings and number of shards of the run
    known.jsonl                  files that the store contained when the plan was made
    shards/00000.jsonl           files to read
    read/00000/                  for each shard: spool.jsonl, index.safetensors, scan.json
    boilerplate.json             boilerplate lines, which are not searched
    fit/00000.safetensors        for each range of chunks: text hashes and partial sums of the fit
    fitted/                      the embedder, with its extractor fitted on all chunks
    blocks.safetensors           texts that are encoded together
    embed/00000.safetensors      for each block: raw vectors, float16
    embed/00000.unfinished.safetensors    the raw vectors of a block so far

A run that writes the stores of a collection has no blocks, but::

    write/00000.share.json       for each store: the files to write into it
    write/00000.count            number of chunks written so far
    write/00000.json             the result of writing them
    common/                      the embedder, with post-processors fitted on all stores, if they were fitted
    finish/00000.json            the result of finishing the store

Each file or folder is written under a temporary name and then renamed, so every file with a final name is complete. No
file is a pickle. :mod:`ragembed.indexes.storage.work_folder` knows these names, and removes no other files.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.files import make_folders, replace_file
from ragembed.indexes.ann.records import IndexConfig
from ragembed.indexes.indexing.backend import Sources
from ragembed.indexes.indexing.fitting import Fit
from ragembed.indexes.indexing.scan import IndexingOptions, Scan
from ragembed.indexes.storage.baseline import queries_of, query_arrays
from ragembed.indexes.storage.work_folder import PLAN, WorkFolder
from ragembed.indexes.types import Progress, SourceRecord
from ragembed.tensor_map import map_tensors

SHARD_BYTES = 8 * 1024 * 1024
"""Approximate size of the files of a shard, in bytes. If a worker dies, its whole shard is read again."""
_LEAST_SHARDS = 8
"""Minimum number of shards, if there are as many files, to distribute the files evenly over a few workers."""

READ, FIT, EMBED, WRITE, FINISH = STAGES = ("read", "fit", "embed", "write", "finish")
"""The stages. They have one task per shard, per range, per block, and, the last two, per store of a collection."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """The files and settings of a run.

    ``id`` distinguishes plans with the same settings. ``store`` is the absolute path of the store. ``config`` is the
    configuration of the embedder without post-processors; settings that depend on the machine are resolved.
    ``generation`` is the generation of the store when the plan was made, or None if there was no store. ``digest`` is a
    hash of all shards.
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
        """Return whether the other plan has the same settings and the same files."""
        names = ("store", "paths", "gone", "options", "config", "shards", "digest")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def indexing_options(self) -> IndexingOptions:
        """The options for reading and chunking."""
        return IndexingOptions.from_dict(dict(self.options))

    @property
    def embedder_config(self) -> EmbedderConfig:
        """The configuration of the embedder."""
        return EmbedderConfig.from_dict(dict(self.config))


@dataclass(frozen=True, slots=True)
class MemberShare:
    """The part of a run that changes one store of a collection.

    ``files`` are the numbers of the files to write. ``scan`` has the files to remove, and ``index`` is
    that of the request.
    """

    store: str
    files: Sequence[int]
    scan: Scan
    index: IndexConfig | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        index = None if self.index is None else self.index.to_dict()
        return {
            "store": self.store,
            "files": list(self.files),
            "scan": self.scan.to_dict(),
            "index": index,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> MemberShare:
        """Create a share from the output of :meth:`to_dict`."""
        index = None if fields["index"] is None else IndexConfig.from_dict(fields["index"])
        return cls(fields["store"], fields["files"], Scan.from_dict(fields["scan"]), index)


class Work:
    """Reads and writes the files of a work folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = WorkFolder(folder)

    # The plan

    def begin(self, plan: WorkPlan, known: Mapping[str, SourceRecord], shards: Iterable[list[FileCandidate]]) -> None:
        """Write a plan. It replaces any plan in the folder."""
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
        """Return the plan, or None if there is no complete plan."""
        found = self.files.read_plan()
        return WorkPlan(**{**found, "paths": tuple(found["paths"]), "gone": tuple(found["gone"])}) if found else None

    @cached_property
    def plan(self) -> WorkPlan:
        """The plan, which must exist before any task runs."""
        plan = self.find_plan()
        if plan is None:
            raise ConfigError(f"{self.folder} has no {PLAN}: it was removed during the run; run the command again")
        return plan

    def known(self) -> dict[str, SourceRecord]:
        """Return the files that the store contained when the plan was made, by name."""
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
        """Return the file that a task writes, or the folder for a reading task."""
        suffix = {READ: "", WRITE: ".json", FINISH: ".json"}.get(stage, ".safetensors")
        return self.folder / stage / f"{number:05}{suffix}"

    def write_result(self, stage: str, number: int, fields: Mapping[str, object]) -> None:
        """Write the result of a task of a collection's store, as JSON values."""
        replace_file(self.output(stage, number), json.dumps(fields).encode())

    def result(self, stage: str, number: int) -> dict[str, Any]:
        """Return the result of a task of a collection's store."""
        found: dict[str, Any] = json.loads(self.output(stage, number).read_bytes())
        return found

    def forget(self, number: int) -> None:
        """Remove the share of a collection's store, and the results of its tasks."""
        for file in (self.output(WRITE, number), self.output(FINISH, number), self._share_file(number)):
            file.unlink(missing_ok=True)

    def share(self, number: int) -> MemberShare | None:
        """Return the share of a store of a collection, or None if it was not written."""
        file = self._share_file(number)
        return MemberShare.from_dict(json.loads(file.read_bytes())) if file.exists() else None

    def write_share(self, number: int, share: MemberShare) -> None:
        """Write the share of a store of a collection."""
        replace_file(self._share_file(number), json.dumps(share.to_dict()).encode())

    def write_count(self, number: int, count: int) -> None:
        """Write the number of chunks that a task has written into the store of a collection so far."""
        replace_file(self.folder / WRITE / f"{number:05}.count", str(count).encode())

    def count(self, numbers: Iterable[int]) -> int:
        """Return the number of chunks that the tasks ``numbers`` have written so far."""
        total = 0
        for number in numbers:
            with suppress(FileNotFoundError):
                total += int((self.folder / WRITE / f"{number:05}.count").read_bytes())
        return total

    def _share_file(self, number: int) -> Path:
        return self.folder / WRITE / f"{number:05}.share.json"

    def unfinished(self, block: int) -> Path:
        """Return the file with the first raw vectors of a block that is being encoded."""
        return self.folder / EMBED / f"{block:05}.unfinished.safetensors"

    def missing(self, stage: str, tasks: int) -> list[int]:
        """Return the numbers of the unfinished tasks of a stage with ``tasks`` tasks."""
        finished = {entry.name for entry in (self.folder / stage).iterdir()}
        return [number for number in range(tasks) if self.output(stage, number).name not in finished]

    @property
    def boilerplate_file(self) -> Path:
        """The file with the boilerplate lines."""
        return self.folder / "boilerplate.json"

    def write_boilerplate(self, found: BoilerplateCounts) -> None:
        """Write the boilerplate lines."""
        replace_file(self.boilerplate_file, json.dumps(found).encode())

    def boilerplate(self) -> dict[str, dict[int, int]]:
        """Return, for each kind of file, the key of each boilerplate line and the number of files that contain it."""
        kept = json.loads(self.boilerplate_file.read_bytes())
        return {kind: {int(key): files for key, files in counts.items()} for kind, counts in kept.items()}

    @property
    def blocks_file(self) -> Path:
        """The file with the blocks of texts that are encoded together."""
        return self.folder / "blocks.safetensors"

    @property
    def fitted(self) -> Path:
        """The folder of the fitted embedder."""
        return self.folder / "fitted"

    def write_fit(self, fit: Fit) -> None:
        """Write the fit that all stores of a collection will use."""
        fit.embedder.save(self.folder / "common")
        write_arrays(self._queries, {"none": np.zeros(0), **query_arrays(fit.queries)})

    def fit(self, device: str | None) -> Fit | None:
        """Return the fit that all stores of a collection will use, or None if they keep theirs."""
        if not self.has_fit():
            return None
        embedder = Embedder.load(self.folder / "common", device=device)
        return Fit(embedder, queries_of(read_arrays(self._queries)))

    def has_fit(self) -> bool:
        """Return whether the stores of a collection will use a new fit."""
        return self._queries.exists()

    @property
    def _queries(self) -> Path:
        return self.folder / "common" / "queries.safetensors"


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file atomically."""
    from safetensors.numpy import save

    replace_file(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_arrays(file: Path) -> Arrays:
    """Return the arrays of a file as memory-mapped views."""
    return dict(map_tensors(file))


def make_plan(work: Work, sources: Sources, shards: int | None, progress: Progress) -> tuple[WorkPlan, Scan]:
    """Plan which new or changed files to read. Return the plan, and the scan of the files that need no reading.

    An earlier plan for the same files is continued if the store still has the generation of that plan, or has the id
    of the plan as its resume token. ``shards`` is the number of shards. By default, it depends on the total file size.
    """
    former, present = work.find_plan(), sources.present
    if former is not None and (present.generation == former.generation or present.resume_token == former.id):
        before = replace(sources, present=replace(present, sources=work.known()))
        plan, scan, _ = _new_plan(before, shards or former.shards, progress)
        if former.same_request(plan):
            return former, scan
    plan, scan, waiting = _new_plan(sources, shards, progress)
    work.begin(plan, present.sources, balanced(waiting, plan.shards))
    return plan, scan


def _new_plan(sources: Sources, shards: int | None, progress: Progress) -> tuple[WorkPlan, Scan, list[FileCandidate]]:
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
    # Post-processors are fitted after all texts are encoded, so the configuration of the plan has none.
    config = sources.present.embedder.resolved_config().replace(postprocess=(), query_fit="shared")
    plan = WorkPlan(
        id=uuid.uuid4().hex,
        store=str(sources.store.absolute()),
        paths=tuple(absolute(path) for path in sources.paths),
        gone=tuple(absolute(path) for path in sources.gone),
        options=_as_json(sources.options.to_dict()),
        config=_as_json(config.to_dict()),
        generation=sources.present.generation,
        shards=min(shards or max(_LEAST_SHARDS, -(-size // SHARD_BYTES)), len(waiting)),
        files=len(waiting),
        size=size,
        digest=digest.hexdigest(),
    )
    return plan, scan, waiting


def _as_json(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the values as they are read back from JSON, with lists in place of tuples."""
    values: dict[str, object] = json.loads(json.dumps(fields))
    return values


def balanced(files: Sequence[FileCandidate], shards: int) -> list[list[FileCandidate]]:
    """Divide ``files``, in order, into ``shards`` non-empty lists with about the same size in bytes."""
    if not shards:
        return []
    ends = np.cumsum([file.size + 1 for file in files])
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, shards) / shards).tolist(), len(files)]
    for i in range(1, shards):
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), len(files) - (shards - i))
    return [list(files[start:stop]) for start, stop in pairwise(cuts)]
