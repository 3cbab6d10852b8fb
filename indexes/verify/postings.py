"""Checking files of postings against their hashes, and against the chunks that they are of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ragembed.errors import StoreDamagedError
from ragembed.indexes.lexical.postings import PostingsBlock
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import BLOCK, POSTINGS
from ragembed.indexes.storage.named_postings import named_postings, stale_chunks
from ragembed.indexes.verify.report import Part, Problem
from ragembed.indexes.verify.vectors import file_difference


def check_postings(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare each file with the hash that the database holds, and its chunks with those that there are."""
    for record in named_postings(connection):
        file = f"{POSTINGS}/{record.files.folder}/{BLOCK}"
        message = file_difference(store / file, record.files.sha256) or _stray(store / file, connection, record.key)
        if message is not None:
            yield Problem(Part.POSTINGS, file, message)


def _stray(file: Path, connection: sqlite3.Connection, key: int) -> str | None:
    """Tell of postings of chunks that the store does not have; which were deleted since is kept in the database."""
    try:
        chunks = PostingsBlock.read(file).chunks
    except StoreDamagedError as error:
        return str(error)
    strays = np.setdiff1d(chunks, np.concatenate([catalog.chunk_rows(connection)[0], stale_chunks(connection, key)]))
    return f"it has postings of {len(strays):,} chunks that the store does not have" if len(strays) else None
