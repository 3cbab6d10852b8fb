"""Split a store into several, and merge several into one, without encoding anything.

New stores are made from the texts and raw vectors of the old ones, in a folder with a temporary name beside them, and
verified. They then get their names, and the caller's function replaces the old stores by them, for example in a
collection. The old stores are not changed.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, StoreDamagedError, StoreError
from ragembed.files import sync
from ragembed.indexes.indexing.calibration import LANGUAGE
from ragembed.indexes.indexing.fitting import sample_raw
from ragembed.indexes.search.relevance import KEY as RELEVANCE
from ragembed.indexes.search.relevance import mean_relevance
from ragembed.indexes.search.snapshot import StoreSnapshot
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.storage.baseline import KEY as BASELINE
from ragembed.indexes.storage.baseline import Baseline, load_baseline
from ragembed.indexes.storage.catalog import PART, PartRecord
from ragembed.indexes.storage.folders import require_own, temporary_folder, temporary_name
from ragembed.indexes.storage.hubness import KEY as HUBNESS
from ragembed.indexes.storage.hubness import DrawnQueries, MergedQueries
from ragembed.indexes.storage.layout import DATABASE, GITIGNORE, STORE_FOLDER, is_store, require_store, root_of
from ragembed.indexes.storage.lock import watcher_lock, writer_lock
from ragembed.indexes.storage.run_records import taken_out
from ragembed.indexes.storage.transactions import open_for_reading, write_errors
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Keys, Progress, Rows, SilentProgress, SourceRecord, VectorEncoder
from ragembed.indexes.verify.run import first_problem
from ragembed.indexes.writing import boilerplate_store
from ragembed.indexes.writing.boilerplate_store import BoilerplateLine
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.postprocess.moments import Moments
from ragembed.types import Halves, Integers

MADE_FROM = "made_from"
"""Key of the record of the stores that a store was made from, by which a run recognises what it has finished."""

_BATCH = 4096
_BLOCK = 25_000

_OWN_META = (
    *("boilerplate", "dim", "embedder", "generation", "indexing", "index_check", "index_choice", "ragembed"),
    *("unfinished", "words", "work", BASELINE, HUBNESS, LANGUAGE, MADE_FROM, PART, RELEVANCE),
)
"""JSON values that are not copied as they are."""

Switch = Callable[[Mapping[str, Path]], None]
"""Replaces the old stores by the new ones, by name."""


def split_store(
    path: str | Path,
    names: Sequence[str],
    switch: Switch | None = None,
    *,
    embedder: VectorEncoder | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
    remove: bool = False,
) -> dict[str, Path]:
    """Split a store into several with a similar number of chunks, without encoding anything.

    Each file is in one of the new stores, with all of its chunks. The new stores are beside the old one, in folders
    called ``.ragembed-NAME``, because the names of files are relative to the folder that holds a store. Searched
    together, they give the ids and scores of the old store; see :class:`ragembed.Collection`. The same store is always
    divided in the same way.

    Parameters
    ----------
    path : str or pathlib.Path
        Folder of the store.
    names : sequence of str
        Names of the new stores, two or more.
    switch : callable, optional
        Function that replaces the old store by the new ones. It gets their folders by name. The new stores are
        complete, and no process writes to the old store meanwhile.
    embedder : ragembed.indexes.VectorEncoder, optional
        The embedder of the store, if it is not a :class:`ragembed.Embedder`.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``.
    wait_seconds : float, default 0.0
        Maximum time in seconds to wait while another process writes to the store.
    remove : bool, default False
        Whether to remove the old store at the end.

    Returns
    -------
    dict of str to pathlib.Path
        The folders of the new stores, by name.

    Raises
    ------
    ConfigError
        If there are fewer than two names, or the store has fewer files than names.
    StoreError
        If the last indexing run of the store was interrupted, or the disk has not enough space.
    StoreLockedError
        If another process writes to the store for longer than ``wait_seconds``.

    Examples
    --------
    >>> from ragembed.indexes import split_store
    >>> split_store("notes/.ragembed", ["notes-1", "notes-2"])  # doctest: +SKIP
    {'notes-1': PosixPath('notes/.ragembed-notes-1'), 'notes-2': PosixPath('notes/.ragembed-notes-2')}
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"cannot split a store into {', '.join(names) or 'nothing'}: expected two names or more")
    run = _Rebalancing([Path(path)], embedder, progress or SilentProgress(), wait_seconds)

    def plan(olds: Sequence[_Old]) -> Mapping[str, Sequence[_Share]]:
        [old] = olds
        parts = _divided(old, len(names))
        return {name: [share] for name, share in zip(names, parts, strict=True)}

    return run.run(names, plan, switch, remove=remove)


