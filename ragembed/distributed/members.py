"""A collection's stores, written in parallel: each worker writes a store of its own, and all stores share one fit.

A first run writes the stores below a hidden folder, and renames this folder when all of them are complete, so a part of
a collection is never visible. A later run writes each changed file to the store that has it, and divides new files so
that the stores have similar numbers of chunks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from ragembed.distributed.backend import DistributedBackend
from ragembed.distributed.stages import MEMBER_SECONDS, ChunkedShards
from ragembed.distributed.work import FINISH, WRITE, MemberShare, Work
from ragembed.distributed.workers import WorkerPool
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, StoreError
from ragembed.files import sync
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.backend import LocalBackend, Present
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import IndexingReport, IndexRun
from ragembed.indexes.indexing.scan import Scan
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import require_own
from ragembed.indexes.storage.layout import WORK, is_store, require_writable
from ragembed.indexes.storage.work_folder import WorkFolder
from ragembed.indexes.store import Store
from ragembed.indexes.text.stemming import ENGLISH
from ragembed.indexes.types import Progress, SilentProgress, SourceRecord
from ragembed.indexes.writing.boilerplate_store import STRIP, found_in, staying
from ragembed.types import Doubles, Integers


def create_members(
    request: IndexingRequest,
    members: int,
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
) -> IndexingReport:
    """Create the stores of a collection, each in a worker of its own.

    The stores are called ``1``, ``2`` and so on. They share one embedder, so :class:`ragembed.Collection` searches them
    as if one store had all chunks. They appear when all of them are complete. If the run is interrupted, the next one
    continues it.

    Parameters
    ----------
    request
        The files and the settings of the run. ``store`` is the folder of the collection, which must be missing or
        empty.
    members
        Number of stores; fewer if there are fewer files.
    pool
        The workers. If one dies, another continues its store after the last committed batch.
    progress
        Receives the progress of each stage.
    dry_run
        Only report what would be indexed.

    Raises
    ------
    ConfigError
        If there is nothing to index.
    StoreError
        If the folder holds anything.
    WorkerLostError
        If workers that perform the same task die repeatedly.
    RagembedError
        Any other error of :func:`~ragembed.indexes.indexing.run.index_files`.
    """
    if members < 1:
        raise ConfigError(f"members is {members}: expected 1 or more stores")
    folder = request.store.absolute()
    unfinished = folder.with_name(f".{folder.name.lstrip('.')}.unfinished")
    require_writable(folder)
    _require_free(folder)
    _require_own(unfinished)
    backend = LocalBackend() if dry_run else DistributedBackend(unfinished / WORK, pool, device=request.device)
    # Names of files are relative to the folder that holds a store, so they are the same for all stores.
    named = replace(request, store=unfinished / "1")
    try:
        report = _MembersRun(named, (), members, progress or SilentProgress(), backend).run(dry_run, 0.0)
    except BaseException:
        with suppress(OSError):  # The folder does not exist, or holds what the next run continues.
            unfinished.rmdir()
        raise
    if not dry_run:
        _require_free(folder)  # Check again: another process may have written there meanwhile.
        unfinished.rename(folder)
        sync(folder.parent)
    return report


def update_members(
    request: IndexingRequest,
    stores: Sequence[Path],
    pool: WorkerPool,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Update the stores of a collection after their files changed.

    Parameters
    ----------
    request
        The files and the settings of the run. ``store`` is not used.
    stores
        Folders of all stores that :func:`create_members` has made, beside each other.
    pool, progress, dry_run
        As in :func:`create_members`.
    wait_seconds
        Time to wait for another process that writes to a store.

    Raises
    ------
    ConfigError
        If the stores are not all parts of the same files, or have different embedders.
    RagembedError
        Any error of :func:`create_members`.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(Store.open(path.absolute(), device=request.device)) for path in stores]
        _require_together(opened)
        work = opened[0].path / WORK
        backend = LocalBackend() if dry_run else DistributedBackend(work, pool, device=request.device)
        named = replace(request, store=opened[0].path)
        return _MembersRun(named, opened, 0, progress or SilentProgress(), backend).run(dry_run, wait_seconds)


def stores_in(folder: Path) -> dict[str, Path]:
    """Return the stores in the folder of a collection by name; none if the folder does not exist."""
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if not entry.is_symlink() and is_store(entry)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: (len(entry.name), entry.name))}


_REMEDY = "choose another folder for the collection with --store"


def _require_free(folder: Path) -> None:
    """Raise :class:`StoreError` unless the folder is missing or empty."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: {_REMEDY}")
    for entry in folder.iterdir() if folder.exists() else ():
        raise StoreError(f"{folder} holds {entry.name!r}: expected a missing or empty folder; {_REMEDY}")


