"""The plan of a run with workers, and the work folder with the files between the stages.

::

    plan.json                paths, settings and number of parts of the run
    known.jsonl              files that the stores contained when the plan was made
    parts/00000.jsonl        files to read
    read/00000/              for each part: spool.jsonl, index.safetensors, scan.json
    boilerplate.json         boilerplate lines, which are not searched
    shares/00000.json        for each store: the files to write into it
    fit/00000.safetensors    for each new store: its part of the fit
    write/00000.count        number of chunks written so far
    write/00000.json         the result of writing them
    common/                  the embedder, with post-processors fitted on all stores, if they were fitted
    finish/00000.json        the result of finishing the store

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
from ragembed.documents.places import Place, absolute
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.files import make_folders, replace_file
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing.fitting import Fit
from ragembed.indexes.indexing.request import IndexingOptions
from ragembed.indexes.indexing.scan import Scan
from ragembed.indexes.storage.baseline import queries_of, query_arrays
from ragembed.indexes.storage.work_folder import PLAN, WorkFolder
from ragembed.indexes.types import SourceRecord
from ragembed.tensor_map import map_tensors

PART_BYTES = 8 * 1024 * 1024
"""Approximate size of the files of a part, in bytes. If a worker dies, its whole part is read again."""
_LEAST_PARTS = 8
"""Minimum number of parts, if there are as many files, to distribute the files evenly over a few workers."""

READ, FIT, WRITE, FINISH = STAGES = ("read", "fit", "write", "finish")
"""The stages. The first has one task per part, the others have one per store."""

_SUFFIXES = {READ: "", FIT: ".safetensors", WRITE: ".json", FINISH: ".json"}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """The files and settings of a run.

    ``id`` distinguishes plans with the same settings. ``store`` is the absolute path of the first store, and ``stores``
    the number of stores to create. ``config`` is the configuration of the embedder without post-processors; settings
    that depend on the machine are resolved. ``digest`` is a hash of all files.
    """

    id: str
    store: str
    stores: int
    paths: tuple[str, ...]
    gone: tuple[str, ...]
    options: Mapping[str, Any]
    config: Mapping[str, Any]
    parts: int
    files: int
    digest: str

    @classmethod
    def of(
        cls,
        store: Path,
        stores: int,
        places: tuple[Sequence[Place], Sequence[Place]],
        options: IndexingOptions,
        embedder: Embedder,
        waiting: Sequence[FileCandidate],
    ) -> WorkPlan:
        """Return a plan to read the files ``waiting``, found in the paths ``places``, which exist or are gone."""
        digest = hashlib.sha256()
        for candidate in waiting:
            digest.update(json.dumps(candidate.to_dict()).encode())
        size = sum(candidate.size for candidate in waiting)
        paths, gone = (tuple(absolute(place) for place in group) for group in places)
        # Post-processors are fitted after all texts are encoded, so the configuration of the plan has none.
        config = embedder.resolved_config().replace(postprocess=(), query_fit="shared")
        parts = min(max(_LEAST_PARTS, -(-size // PART_BYTES)), len(waiting))
        return cls(
            *(uuid.uuid4().hex, str(store.absolute()), stores, paths, gone),
            *(_as_json(options.to_dict()), _as_json(config.to_dict()), parts, len(waiting), digest.hexdigest()),
        )

    @property
    def indexing_options(self) -> IndexingOptions:
        """The options for reading and chunking."""
        return IndexingOptions.from_dict(dict(self.options))

    @property
    def embedder_config(self) -> EmbedderConfig:
        """The configuration of the embedder."""
        return EmbedderConfig.from_dict(dict(self.config))


def _as_json(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the values as they are read back from JSON, with lists in place of tuples."""
    values: dict[str, object] = json.loads(json.dumps(fields))
    return values


@dataclass(frozen=True, slots=True)
class StoreShare:
    """The part of a run that changes one store.

    ``files`` are the numbers of the files to write. ``scan`` has the files to remove, and ``index`` is that of
    the request.
    """

    store: str
    files: Sequence[int]
    scan: Scan
    index: IndexConfig | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        index = None if self.index is None else self.index.to_dict()
        files, scan = list(self.files), self.scan.to_dict()
        return {**{name: getattr(self, name) for name in self.__slots__}, "files": files, "scan": scan, "index": index}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> StoreShare:
        """Create a share from the output of :meth:`to_dict`."""
        index = None if fields["index"] is None else IndexConfig.from_dict(fields["index"])
        return cls(**{**fields, "scan": Scan.from_dict(fields["scan"]), "index": index})


