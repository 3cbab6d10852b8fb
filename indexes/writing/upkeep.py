"""Maintenance of a store by its writer: segments, the index, and space on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries
from ragembed.errors import BudgetError, IncompatibleStoreError
from ragembed.indexes.faiss_index.building import check
from ragembed.indexes.faiss_index.choose import beginning
from ragembed.indexes.faiss_index.gpus import building_gpus
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.faiss_index.specs import AUTO, FLAT, IndexSpec, parse_spec, require_library
from ragembed.indexes.storage import catalog, compaction, derived
from ragembed.indexes.storage.embedders import save_embedder
from ragembed.indexes.storage.fit_queries import QUERIES, save_queries
from ragembed.indexes.storage.hubness import kept_queries, update_hubness
from ragembed.indexes.storage.posting_files import update_postings
from ragembed.indexes.storage.segments import Make, SegmentRecord, of_kind, write_segment
from ragembed.indexes.storage.transactions import Database, free_pages, write_errors
from ragembed.indexes.types import VectorEncoder
from ragembed.indexes.writing import index_selection
from ragembed.progress import Progress, SilentProgress

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
                f"the store {store} was made with the embedder {stored['model']} ({stored['fingerprint'][:12]}), "
                f"not with {embedder.describe()['model']} ({embedder.fingerprint[:12]}): open it without an embedder, "
                "or create another store"
            )
        wanted = catalog.index_config(self._connection)  # Raises errors before anything is written.
        require_library(wanted.kind, *(record.files.kind for record in self._segments()))
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
                compaction.swap(self._connection, compaction.Rewritten(self._segments(), written))
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
        records = [record for record in self._segments() if record.key not in done]
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

    def last_segment(self) -> int:
        """Return the key of the newest segment, or 0 if there is none."""
        return max((record.key for record in self._segments()), default=0)

    def merge_since(self, before: int, rows: int) -> None:
        """Join segments after ``before`` to up to ``rows`` rows, whatever the pace of commits; drop unused rows."""
        groups: list[list[SegmentRecord]] = []
        size = rows
        for record in self._segments():
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
        degraded = check is not None and index_selection.degradation(settings, None, check) is not None
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
        progress.start("merging", "vectors", sum(record.files.rows for group in groups for record in group))
        with write_errors(self._store):
            for group in groups:
                make = self._make_index()
                rewritten = compaction.rewrite(self._store, self._connection, group, self._embedder, make)
                with self._database.transaction():
                    compaction.swap(self._connection, rewritten)
                progress.advance(sum(record.files.rows for record in group))
        progress.finish()
        if groups:
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
            self._require_usable(wanted, next((record.files.dim for record in self._segments()), None))
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
        rows = self.live_vectors()
        wanted = wanted or catalog.index_config(self._connection)
        choice = catalog.index_choice(self._connection)
        if index_selection.needs_pick(self._connection, wanted, rows):
            return [*self._pick_or_warn(wanted, progress), *index_selection.exact_note(wanted, rows)]
        if wanted != catalog.index_config(self._connection):
            forgotten = {} if choice is None or choice.wanted == wanted else {"index_choice": None, "index_check": None}
            self.set_meta({"index": wanted.to_dict(), **forgotten})
            if index_selection.too_few(wanted, rows):
                return [f"the index stays flat: {beginning(wanted)}"]
        notes = self._check(rows, progress) if index_selection.needs_check(self._connection, rows) else []
        return [*notes, *index_selection.exact_note(wanted, rows)]

    @staticmethod
    def _require_usable(wanted: IndexConfig, dim: int | None) -> None:
        """Raise :class:`ConfigError` for an invalid factory string, even if there are too few vectors to use it yet."""
        require_library(wanted.kind)
        if wanted.kind != AUTO and dim is not None:
            check(parse_spec(wanted.kind), dim)

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
        now = index_selection.check_index(self._store, self._connection, self._embedder, rows)
        progress.finish()
        self.set_meta({"index_check": now.to_dict()})
        warning = index_selection.degradation(catalog.index_config(self._connection), before, now)
        return [] if warning is None else [warning]

    def _pick(self, wanted: IndexConfig, progress: Progress) -> None:
        with write_errors(self._store):
            rewritten, choice, check = index_selection.pick_index(
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
        return compaction.live_raw(self._store, self._connection, self._segments())

    def _segments(self) -> list[SegmentRecord]:
        return catalog.segments(self._connection)


def unused_share(connection: sqlite3.Connection) -> float:
    """Return the share of vectors that no chunk uses or of free pages of the database, whichever is larger."""
    vectors, unused = (catalog.count(connection, table) for table in ("vectors", "tombstones"))
    free, pages = free_pages(connection)
    return max(unused / max(vectors, 1), free / max(pages, 1))
