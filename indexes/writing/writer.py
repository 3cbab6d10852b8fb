"""Writing to a store: vectors first, then one transaction that makes them count.

Work done in the ``with`` block of :meth:`ragembed.indexes.Store.writer`, which holds the store's lock. Merging, and the
choice of the index, are in :mod:`upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ragembed.documents.boilerplate import LineKeys
from ragembed.errors import ConfigError, DimensionError
from ragembed.indexes.filters import Filter
from ragembed.indexes.storage import catalog, changes, compaction, run_records
from ragembed.indexes.storage.layout import is_below
from ragembed.indexes.storage.run_records import Expected, Record
from ragembed.indexes.storage.segments import Segment, of_kind, to_raw, write_segment
from ragembed.indexes.storage.transactions import write_errors
from ragembed.indexes.types import ChunkRecord, SourceRecord, text_hash
from ragembed.indexes.writing.boilerplate_store import BoilerplateLine, StrippingPlan, done, lines_as_bytes, plan
from ragembed.indexes.writing.upkeep import Upkeep
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

Encode: TypeAlias = "Callable[[Sequence[str], Callable[[int], None] | None], Floats]"
"""Makes raw vectors of texts, and tells how many more are done."""

BATCH = 1024
"""Texts that are encoded and committed together: what an interruption costs at most."""

_SAME = 1e-3
"""Cosine, short of 1, of two vectors that are taken to be the same: more than rounding to float16 makes."""


class StoreWriter(Upkeep):
    """The write side of a store. Nothing is visible to readers before the transaction at the end of each method."""

    # Vectors

    def stage(
        self,
        texts: Iterable[str],
        progress: Callable[[int], None] | None = None,
        batch_size: int | None = None,
        encode: Encode | None = None,
    ) -> int:
        """Encode and commit those of ``texts`` that the store has no vector for, in batches of ``BATCH``.

        Returns how many were encoded. Vectors that no chunk uses are invisible to search, and are found again by
        their text when an interrupted run is repeated. ``progress`` is told how many more are done, now and then.
        ``encode`` gives the raw vectors where it is not for the store's embedder to make them.
        """
        encode = encode or self._embedder.raw_documents
        wanted = {text_hash(text): text for text in texts}
        known = self.known(wanted)
        missing = [key for key in wanted if key not in known]
        step = batch_size or BATCH
        for start in range(0, len(missing), step):
            batch = missing[start : start + step]
            self._commit_vectors(batch, encode([wanted[key] for key in batch], progress))
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
        places = {key: place for key in self.known(keys) if (place := catalog.vector_place(self._connection, key))}
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
                changes.detach_vectors(self._connection, given_way)
        return {key for key, place in places.items() if place.row not in given_way}

    def known(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return those hashes of texts that the store has a vector for."""
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
            self._require_usable(catalog.index_config(self._connection), shape[1])
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
        expected: Iterable[Expected] = (),
        lines: Mapping[str, LineKeys] = MappingProxyType({}),
    ) -> None:
        """Make a change visible in one transaction.

        ``sources`` replace whatever the store holds of these files. A chunk whose id is there already, or comes
        earlier in ``chunks``, replaces that one; records of indexing runs about it stay. Every chunk's text must have
        been staged. ``expected`` are the chunks that an indexing run has not taken note of yet, ``lines`` the keys of
        the lines of ``sources``, by name.
        """
        chunks = list({record.id: record for record in chunks}.values())
        removed_sources = list(removed_sources)
        if not (chunks or sources or removed_sources):
            return
        with write_errors(self._store), self._database.transaction():
            affected: set[int] = set()
            for path in [*removed_sources, *(source.path for source in sources)]:
                affected |= changes.delete_source(self._connection, path)
            replaced = [record.id for record in chunks]
            records = run_records.taken_out(self._connection, replaced)
            affected |= changes.delete_chunks(self._connection, replaced)
            for source in sources:
                changes.insert_source(self._connection, source)
            self._insert_lines(lines)
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
        """Take note that an indexing run has seen these chunks; see :func:`note`."""
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

    def set_skipped(self, skipped: Mapping[str, str], roots: Sequence[str]) -> None:
        """Keep the reason for each skipped file, in place of all reasons kept for files below ``roots``."""
        kept = catalog.skipped(self._connection)
        old = {name: reason for name, reason in kept.items() if any(is_below(name, root) for root in roots)}
        if old == skipped:
            return
        with write_errors(self._store), self._database.transaction():
            self._connection.executemany("DELETE FROM skipped WHERE path = ?", [(name,) for name in old])
            self._connection.executemany(
                "INSERT OR REPLACE INTO skipped (path, reason) VALUES (?, ?)", list(skipped.items())
            )

    # Boilerplate: what is searched of chunks

    def plan_stripping(
        self, coming: Mapping[str, tuple[str, LineKeys]], removed: Collection[str], mode: str
    ) -> StrippingPlan:
        """Return what a run is to do about boilerplate; see :func:`ragembed.indexes.writing.boilerplate_store.plan`."""
        return plan(self._connection, coming, removed, mode)

    def done_stripping(self, mode: str) -> dict[str, Any]:
        """Return what to keep of a run that has done it, as the JSON value ``boilerplate``."""
        return done(self._connection, mode)

    def keep_lines(self, lines: Mapping[str, LineKeys]) -> None:
        """Keep the keys of the lines of files, by name, in place of those that were kept of them."""
        if not lines:
            return
        with write_errors(self._store), self._database.transaction():
            self._insert_lines(lines)

    def _insert_lines(self, lines: Mapping[str, LineKeys]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO source_lines (source, keys) SELECT id, ?2 FROM sources WHERE path = ?1",
            [(path, lines_as_bytes(keys)) for path, keys in lines.items()],
        )

    def search_by(self, records: Sequence[ChunkRecord]) -> None:
        """Let chunks that are in the store be searched by the ``searched`` of these, which differs, and nothing else.

        Its text must have been staged.
        """
        if not records:
            return
        hashes = {record.id: text_hash(record.chunk.embedded_text) for record in records}
        with write_errors(self._store), self._database.transaction():
            rows = catalog.rows_of_hashes(self._connection, hashes.values())
            before = catalog.rows_of_ids(self._connection, list(hashes))
            self._connection.executemany(
                "UPDATE chunks SET searched = ?, row = ? WHERE id = ?",
                [(record.chunk.searched, rows[hashes[record.id]], record.id) for record in records],
            )
            changes.mark_unused(self._connection, {*rows.values(), *before.values()})

    def keep_boilerplate(self, lines: Iterable[BoilerplateLine]) -> None:
        """Keep the lines that are boilerplate now, in place of those that were."""
        with write_errors(self._store), self._database.transaction():
            self._connection.execute("DELETE FROM boilerplate")
            self._connection.executemany(
                "INSERT OR REPLACE INTO boilerplate (kind, line, files) VALUES (?, ?, ?)",
                [(line.kind, line.line, line.files) for line in lines],
            )


def _differ(one: Floats, other: Floats) -> bool:
    if one.shape != other.shape:
        return True
    a, b = unit_rows(np.stack([one, other]))
    return bool((a - b) @ (a - b) > 2 * _SAME)  # of unit vectors, this is twice what their cosine is short of 1