class Work:
    """Reads and writes the files of a work folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = WorkFolder(folder)

    # The plan

    def begin(self, plan: WorkPlan, known: Mapping[str, SourceRecord], waiting: Sequence[FileCandidate]) -> WorkPlan:
        """Write a plan, unless the same run was interrupted while it made the stores; return the plan that holds."""
        former = self.find_plan()
        if former is not None and not known and replace(plan, id=former.id) == former:
            return former
        self.files.restart()
        for name in ("parts", "shares", *STAGES):
            make_folders(self.folder / name)
        lines = "".join(json.dumps(asdict(source)) + "\n" for source in known.values())
        replace_file(self.folder / "known.jsonl", lines.encode())
        for number, candidates in enumerate(balanced(waiting, plan.parts)):
            text = "".join(json.dumps(candidate.to_dict()) + "\n" for candidate in candidates)
            replace_file(self._part(number), text.encode())
        self.files.write_plan(asdict(plan))
        return plan

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
        """Return the files that the stores contained when the plan was made, by name."""
        with (self.folder / "known.jsonl").open(encoding="utf-8") as lines:
            sources = [SourceRecord(**json.loads(line)) for line in lines]
        return {source.path: source for source in sources}

    def candidates(self, part: int) -> list[FileCandidate]:
        """Return the files of a part."""
        with self._part(part).open(encoding="utf-8") as lines:
            return [FileCandidate.from_dict(json.loads(line)) for line in lines]

    def _part(self, number: int) -> Path:
        return self.folder / "parts" / f"{number:05}.jsonl"

    # Tasks

    def output(self, stage: str, number: int) -> Path:
        """Return the file that a task writes, or the folder for a reading task."""
        return self.folder / stage / f"{number:05}{_SUFFIXES[stage]}"

    def missing(self, stage: str, tasks: int) -> list[int]:
        """Return the numbers of the unfinished tasks of a stage with ``tasks`` tasks."""
        finished = {entry.name for entry in (self.folder / stage).iterdir()}
        return [number for number in range(tasks) if self.output(stage, number).name not in finished]

    def write_result(self, stage: str, number: int, fields: Mapping[str, object]) -> None:
        """Write the result of a task, as JSON values."""
        replace_file(self.output(stage, number), json.dumps(fields).encode())

    def result(self, stage: str, number: int) -> dict[str, Any]:
        """Return the result of a task."""
        found: dict[str, Any] = json.loads(self.output(stage, number).read_bytes())
        return found

    def forget(self, number: int) -> None:
        """Remove the results of the tasks of a store."""
        for stage in (WRITE, FINISH):
            self.output(stage, number).unlink(missing_ok=True)

    def share(self, number: int) -> StoreShare:
        """Return the share of a store."""
        return StoreShare.from_dict(json.loads(self._share(number).read_bytes()))

    def write_share(self, number: int, share: StoreShare) -> None:
        """Write the share of a store."""
        replace_file(self._share(number), json.dumps(share.to_dict()).encode())

    def _share(self, number: int) -> Path:
        return self.folder / "shares" / f"{number:05}.json"

    def write_count(self, number: int, count: int) -> None:
        """Write the number of chunks that a task has written into its store so far."""
        replace_file(self.folder / WRITE / f"{number:05}.count", str(count).encode())

    def count(self, numbers: Iterable[int]) -> int:
        """Return the number of chunks that the tasks ``numbers`` have written so far."""
        total = 0
        for number in numbers:
            with suppress(FileNotFoundError):
                total += int((self.folder / WRITE / f"{number:05}.count").read_bytes())
        return total

    # What all stores have in common

    @property
    def boilerplate_file(self) -> Path:
        """The file with the boilerplate lines."""
        return self.folder / "boilerplate.json"

    def write_boilerplate(self, found: BoilerplateCounts) -> None:
        """Write the boilerplate lines."""
        replace_file(self.boilerplate_file, json.dumps(found).encode())

    def boilerplate(self) -> dict[str, dict[int, int]] | None:
        """Return the key and number of files of each boilerplate line, by kind; None if nothing changes."""
        if not self.boilerplate_file.exists():
            return None
        kept = json.loads(self.boilerplate_file.read_bytes())
        return {kind: {int(key): files for key, files in counts.items()} for kind, counts in kept.items()}

    def write_fit(self, fit: Fit) -> None:
        """Write the fit that all stores will use."""
        fit.embedder.save(self.folder / "common")
        write_arrays(self._queries, {"none": np.zeros(0), **query_arrays(fit.queries)})

    def fit(self, device: str | None) -> Fit | None:
        """Return the fit that all stores will use, or None if they keep theirs."""
        if not self.has_fit():
            return None
        embedder = Embedder.load(self.folder / "common", device=device)
        return Fit(embedder, queries_of(read_arrays(self._queries)))

    def has_fit(self) -> bool:
        """Return whether the stores will use a new fit."""
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


def balanced(files: Sequence[FileCandidate], parts: int) -> list[list[FileCandidate]]:
    """Divide ``files``, in order, into ``parts`` non-empty lists with about the same size in bytes."""
    if not parts:
        return []
    ends = np.cumsum([file.size + 1 for file in files])
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts).tolist(), len(files)]
    for i in range(1, parts):
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), len(files) - (parts - i))
    return [list(files[start:stop]) for start, stop in pairwise(cuts)]