def _require_own(folder: Path) -> None:
    """Raise :class:`StoreError` unless the folder is missing, or holds only stores and a work folder of ragembed."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: {_REMEDY}")
    for entry in sorted(folder.iterdir()) if folder.exists() else ():
        if entry.name == WORK and WorkFolder(entry).is_ours():
            continue
        if not entry.is_dir() or entry.is_symlink():
            raise StoreError(f"{folder} holds {entry.name!r}, which is not a store of a collection: {_REMEDY}")
        require_own(entry, _REMEDY)


def _require_together(opened: Sequence[Store]) -> None:
    """Raise :class:`ConfigError` unless the stores are all parts of the same files, beside each other."""
    if not opened:
        raise ConfigError("there are no stores to update: expected those of a collection")
    if len({store.path.parent for store in opened}) > 1:
        raise ConfigError(
            f"{opened[0].path} and other stores of the collection are in different folders: update each store with "
            "'ragembed index --store STORE'"
        )
    parts = []
    for store in opened:
        if (part := store._part) is None:
            raise ConfigError(
                f"{store.path} was not made together with other stores: update it with 'ragembed index --store "
                f"{store.path}'"
            )
        parts.append(part)
    if len({part.collection for part in parts}) > 1:
        raise ConfigError(
            f"the stores of the collection in {opened[0].path.parent} were not made together: update each collection "
            "of stores that were with 'ragembed index --collection NAME'"
        )
    if len(parts) < parts[0].stores:
        raise ConfigError(
            f"some of the stores that were made together with {opened[0].path} are not in the collection: add them "
            "with 'ragembed collection add', because their files would be indexed again"
        )


class _MembersRun(IndexRun):
    """A run that changes the stores ``opened``, or, if there are none, creates ``count`` stores.

    They are in the folder that holds ``request.store``.
    """

    def __init__(
        self,
        request: IndexingRequest,
        opened: Sequence[Store],
        count: int,
        progress: Progress,
        backend: DistributedBackend | LocalBackend,
    ) -> None:
        super().__init__(request, opened[0] if opened else None, progress, backend)
        self._folder = request.store.parent
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
                f"the stores in {self._folder} have different embedders: make them equal with 'ragembed collection "
                "refit NAME', then index again"
            )
        sources: dict[str, SourceRecord] = {}
        for number, store in enumerate(self._members):
            own = store.sources()
            if double := own.keys() & sources.keys():
                raise ConfigError(
                    f"two stores in {self._folder} have the file {min(double)}: delete it from one of them with "
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
        chunks = chunked.chunks + sum(map(len, self._members))
        for store in self._members:
            # SQLite's log works for processes of one machine only, and workers may be on others.
            store.close()
        backend.perform(WRITE, len(paths), "embedding", "chunks", chunked.chunks, progress)
        scan.warnings += self._fit_if_needed(work, paths, wait_seconds)
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
        paths = [self._folder / str(number + 1) for number in range(count)]
        left = [path for path in self._folder.iterdir() if path.name != WORK and path not in paths]
        record = PartRecord(work.plan.id, count, None)
        for number, path in enumerate(paths):
            if is_store(path):
                with Store.open(path) as store:
                    if store._part is not None and replace(store._part, indexing=None) == record:
                        continue
            if path.exists():
                left.append(path)
            work.forget(number)
        for path in left:
            require_own(path, _REMEDY)
            shutil.rmtree(path)
        for path in paths:
            if not path.exists():
                about = {**meta, PART: record.to_dict()}
                Store.create(path, embedder, about, language=self._language or ENGLISH).close()
        return paths

    def _shares(self, work: Work, paths: Sequence[Path], chunked: ChunkedShards, scan: Scan) -> list[MemberShare]:
        """Return the share of each store; an interrupted run has divided the files already."""
        kept = [share for number in range(len(paths)) if (share := work.share(number)) is not None]
        if len(kept) == len(paths):
            return [replace(share, index=self._index) for share in kept]
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
            shares.append(MemberShare(str(path), files, own, self._index))
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
