"""Writing to a store: vectors first, then one transaction that makes them count.

Work done in the ``with`` block of :meth:`ragembed.indexes.Store.writer`, which holds the store's lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, IncompatibleStoreError, StoreDamagedError, StoreError
from ragembed.indexes import catalog, compaction
from ragembed.indexes.folders import FINGERPRINT, SEGMENT_NAME, publish, sweep, temporary_folder
from ragembed.indexes.layout import EMBEDDERS, SEGMENTS, is_below
from ragembed.indexes.records import ChunkRecord, SourceRecord, VectorEncoder, text_hash
from ragembed.indexes.segments import SegmentRecord, to_raw, write_segment

Floats = NDArray[np.float32]
Progress = Callable[[int], None]

BATCH = 1024
"""Texts that are encoded and committed together: what an interruption costs at most."""


class StoreWriter:
    """The write side of a store. Nothing is visible to readers before the transaction at the end of each method."""

    def __init__(self, store: Path, connection: sqlite3.Connection, embedder: VectorEncoder) -> None:
        self._store = store
        self._connection = connection
        self._embedder = embedder
        self._check_embedder()
        self._sweep()

    def _check_embedder(self) -> None:
        stored = catalog.embedder(self._connection)
        if stored["fingerprint"] != self._embedder.fingerprint:
            given = self._embedder.describe()
            raise IncompatibleStoreError(
                f"the store {self._store} was made with the embedder {stored['model']} ({stored['fingerprint'][:12]}), "
                f"not with {given['model']} ({self._embedder.fingerprint[:12]}): open it without an embedder, or make "
                "another store"
            )

    # Vectors

    def stage(self, texts: Iterable[str], progress: Progress | None = None) -> int:
        """Encode and commit those of ``texts`` that the store has no vector for, in batches of ``BATCH``.

        Returns how many were encoded. Vectors that no chunk uses are invisible to search, and are found again by
        their text when an interrupted run is repeated. ``progress`` is told how many more are done, now and then.
        """
        wanted = {text_hash(text): text for text in texts}
        known = self._known(wanted)
        missing = [key for key in wanted if key not in known]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            vectors = self._embedder.raw_documents([wanted[key] for key in batch], progress)
            self._commit_vectors(batch, vectors)
        return len(missing)

    def stage_vectors(self, texts: Sequence[str], vectors: Floats) -> None:
        """Commit raw vectors, float32, shape ``(n, d)``, made elsewhere for ``texts``; known texts keep theirs."""
        keys = {text_hash(text): i for i, text in enumerate(texts)}
        known = self._known(keys)
        new = [key for key in keys if key not in known]
        if new:
            self._commit_vectors(new, vectors[[keys[key] for key in new]])

    def _known(self, hashes: Iterable[str]) -> set[str]:
        found = self._connection.execute(
            "SELECT text_hash FROM vectors WHERE text_hash IN (SELECT value FROM json_each(?))",
            (json.dumps(list(hashes)),),
        )
        return {row[0] for row in found}

    def _commit_vectors(self, keys: Sequence[str], vectors: Floats) -> None:
        try:
            raw = to_raw(vectors)
        except ValueError as error:
            raise ConfigError(f"the embedder gave vectors that cannot be stored: {error}") from error
        self._check_dimension(vectors)
        first = self._next_row()
        rows = np.arange(first, first + len(keys), dtype=np.int64)
        with _store_errors(self._store):
            record = write_segment(self._store, raw, rows, self._embedder.postprocess_documents)
            with self._transaction():
                compaction.insert_segment(self._connection, record)
                self._connection.executemany(
                    "INSERT INTO vectors (row, text_hash, segment, position) VALUES (?, ?, ?, ?)",
                    [(row, key, record.id, i) for i, (row, key) in enumerate(zip(rows.tolist(), keys, strict=True))],
                )
                self._connection.executemany(
                    "INSERT INTO tombstones (row) VALUES (?)", [(row,) for row in rows.tolist()]
                )

    def _check_dimension(self, vectors: Floats) -> None:
        stored = catalog.meta(self._connection, "dim")
        if stored is None:
            with self._transaction():
                catalog.set_meta(self._connection, "dim", int(vectors.shape[1]))
        elif stored != vectors.shape[1]:
            raise IncompatibleStoreError(
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
    ) -> None:
        """Make a change visible in one transaction.

        ``sources`` replace whatever the store holds of these files. A chunk whose id is there already, or comes
        earlier in ``chunks``, replaces that one. Every chunk's text must have been staged.
        """
        chunks = list({record.id: record for record in chunks}.values())
        removed_sources, removed_ids = list(removed_sources), list(removed_ids)
        if not (chunks or sources or removed_sources or removed_ids):
            return
        with _store_errors(self._store), self._transaction():
            affected: set[int] = set()
            for path in [*removed_sources, *(source.path for source in sources)]:
                affected |= self._delete("source = (SELECT id FROM sources WHERE path = ?)", path)
                self._connection.execute("DELETE FROM sources WHERE path = ?", (path,))
            for chunk_id in [*removed_ids, *(record.id for record in chunks)]:
                affected |= self._delete("id = ?", chunk_id)
            self._connection.executemany(
                "INSERT INTO sources (path, size, mtime_ns, sha256, recipe) VALUES (?, ?, ?, ?, ?)",
                [astuple(source) for source in sources],
            )
            affected |= {self._insert(record) for record in chunks}
            self._connection.executemany(
                "DELETE FROM tombstones WHERE row = ? AND EXISTS (SELECT 1 FROM chunks c WHERE c.row = tombstones.row)",
                [(row,) for row in affected],
            )
            self._connection.executemany(
                "INSERT OR IGNORE INTO tombstones (row)"
                " SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE row = ?1)",
                [(row,) for row in affected],
            )

    def touch_sources(self, sources: Sequence[SourceRecord]) -> None:
        """Take note of new sizes and modification times of files whose content is the same."""
        if not sources:
            return
        with _store_errors(self._store), self._transaction():
            self._connection.executemany(
                "UPDATE sources SET size = ?, mtime_ns = ? WHERE path = ?",
                [(source.size, source.mtime_ns, source.path) for source in sources],
            )

    def meta(self, key: str) -> Any:
        """Return the JSON value kept under ``key``, None if there is none."""
        return catalog.meta(self._connection, key)

    def set_meta(self, values: Mapping[str, object]) -> None:
        """Keep JSON values under their keys."""
        with _store_errors(self._store), self._transaction():
            for key, value in values.items():
                catalog.set_meta(self._connection, key, value)

    def set_skipped(self, skipped: Mapping[str, str], roots: Sequence[str]) -> None:
        """Keep the reason for each skipped file, in the place of all reasons kept for files below ``roots``."""
        kept = catalog.skipped(self._connection)
        old = {name: reason for name, reason in kept.items() if any(is_below(name, root) for root in roots)}
        if old == skipped:
            return
        with _store_errors(self._store), self._transaction():
            self._connection.executemany("DELETE FROM skipped WHERE path = ?", [(name,) for name in old])
            self._connection.executemany(
                "INSERT OR REPLACE INTO skipped (path, reason) VALUES (?, ?)", list(skipped.items())
            )

    def _delete(self, condition: str, value: str) -> set[int]:
        rows = self._connection.execute(f"SELECT row FROM chunks WHERE {condition}", (value,)).fetchall()  # noqa: S608
        self._connection.execute(f"DELETE FROM chunks WHERE {condition}", (value,))  # noqa: S608
        return {row[0] for row in rows}

    def _insert(self, record: ChunkRecord) -> int:
        chunk = record.chunk
        found = self._connection.execute(
            "SELECT row FROM vectors WHERE text_hash = ?", (text_hash(chunk.embedded_text),)
        ).fetchone()
        if found is None:
            raise StoreError(f"the chunk {record.id!r} was committed before its text was staged")
        source = None if record.source is None else self._source_id(record)
        self._connection.execute(
            "INSERT INTO chunks (id, row, source, text, title, headings, start_line, end_line, page, tokens, metadata)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.id,
                found[0],
                source,
                storable(chunk.text),
                None if chunk.title is None else storable(chunk.title),
                storable(json.dumps(list(chunk.headings), ensure_ascii=False)),
                chunk.start_line,
                chunk.end_line,
                chunk.page,
                chunk.tokens,
                _metadata_json(record),
            ),
        )
        return int(found[0])

    def _source_id(self, record: ChunkRecord) -> int:
        found = self._connection.execute("SELECT id FROM sources WHERE path = ?", (record.source,)).fetchone()
        if found is None:
            raise StoreError(f"the chunk {record.id!r} names the file {record.source!r}, which the store does not hold")
        return int(found[0])

    # Segments

    def adopt(self, embedder: VectorEncoder) -> None:
        """Switch to another embedder with the same raw vectors: every index is made anew from them, no model runs."""
        if embedder.raw_fingerprint != self._embedder.raw_fingerprint:
            raise IncompatibleStoreError(
                f"the raw vectors of {self._store} were made by another model or other token weights: index anew"
            )
        with _store_errors(self._store):
            save_embedder(self._store, embedder)
            rewritten = compaction.rewrite(self._store, self._connection, self._segments(), embedder)
            with self._transaction():
                compaction.swap(self._connection, rewritten)
                catalog.set_meta(self._connection, "embedder", embedder_record(embedder))
        self._embedder = embedder
        self._sweep()

    def merge(self) -> None:
        """Rewrite small or mostly unused segments where it is worth it; rows that no chunk uses go, staged ones too."""
        with _store_errors(self._store):
            if chosen := compaction.choose(self._connection):
                rewritten = compaction.rewrite(self._store, self._connection, chosen, self._embedder)
                with self._transaction():
                    compaction.swap(self._connection, rewritten)
        self._sweep()

    def live_vectors(self) -> int:
        """Return how many vectors chunks use."""
        return catalog.count(self._connection, "vectors") - catalog.count(self._connection, "tombstones")

    def live_raw(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
        """Yield the rows that chunks use and their raw vectors, shape ``(n, d)``, in order of row, in blocks."""
        return compaction.live_raw(self._store, self._connection, self._segments())

    def _segments(self) -> list[SegmentRecord]:
        return catalog.segments(self._connection)

    def _sweep(self) -> None:
        sweep(self._store / SEGMENTS, [record.id for record in self._segments()], SEGMENT_NAME)
        current = catalog.embedder(self._connection)["fingerprint"]
        sweep(self._store / EMBEDDERS, [current], FINGERPRINT)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            generation = catalog.meta(self._connection, "generation", 0)
            catalog.set_meta(self._connection, "generation", generation + 1)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def storable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 and so SQLite cannot hold, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _metadata_json(record: ChunkRecord) -> str:
    try:
        return json.dumps(dict(record.chunk.metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the metadata of {record.id!r} cannot be stored: {error}; use strings, numbers, booleans, None, lists and "
            "dictionaries of these"
        ) from error


def embedder_record(embedder: VectorEncoder) -> dict[str, Any]:
    """Return what the database keeps of an embedder."""
    return {
        **embedder.describe(),
        "fingerprint": embedder.fingerprint,
        "raw_fingerprint": embedder.raw_fingerprint,
    }


def save_embedder(store: Path, embedder: VectorEncoder) -> None:
    """Write the embedder's files under its fingerprint, whole or not at all; files are never changed once there."""
    final = store / EMBEDDERS / embedder.fingerprint
    if not final.exists():
        temporary = temporary_folder(final)
        embedder.save(str(temporary))
        publish(temporary, final)


@contextmanager
def _store_errors(store: Path) -> Iterator[None]:
    """Turn what the file system and SQLite say about a failed write into one error that names the store."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"the store {store} could not be written, its last state is intact: {reason}") from error
    except sqlite3.DatabaseError as error:
        raise StoreDamagedError(f"the database of {store} is damaged: {error}") from error
