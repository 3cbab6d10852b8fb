"""A collection's stores, written in parallel: each worker writes a store of its own, and all stores share one fit.

The stores are folders in one folder, the *folder of the collection*. A first run writes them below a hidden folder
beside it, and renames this folder when all stores are complete, so a part of a collection is never visible. A later run
writes each changed file to the store that has it, and divides new files so that the stores have similar numbers of
chunks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from ragembed.distributed.backend import DistributedBackend
from ragembed.distributed.stages import MEMBER_SECONDS, ChunkedShards
from ragembed.distributed.work import FINISH, WRITE, Share, Work
from ragembed.distributed.workers import WorkerPool
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, StoreError
from ragembed.files import sync
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.backend import LocalBackend, Present
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import IndexingReport, IndexingRun
from ragembed.indexes.indexing.scan import Scan
from ragembed.indexes.storage.folders import require_own
from ragembed.indexes.storage.layout import MEMBER, WORK, is_store, require_writable
from ragembed.indexes.storage.work_folder import WorkFolder
from ragembed.indexes.store import Store
from ragembed.indexes.text.stemming import ENGLISH
from ragembed.indexes.types import Progress, SilentProgress, SourceRecord
from ragembed.indexes.writing.boilerplate_store import STRIP, found_in, staying
from ragembed.types import Doubles, Integers


def index_members(
    request: IndexingRequest,
    members: int,
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Create or update the stores of a collection, each in a worker of its own.

    The stores share one embedder, so :class:`ragembed.Collection` searches them as if one store had all chunks.

    Parameters
    ----------
    request
        The files and the settings of the run. ``store`` is the folder of the collection.
    members
        Number of stores of a new collection; fewer if there are fewer files. An existing collection keeps its number.
    pool
        The workers. If one dies, another continues its store after the last committed batch.
    progress
        Receives the progress of each stage.
    dry_run
        Only report what would change.
    wait_seconds
        Time to wait for another process that updates the collection.

    Raises
    ------
    ConfigError
        If there is nothing to index, or the stores of the collection do not belong together.
    StoreError
        If the folder holds anything else than stores.
    WorkerLostError
        If workers that perform the same task die repeatedly.
    RagembedError
        Any other error of :func:`~ragembed.indexes.indexing.run.index_files`.
    """
    if members < 1:
        raise ConfigError(f"members is {members}: expected 1 or more stores")
    progress = progress or SilentProgress()
    folder = request.store.absolute()
    existing = stores_in(folder)
    base = folder if existing else _unfinished(folder)
    backend = LocalBackend() if dry_run else DistributedBackend(base / WORK, pool, device=request.device)
    with ExitStack() as stack:
        opened = [stack.enter_context(Store.open(path, device=request.device)) for path in existing.values()]
        if foreign := [store.path for store in opened if store._member is None]:
            raise ConfigError(
                f"{foreign[0]} was not made with 'ragembed index --collection': update it with 'ragembed index --store "
                f"{foreign[0]}', or choose another folder for the collection with --store"
            )
        require_writable(base)
        _require_own(folder)
        _require_own(base)
        # Names of files are relative to the folder that holds a store, so they are the same for all stores.
        named = replace(request, store=base / "1")
        report = _MembersRun(named, base, opened, members, progress, backend).run(dry_run, wait_seconds)
    if not (existing or dry_run):
        base.rename(folder)
        sync(folder.parent)
    return report


def stores_in(folder: Path) -> dict[str, Path]:
    """Return the stores in the folder of a collection by name; none if the folder does not exist."""
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if not entry.is_symlink() and is_store(entry)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: (len(entry.name), entry.name))}


def _unfinished(folder: Path) -> Path:
    """Return the folder in which the stores of a new collection are written."""
    return folder.with_name(f".{folder.name.lstrip('.')}.unfinished")