def merge_stores(
    paths: Sequence[str | Path],
    name: str,
    switch: Switch | None = None,
    *,
    embedder: VectorEncoder | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
    remove: bool = False,
) -> Path:
    """Merge stores with the same embedder and language into one, without encoding anything.

    The stores are beside each other, as :func:`split_store` makes them, and so is the new one, in the folder
    ``.ragembed-NAME``. It gives the ids and scores of the old stores searched together.

    Parameters
    ----------
    paths : sequence of str or pathlib.Path
        Folders of the stores, two or more.
    name : str
        Name of the new store.
    switch, embedder, progress, wait_seconds, remove : optional
        As in :func:`split_store`.

    Returns
    -------
    pathlib.Path
        The folder of the new store.

    Raises
    ------
    ConfigError
        If the stores have different embedders or languages, are not beside each other, or have a file or a chunk id in
        common.
    StoreError
        If the last indexing run of a store was interrupted, or the disk has not enough space.
    StoreLockedError
        If another process writes to a store for longer than ``wait_seconds``.

    Examples
    --------
    >>> from ragembed.indexes import merge_stores
    >>> merge_stores(["notes/.ragembed-notes-1", "notes/.ragembed-notes-2"], "notes")  # doctest: +SKIP
    PosixPath('notes/.ragembed-notes')
    """
    folders = [Path(path) for path in paths]
    if len({folder.resolve() for folder in folders}) < max(len(folders), 2):
        raise ConfigError(f"cannot merge {', '.join(map(str, folders)) or 'nothing'}: expected two stores or more")
    run = _Rebalancing(folders, embedder, progress or SilentProgress(), wait_seconds)

    def plan(olds: Sequence[_Old]) -> Mapping[str, Sequence[_Share]]:
        _require_alike(olds)
        return {name: [_whole(old) for old in olds]}

    return run.run([name], plan, switch, remove=remove)[name]


@dataclass(frozen=True, slots=True)
class _Old:
    """An old store, which nobody writes to."""

    path: Path
    snapshot: StoreSnapshot


