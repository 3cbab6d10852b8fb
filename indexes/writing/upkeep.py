"""What a writer keeps in order: segments, the index, and the space on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import BudgetError, IncompatibleStoreError, StoreDamagedError
from ragembed.indexes.ann.building import check, shard_sizes
from ragembed.indexes.ann.gpus import building_gpus
from ragembed.indexes.ann.library import require_library
from ragembed.indexes.ann.picking import beginning
from ragembed.indexes.ann.records import IndexConfig
from ragembed.indexes.ann.specs import AUTO, FLAT, IndexSpec, parse_spec
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.storage.baseline import KEY as BASELINE
from ragembed.indexes.storage.baseline import Baseline, baseline_record, load_baseline, save_baseline
from ragembed.indexes.storage.embedders import save_embedder
from ragembed.indexes.storage.segments import SegmentRecord, of_kind, write_segment, write_segments
from ragembed.indexes.storage.transactions import Database, write_errors
from ragembed.indexes.types import Progress, SilentProgress, VectorEncoder
from ragembed.indexes.writing import index_selection
from ragembed.indexes.writing.posting_updates import update_postings

_FREE_SHARE = 0.05
"""Share of the database that nothing uses, above which it is given back."""


class Upkeep:
    """The part of a store's writer that changes how chunks are kept, and not which there are."""

    def __init__(self, store: Path, database: Database, embedder: VectorEncoder, device: str | None = None) -> None:
        self._store = store
        self._device = device
        self._database = database
        self._connection = database.connection
        self._embedder = embedder
        self._check_embedder()
        wanted = catalog.index_config(self._connection)  # an error before anything is written
        require_library(wanted.kind, *(record.files.kind for record in self._segments()))
        if device is not None:
            building_gpus(device, embedder)  # one that is not there is an error before anything is done
        compaction.sweep_unnamed(self._store, self._connection)

    def _check_embedder(self) -> None:
        stored = catalog.embedder(self._connection)
        if stored["fingerprint"] != self._embedder.fingerprint:
            given = self._embedder.describe()
            raise IncompatibleStoreError(
                f"the store {self._store} was made with the embedder {stored['model']} ({stored['fingerprint'][:12]}), "
                f"not with {given['model']} ({self._embedder.fingerprint[:12]}): open it without an embedder, or make "
                "another store"
            )

    @cached_property
    def _gpus(self) -> tuple[Sequence[int], str]:
        """The GPUs that indexes are built on, and what is said of them."""
        return building_gpus(self._device, self._embedder)

    def meta(self, key: str) -> Any:
        """Return the JSON value kept under ``key``, None if there is none."""
        return catalog.meta(self._connection, key)

    def set_meta(self, values: Mapping[str, object]) -> None:
        """Keep JSON values under their keys."""
        with write_errors(self._store), self._database.transaction():
            for key, value in values.items():
                catalog.set_meta(self._connection, key, value)

    @property
    def has_baseline(self) -> bool:
        """Whether it was kept what the store's embedder was fitted on."""
        return baseline_record(self._connection) is not None

    def baseline(self) -> Baseline | None:
        """Return what the store's embedder was fitted on, None where that was not kept."""
        try:
            return load_baseline(self._store, self._connection)
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"a file of the store is missing: {error.filename}; drop it with: ragembed verify --repair"
            ) from error

    # Segments

    def adopt(
        self,
        embedder: VectorEncoder,
        progress: Progress | None = None,
        meta: Mapping[str, object] | None = None,
        baseline: Baseline | None = None,
    ) -> None:
        """Switch to another embedder with the same raw vectors: every index is rebuilt from them, no model runs.

        Each finished segment is kept, so that a run that was killed is carried on by the next with the same embedder;
        all of them take over in one transaction, which also keeps the JSON values ``meta`` and what the embedder was
        fitted on, ``baseline``. An approximate index becomes a flat one, until :meth:`refresh_index` picks another.
        """
        if embedder.raw_fingerprint != self._embedder.raw_fingerprint:
            raise IncompatibleStoreError(
                f"the raw vectors of {self._store} were made by another model or other token weights: index again"
            )
        with write_errors(self._store):
            record = self._saved(embedder)
            fitted_on = None if baseline is None else save_baseline(self._store, embedder.fingerprint, baseline)
            if embedder.fingerprint != self._embedder.fingerprint:
                self._rewrite_for(embedder, progress or SilentProgress())
            with self._database.transaction():
                for taken in catalog.rewritten(self._connection, embedder.fingerprint):
                    compaction.replace_files(self._connection, taken.key, taken.files)
                self._connection.execute("DELETE FROM rewritten")
                kept = {**(meta or {}), **self._outdated_choice(), "embedder": record, BASELINE: fitted_on}
                for key, value in kept.items():
                    catalog.set_meta(self._connection, key, value)
        self._embedder = embedder
        compaction.sweep_unnamed(self._store, self._connection)

    def replace_vectors(
        self,
        embedder: VectorEncoder,
        blocks: Iterable[tuple[NDArray[np.int64], NDArray[np.float16]]],
        raw_dim: int,
        meta: Mapping[str, object],
        baseline: Baseline,
    ) -> None:
        """Switch to another embedder with other raw vectors, of all rows that chunks use.

        ``blocks`` are rows, ascending, and their raw vectors, float16, shape ``(n, raw_dim)``. One transaction replaces
        all vectors by them, drops the rows that no chunk uses, and keeps the JSON values ``meta`` and
        what the embedder was fitted on, ``baseline``. The index is as after :meth:`adopt`.
        """
        make = of_kind(IndexSpec(FLAT) if self._approximate else catalog.index_spec(self._connection))
        with write_errors(self._store):
            record = save_embedder(self._store, embedder)
            fitted_on = save_baseline(self._store, embedder.fingerprint, baseline)
            sizes = shard_sizes(self.live_vectors(), catalog.index_config(self._connection).shards)[:-1]
            written = write_segments(self._store, blocks, embedder.postprocess_documents, make, sizes)
            with self._database.transaction():
                compaction.swap(self._connection, compaction.Rewritten(self._segments(), written))
                self._connection.execute("DELETE FROM rewritten")
                about = {**self._outdated_choice(), "embedder": record, "dim": raw_dim, BASELINE: fitted_on}
                for key, value in {**meta, **about}.items():
                    catalog.set_meta(self._connection, key, value)
        self._embedder = embedder
        compaction.sweep_unnamed(self._store, self._connection)

    def _saved(self, embedder: VectorEncoder) -> dict[str, Any]:
        """Write the embedder's files; where they stay as they were, so does what the database keeps of them.

        Those of a store that was moved name the model where it was, which only the former record leads on from.
        """
        stored, record = catalog.embedder(self._connection), save_embedder(self._store, embedder)
        same = all(record[name] == stored.get(name) for name in ("fingerprint", "files"))
        return stored if same else record

    def texts_of_rows(self) -> Iterator[tuple[int, str]]:
        """Yield the rows that chunks use, ascending, and the embedded text of each."""
        return catalog.embedded_texts_by_row(self._connection)

    def _outdated_choice(self) -> dict[str, Any]:
        """Return what to keep of the choice of the index when vectors change: it must be picked again."""
        choice = catalog.index_choice(self._connection)
        if choice is None or not self._approximate:
            return {}
        return {"index_choice": replace(choice, rows=0).to_dict()}

    @property
    def _approximate(self) -> bool:
        return catalog.index_spec(self._connection).family != "exhaustive"

    def _rewrite_for(self, embedder: VectorEncoder, progress: Progress) -> None:
        """Rebuild for ``embedder`` the segments that an earlier run has not."""
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
        """Rewrite small or mostly unused segments where it is worth it; rows that no chunk uses go, staged ones too."""
        while groups := compaction.worth_rewriting(self._connection):
            self._merge(groups, SilentProgress())

    def optimize(self, wanted: IndexConfig | None = None, progress: Progress | None = None) -> list[str]:
        """Join all segments that are small, drop all rows that no chunk uses, and give free space back to the disk.

        ``wanted`` asks for another index than before. An approximate index is picked again if anything has changed. A
        store with several shards gets as many segments, of about one size. Each step is committed on its own, so the
        next run carries on one that was killed. Returns and raises as :meth:`refresh_index` does.
        """
        progress = progress or SilentProgress()
        said = self.refresh_index(wanted, progress)
        groups = compaction.all_worn_or_small(self._connection)
        live = self.live_vectors() > 0  # else the groups only go
        if live and self._approximate and not self.meta("unfinished") and (groups or self._degraded()):
            said = self._pick_or_warn(catalog.index_config(self._connection), progress)
            groups = compaction.all_worn_or_small(self._connection) if said else []
        self._merge(groups, progress, catalog.index_config(self._connection).shards)
        with write_errors(self._store):
            if catalog.rewritten(self._connection):  # of a refit that was given up
                with self._database.transaction():
                    self._connection.execute("DELETE FROM rewritten")
                compaction.sweep_unnamed(self._store, self._connection)
            self._database.merge_words()
            if self._database.free_share() > _FREE_SHARE:
                self._database.vacuum()
        return said

    def _merge(self, groups: Sequence[Sequence[SegmentRecord]], progress: Progress, shards: int = 1) -> None:
        progress.start("merging", "vectors", sum(record.files.rows for group in groups for record in group))
        with write_errors(self._store):
            for group in groups:
                make = of_kind(catalog.index_spec(self._connection), self._gpus[0])
                rewritten = compaction.rewrite(self._store, self._connection, group, self._embedder, make, shards)
                with self._database.transaction():
                    compaction.swap(self._connection, rewritten)
                progress.advance(sum(record.files.rows for record in group))
        progress.finish()
        if groups:
            compaction.sweep_unnamed(self._store, self._connection)

    # Index

    def refresh_index(self, wanted: IndexConfig | None = None, progress: Progress | None = None) -> list[str]:
        """Bring up to date what is made of chunks: postings, and the index.

        The index is picked where the store has outgrown it or another is ``wanted``, and measured where it changed.

        Returns warnings. Nothing is done while a run over files is unfinished. Raises
        :class:`ragembed.errors.BudgetError` if no index meets a new request: the store keeps its index and the
        former request.
        """
        if wanted is not None:
            self._require_usable(wanted, next((record.files.dim for record in self._segments()), None))
        if self.meta("unfinished"):
            if wanted is not None:
                self.set_meta({"index": wanted.to_dict()})
            return []
        progress = progress or SilentProgress()
        with write_errors(self._store):
            update_postings(self._store, self._database, progress)
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
        said = self._check(rows, progress) if index_selection.needs_check(self._connection, rows) else []
        return [*said, *index_selection.exact_note(wanted, rows)]

    @staticmethod
    def _require_usable(wanted: IndexConfig, dim: int | None) -> None:
        """Raise :class:`ConfigError` for a factory string that cannot be used, however few vectors there are yet."""
        require_library(wanted.kind)
        if wanted.kind != AUTO and dim is not None:
            check(parse_spec(wanted.kind), dim)

    def _degraded(self) -> bool:
        check = catalog.index_check(self._connection)
        wanted = catalog.index_config(self._connection)
        return check is not None and index_selection.degradation(wanted, None, check) is not None

    def _pick_or_warn(self, wanted: IndexConfig, progress: Progress) -> list[str]:
        """Pick the index; if none meets the former request, keep the present one and return a warning."""
        choice = catalog.index_choice(self._connection)
        try:
            self._pick(wanted, progress)
        except BudgetError as error:
            if choice is None or choice.wanted != wanted:
                raise
            rows = self.live_vectors()
            self.set_meta({"index_choice": replace(choice, rows=rows).to_dict()})  # not again before it has doubled
            return [f"the index has outgrown what was asked of it: {error}"]
        return []

    def _check(self, rows: int, progress: Progress) -> list[str]:
        before = catalog.index_check(self._connection)
        progress.start("measuring the index", "queries", None)
        now = index_selection.check_index(self._store, self._connection, self._embedder, rows)
        progress.finish()
        self.set_meta({"index_check": now.to_dict()})
        said = index_selection.degradation(catalog.index_config(self._connection), before, now)
        return [] if said is None else [said]

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
        """Return how many vectors chunks use."""
        return catalog.count(self._connection, "vectors") - catalog.count(self._connection, "tombstones")

    def last_row(self) -> int:
        """Return the highest row of a vector, 0 where there is none."""
        return catalog.last_row(self._connection)

    def live_raw(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
        """Yield the rows that chunks use and their raw vectors, shape ``(n, d)``, in order of row, in blocks."""
        return compaction.live_raw(self._store, self._connection, self._segments())

    def _segments(self) -> list[SegmentRecord]:
        return catalog.segments(self._connection)
