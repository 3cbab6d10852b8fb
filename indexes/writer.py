"""Writing to a store: vectors first, then one transaction that makes them count.

Work done in the ``with`` block of :meth:`ragembed.indexes.Store.writer`, which holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import BudgetError, ConfigError, DimensionError, IncompatibleStoreError
from ragembed.indexes import catalog, changes, compaction, index_choice, run_records
from ragembed.indexes.ann import factories
from ragembed.indexes.ann.gpus import Gpu
from ragembed.indexes.ann.picking import least_asked
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.ann.specs import AUTO, FLAT, IndexSpec, parse_spec
from ragembed.indexes.database import Database, write_errors
from ragembed.indexes.devices import building_gpus
from ragembed.indexes.embedders import save_embedder
from ragembed.indexes.filters import Filter
from ragembed.indexes.layout import is_below
from ragembed.indexes.progress import Progress, Silent
from ragembed.indexes.records import ChunkRecord, SourceRecord, VectorEncoder, text_hash
from ragembed.indexes.run_records import Expected, Record
from ragembed.indexes.segments import Segment, SegmentRecord, of_kind, to_raw, write_segment
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]

BATCH = 1024
"""Texts that are encoded and committed together: what an interruption costs at most."""

_SAME = 1e-3
"""Cosine, short of 1, of two vectors that are taken to be the same: more than rounding to float16 makes."""

_FREE_SHARE = 0.05
"""Share of the database that nothing uses, above which it is given back."""


class StoreWriter:
    """The write side of a store. Nothing is visible to readers before the transaction at the end of each method."""

    def __init__(self, store: Path, database: Database, embedder: VectorEncoder, device: str | None = None) -> None:
        self._store = store
        self._device = device
        self._database = database
        self._connection = database.connection
        self._embedder = embedder
        self._check_embedder()
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
    def _gpus(self) -> tuple[Sequence[Gpu], str]:
        """The GPUs that indexes are built on, and what is said of them."""
        return building_gpus(self._device, self._embedder)

    # Vectors

    def stage(
        self, texts: Iterable[str], progress: Callable[[int], None] | None = None, batch_size: int | None = None
    ) -> int:
        """Encode and commit those of ``texts`` that the store has no vector for, in batches of ``BATCH``.

        Returns how many were encoded. Vectors that no chunk uses are invisible to search, and are found again by
        their text when an interrupted run is repeated. ``progress`` is told how many more are done, now and then.
        """
        wanted = {text_hash(text): text for text in texts}
        known = self._known(wanted)
        missing = [key for key in wanted if key not in known]
        step = batch_size or BATCH
        for start in range(0, len(missing), step):
            batch = missing[start : start + step]
            vectors = self._embedder.raw_documents([wanted[key] for key in batch], progress)
            self._commit_vectors(batch, vectors)
        return len(missing)

    def stage_vectors(self, texts: Sequence[str], vectors: Floats) -> None:
        """Commit raw vectors, float32, shape ``(n, d)``, made elsewhere for ``texts``.

        A text has one vector: raises :class:`ConfigError` where it is given two that differ, or one that differs from
        that of a chunk in the store. A vector that no chunk uses gives way.
        """
        keys: dict[bytes, int] = {}
        for i, text in enumerate(texts):
            first = keys.setdefault(text_hash(text), i)
            if first != i and _differ(vectors[first], vectors[i]):
                raise ConfigError(
                    f"two vectors are given for the text {text[:40]!r}: expected one, or the same for both"
                )
        kept = self._same_as_stored(texts, vectors, keys)
        new = [key for key in keys if key not in kept]
        if new:
            self._commit_vectors(new, vectors[[keys[key] for key in new]])

    def _same_as_stored(self, texts: Sequence[str], vectors: Floats, keys: Mapping[bytes, int]) -> set[bytes]:
        """Return those of ``keys``, with the position of each in ``texts``, that have the given vector in the store."""
        places = {key: place for key in self._known(keys) if (place := catalog.vector_place(self._connection, key))}
        segments = {record.key: Segment(self._store, record.files) for record in self._segments()}
        given_way: list[int] = []
        for key, place in places.items():
            stored = segments[place.segment].raw()[place.position].astype(np.float32)
            if not _differ(stored, vectors[keys[key]]):
                continue
            if place.used:
                raise ConfigError(
                    f"the store {self._store} has another vector for the text {texts[keys[key]][:40]!r} than the one "
                    "given: delete what has this text first, or make another store where the model is another"
                )
            given_way.append(place.row)
        if given_way:
            with write_errors(self._store), self._database.transaction():
                changes.disown(self._connection, given_way)
        return {key for key, place in places.items() if place.row not in given_way}

    def _known(self, hashes: Iterable[bytes]) -> set[bytes]:
        return set(catalog.rows_of_hashes(self._connection, hashes))

    def _commit_vectors(self, keys: Sequence[bytes], vectors: Floats) -> None:
        try:
            raw = to_raw(vectors)
        except ValueError as error:
            raise ConfigError(f"the embedder gave vectors that cannot be stored: {error}") from error
        self._check_dimension(vectors)
        first = self._next_row()
        rows = np.arange(first, first + len(keys), dtype=np.int64)
        with write_errors(self._store):
            make = of_kind(catalog.index_spec(self._connection), self._gpus[0])
            files, _ = write_segment(self._store, [(rows, raw)], self._embedder.postprocess_documents, make)
            with self._database.transaction():
                segment = compaction.insert_segment(self._connection, files)
                self._connection.executemany(
                    "INSERT INTO vectors (row, text_hash, segment, position) VALUES (?, ?, ?, ?)",
                    [(row, key, segment, i) for i, (row, key) in enumerate(zip(rows.tolist(), keys, strict=True))],
                )
                self._connection.executemany(
                    "INSERT INTO tombstones (row) VALUES (?)", [(row,) for row in rows.tolist()]
                )

    def _check_dimension(self, vectors: Floats) -> None:
        stored = catalog.meta(self._connection, "dim")
        if stored is None:
            shape = self._embedder.postprocess_documents(vectors[:1]).shape
            self._require_usable(catalog.index_wanted(self._connection), shape[1])
            with self._database.transaction():
                catalog.set_meta(self._connection, "dim", int(vectors.shape[1]))
        elif stored != vectors.shape[1]:
            raise DimensionError(
                f"the store {self._store} holds vectors of dimension {stored}, the embedder gave {vectors.shape[1]}"
            )

    def _next_row(self) -> int:
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        return 1 if row is None else int(row[0]) + 1

    # Chunks

    def commit(
        self,
        *,
        chunks: Sequence[ChunkRecord] = (),
        sources: Sequence[SourceRecord] = (),
        removed_sources: Iterable[str] = (),
        removed_ids: Iterable[str] = (),
        expected: Iterable[Expected] = (),
    ) -> None:
        """Make a change visible in one transaction.

        ``sources`` replace whatever the store holds of these files. A chunk whose id is there already, or comes
        earlier in ``chunks``, replaces that one; records of indexing runs about it stay. Every chunk's text must have
        been staged. ``expected`` are the chunks that an indexing run has not taken note of yet.
        """
        chunks = list({record.id: record for record in chunks}.values())
        removed_sources, removed_ids = list(removed_sources), list(removed_ids)
        if not (chunks or sources or removed_sources or removed_ids):
            return
        with write_errors(self._store), self._database.transaction():
            affected: set[int] = set()
            for path in [*removed_sources, *(source.path for source in sources)]:
                affected |= changes.delete_source(self._connection, path)
            replaced = [record.id for record in chunks]
            records = run_records.taken_out(self._connection, replaced)
            affected |= changes.delete_chunks(self._connection, [*removed_ids, *replaced])
            for source in sources:
                changes.insert_source(self._connection, source)
            affected |= changes.insert_chunks(self._connection, chunks)
            run_records.put_back(self._connection, records)
            run_records.expect(self._connection, expected)
            changes.mark_unused(self._connection, affected)

    def delete(self, ids: Iterable[str] = (), paths: Iterable[str] = (), where: Filter | None = None) -> int:
        """Delete chunks by id, files by name (or all below a folder), and chunks that ``where`` selects, at once.

        Returns how many chunks went. Unknown ids and names are no error. A file of which chunks are deleted by id or
        filter stays known, so that they do not come back before it changes.
        """
        names = catalog.sources_below(self._connection, paths)
        keys = catalog.selected_keys(self._connection, ids, names, where)
        if not names and not keys:
            return 0
        with write_errors(self._store), self._database.transaction():
            affected = changes.delete_keys(self._connection, keys)
            for name in names:
                changes.delete_source(self._connection, name)
            changes.mark_unused(self._connection, affected)
        return len(keys)

    def note_run(self, namespace: str, keys: Sequence[str], group_ids: Sequence[str | None] | None) -> None:
        """Take note that an indexing run has seen these chunks; see :func:`ragembed.indexes.run_records.note`."""
        with write_errors(self._store), self._database.transaction():
            run_records.note(self._connection, namespace, keys, group_ids)

    def take_run_records(self, records: Sequence[Record]) -> None:
        """Take over records of indexing runs about chunks of the same ids, from another store; others are left out."""
        known = catalog.rows_of_ids(self._connection, [key for _, key, *_ in records])
        with write_errors(self._store), self._database.transaction():
            run_records.put_back(self._connection, [record for record in records if record[1] in known])

    def forget_run(self, namespace: str, keys: Sequence[str]) -> None:
        """Delete what indexing runs have noted of these chunks."""
        with write_errors(self._store), self._database.transaction():
            run_records.forget(self._connection, namespace, keys)

    def touch_sources(self, sources: Sequence[SourceRecord]) -> None:
        """Take note of new sizes and modification times of files whose content is the same."""
        if not sources:
            return
        with write_errors(self._store), self._database.transaction():
            self._connection.executemany(
                "UPDATE sources SET size = ?, mtime_ns = ? WHERE path = ?",
                [(source.size, source.mtime_ns, source.path) for source in sources],
            )

    def meta(self, key: str) -> Any:
        """Return the JSON value kept under ``key``, None if there is none."""
        return catalog.meta(self._connection, key)

    def set_meta(self, values: Mapping[str, object]) -> None:
        """Keep JSON values under their keys."""
        with write_errors(self._store), self._database.transaction():
            for key, value in values.items():
                catalog.set_meta(self._connection, key, value)

    def set_skipped(self, skipped: Mapping[str, str], roots: Sequence[str]) -> None:
        """Keep the reason for each skipped file, in the place of all reasons kept for files below ``roots``."""
        kept = catalog.skipped(self._connection)
        old = {name: reason for name, reason in kept.items() if any(is_below(name, root) for root in roots)}
        if old == skipped:
            return
        with write_errors(self._store), self._database.transaction():
            self._connection.executemany("DELETE FROM skipped WHERE path = ?", [(name,) for name in old])
            self._connection.executemany(
                "INSERT OR REPLACE INTO skipped (path, reason) VALUES (?, ?)", list(skipped.items())
            )

    # Segments

    def adopt(
        self, embedder: VectorEncoder, progress: Progress | None = None, meta: Mapping[str, object] | None = None
    ) -> None:
        """Switch to another embedder with the same raw vectors: every index is made anew from them, no model runs.

        Each finished segment is kept, so that a run that was killed is carried on by the next with the same embedder;
        all of them take over in one transaction, which also keeps the JSON values ``meta``. An approximate index
        becomes a flat one, until :meth:`settle` picks it anew.
        """
        if embedder.raw_fingerprint != self._embedder.raw_fingerprint:
            raise IncompatibleStoreError(
                f"the raw vectors of {self._store} were made by another model or other token weights: index anew"
            )
        with write_errors(self._store):
            record = save_embedder(self._store, embedder)
            if embedder.fingerprint != self._embedder.fingerprint:
                self._rewrite_for(embedder, progress or Silent())
            with self._database.transaction():
                for taken in catalog.rewritten(self._connection, embedder.fingerprint):
                    compaction.replace_files(self._connection, taken.key, taken.files)
                self._connection.execute("DELETE FROM rewritten")
                for key, value in {**(meta or {}), **self._outdated_choice(), "embedder": record}.items():
                    catalog.set_meta(self._connection, key, value)
        self._embedder = embedder
        compaction.sweep_unnamed(self._store, self._connection)

    def _outdated_choice(self) -> dict[str, Any]:
        """Return what to keep of the choice of the index when vectors change: it is to be picked anew."""
        choice = catalog.index_choice(self._connection)
        if choice is None or not self._approximate:
            return {}
        return {"index_choice": replace(choice, rows=0).to_dict()}

    @property
    def _approximate(self) -> bool:
        return catalog.index_spec(self._connection).family != "exhaustive"

    def _rewrite_for(self, embedder: VectorEncoder, progress: Progress) -> None:
        """Make those segments anew for ``embedder`` that an earlier run has not."""
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
            self._merge(groups, Silent())

    def optimize(self, wanted: Wanted | None = None, progress: Progress | None = None) -> list[str]:
        """Join all segments that are small, drop all rows that no chunk uses, and give free space back to the disk.

        ``wanted`` asks for another index than before. An approximate index is picked anew where anything has changed.
        Each step is committed on its own, so that a run that was killed is carried on by the next. Returns and raises
        as :meth:`settle` does.
        """
        progress = progress or Silent()
        said = self.settle(wanted, progress)
        groups = compaction.all_worn_or_small(self._connection)
        live = self.live_vectors() > 0  # else the groups only go
        if live and self._approximate and not self.meta("unfinished") and (groups or self._degraded()):
            said = self._pick_or_tell(catalog.index_wanted(self._connection), progress)
            groups = compaction.all_worn_or_small(self._connection) if said else []
        self._merge(groups, progress)
        with write_errors(self._store):
            if catalog.rewritten(self._connection):  # of a refit that was given up
                with self._database.transaction():
                    self._connection.execute("DELETE FROM rewritten")
                compaction.sweep_unnamed(self._store, self._connection)
            self._database.merge_words()
            if self._database.free_share() > _FREE_SHARE:
                self._database.vacuum()
        return said

    def _merge(self, groups: Sequence[Sequence[SegmentRecord]], progress: Progress) -> None:
        progress.start("merging", "vectors", sum(record.files.rows for group in groups for record in group))
        with write_errors(self._store):
            for group in groups:
                make = of_kind(catalog.index_spec(self._connection), self._gpus[0])
                rewritten = compaction.rewrite(self._store, self._connection, group, self._embedder, make)
                with self._database.transaction():
                    compaction.swap(self._connection, rewritten)
                progress.advance(sum(record.files.rows for record in group))
        progress.finish()
        if groups:
            compaction.sweep_unnamed(self._store, self._connection)

    # Index

    def settle(self, wanted: Wanted | None = None, progress: Progress | None = None) -> list[str]:
        """Pick the index where the store has outgrown it or another is ``wanted``; measure it where it changed.

        Returns what is to be said of it. Nothing is done while a run over files is to be carried on. Raises
        :class:`ragembed.errors.BudgetError` where no index meets what is asked for anew: the store keeps the one that
        it has, and what was asked before.
        """
        if wanted is not None:
            self._require_usable(wanted, next((record.files.dim for record in self._segments()), None))
        if self.meta("unfinished"):
            if wanted is not None:
                self.set_meta({"index": wanted.to_dict()})
            return []
        progress = progress or Silent()
        rows = self.live_vectors()
        wanted = wanted or catalog.index_wanted(self._connection)
        choice = catalog.index_choice(self._connection)
        if index_choice.needs_pick(self._connection, wanted, rows):
            return self._pick_or_tell(wanted, progress)
        if wanted != catalog.index_wanted(self._connection):
            forgotten = {} if choice is None or choice.wanted == wanted else {"index_choice": None, "index_check": None}
            self.set_meta({"index": wanted.to_dict(), **forgotten})
            if index_choice.too_few(wanted, rows):
                least = least_asked(parse_spec(wanted.kind))
                return [f"the index stays flat: {wanted.kind} begins at {least:,} vectors"]
        return self._check(rows, progress) if index_choice.needs_check(self._connection, rows) else []

    @staticmethod
    def _require_usable(wanted: Wanted, dim: int | None) -> None:
        """Raise :class:`ConfigError` for a factory string that cannot be used, however few vectors there are yet."""
        if wanted.kind != AUTO and dim is not None:
            factories.check(parse_spec(wanted.kind), dim)

    def _degraded(self) -> bool:
        check = catalog.index_check(self._connection)
        wanted = catalog.index_wanted(self._connection)
        return check is not None and index_choice.degradation(wanted, None, check) is not None

    def _pick_or_tell(self, wanted: Wanted, progress: Progress) -> list[str]:
        """Pick the index; where none meets what was asked for before, keep the one that there is and say so."""
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
        now = index_choice.check_index(self._store, self._connection, self._embedder, rows)
        progress.finish()
        self.set_meta({"index_check": now.to_dict()})
        said = index_choice.degradation(catalog.index_wanted(self._connection), before, now)
        return [] if said is None else [said]

    def _pick(self, wanted: Wanted, progress: Progress) -> None:
        with write_errors(self._store):
            rewritten, choice, check = index_choice.pick_index(
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

    def live_raw(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
        """Yield the rows that chunks use and their raw vectors, shape ``(n, d)``, in order of row, in blocks."""
        return compaction.live_raw(self._store, self._connection, self._segments())

    def _segments(self) -> list[SegmentRecord]:
        return catalog.segments(self._connection)


def _differ(one: Floats, other: Floats) -> bool:
    if one.shape != other.shape:
        return True
    a, b = unit_rows(np.stack([one, other]))
    return bool((a - b) @ (a - b) > 2 * _SAME)  # of unit vectors, this is twice what their cosine is short of 1
