"""Rewriting segments from their raw vectors, to merge them and to drop rows that no chunk uses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.folders import is_unfinished, sweep
from ragembed.indexes.storage.layout import DERIVED, EMBEDDERS, SEGMENTS
from ragembed.indexes.storage.segments import (
    Make,
    Segment,
    SegmentFiles,
    SegmentRecord,
    Written,
    write_segment,
)
from ragembed.indexes.types import Rows, VectorEncoder
from ragembed.types import Halves

_SIZE_BITS, _MERGED_ROWS, _READ_ROWS = 3, 250_000, 8_192
_MERGED_TOGETHER = 1 << _SIZE_BITS


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new segment that will replace old ones; ``new`` is empty if no rows are left."""

    old: Sequence[SegmentRecord]
    new: Sequence[Written]


def worth_rewriting(connection: sqlite3.Connection) -> list[list[SegmentRecord]]:
    """Return groups of segments that are worth rewriting, each as one segment.

    They are single segments with more than half of their rows unused, and eight or more of similar size, so that the
    number of segments and of copies of a vector grows with the logarithm of the store's size.
    """
    dead = _dead_counts(connection)
    records = catalog.segments(connection)
    groups: list[list[SegmentRecord]] = []
    alike: dict[int, list[SegmentRecord]] = {}
    for record in records:
        if 2 * dead.get(record.key, 0) > record.files.rows:
            groups.append([record])
        elif record.files.rows < _MERGED_ROWS:
            alike.setdefault((record.files.rows.bit_length() - 1) // _SIZE_BITS, []).append(record)
    return groups + [records for records in alike.values() if len(records) >= _MERGED_TOGETHER]


def all_to_merge(connection: sqlite3.Connection) -> list[list[SegmentRecord]]:
    """Return all segments that have unused rows or can be merged, in groups that each become one segment."""
    dead = _dead_counts(connection)
    groups: list[list[SegmentRecord]] = []
    rows = 0
    for record in sorted(catalog.segments(connection), key=lambda record: record.files.rows):
        live = record.files.rows - dead.get(record.key, 0)
        if groups and rows + live <= _MERGED_ROWS:
            groups[-1].append(record)
            rows += live
        else:
            groups.append([record])
            rows = live
    return [group for group in groups if len(group) > 1 or group[0].key in dead]


def _dead_counts(connection: sqlite3.Connection) -> dict[int, int]:
    """Return the number of rows of each segment that no chunk uses."""
    return dict(
        connection.execute(
            "SELECT v.segment, count(*) FROM tombstones t JOIN vectors v USING (row) GROUP BY 1"
        ).fetchall()
    )


def segment_raw(store: Path, connection: sqlite3.Connection, record: SegmentRecord) -> Iterator[tuple[Rows, Halves]]:
    """Yield all rows of a segment and their raw vectors, shape ``(n, d)``, ordered by position, in blocks."""
    raw, rows = Segment(store, record.files).raw(), catalog.rows_of_segment(connection, record.key)
    for start in range(0, len(rows), _READ_ROWS):
        yield rows[start : start + _READ_ROWS], raw[start : start + _READ_ROWS]


def live_raw(
    store: Path, connection: sqlite3.Connection, records: Sequence[SegmentRecord]
) -> Iterator[tuple[Rows, Halves]]:
    """Yield the rows of ``records`` that chunks use and their raw vectors, ``(n, d)``, ordered by row, in blocks."""
    opened = {record.key: Segment(store, record.files) for record in records}
    chosen = connection.execute(
        "SELECT row, segment, position FROM vectors WHERE row NOT IN (SELECT row FROM tombstones)"
        " AND segment IN (SELECT value FROM json_each(?)) ORDER BY row",
        (json.dumps(list(opened)),),
    )
    while block := chosen.fetchmany(_READ_ROWS):
        rows, keys, positions = np.array([tuple(place) for place in block], dtype=np.int64).T
        raw = np.empty((len(rows), next(iter(opened.values())).raw().shape[1]), dtype=np.float16)
        for key in np.unique(keys).tolist():
            inside = keys == key
            raw[inside] = opened[key].raw()[positions[inside]]
        yield rows, raw


def rewrite(
    store: Path,
    connection: sqlite3.Connection,
    records: Sequence[SegmentRecord],
    embedder: VectorEncoder,
    make: Make,
) -> Rewritten:
    """Write the used rows of ``records`` into a new segment, with vectors that ``embedder`` makes from the raw ones."""
    blocks = live_raw(store, connection, records)
    first = next(blocks, None)
    if first is None:
        return Rewritten(records, ())
    return Rewritten(records, [write_segment(store, chain([first], blocks), embedder.postprocess_documents, make)])


def swap(connection: sqlite3.Connection, rewritten: Rewritten) -> None:
    """Replace the old segments by the new one, within the caller's transaction; rows in none of them are dropped."""
    old = json.dumps([record.key for record in rewritten.old])
    for files, rows in rewritten.new:
        key = insert_segment(connection, files)
        connection.executemany(
            "UPDATE vectors SET segment = ?, position = ? WHERE row = ?",
            ((key, position, row) for position, row in enumerate(rows.tolist())),
        )
    connection.execute("DELETE FROM vectors WHERE segment IN (SELECT value FROM json_each(?))", (old,))
    connection.execute("DELETE FROM segments WHERE key IN (SELECT value FROM json_each(?))", (old,))


def sweep_unnamed(store: Path, connection: sqlite3.Connection) -> None:
    """Remove files and folders that the database does not name: leftovers of interrupted writes and old generations."""
    named = [*catalog.segments(connection), *catalog.rewritten(connection)]
    sweep(store / SEGMENTS, [record.files.folder for record in named])
    sweep(store / EMBEDDERS, [catalog.embedder(connection)["fingerprint"]])
    sweep(store / DERIVED, [record.file for record in derived.records(connection)])
    for file in store.iterdir():
        if is_unfinished(file):
            file.unlink(missing_ok=True)


def insert_segment(connection: sqlite3.Connection, files: SegmentFiles) -> int:
    """Insert a segment, within the caller's transaction; return its key."""
    inserted = connection.execute(
        "INSERT INTO segments (folder, rows, dim, kind, raw_sha256, index_sha256) VALUES (?, ?, ?, ?, ?, ?)",
        astuple(files),
    )
    return int(inserted.lastrowid or 0)


def stage_rewritten(connection: sqlite3.Connection, key: int, files: SegmentFiles, fingerprint: str) -> None:
    """Record files that will replace those of segment ``key``, within the caller's transaction."""
    connection.execute(
        "INSERT INTO rewritten (segment, fingerprint, folder, dim, kind, raw_sha256, index_sha256)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key, fingerprint, files.folder, files.dim, files.kind, files.raw_sha256, files.index_sha256),
    )


def replace_files(connection: sqlite3.Connection, key: int, files: SegmentFiles) -> None:
    """Replace the files of segment ``key`` by others with the same rows, within the caller's transaction."""
    connection.execute(
        "UPDATE segments SET folder = ?, rows = ?, dim = ?, kind = ?, raw_sha256 = ?, index_sha256 = ? WHERE key = ?",
        (*astuple(files), key),
    )
