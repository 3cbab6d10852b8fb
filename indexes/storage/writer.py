"""Writing to a store: chunks, which one transaction makes searchable by their words, and vectors, before or after them.

:meth:`ragembed.indexes.Store.writer` holds the store's lock and returns the writer for its ``with`` block. Merging and
the choice of the index are in :mod:`upkeep`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from time import monotonic as clock
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ragembed.corpus import blocks
from ragembed.errors import ConfigError, DimensionError, StoreError
from ragembed.indexes.filters import Filter
from ragembed.indexes.storage import catalog, compaction, run_records
from ragembed.indexes.storage.layout import extension, is_below
from ragembed.indexes.storage.run_records import Expected, Record
from ragembed.indexes.storage.segments import Segment, to_raw, write_segment
from ragembed.indexes.storage.transactions import write_errors
from ragembed.indexes.storage.upkeep import Upkeep
from ragembed.indexes.types import UNUSABLE, ChunkRecord, SourceRecord, json_ids, text_hash, variant_key
from ragembed.postprocess import unit_rows
from ragembed.progress import Progress, check
from ragembed.types import Floats

Encode: TypeAlias = "Callable[[Sequence[str], Callable[[int], None] | None], Iterable[Floats]]"
"""Makes raw vectors from texts, in order and in parts, and reports progress."""

BATCH = 1024
"""Number of texts that are encoded together. They are committed in parts, as they are finished."""

COMMIT_SECONDS = 1.0
"""Least time between two commits of finished parts. A commit takes a few hundredths of it."""

_COLUMNS = "id, row, source, text, title, headings, start_line, end_line, page, tokens, metadata, searched, later_pages"
_MARKS = ", ".join("?" for _ in _COLUMNS.split(","))

_SAME = 1e-3
"""Two vectors are the same if their cosine is at least 1 minus this, which is more than rounding to float16 changes."""


class StoreWriter(Upkeep):
    """The write side of a store. Readers see the changes of a method when its transaction has been committed."""

    # Vectors

    def stage(
        self, texts: Iterable[str], progress: Callable[[int], None] | None = None, batch_size: int | None = None
    ) -> int:
        """Encode and commit the ``texts`` that have no vector in the store, in batches of ``BATCH``.

        Returns the number of encoded texts. Search does not see vectors that no chunk uses. A repeated run finds them
        by their text. ``progress`` is called from time to time with the number of texts encoded since the last call.
        """
        wanted = {text_hash(text): text for text in texts}
        stored = catalog.rows_of_hashes(self._connection, wanted, with_vector=True)
        missing = [key for key in wanted if key not in stored]
        for batch in blocks(missing, batch_size or BATCH):
            check()
            self._commit_vectors(batch, self._embedder.raw_documents([wanted[key] for key in batch], progress))
        return len(missing)

    def encode_waiting(self, encode: Encode, progress: Progress) -> int:
        """Encode the texts of chunks that were committed without a vector, and return their number.

        ``encode`` makes the raw vectors. Finished parts of a batch are committed every ``COMMIT_SECONDS``, and also if
        an error or an interruption stops it.
        """
        encoded = 0
        progress.start("embedding", "chunks", catalog.count_waiting(self._connection))
        while texts := catalog.waiting_texts(self._connection, BATCH):
            check()
            before = max((record.key for record in catalog.segments(self._connection)), default=0)
            self._commit_parts(list(texts), encode(list(texts.values()), progress.advance))
            self.merge_since(before, BATCH)
            self.merge()
            encoded += len(texts)
        progress.finish()
        return encoded

    def _commit_parts(self, keys: Sequence[bytes], parts: Iterable[Floats]) -> None:
        """Commit the vectors of ``keys``, which come in parts."""
        waiting: list[Floats] = []
        done, last = 0, clock()

        def commit() -> None:
            nonlocal done, last
            if waiting:
                vectors = np.concatenate(waiting)
                waiting.clear()
                self._commit_vectors(keys[done : done + len(vectors)], vectors)
                done += len(vectors)
            last = clock()

        try:
            for vectors in parts:
                waiting.append(vectors)
                if clock() - last >= COMMIT_SECONDS:
                    commit()
        finally:
            commit()
        if done < len(keys):
            raise ConfigError(f"the embedder returned {done:,} vectors for {len(keys):,} texts: expected one for each")

    def stage_vectors(self, texts: Sequence[str], vectors: Floats) -> list[bytes]:
        """Commit raw vectors, float32, shape ``(n, d)``, that were made elsewhere for ``texts``; return their keys.

        A text can have several vectors, such as a sentence that stands in several contexts. The first one has the key
        of the text; :meth:`commit` needs the keys of the others. A stored vector that no chunk uses is replaced.
        """
        first: dict[bytes, int] = {}
        keys = []
        for i, text in enumerate(texts):
            key = text_hash(text)
            before = first.setdefault(key, i)
            keys.append(
                key if before == i or not _differ(vectors[before], vectors[i]) else variant_key(key, vectors[i])
            )
        positions = {key: i for i, key in reversed(list(enumerate(keys)))}
        others = self._differs_from_stored(vectors, positions)
        keys = [variant_key(key, vectors[positions[key]]) if key in others else key for key in keys]
        positions = {key: i for i, key in reversed(list(enumerate(keys)))}
        stored = catalog.rows_of_hashes(self._connection, positions, with_vector=True)
        new = [key for key in positions if key not in stored]
        if new:
            self._commit_vectors(new, vectors[[positions[key] for key in new]])
        return keys

    def _differs_from_stored(self, vectors: Floats, positions: Mapping[bytes, int]) -> set[bytes]:
        """Return the keys whose stored vector is in use and differs from the given one; drop those not in use."""
        if not positions:
            return set()
        self._require_dimension(vectors)
        segments = {record.key: Segment(self._store, record.files) for record in catalog.segments(self._connection)}
        used: set[bytes] = set()
        replaced: list[int] = []
        for key in catalog.rows_of_hashes(self._connection, positions, with_vector=True):
            if (place := catalog.vector_place(self._connection, key)) is None:
                continue
            row, segment, position, is_used = place
            if not _differ(segments[segment].raw()[position].astype(np.float32), vectors[positions[key]]):
                continue
            if is_used:
                used.add(key)
            else:
                replaced.append(row)
        if replaced:
            with write_errors(self._store), self._database.transaction():
                self._connection.executemany(  # so that their texts can get other vectors
                    "UPDATE vectors SET text_hash = randomblob(16) WHERE row = ?", [(row,) for row in replaced]
                )
        return used

    def _commit_vectors(self, keys: Sequence[bytes], vectors: Floats) -> None:
        """Commit a segment with the raw vectors of the texts with the hashes ``keys``.

        A text that waits for its vector has a row, which chunks use; another gets a new row, which is unused.
        """
        raw = to_raw(vectors)
        self._require_dimension(vectors)
        if catalog.meta(self._connection, "dim") is None:
            shape = self._embedder.postprocess_documents(vectors[:1]).shape
            self._require_usable(catalog.index_config(self._connection), shape[1])
            with self._database.transaction():
                catalog.set_meta(self._connection, "dim", int(vectors.shape[1]))
        waiting = catalog.rows_of_hashes(self._connection, keys)
        last = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        new = dict(zip((key for key in keys if key not in waiting), count(1 if last is None else int(last[0]) + 1)))
        rows = np.array([waiting.get(key) or new[key] for key in keys], dtype=np.int64)
        order = np.argsort(rows)
        with write_errors(self._store):
            make = self._make_index()
            files, _ = write_segment(
                self._store, [(rows[order], raw[order])], self._embedder.postprocess_documents, make
            )
            with self._database.transaction():
                segment = compaction.insert_segment(self._connection, files)
                self._connection.executemany(
                    "INSERT INTO vectors (row, text_hash, segment, position) VALUES (?, ?, ?, ?) ON CONFLICT (row)"
                    " DO UPDATE SET segment = excluded.segment, position = excluded.position",
                    [(int(rows[at]), keys[at], segment, position) for position, at in enumerate(order.tolist())],
                )
                self._connection.executemany(
                    "INSERT INTO tombstones (row) VALUES (?)", [(row,) for row in new.values()]
                )

    def _require_dimension(self, vectors: Floats) -> None:
        stored = catalog.meta(self._connection, "dim")
        if stored not in (None, vectors.shape[1]):
            raise DimensionError(
                f"the embedder returned vectors of dimension {vectors.shape[1]}: expected {stored}, the dimension of "
                f"the vectors in the store {self._store}"
            )

    # Chunks

    def commit(
        self,
        *,
        chunks: Sequence[ChunkRecord] = (),
        sources: Sequence[SourceRecord] = (),
        removed_sources: Iterable[str] = (),
        expected: Iterable[Expected] = (),
        keys: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Commit a change of chunks and files in one transaction.

        ``sources`` replace the stored files of the same names. A chunk replaces any chunk with the same id, in the
        store or earlier in ``chunks``; records of indexing runs about it are kept. A chunk whose text was not staged
        is found by its words, and waits for :meth:`encode_waiting`; the store is unfinished until then. ``expected``
        are the chunks that an indexing run has not recorded yet. ``keys`` are the keys of the vectors of chunks, by id,
        as :meth:`stage_vectors` returns them; by default, a chunk has the vector of its text.
        """
        chunks = list({record.id: record for record in chunks}.values())
        removed_sources = list(removed_sources)
        if not (chunks or sources or removed_sources):
            return
        check()
        with write_errors(self._store), self._database.transaction():
            affected: set[int] = set()
            for path in [*removed_sources, *(source.path for source in sources)]:
                affected |= _delete_source(self._connection, path)
            replaced = [record.id for record in chunks]
            records = run_records.taken_out(self._connection, replaced)
            affected |= _delete_chunks(self._connection, "id IN (SELECT value FROM json_each(?))", json_ids(replaced))
            self._connection.executemany(
                "INSERT INTO sources (path, ext, size, mtime_ns, sha256, pipeline_hash) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (file.path, extension(file.path), file.size, file.mtime_ns, file.sha256, file.pipeline_hash)
                    for file in sources
                ],
            )
            affected |= _insert_chunks(self._connection, chunks, keys)
            run_records.restore(self._connection, records)
            run_records.expect(self._connection, expected)
            _mark_unused(self._connection, affected)

    def delete(self, ids: Iterable[str] = (), paths: Iterable[str] = (), where: Filter | None = None) -> int:
        """Delete chunks by id, files by name, and chunks that match ``where``, in one transaction.

        The name of a folder stands for all files below it. Returns the number of deleted chunks. Unknown ids and names
        are ignored. If some chunks of a file are deleted by id or filter, the store keeps the record of the file, so
        its chunks return only when the file changes.
        """
        names = catalog.sources_below(self._connection, paths)
        keys = catalog.selected_keys(self._connection, ids, names, where)
        if not names and not keys:
            return 0
        check()
        with write_errors(self._store), self._database.transaction():
            affected = _delete_chunks(self._connection, "key IN (SELECT value FROM json_each(?))", json.dumps(keys))
            for name in names:
                _delete_source(self._connection, name)
            _mark_unused(self._connection, affected)
        return len(keys)

    def write(self, change: Callable[..., None], *args: Any) -> None:
        """Run ``change(connection, *args)`` in one transaction."""
        with write_errors(self._store), self._database.transaction():
            change(self._connection, *args)

    def take_run_records(self, records: Sequence[Record]) -> None:
        """Copy records of indexing runs from another store, for chunks with the same ids; others are ignored."""
        stored = catalog.rows_of_ids(self._connection, [key for _, key, *_ in records])
        self.write(run_records.restore, [record for record in records if record[1] in stored])

    def touch_sources(self, sources: Sequence[SourceRecord]) -> None:
        """Update the sizes and modification times of files whose content is unchanged."""
        if not sources:
            return
        with write_errors(self._store), self._database.transaction():
            self._connection.executemany(
                "UPDATE sources SET size = ?, mtime_ns = ? WHERE path = ?",
                [(source.size, source.mtime_ns, source.path) for source in sources],
            )

    def set_skipped(self, skipped: Mapping[str, str], roots: Sequence[str]) -> None:
        """Store the reason for each skipped file, replacing all reasons for files below ``roots``."""
        before = catalog.skipped(self._connection)
        old = {name: reason for name, reason in before.items() if any(is_below(name, root) for root in roots)}
        if old == skipped:
            return
        with write_errors(self._store), self._database.transaction():
            self._connection.executemany("DELETE FROM skipped WHERE path = ?", [(name,) for name in old])
            self._connection.executemany(
                "INSERT OR REPLACE INTO skipped (path, reason) VALUES (?, ?)", list(skipped.items())
            )


