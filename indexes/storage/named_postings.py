"""Queries about posting lists: the files that the database names, and the chunks that each file covers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import require_name
from ragembed.indexes.types import Keys


@dataclass(frozen=True, slots=True)
class PostingsFiles:
    """The contents of a postings folder; ``last_chunk`` is the highest key of its chunks."""

    folder: str
    chunks: int
    last_chunk: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PostingsRecord:
    """Postings as the database names them. A higher key means that they were made later."""

    key: int
    files: PostingsFiles


def named_postings(connection: sqlite3.Connection) -> list[PostingsRecord]:
    """Return the records of postings by key; raise :class:`StoreDamagedError` for an invalid folder name."""
    rows = connection.execute("SELECT key, folder, chunks, last_chunk, sha256 FROM postings ORDER BY key")
    records = [PostingsRecord(key, PostingsFiles(*files)) for key, *files in rows.fetchall()]
    for record in records:
        catalog.require_types(
            "postings", (record.files.chunks, record.files.last_chunk), (record.files.folder, record.files.sha256)
        )
        require_name("postings", record.files.folder)
    return records


def stale_chunks(connection: sqlite3.Connection, key: int) -> Keys:
    """Return the chunks that the postings ``key`` no longer cover, int64, shape ``(n,)``."""
    return _keys(connection.execute("SELECT chunk FROM stale_postings WHERE postings >= ?", (key,)))


def chunks_without_postings(connection: sqlite3.Connection) -> Keys:
    """Return the keys of the chunks that no postings cover, ascending, int64, shape ``(n,)``."""
    return _keys(
        connection.execute(
            "SELECT key FROM chunks WHERE key > (SELECT coalesce(max(last_chunk), 0) FROM postings)"
            " UNION SELECT chunk FROM stale_postings s JOIN chunks c ON c.key = s.chunk"
            " WHERE s.postings = (SELECT max(key) FROM postings) ORDER BY 1"
        )
    )


def term_columns(
    connection: sqlite3.Connection, keys: Sequence[int]
) -> Iterator[tuple[int, str | None, str | None, str | None]]:
    """Yield the keys of chunks, ascending, with their columns of the full-text index: title, headings and text."""
    found = connection.execute(
        "SELECT key, title, headings, text FROM chunk_terms WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key",
        (json.dumps(list(keys)),),
    )
    return ((key, title, headings, text) for key, title, headings, text in found)


def _keys(found: Iterable[Sequence[int]]) -> Keys:
    return np.fromiter((row[0] for row in found), dtype=np.int64)