@dataclass(frozen=True, slots=True)
class _Share:
    """The part of an old store that a new one gets: the share ``of`` its files, with all of their chunks.

    ``keys`` are the keys of these chunks, ascending, and ``rows`` the row of each; shapes ``(n,)``. ``skipped`` are
    reasons for files that were skipped. ``renamed`` are the new keys of vectors whose key another vector has in the new
    store.
    """

    old: _Old
    of: Fraction
    sources: Mapping[str, SourceRecord]
    keys: Keys
    rows: Rows
    skipped: Mapping[str, str]
    renamed: dict[bytes, bytes] = field(default_factory=dict)

    def raw(self, last_row: int, *, added: bool) -> Iterator[tuple[Rows, Halves]]:
        """Yield the rows up to ``last_row``, or those ``added`` since, and their raw vectors, in blocks."""
        connection, wanted = self.old.snapshot.connection, np.unique(self.rows)
        for rows, raw in compaction.live_raw(self.old.path, connection, catalog.segments(connection)):
            chosen = np.isin(rows, wanted, assume_unique=True) & ((rows > last_row) == added)
            for start in range(0, int(chosen.sum()), _BLOCK):
                at = np.flatnonzero(chosen)[start : start + _BLOCK]
                yield rows[at], raw[at]

    def vector_keys(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the key of the vector of each row in the new store."""
        hashes = catalog.hashes_of_rows(self.old.snapshot.connection, rows)
        return {row: self.renamed.get(key, key) for row, key in hashes.items()}


def _whole(old: _Old) -> _Share:
    connection = old.snapshot.connection
    sources, skipped = catalog.sources(connection), catalog.skipped(connection)
    return _Share(old, Fraction(1), sources, *catalog.chunk_rows(connection), skipped)


def _divided(old: _Old, count: int) -> list[_Share]:
    """Divide the files of a store into parts with a similar number of chunks.

    A chunk that belongs to no file is divided like a file. The first part gets the files without chunks.
    """
    connection = old.snapshot.connection
    keys, rows = catalog.chunk_rows(connection)
    _, ids = catalog.chunk_sources(connection)
    units = np.where(ids > 0, ids, -keys)
    found, at, sizes = np.unique(units, return_inverse=True, return_counts=True)
    names = {number: name for number, name, *_ in catalog.source_kinds(connection)}
    if len(found) < count:
        raise ConfigError(
            f"the store {old.path} has {len(found):,} files with chunks: expected {count:,} or more, because a file "
            "stays in one store"
        )
    parts = divided(sizes, count)
    part_of = {names[int(unit)]: int(part) for unit, part in zip(found, parts, strict=True) if unit > 0}
    sources = catalog.sources(connection)
    of_chunk = parts[at]
    return [
        _Share(
            old,
            Fraction(1, count),
            {name: record for name, record in sources.items() if part_of.get(name, 0) == part},
            keys[of_chunk == part],
            rows[of_chunk == part],
            {} if part else catalog.skipped(connection),
        )
        for part in range(count)
    ]


def divided(sizes: Integers, count: int) -> Integers:
    """Return the part of each file, given the ``sizes`` of the files, shape ``(n,)``, ``n >= count``.

    The largest file that is left goes to the smallest part, so two parts differ by at most the size of a file.
    """
    loads = [(0, part) for part in range(count)]
    parts = np.zeros(len(sizes), dtype=np.int64)
    for i in np.argsort(-sizes, kind="stable").tolist():
        load, part = heapq.heappop(loads)
        parts[i] = part
        heapq.heappush(loads, (load + int(sizes[i]), part))
    return parts


def _require_alike(olds: Sequence[_Old]) -> None:
    """Raise :class:`ConfigError` unless the stores can become one."""
    known = [
        (
            ("embedders: fit one with 'ragembed collection refit' first", old.snapshot.fingerprint()),
            ("languages", old.snapshot.language()),
            ("folders around them: expected stores beside each other", str(root_of(old.path))),
        )
        for old in olds
    ]
    for old, values in zip(olds, known, strict=True):
        for (what, first), (_, own) in zip(known[0], values, strict=True):
            if own != first:
                raise ConfigError(f"{olds[0].path} and {old.path} cannot be merged: they have different {what}")
    _require_disjoint("file", {old.path: catalog.sources(old.snapshot.connection) for old in olds})
    _require_disjoint("chunk with the id", {old.path: catalog.chunk_ids(old.snapshot.connection) for old in olds})


def _require_disjoint(what: str, names: Mapping[Path, Iterable[str]]) -> None:
    seen: dict[str, Path] = {}
    for path, of_store in names.items():
        for name in of_store:
            if name in seen:
                raise ConfigError(
                    f"{seen[name]} and {path} both have the {what} {name!r}: delete it from one of them with 'ragembed "
                    "delete'"
                )
            seen[name] = path


class _Rebalancing:
    """A single run, which makes new stores from those at ``paths``."""

    def __init__(
        self, paths: Sequence[Path], embedder: VectorEncoder | None, progress: Progress, wait_seconds: float
    ) -> None:
        self._paths = paths
        self._embedder = embedder
        self._progress = progress
        self._wait_seconds = wait_seconds

    def run(
        self,
        names: Sequence[str],
        plan: Callable[[Sequence[_Old]], Mapping[str, Sequence[_Share]]],
        switch: Switch | None,
        *,
        remove: bool,
    ) -> dict[str, Path]:
        with ExitStack() as locks:
            for path in sorted(self._paths, key=lambda path: str(path.resolve())):  # one order, to avoid deadlocks
                locks.enter_context(writer_lock(require_store(path), self._wait_seconds))
                if remove:
                    require_own(path, "it cannot be removed, but it can stay")
                    with watcher_lock(path):  # Raises an error if a process watches the files of the store.
                        pass
            with ExitStack() as stack, write_errors(self._paths[0]):
                new = self._make(names, plan, [self._opened(path, stack) for path in self._paths])
            if switch is not None:
                switch(new)
            for path in self._paths if remove else ():
                with write_errors(path):
                    _remove(path)
        return new

    def _opened(self, path: Path, stack: ExitStack) -> _Old:
        store = stack.enter_context(Store.open(path, self._embedder))
        if store.unfinished:
            raise StoreError(
                f"the last indexing run of {path} was interrupted: continue it with 'ragembed index' first"
            )
        snapshot = stack.enter_context(store._reader.snapshot())
        if (problem := first_problem(path, snapshot.connection)) is not None:
            raise StoreDamagedError(f"the store {path} is damaged: {problem}; see 'ragembed verify --store {path}'")
        return _Old(path, snapshot)

    def _make(
        self,
        names: Sequence[str],
        plan: Callable[[Sequence[_Old]], Mapping[str, Sequence[_Share]]],
        olds: Sequence[_Old],
    ) -> dict[str, Path]:
        """Make the new stores, all of them or none."""
        parent = root_of(olds[0].path)
        origin = _origin(olds, names)
        places = {name: _free_place(parent, name, f"{origin}/{name}") for name in names}
        missing = [name for name in names if not is_store(places[name])]
        if not missing:
            return places
        shares = plan(olds)
        for name in missing:
            require_own(temporary_name(places[name]), "move it away, because the new store needs its name")
        _require_space(olds, parent)
        self._progress.start("copying", "chunks", sum(len(share.keys) for name in missing for share in shares[name]))
        try:
            for name in missing:
                temporary = temporary_folder(places[name])
                temporary.chmod(olds[0].path.stat().st_mode & 0o7777)
                _Copy(temporary, shares[name], self._progress).write(origin, name)
        except BaseException:
            for name in missing:
                shutil.rmtree(temporary_name(places[name]), ignore_errors=True)
            raise
        self._progress.finish()
        for name in missing:
            temporary_name(places[name]).rename(places[name])
        sync(parent)
        return places


def _origin(olds: Sequence[_Old], names: Sequence[str]) -> str:
    """Return a hash of the states of the old stores, and of the names of the new ones."""
    states = [(str(old.path.resolve()), old.snapshot.generation()) for old in olds]
    return hashlib.sha256(json.dumps([states, list(names)]).encode()).hexdigest()[:32]


def _free_place(parent: Path, name: str, made_from: str) -> Path:
    """Return the folder of a new store: a free one, or that of the same store, left by an interrupted run."""
    number = 1
    while True:
        place = parent / f"{STORE_FOLDER}-{name}{'' if number == 1 else f'.{number}'}"
        if not place.exists() and not place.is_symlink():
            return place
        if is_store(place) and _was_made_from(place, made_from):
            return place
        number += 1


def _was_made_from(place: Path, made_from: str) -> bool:
    """Return whether a store was made from the old stores as they are, and was not changed since."""
    try:
        connection = open_for_reading(place / DATABASE)
    except StoreError:
        return False
    try:
        known, generation = catalog.meta(connection, MADE_FROM), catalog.meta(connection, "generation", 0)
    finally:
        connection.close()
    return bool(known == {"stores": made_from, "generation": generation})


def _require_space(olds: Sequence[_Old], parent: Path) -> None:
    needed = sum(size_of(old.path) for old in olds)
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise StoreError(
            f"the disk of {parent} has {free / 1e6:,.0f} MB free: expected {needed / 1e6:,.0f} MB or more, the size of "
            "the old stores, which stay until the new ones are complete"
        )


def size_of(store: Path) -> int:
    """Return the number of bytes of the files of a store."""
    return sum(file.stat().st_size for file in store.rglob("*") if file.is_file())


def _remove(path: Path) -> None:
    """Remove a store; a killed process leaves a folder with a temporary name, which is no store."""
    former = temporary_name(path)
    for folder in (path, former):
        require_own(folder, "remove it yourself")
    _remove_files(former)
    path.rename(former)
    sync(path.parent)
    _remove_files(former)


def _remove_files(folder: Path) -> None:
    """Remove the folder of a store, and last of all the file that marks it as ragembed's."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == GITIGNORE) if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if folder.is_dir():
        folder.rmdir()


class _Copy:
    """A new store, written into a folder with a temporary name."""

    def __init__(self, path: Path, shares: Sequence[_Share], progress: Progress) -> None:
        self._path = path
        self._shares = shares
        self._progress = progress
        self._olds = [share.old for share in shares]
        self._connections = [old.snapshot.connection for old in self._olds]
        self._chunks = [len(share.keys) for share in shares]

    def write(self, origin: str, name: str) -> None:
        embedder = self._olds[0].snapshot.embedder()
        language = self._olds[0].snapshot.language()
        with Store.create(self._path, embedder, self._common_meta(), language=language) as store:
            with store.writer() as writer:
                self._keep_embedder_record(writer)
                baselines = [load_baseline(old.path, old.snapshot.connection) for old in self._olds]
                fitted = self._write_vectors(writer, baselines)
                self._write_chunks(writer)
                seed = self._olds[0].snapshot.seed()
                self._write_about(writer, embedder, self._baseline(writer, baselines, fitted, seed), origin)
                writer.merge()
                writer.finish_copy(self._queries(embedder))
                generation = int(writer.meta("generation"))
                writer.set_meta({MADE_FROM: {"stores": f"{origin}/{name}", "generation": generation + 1}})
            problem = store._reader.read(lambda snapshot: first_problem(self._path, snapshot.connection))
            if problem is not None or len(store) != sum(self._chunks):
                raise StoreDamagedError(
                    f"the new store {name} is damaged, so nothing was changed: {problem or 'chunks are missing'}; "
                    "check the old stores with 'ragembed verify'"
                )

    def _common_meta(self) -> dict[str, Any]:
        """Return the JSON values that all old stores have in common."""
        every = [set(map(tuple, each.execute("SELECT key, value FROM meta").fetchall())) for each in self._connections]
        keys = sorted(key for key, _ in set.intersection(*every) if key not in _OWN_META)
        return {key: catalog.meta(self._connections[0], key) for key in keys}

    def _keep_embedder_record(self, writer: StoreWriter) -> None:
        """Use the record of the old store: if it was moved, only this record leads to the model."""
        record = catalog.embedder(self._connections[0])
        if record["files"] == writer.meta("embedder")["files"]:
            writer.set_meta({"embedder": record})

    # Vectors and chunks

    def _write_vectors(self, writer: StoreWriter, baselines: Sequence[Baseline | None]) -> int:
        """Write the vectors of the fit, then those added since; return the highest row of the fit."""
        fitted = 0
        for added in (False, True):
            for share, baseline in zip(self._shares, baselines, strict=True):
                for rows, raw in share.raw(0 if baseline is None else baseline.last_row, added=added):
                    keys = share.vector_keys(rows.tolist())
                    share.renamed.update(writer.copy_vectors([keys[row] for row in rows.tolist()], raw))
            fitted = fitted if added else writer.last_row()
        return fitted

    @staticmethod
    def _baseline(writer: StoreWriter, found: Sequence[Baseline | None], fitted: int, seed: int) -> Baseline | None:
        """Return the baseline of the new store, or None; ``fitted`` is the last row of the fit."""
        baselines = [baseline for baseline in found if baseline is not None]
        if len(baselines) < len(found):
            return None
        raw = sample_raw(((rows[rows <= fitted], raw[rows <= fitted]) for rows, raw in writer.live_raw()), seed)
        moments = Moments.of(raw) if len(raw) else Moments.merged([each.moments for each in baselines])
        queries = next((each.pseudo_queries for each in baselines if each.pseudo_queries is not None), None)
        return Baseline(fitted, fitted, moments, queries)

    def _write_chunks(self, writer: StoreWriter) -> None:
        for share in self._shares:
            waiting = dict(share.sources)
            connection = share.old.snapshot.connection
            for start in range(0, len(share.keys), _BATCH):
                keys, rows = (array[start : start + _BATCH].tolist() for array in (share.keys, share.rows))
                found, vectors = catalog.chunks_by_key(connection, keys), share.vector_keys(rows)
                records = [found[key] for key in keys]
                of_chunks = {record.id: vectors[row] for record, row in zip(records, rows, strict=True)}
                new = [name for name in dict.fromkeys(record.source for record in records) if name in waiting]
                self._commit(writer, share, [waiting.pop(str(name)) for name in new], records, of_chunks)
                self._progress.advance(len(keys))
            self._commit(writer, share, list(waiting.values()), [], {})
            writer.take_run_records(taken_out(connection))

    def _commit(
        self,
        writer: StoreWriter,
        share: _Share,
        sources: Sequence[SourceRecord],
        records: Sequence[ChunkRecord],
        keys: Mapping[str, bytes],
    ) -> None:
        lines = boilerplate_store.kept_lines(share.old.snapshot.connection, [source.path for source in sources])
        writer.commit(chunks=records, sources=sources, lines=lines, keys=keys)

    # Everything else

    def _write_about(
        self, writer: StoreWriter, embedder: VectorEncoder, baseline: Baseline | None, origin: str
    ) -> None:
        boilerplate, is_settled = self._boilerplate()
        writer.keep_boilerplate(boilerplate)
        mode = catalog.meta(self._connections[0], "boilerplate")
        writer.set_skipped({name: reason for share in self._shares for name, reason in share.skipped.items()}, [])
        models = [(old.snapshot.relevance(), chunks) for old, chunks in zip(self._olds, self._chunks, strict=True)]
        relevance, part = mean_relevance(models), self._part(origin)
        chunks = sum(self._chunks)
        largest = self._connections[int(np.argmax(self._chunks))]
        language, choice = catalog.detected_language(largest), catalog.index_choice(largest)
        about: dict[str, object] = {
            LANGUAGE: None if language is None else {**language, "chunks": chunks},
            RELEVANCE: None if relevance is None else replace(relevance, chunks=chunks).to_dict(),
            PART: part.to_dict() if part.shares else None,
            "indexing": None if part.shares else part.indexing,
        }
        if is_settled and mode is not None and mode.get("mode") in boilerplate_store.MODES:
            about["boilerplate"] = writer.done_stripping(mode["mode"])
        if choice is not None and choice.wanted == catalog.index_config(largest):
            about["index_choice"] = replace(choice, rows=writer.live_vectors()).to_dict()
        writer.adopt(embedder, self._progress, about, baseline)

    def _boilerplate(self) -> tuple[list[BoilerplateLine], bool]:
        """Return the boilerplate lines, and whether all old stores agree about them."""
        every = [boilerplate_store.stored(connection) for connection in self._connections]
        most: dict[tuple[str, str], int] = {}
        for line in (line for lines in every for line in lines):
            most[line.kind, line.line] = max(line.files, most.get((line.kind, line.line), 0))
        return [BoilerplateLine(*key, files) for key, files in most.items()], all(lines == every[0] for lines in every)

    def _part(self, origin: str) -> PartRecord:
        """Return the share of each divided store that the new store has, and the last request for all files."""
        shares: dict[str, Fraction] = {}
        requests: list[dict[str, Any]] = []
        for share, connection in zip(self._shares, self._connections, strict=True):
            known = catalog.part(connection)
            request = catalog.last_request(connection) if known is None else known.indexing
            of = {origin: Fraction(1)} if known is None and share.of < 1 and request is not None else {}
            for name, size in (of if known is None else known.shares).items():
                shares[name] = shares.get(name, Fraction(0)) + size * share.of
            requests += [] if request is None else [request]
        same_options = all(request["options"] == requests[0]["options"] for request in requests)
        paths = list(dict.fromkeys(path for request in requests for path in request["paths"]))
        indexing = {"paths": paths, "options": requests[0]["options"]} if requests and same_options else None
        return PartRecord({name: size for name, size in shares.items() if size < 1}, indexing)

    def _queries(self, embedder: VectorEncoder) -> DrawnQueries | None:
        """Return the pseudo-queries of the old stores whose texts are in the new one."""
        if not isinstance(embedder, Embedder):
            return None
        kept = [hubness.queries for old in self._olds if (hubness := old.snapshot.kept_hubness()) is not None]
        connection = open_for_reading(self._path / DATABASE)
        try:
            drawn = [
                (each, catalog.texts_of_hashes(connection, {origin.tobytes() for origin in each.origins}))
                for each in kept
            ]
        finally:
            connection.close()
        merged = MergedQueries.of(drawn, embedder.config.seed) if drawn else None
        return None if merged is None else DrawnQueries(merged.drawn, merged.origins, merged.vectors)