def _delete_chunks(connection: sqlite3.Connection, condition: str, value: str) -> set[int]:
    """Delete the chunks that meet a condition; return the vector rows that they used."""
    rows = connection.execute(f"SELECT row FROM chunks WHERE {condition}", (value,)).fetchall()  # noqa: S608  constants
    connection.execute(f"DELETE FROM chunks WHERE {condition}", (value,))  # noqa: S608  as above
    return {row[0] for row in rows}


def _delete_source(connection: sqlite3.Connection, path: str) -> set[int]:
    """Delete a file and its chunks; return the vector rows that the chunks used."""
    rows = _delete_chunks(connection, "source = (SELECT id FROM sources WHERE path = ?)", path)
    connection.execute("DELETE FROM sources WHERE path = ?", (path,))
    return rows


def _insert_chunks(
    connection: sqlite3.Connection, records: Sequence[ChunkRecord], keys: Mapping[str, bytes]
) -> set[int]:
    """Insert chunks with vectors, of their text or with ``keys`` by id; return the rows of these vectors."""
    hashes = [keys.get(record.id) or text_hash(record.chunk.embedded_text) for record in records]
    rows = _rows_of_texts(connection, hashes)
    sources: dict[str, int] = {}
    for record in records:
        if UNUSABLE.search(record.id):
            raise ConfigError(
                f"the id {record.id!r} contains U+0000 or a lone surrogate: use an id without these characters"
            )
        if record.source is not None and record.source not in sources:
            sources[record.source] = _source_id(connection, record)
    # A statement per chunk would make FTS5 write its terms chunk by chunk, because it writes when a statement with
    # triggers begins. One statement for all rows halves the time.
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_chunks ({_COLUMNS})")
    connection.executemany(
        f"INSERT INTO new_chunks VALUES ({_MARKS})",  # noqa: S608  marks alone
        (_values(record, rows[key], sources) for record, key in zip(records, hashes, strict=True)),
    )
    connection.execute(f"INSERT INTO chunks ({_COLUMNS}) SELECT {_COLUMNS} FROM new_chunks ORDER BY rowid")  # noqa: S608  constants
    connection.execute("DELETE FROM new_chunks")
    return set(rows.values())


