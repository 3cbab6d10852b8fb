"""Updates of a store's token vectors after its chunks changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.compaction import sweep_unnamed
from ragembed.indexes.storage.token_vectors import (
    TokenBlock,
    TokenFile,
    contextual_extractor,
    name_token_files,
    open_tokens,
    token_files,
    write_tokens,
)
from ragembed.indexes.storage.transactions import Database
from ragembed.indexes.types import Progress, Rows, VectorEncoder
from ragembed.late_interaction import TokenBits

_BATCH = 1024
"""Number of texts whose token vectors are made and committed together."""

_MERGED_ROWS = 8192
"""Number of rows of a merged file. Larger files are rewritten only if most of their rows are unused."""

_MERGED_TOGETHER = 8


def update_tokens(store: Path, database: Database, embedder: VectorEncoder, progress: Progress) -> None:
    """Make the token vectors of new chunks, and rewrite files that are small or mostly unused.

    Does nothing if the store keeps no token vectors. Each batch is committed, so the next run continues an interrupted
    one.
    """
    connection = database.connection
    files = token_files(connection)
    if files is None:
        return
    extractor = contextual_extractor(embedder)
    live = catalog.live_rows(connection)
    known = [open_tokens(store, file).rows for file in files]
    missing = np.setdiff1d(live, np.concatenate(known)) if known else live
    del known  # Unmaps the files, because Windows cannot remove a mapped file.
    progress.start("embedding tokens", "chunks", len(missing))
    for start in range(0, len(missing), _BATCH):
        rows = missing[start : start + _BATCH]
        tokens = extractor.token_bits(catalog.texts_of_rows(connection, rows.tolist()), progress.advance)
        files = [*files, write_tokens(store, rows, tokens)]
        with database.transaction():
            name_token_files(connection, files)
    progress.finish()
    _merge(store, database, files, live)


def _merge(store: Path, database: Database, files: Sequence[TokenFile], live: Rows) -> None:
    blocks = {file: open_tokens(store, file) for file in files}
    groups = _worth_merging(blocks, live)
    if not groups:
        return
    kept = {file: file for file in files}
    for group in groups:
        merged = _merged(store, [blocks[file] for file in group], live)
        kept = {file: file for file in kept if file not in group} | ({} if merged is None else {merged: merged})
        with database.transaction():
            name_token_files(database.connection, list(kept))
    blocks.clear()
    sweep_unnamed(store, database.connection)


def _worth_merging(blocks: dict[TokenFile, TokenBlock], live: Rows) -> list[list[TokenFile]]:
    """Return the groups of files that each become one file."""
    used = {file: int(np.isin(block.rows, live).sum()) for file, block in blocks.items()}
    worn = [[file] for file, block in blocks.items() if 2 * used[file] < len(block.rows)]
    small = [file for file, block in blocks.items() if 2 * used[file] >= len(block.rows) and used[file] < _MERGED_ROWS]
    groups: list[list[TokenFile]] = []
    room = 0
    for file in small:
        if used[file] > room:
            groups.append([])
            room = _MERGED_ROWS
        groups[-1].append(file)
        room -= used[file]
    return worn + [group for group in groups if len(group) >= _MERGED_TOGETHER]


def _merged(store: Path, blocks: Sequence[TokenBlock], live: Rows) -> TokenFile | None:
    """Write the rows of ``blocks`` that are ``live`` to one file; return None if there are none."""
    found = sorted((row, i, at) for i, block in enumerate(blocks) for at, row in enumerate(block.rows.tolist()))
    alive = set(live[np.isin(live, np.array([row for row, _, _ in found], dtype=np.int64))].tolist())
    places = [(row, blocks[i].of(at)) for row, i, at in found if row in alive]
    if not places:
        return None
    counts = np.array([len(bits) for _, bits in places], dtype=np.int64)
    rows = np.array([row for row, _ in places], dtype=np.int64)
    return write_tokens(store, rows, TokenBits(counts, np.concatenate([bits for _, bits in places])))
