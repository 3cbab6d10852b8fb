"""Maintenance of a store by its writer: segments, when the index is chosen again, and space on disk."""

from __future__ import annotations

import datetime as dt
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries, draw_pseudo_queries
from ragembed.errors import BudgetError, IncompatibleStoreError, IndexWarning
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.building import IndexInput, require_buildable
from ragembed.indexes.faiss_index.choose import (
    EXACT_WITHOUT_FAISS,
    LEAST_APPROXIMATE,
    Picked,
    TuningQueries,
    beginning,
    least_asked,
    pick,
)
from ragembed.indexes.faiss_index.gpus import building_gpus
from ragembed.indexes.faiss_index.index import RefinedIndex
from ragembed.indexes.faiss_index.records import (
    AUTO,
    FLAT,
    IndexConfig,
    IndexEvaluation,
    IndexSelection,
    IndexSpec,
    Measurement,
    faiss,
    parse_spec,
    require_library,
)
from ragembed.indexes.faiss_index.vectors import Vectors
from ragembed.indexes.storage import catalog, compaction, derived
from ragembed.indexes.storage.embedders import QUERIES, named_embedder, save_embedder, save_queries
from ragembed.indexes.storage.hubness import kept_queries, update_hubness
from ragembed.indexes.storage.posting_files import update_postings
from ragembed.indexes.storage.reader import SegmentSearch, select
from ragembed.indexes.storage.segments import Make, Segment, SegmentRecord, of_kind, write_segment
from ragembed.indexes.storage.transactions import Database, free_pages, write_errors
from ragembed.indexes.types import VectorEncoder, text_hash
from ragembed.postprocess import unit_rows
from ragembed.progress import Progress, SilentProgress
from ragembed.types import Floats
from ragembed.version import install_command

QUERIES_PER_CHECK = 300
"""Number of pseudo-queries that an index is tuned on, and of others that it is measured on."""

_GROWTH, _SHRINKAGE, _DRIFT = 2, 4, 0.1
_ROUNDING = 1e-9
_SEED = 20
_TEXTS_PER_QUERY = 4


def needs_pick(connection: sqlite3.Connection, wanted: IndexConfig, rows: int) -> bool:
    """Return whether an index for the settings ``wanted`` must be chosen, given ``rows`` used vectors.

    This is so for other settings, or if the store has doubled since the choice, or shrunk to a quarter.
    """
    if not rows or (wanted.kind == AUTO and wanted.budget.open and not faiss.is_installed()):
        return False
    choice = catalog.index_choice(connection)
    if choice is None or choice.wanted != wanted:
        all_flat = all(record.files.kind == FLAT for record in catalog.segments(connection))
        return not (all_flat and _stays_flat(wanted, rows))
    open_kind = IndexConfig(wanted.kind)
    if choice.kind == FLAT and not _stays_flat(open_kind, rows) and wanted.kind != AUTO:
        return True  # The store had too few vectors for the configured kind.
    if any(reason.startswith(EXACT_WITHOUT_FAISS) for reason in choice.reasons) and faiss.is_installed():
        return True
    return rows >= _GROWTH * choice.rows or _SHRINKAGE * rows <= choice.rows


def _stays_flat(wanted: IndexConfig, rows: int) -> bool:
    if not wanted.budget.open:
        return False
    if wanted.kind == AUTO:
        return rows < LEAST_APPROXIMATE
    return wanted.kind == FLAT or too_few(wanted, rows)


def exact_note(wanted: IndexConfig, rows: int) -> list[str]:
    """Return a warning if the store is too large for exact search, and FAISS is not installed."""
    outgrown = wanted.kind == AUTO and rows >= LEAST_APPROXIMATE and not faiss.is_installed()
    return [f"the store has {rows:,} vectors: {EXACT_WITHOUT_FAISS}{install_command('cpu')}"] if outgrown else []


def too_few(wanted: IndexConfig, rows: int) -> bool:
    """Return whether the store has too few vectors for the configured index kind."""
    return wanted.kind != AUTO and rows < least_asked(parse_spec(wanted.kind))