def _rows_of_texts(connection: sqlite3.Connection, hashes: Iterable[bytes]) -> dict[bytes, int]:
    """Return the row of each text by its hash; texts without a row get one, and wait for their vectors."""
    keys = list(dict.fromkeys(hashes))
    rows = catalog.rows_of_hashes(connection, keys)
    if new := [(key,) for key in keys if key not in rows]:
        connection.executemany("INSERT INTO vectors (text_hash) VALUES (?)", new)
        catalog.set_meta(connection, "unfinished", True)
        rows |= catalog.rows_of_hashes(connection, (key for (key,) in new))
    return rows


def _values(record: ChunkRecord, row: int, sources: Mapping[str, int]) -> tuple[object, ...]:
    chunk = record.chunk
    return (
        record.id,
        row,
        None if record.source is None else sources[record.source],
        chunk.text,
        chunk.title,
        json.dumps(list(chunk.headings), ensure_ascii=False),
        chunk.start_line,
        chunk.end_line,
        chunk.page,
        chunk.tokens,
        _metadata_json(record),
        chunk.searched,
        json.dumps(chunk.later_pages) if chunk.later_pages else None,
    )


def _source_id(connection: sqlite3.Connection, record: ChunkRecord) -> int:
    row = connection.execute("SELECT id FROM sources WHERE path = ?", (record.source,)).fetchone()
    if row is None:
        raise StoreError(
            f"the chunk {record.id!r} names the file {record.source!r}, which is not in the store: add the file first"
        )
    return int(row[0])


def _mark_unused(connection: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Add a tombstone for each of ``rows`` that no chunk uses, and remove it from the others.

    A row that waits for a vector, and that no chunk uses, is deleted.
    """
    affected = [(row,) for row in rows]
    connection.executemany(
        "DELETE FROM tombstones WHERE row = ? AND EXISTS (SELECT 1 FROM chunks c WHERE c.row = tombstones.row)",
        affected,
    )
    unused = "FROM vectors WHERE row = ? AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.row = vectors.row)"
    connection.executemany(f"DELETE {unused} AND segment IS NULL", affected)
    connection.executemany(f"INSERT OR IGNORE INTO tombstones (row) SELECT row {unused}", affected)


def _metadata_json(record: ChunkRecord) -> str:
    try:
        return json.dumps(dict(record.chunk.metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the metadata of {record.id!r} cannot be stored: {error}; use only strings, finite numbers, booleans, "
            "None, and lists and dictionaries of these"
        ) from error


def _differ(first: Floats, second: Floats) -> bool:
    if first.shape != second.shape:
        return True
    a, b = unit_rows(np.stack([first, second]))
    return bool((a - b) @ (a - b) > 2 * _SAME)  # For unit vectors, this is 2 * (1 - cosine).