def _require_own(folder: Path) -> None:
    """Raise :class:`StoreError` unless the folder is missing, or holds only stores and a work folder of ragembed."""
    remedy = "choose another folder for the collection with --store"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: {remedy}")
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.name == WORK and WorkFolder(entry).is_ours():
            continue
        if not entry.is_dir() or entry.is_symlink():
            raise StoreError(f"{folder} holds {entry.name!r}, which is not a store of a collection: {remedy}")
        require_own(entry, remedy)


class _MembersRun(IndexingRun):
    """A run that changes the stores ``opened``, or creates ``count`` stores in ``base`` if there are none."""

    def __init__(
        self,
        request: IndexingRequest,
        base: Path,
        opened: Sequence[Store],
        count: int,
        progress: Progress,
        backend: DistributedBackend | LocalBackend,
    ) -> None:
        super().__init__(request, opened[0] if opened else None, progress, backend)
        self._base = base
        self._members = list(opened)
        self._count = count
        self._owners: dict[str, int] = {}

    @override
    def _present(self) -> Present:
        if not self._members:
            return super()._present()
        embedders = [self._stored_embedder(store) for store in self._members]
        if len({each.raw_fingerprint for each in embedders}) > 1:
            raise ConfigError(
                f"the stores in {self._base} have different embedders: make them equal with 'ragembed collection "
                "refit NAME', then index again"
            )
        sources: dict[str, SourceRecord] = {}
        for number, store in enumerate(self._members):
            own = store.sources()
            if double := own.keys() & sources.keys():
                raise ConfigError(
                    f"two stores in {self._base} have the file {min(double)}: delete it from one of them with "
                    f"'ragembed delete --store {store.path}'"
                )
            sources |= own
            self._owners |= dict.fromkeys(own, number)
        generation = sum(store.generation for store in self._members)
        tokens = [token for store in self._members if (token := store._resume_token) is not None]
        return Present(embedders[0], sources, generation, next(iter(tokens), None))

    @override
    def _encoded(self, hashes: Iterable[bytes]) -> set[bytes]:
        wanted = list(hashes)
        return {found for store in self._members for found in store._encoded(wanted)}

    @override
    def _perform(self, wait_seconds: float) -> IndexingReport:
        backend, progress = self._backend, self._progress
        assert isinstance(backend, DistributedBackend), "only a dry run has another"  # noqa: S101
        work = backend.work
        embedder, chunked, scan = self._scan()
        assert isinstance(chunked, ChunkedShards), "those of the backend"  # noqa: S101
        if self._members:
            paths = [store.path for store in self._members]
            self._find_boilerplate(work, chunked, scan)
        else:
            provisional, meta = self._fit_new(embedder, chunked, scan)
            paths = self._created(work, provisional, meta, min(self._count, chunked.files))
        for number, share in enumerate(self._shares(work, paths, chunked, scan)):
            work.write_share(number, share)
        backend.perform(WRITE, len(paths), "embedding", "chunks", chunked.chunks, progress)
        scan.warnings += self._fit_if_needed(work, paths, wait_seconds)
        chunks = chunked.chunks + sum(map(len, self._members))
        backend.perform(FINISH, len(paths), "finishing", "chunks", chunks, progress)
        results = [work.result(stage, number) for stage in (WRITE, FINISH) for number in range(len(paths))]
        scan.warnings += dict.fromkeys(warning for result in results for warning in result["warnings"])
        devices = dict.fromkeys(device for result in results for device in result.get("devices", ()))
        return IndexingReport(
            scan,
            sum(result.get("chunks", 0) for result in results),
            sum(result.get("encoded", 0) for result in results),
            self._seconds(),
            tuple(devices),
            stages=tuple(backend.reports),
        )

    def _find_boilerplate(self, work: Work, chunked: ChunkedShards, scan: Scan) -> None:
        """Find the lines that many files repeat in the files of all stores, and write them for the workers."""
        changes = chunked.files or scan.removed or any(store.unfinished for store in self._members)
        if not changes or work.boilerplate_file.exists():
            return
        leaving = {*scan.removed, *chunked.lines}
        files = dict(chunked.lines)
        for store in self._members if self._options.boilerplate == STRIP else ():
            files |= store._reader.read(lambda snapshot: staying(snapshot.connection, leaving)[0])
        work.write_boilerplate(found_in(files) if self._options.boilerplate == STRIP else {})

    def _created(self, work: Work, embedder: Embedder, meta: Mapping[str, object], count: int) -> list[Path]:
        """Create empty stores, except those that an interrupted run with the same plan has created."""
        paths = [self._base / str(number + 1) for number in range(count)]
        left = [path for path in self._base.iterdir() if path.name != WORK and path not in paths]
        for number, path in enumerate(paths):
            if is_store(path):
                with Store.open(path) as store:
                    if store._member == work.plan.id:
                        continue
            if path.exists():
                left.append(path)
            work.forget(number)
        for path in left:
            _require_own(self._base)
            shutil.rmtree(path)
        for path in paths:
            if not path.exists():
                about = {**meta, MEMBER: work.plan.id}
                Store.create(path, embedder, about, language=self._language or ENGLISH).close()
        return paths

    def _shares(self, work: Work, paths: Sequence[Path], chunked: ChunkedShards, scan: Scan) -> list[Share]:
        """Return the share of each store; an interrupted run has divided the files already."""
        kept = [share for number in range(len(paths)) if (share := work.share(number)) is not None]
        if len(kept) == len(paths):
            return [replace(share, token_vectors=self._token_vectors, index=self._index) for share in kept]
        owners = np.array([self._owners.get(name, -1) for name in chunked.lines], dtype=np.int64)
        new = owners < 0
        owners[new] = divide(chunked.sizes[new], [len(store) for store in self._members] or [0] * len(paths))
        shares = []
        for number, path in enumerate(paths):
            own = replace(
                scan,
                removed=[name for name in scan.removed if self._owners[name] == number],
                touched=[source for source in scan.touched if self._owners[source.path] == number],
                skipped={} if number else scan.skipped,
                warnings=[],
            )
            files = np.flatnonzero(owners == number).tolist()
            shares.append(Share(str(path), files, own, self._token_vectors, self._index))
        return shares

    def _fit_if_needed(self, work: Work, paths: Sequence[Path], wait_seconds: float) -> list[str]:
        """Fit the post-processors on all stores, if needed, for the workers; return warnings."""
        if work.has_fit():
            return []
        with ExitStack() as stack:
            opened = []
            for path in paths:
                store = stack.enter_context(Store.open(path, device=self._device))
                opened.append((store, stack.enter_context(store.writer(max(wait_seconds, MEMBER_SECONDS)))))
            fit, warnings = fitting.fit_if_needed(opened, self._progress)
        if fit is not None:
            work.write_fit(fit)
        return warnings