def pick_index(
    store: Path,
    connection: sqlite3.Connection,
    embedder: VectorEncoder,
    wanted: IndexConfig,
    progress: Progress,
    gpus: Sequence[int] = (),
    built_on: str = "on the CPU",
) -> tuple[compaction.Rewritten, IndexSelection, IndexEvaluation]:
    """Choose an index for the settings ``wanted``, and write all used vectors into one segment.

    Returns the segment, and the choice and its measurement to store when the segment is committed.
    """
    queries = _queries(connection, embedder)
    picked: list[Picked] = []

    def make(index_input: IndexInput) -> IndexSpec:
        picked.append(pick(index_input, queries, wanted, progress, gpus=gpus))
        return picked[0].spec

    rewritten = compaction.rewrite(store, connection, catalog.segments(connection), embedder, make)
    [best], [(files, rows)] = picked, rewritten.new
    choice = IndexSelection(wanted, best.kind, best.effort, len(rows), best.reasons, best.runner_up, built_on)
    check = IndexEvaluation(best.measured, _today(), len(rows), (files.folder,))
    return rewritten, choice, check


def needs_check(connection: sqlite3.Connection, rows: int) -> bool:
    """Return whether the index must be measured again: an approximate segment is new, or a tenth of the rows is."""
    files = [record.files for record in catalog.segments(connection)]
    approximate = {segment.folder for segment in files if IndexSpec(segment.kind).family != "exhaustive"}
    if not approximate:
        return False
    check = catalog.index_check(connection)
    return check is None or not approximate <= set(check.segments) or abs(rows - check.rows) > _DRIFT * check.rows


def check_index(store: Path, connection: sqlite3.Connection, embedder: VectorEncoder, rows: int) -> IndexEvaluation:
    """Measure the recall of the store's index against exact search, and its latency, with pseudo-queries."""
    segments = {record.key: Segment(store, record.files) for record in catalog.segments(connection)}
    selection, choice = select(connection, None), catalog.index_choice(connection)
    mask = None if selection is None else selection.mask
    effort = None if choice is None else choice.effort
    queries = _queries(connection, embedder).measuring
    size = sum(segment.index_file.stat().st_size for segment in segments.values())
    folders = tuple(segment.files.folder for segment in segments.values())
    if len(queries) < choose.LEAST_QUERIES:
        return IndexEvaluation(Measurement(None, None, size), _today(), rows, folders)

    def search(vectors: Floats, k: int) -> Floats:
        nearest = SegmentSearch(1).nearest(
            connection, segments, unit_rows(vectors), k, mask, effort, embedder.postprocess_documents
        )
        cosines = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        for row, (_, of_query) in zip(cosines, nearest, strict=True):
            row[: len(of_query)] = of_query
        return cosines

    truth = choose.exact(_live_parts(connection, segments, embedder), queries)
    recall = choose.recall(search, truth)
    latency = choose.latency_ms(_bare_search(connection, segments, embedder, effort), queries)
    return IndexEvaluation(Measurement(recall, latency, size), _today(), rows, folders)


def _bare_search(
    connection: sqlite3.Connection, segments: Mapping[int, Segment], embedder: VectorEncoder, effort: int | None
) -> choose.Search:
    """Return a search of the indexes alone, timed in the same way as when an index is chosen."""
    indexes = [
        RefinedIndex(
            segment.index(),
            segment.spec,
            segment.vectors(embedder.postprocess_documents),
            catalog.rows_of_segment(connection, key),
        )
        for key, segment in segments.items()
    ]
    return lambda vectors, k: np.hstack([index.search(vectors, k, effort=effort)[0] for index in indexes])


def degradation(wanted: IndexConfig, before: IndexEvaluation | None, now: IndexEvaluation) -> str | None:
    """Return a warning if the index misses its recall, or a latency or memory that the budget sets, else None."""
    budget, measured = wanted.budget, now.measurement
    missed = [
        f"{what} {limit:g}"
        for what, limit, exceeded in (
            (
                "recall@10",
                budget.wanted_recall,
                measured.recall is not None and measured.recall.mean < budget.wanted_recall - _ROUNDING,
            ),
            ("ms a query", budget.max_latency_ms, _above(measured.latency_ms, budget.max_latency_ms)),
            ("bytes", budget.max_memory, _above(measured.bytes, budget.max_memory)),
        )
        if exceeded
    ]
    if not missed:
        return None
    was = "" if before is None else f", before: {before.measurement.describe()}"
    return (
        f"the index misses its target ({', '.join(missed)}): {measured.describe()}{was}; "
        "rebuild it with 'ragembed doctor --repair'"
    )


