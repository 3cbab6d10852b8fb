"""Updates of a store's postings after its chunks changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from ragembed.indexes.lexical.indexed_terms import Columns, IndexedTerms
from ragembed.indexes.lexical.postings import LiveBlock, PostingsBlock, open_postings, write_postings
from ragembed.indexes.storage import catalog, changes
from ragembed.indexes.storage.compaction import sweep_unnamed
from ragembed.indexes.storage.named_postings import (
    PostingsFiles,
    chunks_without_postings,
    named_postings,
    stale_chunks,
    term_columns,
)
from ragembed.indexes.storage.transactions import Database
from ragembed.indexes.types import Keys
from ragembed.progress import Progress

LEAST_CHUNKS = 1_000
"""Number of chunks from which a store has postings. Below it, FTS5 answers in a few milliseconds."""

_BATCH, _BATCH_CHARACTERS = 20_000, 8_000_000
"""Number of chunks, and of their characters, whose postings are made at once."""


def update_postings(store: Path, database: Database, progress: Progress) -> None:
    """Make the postings of new chunks, and rewrite blocks that are small or mostly stale.

    New postings are merged with a block unless it is more than twice as large as they and all smaller blocks together,
    so the number of blocks and copies grows with the logarithm of the store's size.
    """
    connection = database.connection
    if catalog.count(connection, "chunks") < LEAST_CHUNKS:
        if named_postings(connection):
            with database.transaction():
                changes.forget_postings(connection)
            sweep_unnamed(store, connection)
        return
    new = chunks_without_postings(connection)
    old = _to_join(_opened(store, connection), len(new))
    if not len(new) and not old:
        return
    progress.start("indexing words", "chunks", len(new))
    written = write_postings(store, old.values(), _made(connection, new, progress))
    replaced = list(old)
    del old  # Unmaps the files, because Windows cannot remove a mapped file.
    with database.transaction():
        _replace(connection, replaced, written)
    progress.finish()
    sweep_unnamed(store, connection)


def _opened(store: Path, connection: sqlite3.Connection) -> dict[int, LiveBlock]:
    """Return the posting blocks by key."""
    return {
        record.key: LiveBlock.without(open_postings(store, record.files), stale_chunks(connection, record.key))
        for record in named_postings(connection)
    }


def _to_join(blocks: Mapping[int, LiveBlock], new: int) -> dict[int, LiveBlock]:
    """Return the blocks, by key, to merge with the postings of ``new`` chunks, oldest first."""
    joined: dict[int, LiveBlock] = {}
    together = new
    for key, block in sorted(blocks.items(), key=lambda item: len(item[1])):
        worn = 2 * len(block) < len(block.block.chunks)
        if worn or (new and len(block) <= 2 * together):
            joined[key] = block
            together += len(block)
    return dict(sorted(joined.items()))


def _made(connection: sqlite3.Connection, keys: Keys, progress: Progress) -> Iterator[PostingsBlock]:
    """Yield the postings of the chunks ``keys`` in batches."""
    terms = IndexedTerms(catalog.analyzer_config(connection).language)
    batch_keys: list[int] = []
    texts: list[Columns] = []
    characters = 0
    for start in range(0, len(keys), _BATCH):
        for key, title, headings, text in term_columns(connection, keys[start : start + _BATCH].tolist()):
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


def _replace(connection: sqlite3.Connection, old: Sequence[int], new: PostingsFiles | None) -> None:
    """Replace the old postings by the new ones, within the caller's transaction; drop stale entries without effect."""
    connection.execute("DELETE FROM postings WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(old),))
    if new is not None:
        connection.execute(
            "INSERT INTO postings (folder, chunks, last_chunk, sha256) VALUES (?, ?, ?, ?)", astuple(new)
        )
    connection.execute(
        "DELETE FROM stale_postings WHERE postings < (SELECT coalesce(min(key), 0x7fffffffffffffff) FROM postings)"
    )
