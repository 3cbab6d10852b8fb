"""Rewriting segments from their raw vectors: to merge them, to drop dead rows, to give them another embedder."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import catalog
from ragembed.indexes.records import VectorEncoder
from ragembed.indexes.segments import Segment, SegmentRecord, write_segment

Rows = NDArray[np.int64]
Halves = NDArray[np.float16]

_MAX_SEGMENTS = 8
_MERGED_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Segments that were written to stand in the place of others, with the rows of each."""

    old: Sequence[SegmentRecord]
    new: Sequence[tuple[SegmentRecord, list[int]]]


def choose(connection: sqlite3.Connection) -> list[SegmentRecord]:
    """Return the segments that are worth rewriting.

    All, where more than half of the rows are dead. Where there are many segments, the smallest: each joins that is no
    larger than those before it together, so that a vector is copied a number of times that grows with the logarithm
    of the store.
    """
    records = sorted(catalog.segments(connection), key=lambda record: record.rows)
    if 2 * catalog.count(connection, "tombstones") > catalog.count(connection, "vectors"):
        return records
    small = [record for record in records if record.rows < _MERGED_ROWS]
    if len(small) <= _MAX_SEGMENTS:
        return []
    chosen, rows = small[:2], small[0].rows + small[1].rows
    for record in small[2:]:
        if record.rows > rows:
            break
        chosen.append(record)
        rows += record.rows
    return chosen


def live_raw(
    store: Path, connection: sqlite3.Connection, records: Sequence[SegmentRecord], size: int = _MERGED_ROWS
) -> Iterator[tuple[Rows, Halves]]:
    """Yield the rows of ``records`` that chunks use and their raw vectors, ``(n, d)``, by row, ``size`` at a time."""
    opened = {record.id: Segment(store, record) for record in records}
    live = connection.execute(
        "SELECT row, segment, position FROM vectors WHERE row NOT IN (SELECT row FROM tombstones)"
        " AND segment IN (SELECT value FROM json_each(?)) ORDER BY row",
        (json.dumps(list(opened)),),
    )
    while block := live.fetchmany(size):
        raw = np.stack([opened[segment].raw()[position] for _, segment, position in block])
        yield np.array([row for row, _, _ in block], dtype=np.int64), raw


def rewrite(
    store: Path, connection: sqlite3.Connection, records: Sequence[SegmentRecord], embedder: VectorEncoder
) -> Rewritten:
    """Write the live rows of ``records`` into new segments with the vectors that ``embedder`` makes of them."""
    new = [
        (write_segment(store, raw, rows, embedder.postprocess_documents), rows.tolist())
        for rows, raw in live_raw(store, connection, records)
    ]
    return Rewritten(records, new)


def swap(connection: sqlite3.Connection, rewritten: Rewritten) -> None:
    """Name the new segments in the place of the old, within the caller's transaction; dead rows go."""
    old = json.dumps([record.id for record in rewritten.old])
    connection.execute(
        "DELETE FROM vectors WHERE segment IN (SELECT value FROM json_each(?)) AND row IN (SELECT row FROM tombstones)",
        (old,),
    )
    for record, kept in rewritten.new:
        insert_segment(connection, record)
        connection.executemany(
            "UPDATE vectors SET segment = ?, position = ? WHERE row = ?",
            [(record.id, position, row) for position, row in enumerate(kept)],
        )
    connection.execute("DELETE FROM segments WHERE id IN (SELECT value FROM json_each(?))", (old,))


def insert_segment(connection: sqlite3.Connection, record: SegmentRecord) -> None:
    """Name a segment, within the caller's transaction."""
    connection.execute(
        "INSERT INTO segments (id, rows, dim, kind, raw_sha256, index_sha256) VALUES (?, ?, ?, ?, ?, ?)",
        astuple(record),
    )