def divide(sizes: Integers, loads: Sequence[int]) -> Integers:
    """Divide files among stores, in order, so that the stores have similar numbers of chunks.

    Parameters
    ----------
    sizes
        Number of chunks of each file, shape ``(n,)``.
    loads
        Number of chunks that each store has already. If no store has any, each gets at least one file if there are
        enough.

    Returns
    -------
    numpy.ndarray
        Number of the store of each file, ascending, int64, shape ``(n,)``.
    """
    weights = np.maximum(sizes, 1)
    ends = np.cumsum(weights)
    present = np.array(loads, dtype=np.float64)
    level = _level(present, float(weights.sum()))
    room = np.maximum(level - present, 0)
    cuts = np.searchsorted(ends - weights / 2, np.cumsum(room)[:-1]).tolist()
    if not present.any():
        for i in range(len(cuts)):
            cuts[i] = min(max(cuts[i], i + 1), len(sizes) - (len(cuts) - i))
    return np.searchsorted(np.array(cuts, dtype=np.int64), np.arange(len(sizes)), side="right")


def _level(present: Doubles, added: float) -> float:
    """Return the number of chunks up to which stores are filled if ``added`` chunks go to those with the fewest."""
    ordered = np.sort(present)
    levels = (np.cumsum(ordered) + added) / np.arange(1, len(ordered) + 1)
    filled = np.flatnonzero(levels >= ordered)[-1]
    return float(levels[filled])