def _above(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def warn(notes: Iterable[str]) -> None:
    """Warn with :class:`ragembed.errors.IndexWarning` for each message."""
    for note in notes:
        warnings.warn(note, IndexWarning, stacklevel=3)


def _live_parts(
    connection: sqlite3.Connection, segments: Mapping[int, Segment], embedder: VectorEncoder
) -> Iterator[tuple[Vectors, NDArray[np.bool_]]]:
    dead = catalog.dead_rows(connection)
    for key, segment in segments.items():
        rows = catalog.rows_of_segment(connection, key)
        yield segment.vectors(embedder.postprocess_documents), ~np.isin(rows, dead)


def _queries(connection: sqlite3.Connection, embedder: VectorEncoder) -> TuningQueries:
    """Encode pseudo-queries of texts all over the store, or return those of a fit that was just made."""
    fitted = _fitted_queries(connection, embedder)
    if fitted is not None:
        return fitted
    texts = _texts(connection, _TEXTS_PER_QUERY * 2 * QUERIES_PER_CHECK)
    whole = set(texts)
    drawn = draw_pseudo_queries(texts, 2 * QUERIES_PER_CHECK, _SEED)
    spans = [span.partition(" ")[2] or span if span in whole else span for span in drawn]
    if not spans:
        nothing = np.zeros((0, 1), dtype=np.float32)
        return TuningQueries(nothing, nothing)
    vectors = unit_rows(embedder.encode_queries(spans))
    return TuningQueries(vectors[::2], vectors[1::2])


def _fitted_queries(connection: sqlite3.Connection, embedder: VectorEncoder) -> TuningQueries | None:
    """Return pseudo-queries that ``embedder`` was fitted on, or None if too few of them are not whole texts."""
    own = embedder.refittable
    if own is None or own.fitted_queries is None:
        return None
    queries = own.fitted_queries
    hashes = [text_hash(text) for text in queries.texts]
    whole = catalog.rows_of_hashes(connection, hashes)
    raw = queries.raw[[key not in whole for key in hashes]][: 2 * QUERIES_PER_CHECK]
    if len(raw) < 2 * QUERIES_PER_CHECK:
        return None
    vectors = unit_rows(own.postprocess_queries(raw))
    return TuningQueries(vectors[::2], vectors[1::2])


def _texts(connection: sqlite3.Connection, count: int) -> Sequence[str]:
    """Return the texts of up to ``count`` chunks, spread evenly over the store."""
    low, high = connection.execute("SELECT min(key), max(key) FROM chunks").fetchone()
    if low is None:
        return []
    nearest = "SELECT key FROM chunks WHERE key >= ? ORDER BY key LIMIT 1"
    wanted = np.unique(np.linspace(low, high, count).astype(np.int64)).tolist()
    keys = {connection.execute(nearest, (key,)).fetchone()[0] for key in wanted}
    return [record.chunk.text for record in catalog.chunks_by_key(connection, sorted(keys)).values()]


def _today() -> str:
    return dt.datetime.now(dt.timezone.utc).date().isoformat()


UNUSED_ABOVE = 0.25
"""Share of unused vectors, or of unused pages of the database, from which a store is worth compacting."""


class Upkeep:
    """The part of a store's writer that changes how chunks are stored, but not the chunks themselves."""

    def __init__(self, store: Path, database: Database, embedder: VectorEncoder, device: str | None = None) -> None:
        self._store = store
        self._device = device
        self._database = database
        self._connection = database.connection
        self._embedder = embedder
        self._pseudo_queries: PseudoQueries | None = None
        stored = catalog.embedder(self._connection)
        if stored["fingerprint"] != embedder.fingerprint:
            raise IncompatibleStoreError(
                f"the store {store} was made with the embedder {named_embedder(stored)}, not with "
                f"{named_embedder(embedder)}: open it without an embedder, or create another store"
            )
        wanted = catalog.index_config(self._connection)  # Raises errors before anything is written.
        require_library(wanted.kind, *(record.files.kind for record in catalog.segments(self._connection)))
        if device is not None:
            building_gpus(device, embedder)  # Raises an error for a missing GPU before anything is written.
        compaction.sweep_unnamed(self._store, self._connection)

    @cached_property
    def _gpus(self) -> tuple[Sequence[int], str]:
        """GPUs to build indexes on, and a description of the device."""
        return building_gpus(self._device, self._embedder)

    def _make_index(self) -> Make:
        """Return a function that builds indexes of the kind of the store. A flat one needs no FAISS to find GPUs."""
        spec = catalog.index_spec(self._connection)
        return of_kind(spec, () if spec.name == FLAT else self._gpus[0])

    def meta(self, key: str) -> Any:
        """Return the JSON value stored under ``key``, or None."""
        return catalog.meta(self._connection, key)

    def set_meta(self, values: Mapping[str, object]) -> None:
        """Store JSON values under their keys."""
        with write_errors(self._store), self._database.transaction():
            for key, value in values.items():
                catalog.set_meta(self._connection, key, value)

    def fit_queries(self) -> PseudoQueries | None:
        """Return the pseudo-queries of the store's fit, or None; a damaged file is dropped."""
        files = derived.sound_files(self._store, self._database, QUERIES)
        return files[0][1] if files else None

    # Segments

    def adopt(
        self,
        embedder: VectorEncoder,
        progress: Progress | None = None,
        meta: Mapping[str, object] | None = None,
        queries: PseudoQueries | None = None,
    ) -> None:
        """Switch to another embedder with the same raw vectors: rebuild every index from them, without running a model.

        Each rebuilt segment is committed, so the next run with the same embedder continues an interrupted one. One
        transaction then switches to all of them, and stores the JSON values ``meta`` and the ``queries`` of the fit.
        An approximate index becomes flat until :meth:`refresh_index` chooses another.
        """
        if embedder.raw_fingerprint != self._embedder.raw_fingerprint:
            raise IncompatibleStoreError(
                f"the raw vectors of {self._store} were made with another model or other token weights: index again"
            )
        with write_errors(self._store):
            stored, record = catalog.embedder(self._connection), save_embedder(self._store, embedder)
            if all(record[name] == stored.get(name) for name in ("fingerprint", "files")):
                record = stored  # In a store that was moved, only this one leads to the model.
            self._pseudo_queries = kept_queries(self._store, self._database)
            if embedder.fingerprint != self._embedder.fingerprint:
                self._rewrite_for(embedder, progress or SilentProgress())
            with self._database.transaction():
                for taken in catalog.rewritten(self._connection, embedder.fingerprint):
                    compaction.replace_files(self._connection, taken.key, taken.files)
                self._store_fit(queries, {**(meta or {}), "embedder": record})
        self._embedder = embedder
        compaction.sweep_unnamed(self._store, self._connection)

    def _store_fit(self, queries: PseudoQueries | None, values: Mapping[str, object]) -> None:
        """Store JSON values of another embedder, and drop what was made for the former one, within a transaction."""
        self._connection.execute("DELETE FROM rewritten")
        for name in (derived.HUBNESS, derived.QUERIES):
            derived.forget(self._connection, name)
        if queries is not None:
            write = partial(save_queries, queries=queries)
            about = self.live_vectors(), catalog.last_row(self._connection)
            derived.insert(self._connection, derived.write_derived(self._store, QUERIES.name, write, *about))
        choice = catalog.index_choice(self._connection)
        if choice is not None and self._approximate:
            values = {**values, "index_choice": replace(choice, rows=0).to_dict()}  # to be made again
        for key, value in values.items():
            catalog.set_meta(self._connection, key, value)

    def replace_vectors(
        self,
        embedder: VectorEncoder,
        blocks: Iterable[tuple[NDArray[np.int64], NDArray[np.float16]]],
        raw_dim: int,
        meta: Mapping[str, object],
        queries: PseudoQueries | None,
    ) -> None:
        """Switch to another embedder with other raw vectors, for all rows that chunks use.

        ``blocks`` are rows, ascending, and their raw vectors, float16, shape ``(n, raw_dim)``. One transaction replaces
        all vectors, drops unused rows, and stores the JSON values ``meta`` and the ``queries`` of the fit. The index
        is as after :meth:`adopt`.
        """
        make = of_kind(IndexSpec(FLAT) if self._approximate else catalog.index_spec(self._connection))
        with write_errors(self._store):
            record = save_embedder(self._store, embedder)
            self._pseudo_queries = None
            written = [write_segment(self._store, blocks, embedder.postprocess_documents, make)]
            with self._database.transaction():
                compaction.swap(self._connection, compaction.Rewritten(catalog.segments(self._connection), written))
                self._store_fit(queries, {**meta, "embedder": record, "dim": raw_dim})
        self._embedder = embedder
        compaction.sweep_unnamed(self._store, self._connection)

    def texts_of_rows(self) -> Iterator[tuple[int, str]]:
        """Yield the rows that chunks use, ascending, with the embedded text of each."""
        return catalog.embedded_texts_by_row(self._connection)

    @property
    def _approximate(self) -> bool:
        return catalog.index_spec(self._connection).family != "exhaustive"

    def _rewrite_for(self, embedder: VectorEncoder, progress: Progress) -> None:
        """Rebuild for ``embedder`` the segments that an interrupted run has not rebuilt."""
        with self._database.transaction():
            self._connection.execute("DELETE FROM rewritten WHERE fingerprint <> ?", (embedder.fingerprint,))
        make = of_kind(IndexSpec(FLAT) if self._approximate else catalog.index_spec(self._connection))
        done = {record.key for record in catalog.rewritten(self._connection)}
        records = [record for record in catalog.segments(self._connection) if record.key not in done]
        progress.start("indexing", "vectors", sum(record.files.rows for record in records))
        for record in records:
            blocks = compaction.segment_raw(self._store, self._connection, record)
            files, _ = write_segment(self._store, blocks, embedder.postprocess_documents, make)
            with self._database.transaction():
                compaction.stage_rewritten(self._connection, record.key, files, embedder.fingerprint)
            progress.advance(files.rows)
        progress.finish()

    def merge(self) -> None:
        """Rewrite small or mostly unused segments if it is worthwhile; drops unused rows, even staged ones."""
        while groups := compaction.worth_rewriting(self._connection):
            self._merge(groups, SilentProgress())

    def merge_since(self, before: int, rows: int) -> None:
        """Join segments after ``before`` to up to ``rows`` rows, whatever the pace of commits; drop unused rows."""
        groups: list[list[SegmentRecord]] = []
        size = rows
        for record in catalog.segments(self._connection):
            if record.key <= before:
                continue
            if size + record.files.rows > rows:
                groups.append([])
                size = 0
            groups[-1].append(record)
            size += record.files.rows
        self._merge([group for group in groups if len(group) > 1], SilentProgress())

    def optimize(self, wanted: IndexConfig | None = None, progress: Progress | None = None) -> list[str]:
        """Merge small segments, drop all unused rows, and return free space to the disk.

        ``wanted`` sets new index settings. An approximate index is chosen again if anything has changed. Each step
        is committed on its own, so the next run continues an interrupted one. Returns and raises as
        :meth:`refresh_index` does.
        """
        progress = progress or SilentProgress()
        notes = self.refresh_index(wanted, progress)
        groups = compaction.all_to_merge(self._connection)
        live = self.live_vectors() > 0  # Without used vectors, the groups are only dropped.
        settings, check = catalog.index_config(self._connection), catalog.index_check(self._connection)
        degraded = check is not None and degradation(settings, None, check) is not None
        if live and self._approximate and not self.meta("unfinished") and (groups or degraded):
            notes = self._pick_or_warn(settings, progress)
            groups = compaction.all_to_merge(self._connection) if notes else []
        self._merge(groups, progress)
        with write_errors(self._store):
            if catalog.rewritten(self._connection):  # Left over from a refit that was abandoned.
                with self._database.transaction():
                    self._connection.execute("DELETE FROM rewritten")
                compaction.sweep_unnamed(self._store, self._connection)
            self._database.merge_words()
            self._database.vacuum()
        return notes

    def compact(self, progress: Progress) -> None:
        """Drop unused rows and return free space to the disk, if a good part of the store is unused.

        An approximate index keeps its unused rows, because without them it would have to be built again.
        """
        if unused_share(self._connection) > UNUSED_ABOVE:
            if not self._approximate:
                self._merge(compaction.all_to_merge(self._connection), progress)
            with write_errors(self._store):
                self._database.vacuum()

    def _merge(self, groups: Sequence[Sequence[SegmentRecord]], progress: Progress) -> None:
        if not groups:
            return
        progress.start("merging", "vectors", sum(record.files.rows for group in groups for record in group))
        with write_errors(self._store):
            for group in groups:
                make = self._make_index()
                rewritten = compaction.rewrite(self._store, self._connection, group, self._embedder, make)
                with self._database.transaction():
                    compaction.swap(self._connection, rewritten)
                progress.advance(sum(record.files.rows for record in group))
        progress.finish()
        compaction.sweep_unnamed(self._store, self._connection)

    # Index

    def refresh_postings(self, progress: Progress) -> None:
        """Update the postings, which make lexical search fast, after chunks changed."""
        with write_errors(self._store):
            update_postings(self._store, self._database, progress)

    def refresh_index(
        self, wanted: IndexConfig | None = None, progress: Progress | None = None, *, for_collection: bool = False
    ) -> list[str]:
        """Update the postings, hubness and index after chunks changed; return warnings.

        ``for_collection`` keeps pseudo-queries even if the store alone has too few chunks for them.

        A new index is chosen if the store has outgrown the current one, or if ``wanted`` differs from the current
        settings. A changed index is measured. While an indexing run is unfinished, only the settings are stored. Raises
        :class:`ragembed.errors.BudgetError` if no index meets new settings; the store then keeps its index and
        settings.
        """
        if wanted is not None:
            self._require_usable(
                wanted, next((record.files.dim for record in catalog.segments(self._connection)), None)
            )
        if self.meta("unfinished"):
            if wanted is not None:
                self.set_meta({"index": wanted.to_dict()})
            return []
        progress = progress or SilentProgress()
        self.refresh_postings(progress)
        with write_errors(self._store):
            update_hubness(
                self._store,
                self._database,
                self._embedder,
                self._pseudo_queries,
                progress,
                for_collection=for_collection,
            )
        rows, stored = self.live_vectors(), catalog.index_config(self._connection)
        wanted = wanted or stored
        if needs_pick(self._connection, wanted, rows):
            return [*self._pick_or_warn(wanted, progress), *exact_note(wanted, rows)]
        if wanted != stored:
            choice = catalog.index_choice(self._connection)
            forgotten = {} if choice is None or choice.wanted == wanted else {"index_choice": None, "index_check": None}
            self.set_meta({"index": wanted.to_dict(), **forgotten})
            if too_few(wanted, rows):
                return [f"the index stays flat: {beginning(wanted)}"]
        notes = self._check(rows, progress) if needs_check(self._connection, rows) else []
        return [*notes, *exact_note(wanted, rows)]

    @staticmethod
    def _require_usable(wanted: IndexConfig, dim: int | None) -> None:
        """Raise :class:`ConfigError` for an invalid factory string, even if there are too few vectors to use it yet."""
        require_library(wanted.kind)
        if wanted.kind != AUTO and dim is not None:
            require_buildable(parse_spec(wanted.kind), dim)

    def _pick_or_warn(self, wanted: IndexConfig, progress: Progress) -> list[str]:
        """Choose an index; if none meets the unchanged settings, keep the current one and return a warning."""
        choice = catalog.index_choice(self._connection)
        try:
            self._pick(wanted, progress)
        except BudgetError as error:
            if choice is None or choice.wanted != wanted:
                raise
            rows = self.live_vectors()
            self.set_meta({"index_choice": replace(choice, rows=rows).to_dict()})  # Try again once the store doubles.
            return [f"the index no longer meets its limits: {error}"]
        return []

    def _check(self, rows: int, progress: Progress) -> list[str]:
        before = catalog.index_check(self._connection)
        progress.start("measuring the index", "queries", None)
        now = check_index(self._store, self._connection, self._embedder, rows)
        progress.finish()
        self.set_meta({"index_check": now.to_dict()})
        warning = degradation(catalog.index_config(self._connection), before, now)
        return [] if warning is None else [warning]

    def _pick(self, wanted: IndexConfig, progress: Progress) -> None:
        with write_errors(self._store):
            rewritten, choice, check = pick_index(
                self._store, self._connection, self._embedder, wanted, progress, *self._gpus
            )
            with self._database.transaction():
                compaction.swap(self._connection, rewritten)
                catalog.set_meta(self._connection, "index", wanted.to_dict())
                catalog.set_meta(self._connection, "index_choice", choice.to_dict())
                catalog.set_meta(self._connection, "index_check", check.to_dict())
        compaction.sweep_unnamed(self._store, self._connection)

    def live_vectors(self) -> int:
        """Return the number of vectors that chunks use."""
        return catalog.count(self._connection, "vectors") - catalog.count(self._connection, "tombstones")

    def live_raw(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
        """Yield the rows that chunks use and their raw vectors, shape ``(n, d)``, ordered by row, in blocks."""
        return compaction.live_raw(self._store, self._connection, catalog.segments(self._connection))


def unused_share(connection: sqlite3.Connection) -> float:
    """Return the share of vectors that no chunk uses or of free pages of the database, whichever is larger."""
    vectors, unused = (catalog.count(connection, table) for table in ("vectors", "tombstones"))
    free, pages = free_pages(connection)
    return max(unused / max(vectors, 1), free / max(pages, 1))
