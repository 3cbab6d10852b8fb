"""The postings of a store: derived files of its full-text index, and the chunks that each file covers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ragembed.indexes.lexical.fulltext import Columns, indexed_terms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock, merge
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.compaction import sweep_unnamed
from ragembed.indexes.storage.derived import DerivedFile, DerivedRecord
from ragembed.indexes.storage.transactions import Database
from ragembed.indexes.types import Keys
from ragembed.progress import Progress

LEAST_CHUNKS = 1_000
"""Number of chunks from which a store has postings. Below it, FTS5 answers in a few milliseconds."""

_BATCH, _BATCH_CHARACTERS = 20_000, 8_000_000
"""Number of chunks, and of their characters, whose postings are made at once."""


def stale_chunks(connection: sqlite3.Connection, record: DerivedRecord) -> Keys:
    """Return the chunks that changed since a file was made, int64, shape ``(n,)``."""
    return catalog.integers(
        connection.execute("SELECT chunk FROM stale_postings WHERE generation > ?", (record.made_at_generation,))
    )


def chunks_without_postings(connection: sqlite3.Connection) -> Keys:
    """Return the keys of the chunks that no postings cover, ascending, int64, shape ``(n,)``."""
    of_postings = "FROM derived WHERE name = 'postings'"
    return catalog.integers(
        connection.execute(
            f"SELECT key FROM chunks WHERE key > (SELECT coalesce(max(last), 0) {of_postings})"  # noqa: S608  constants
            " UNION SELECT chunk FROM stale_postings s JOIN chunks c ON c.key = s.chunk"
            f" WHERE s.generation > (SELECT max(made_at_generation) {of_postings}) ORDER BY 1"
        )
    )


def _joined(
    connection: sqlite3.Connection, files: Sequence[tuple[DerivedRecord, PostingsBlock]]
) -> tuple[LiveBlock, ...] | None:
    """Return the postings of all chunks, or None if chunks without postings exist."""
    blocks = tuple(LiveBlock.without(block, stale_chunks(connection, record)) for record, block in files)
    return blocks if blocks and sum(map(len, blocks)) == catalog.count(connection, "chunks") else None


POSTINGS = DerivedFile(derived.POSTINGS, PostingsBlock.read, _joined)


def update_postings(store: Path, database: Database, progress: Progress) -> None:
    """Make the postings of new chunks, and rewrite files that are small or mostly stale.

    New postings are merged with a file unless it is more than twice as large as they and all smaller files together,
    so the number of files and copies grows with the logarithm of the store's size.
    """
    connection = database.connection
    if catalog.count(connection, "chunks") < LEAST_CHUNKS:
        if derived.records(connection, POSTINGS.name):
            with database.transaction():
                derived.forget(connection, POSTINGS.name)
            sweep_unnamed(store, connection)
        return
    files = derived.sound_files(store, database, POSTINGS)
    blocks = {record: LiveBlock.without(block, stale_chunks(connection, record)) for record, block in files}
    new = chunks_without_postings(connection)
    parts = _to_join(blocks, len(new))
    if not len(new) and not parts:
        return
    progress.start("indexing words", "chunks", len(new))
    former = list(parts)
    made = _written(store, connection, list(parts.values()), new, progress)
    del files, blocks, parts
    with database.transaction():
        connection.executemany("DELETE FROM derived WHERE file = ?", [(record.file,) for record in former])
        if made is not None:
            derived.insert(connection, made)
        connection.execute(
            "DELETE FROM stale_postings WHERE generation <= (SELECT coalesce(min(made_at_generation),"
            " 0x7fffffffffffffff) FROM derived WHERE name = ?)",
            (POSTINGS.name,),
        )
    progress.finish()
    sweep_unnamed(store, connection)


def _to_join(blocks: Mapping[DerivedRecord, LiveBlock], new: int) -> dict[DerivedRecord, LiveBlock]:
    """Return the blocks to merge with the postings of ``new`` chunks, oldest first."""
    joined: dict[DerivedRecord, LiveBlock] = {}
    together = new
    for record, block in sorted(blocks.items(), key=lambda item: len(item[1])):
        worn = 2 * len(block) < len(block.block.chunks)
        if worn or (new and len(block) <= 2 * together):
            joined[record] = block
            together += len(block)
    return {record: joined[record] for record in blocks if record in joined}


def _written(
    store: Path, connection: sqlite3.Connection, parts: list[LiveBlock], new: Keys, progress: Progress
) -> DerivedRecord | None:
    """Write the live chunks of ``parts`` and the chunks ``new`` into one file; return its record, if it has chunks."""
    if not len(new) and not any(map(len, parts)):
        return None

    keys: list[Keys] = []

    def write(file: Path) -> None:
        for i, block in enumerate(_made(connection, new, progress)):
            part = file.with_name(f"{i}.part")  # in a file, to save memory
            block.save(part)
            parts.append(LiveBlock(PostingsBlock.read(part)))
        keys.append(np.concatenate([part.chunks() for part in parts]))
        merge(parts, file)
        parts.clear()  # Unmaps the files, because Windows cannot remove a mapped file.

    record = derived.write_derived(store, POSTINGS.name, write)
    return replace(record, chunks=len(keys[0]), last=int(keys[0].max()))


def _made(connection: sqlite3.Connection, keys: Keys, progress: Progress) -> Iterator[PostingsBlock]:
    """Yield the postings of the chunks ``keys`` in batches."""
    terms = indexed_terms(catalog.analyzer_config(connection).language)
    batch_keys: list[int] = []
    texts: list[Columns] = []
    characters = 0
    for start in range(0, len(keys), _BATCH):
        columns = connection.execute(
            "SELECT key, title, headings, text FROM chunk_terms WHERE key IN (SELECT value FROM json_each(?))"
            " ORDER BY key",
            (json.dumps(keys[start : start + _BATCH].tolist()),),
        )
        for key, title, headings, text in columns:
            batch_keys.append(key)
            texts.append((title, headings, text))
            characters += sum(len(column or "") for column in texts[-1])
            if len(texts) == _BATCH or characters >= _BATCH_CHARACTERS:
                yield terms.postings(batch_keys, texts)
                progress.advance(len(texts))
                batch_keys, texts, characters = [], [], 0
    if texts:
        yield terms.postings(batch_keys, texts)
        progress.advance(len(texts))
