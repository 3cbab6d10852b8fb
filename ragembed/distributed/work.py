"""The plan of a run with workers, and the work folder with the files between the stages.

::

    plan.json                paths, settings and parts of the run
    parts/00000.jsonl        files to read, each with what its store knows of it
    read/00000/              for each part: spool.jsonl, part.json
    boilerplate.json         boilerplate lines, which are not searched
    shares/00000.json        for each store: the parts to write into it
    fit/00000.safetensors    for each new store: its part of the fit
    write/00000.count        number of chunks encoded so far
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
from ragembed.indexes.indexing.fitting import Fit
from ragembed.indexes.indexing.request import IndexingOptions
from ragembed.indexes.storage.fit_queries import queries_of, query_arrays
from ragembed.indexes.storage.layout import NamesInStore
from ragembed.indexes.storage.work_folder import PLAN, WorkFolder
from ragembed.indexes.types import SourceRecord
from ragembed.tensor_map import map_tensors

NEW = -1
"""Owner of a part with new files, which go to any store."""

PART_BYTES = 8 * 1024 * 1024
"""Approximate size of the files of a part, in bytes. If a worker dies, its whole part is read again."""
PARTS_PER_STORE = 8
"""Minimum number of parts with new files for each store, if there are as many files: they divide evenly."""

READ, FIT, WRITE, FINISH = STAGES = ("read", "fit", "write", "finish")
"""The stages. The first has one task per part, the others have one per store."""

_SUFFIXES = {READ: "", FIT: ".safetensors", WRITE: ".json", FINISH: ".json"}


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """The files and settings of a run.

    ``id`` distinguishes plans with the same settings. ``store`` is the absolute path of the first store, and ``stores``
    the number of stores to create. ``config`` is the configuration of the embedder without post-processors; settings
    that depend on the machine are resolved. ``owners`` has the number of the store of each part, or ``NEW``. ``digest``
    is a hash of all files.
    """

    id: str
    store: str
    stores: int
    paths: list[str]
    gone: list[str]
    options: Mapping[str, Any]
    config: Mapping[str, Any]
    owners: list[int]
    files: int
    digest: str


class Work:
    """Reads and writes the files of a work folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = WorkFolder(folder)

    # The plan

    def begin(
        self,
        store: Path,
        stores: int,
        places: tuple[Sequence[Place], Sequence[Place]],
        options: IndexingOptions,
        embedder: Embedder,
        waiting: Sequence[FileCandidate],
        known: Mapping[str, SourceRecord],
        owners: Mapping[str, int],
    ) -> WorkPlan:
        """Write a plan to read the files ``waiting``, found in the paths ``places``, which exist or are gone.

        If the same run was interrupted while it made the stores, its plan holds. ``known`` are the files that the
        stores contain, and ``owners`` the number of the store of each, by name.
        """
        names = NamesInStore(store)
        groups: dict[int, list[FileCandidate]] = {}
        for candidate in waiting:
            groups.setdefault(owners.get(names.of(candidate.path), NEW), []).append(candidate)
        parts = [
            (owner, part)
            for owner, group in sorted(groups.items())
            for part in balanced(group, PARTS_PER_STORE * stores if owner == NEW else 1)
        ]
        paths, gone = ([absolute(place) for place in group] for group in places)
        # Post-processors are fitted after all texts are encoded, so the configuration of the plan has none.
        config = embedder.resolved_config().replace(postprocess=(), query_fit="shared")
        wanted, settings = _as_json([options.to_dict(), config.to_dict()])
        digest = hashlib.sha256(json.dumps([file.to_dict() for file in waiting]).encode()).hexdigest()
        plan = WorkPlan(
            id=uuid.uuid4().hex,
            store=str(store.absolute()),
            stores=stores,
            paths=paths,
            gone=gone,
            options=wanted,
            config=settings,
            owners=[owner for owner, _ in parts],
            files=len(waiting),
            digest=digest,
        )
        former = self.find_plan()
        if former is not None and not known and replace(plan, id=former.id) == former:
            return former
        self.files.restart()
        for name in ("parts", "shares", *STAGES):
            make_folders(self.folder / name)
        for number, (_, candidates) in enumerate(parts):
            sources = (known.get(names.of(file.path)) for file in candidates)
            pairs = zip(candidates, sources, strict=True)
            lines = [json.dumps([file.to_dict(), None if known is None else asdict(known)]) for file, known in pairs]
            replace_file(self._part(number), "\n".join(lines).encode())
        self.files.write_plan(asdict(plan))
        return plan

    def find_plan(self) -> WorkPlan | None:
        """Return the plan, or None if there is no complete plan."""
        fields = self.files.read_plan()
        return WorkPlan(**fields) if fields else None

    @cached_property
    def plan(self) -> WorkPlan:
        """The plan, which must exist before any task runs."""
        plan = self.find_plan()
        if plan is None:
            raise ConfigError(f"{self.folder} has no {PLAN}: it was removed during the run; run the command again")
        return plan

    @cached_property
    def options(self) -> IndexingOptions:
        """The options for reading and chunking."""
        return IndexingOptions.from_dict(self.plan.options)

    def unfitted(self, device: str | None) -> Embedder:
        """Return a new embedder with the configuration of the plan."""
        return Embedder(EmbedderConfig.from_dict(dict(self.plan.config)), device=device, download=False)

    def candidates(self, part: int) -> tuple[list[FileCandidate], dict[str, SourceRecord]]:
        """Return the files of a part, and those that a store contained when the plan was made, by name."""
        pairs = [json.loads(line) for line in self._part(part).read_text(encoding="utf-8").splitlines()]
        sources = [SourceRecord(**source) for _, source in pairs if source is not None]
        return [FileCandidate.from_dict(file) for file, _ in pairs], {source.path: source for source in sources}

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
        return _read_json(self.output(stage, number))

    def forget(self, number: int) -> None:
        """Remove the results of the tasks of a store."""
        for stage in (WRITE, FINISH):
            self.output(stage, number).unlink(missing_ok=True)

    def share(self, number: int) -> dict[str, Any]:
        """Return the share of a store: its path, the numbers of its parts, its scan and requirements for the index."""
        return _read_json(self._share(number))

    def write_share(self, number: int, share: Mapping[str, object]) -> None:
        """Write the share of a store."""
        replace_file(self._share(number), json.dumps(share).encode())

    def _share(self, number: int) -> Path:
        return self.folder / "shares" / f"{number:05}.json"

    def write_count(self, number: int, count: int) -> None:
        """Write the number of chunks that a task has encoded so far."""
        replace_file(self._count(number), str(count).encode())

    def count(self, numbers: Iterable[int]) -> int:
        """Return the number of chunks that the tasks ``numbers`` have encoded so far."""
        total = 0
        for number in numbers:
            with suppress(FileNotFoundError):
                total += int(self._count(number).read_bytes())
        return total

    def _count(self, number: int) -> Path:
        return self.folder / WRITE / f"{number:05}.count"

    # What all stores have in common

    @property
    def boilerplate_file(self) -> Path:
        """The file with the boilerplate lines."""
        return self.folder / "boilerplate.json"

    def write_boilerplate(self, lines: BoilerplateCounts) -> None:
        """Write the boilerplate lines."""
        replace_file(self.boilerplate_file, json.dumps(lines).encode())

    def boilerplate(self) -> dict[str, dict[int, int]] | None:
        """Return the key and number of files of each boilerplate line, by kind; None if nothing changes."""
        if not self.boilerplate_file.exists():
            return None
        kinds = _read_json(self.boilerplate_file)
        return {kind: {int(key): files for key, files in counts.items()} for kind, counts in kinds.items()}

    def write_fit(self, fit: Fit) -> None:
        """Write the fit that all stores will use."""
        fit.embedder.save(self.folder / "common")
        write_arrays(self._queries, {"none": np.zeros(0)} if fit.queries is None else query_arrays(fit.queries))

    def fit(self, device: str | None) -> Fit | None:
        """Return the fit that all stores will use, or None if they keep theirs."""
        if not self.has_fit():
            return None
        arrays = map_tensors(self._queries)
        queries = None if "none" in arrays else queries_of(arrays)
        return Fit(Embedder.load(self.folder / "common", device=device), queries)

    def has_fit(self) -> bool:
        """Return whether the stores will use a new fit."""
        return self._queries.exists()

    @property
    def _queries(self) -> Path:
        return self.folder / "common" / "queries.safetensors"


def _as_json(value: object) -> Any:
    """Return a value as it is read back from JSON, with lists in place of tuples."""
    return json.loads(json.dumps(value))


def _read_json(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(file.read_bytes())
    return values


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file atomically."""
    from safetensors.numpy import save

    replace_file(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def balanced(files: Sequence[FileCandidate], least: int) -> list[list[FileCandidate]]:
    """Divide ``files``, in order, into parts of similar size in bytes: ``least`` or more, as far as there are files."""
    ends = np.cumsum([file.size + 1 for file in files])
    parts = min(max(least, -(-int(ends[-1]) // PART_BYTES)), len(files))
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts).tolist(), len(files)]
    for i in range(1, parts):
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), len(files) - (parts - i))
    return [list(files[start:stop]) for start, stop in pairwise(cuts)]
