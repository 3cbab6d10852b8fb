"""Records of indexing runs: which chunks a program wrote, for which group, and when.

LangChain's indexing API uses them. They are rows of the store's own database, so they cannot outlive their chunks. A
chunk is *expected* from its commit until the run records it. If the run is killed in between, the chunk stays expected.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ragembed.indexes.types import json_ids

Record: TypeAlias = tuple[str, str, "str | None", float, int]
"""A row: namespace, key, group, time, and whether a run has recorded the chunk."""

_TICK = 1e-6
"""Seconds to add to the latest record's time if the system clock has not advanced, or has gone back."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Chunks, by id, that a run of ``namespace`` is about to write."""

    namespace: str
    keys: frozenset[str]


def now(connection: sqlite3.Connection, namespace: str) -> float:
    """Return the current time in seconds since 1970; it is later than the time of every record of ``namespace``."""
    statement = "SELECT max(updated_at) FROM run_records WHERE namespace = ?"
    (latest,) = connection.execute(statement, (namespace,)).fetchone()
    return time.time() if latest is None else max(time.time(), latest + _TICK)


def noted(connection: sqlite3.Connection, namespace: str, keys: Sequence[str]) -> set[str]:
    """Return the ids in ``keys`` that a run has recorded."""
    rows = connection.execute(
        "SELECT key FROM run_records WHERE namespace = ? AND noted AND key IN (SELECT value FROM json_each(?))",
        (namespace, json_ids(keys)),
    )
    return {row[0] for row in rows}


def listed(
    connection: sqlite3.Connection,
    namespace: str,
    before: float | None = None,
    after: float | None = None,
    group_ids: Sequence[str | None] | None = None,
    limit: int | None = None,
) -> list[str]:
    """Return up to ``limit`` chunk ids by time, recorded before and after the given times, of any of the given groups.

    An expected chunk has no known group, so it matches every group.
    """
    conditions = ["namespace = ?"]
    values: list[object] = [namespace]
    for condition, value in (("updated_at < ?", before), ("updated_at > ?", after)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if group_ids is not None:
        grouped = "group_id IN (SELECT value FROM json_each(?))"
        conditions.append(f"({grouped} OR NOT noted{' OR group_id IS NULL' if None in group_ids else ''})")
        values.append(json.dumps([group for group in group_ids if group is not None]))
    rows = connection.execute(
        f"SELECT key FROM run_records WHERE {' AND '.join(conditions)} ORDER BY updated_at, key LIMIT ?",  # noqa: S608  constants
        (*values, -1 if limit is None else limit),
    )
    return [row[0] for row in rows]


def note(
    connection: sqlite3.Connection, namespace: str, keys: Sequence[str], group_ids: Sequence[str | None] | None
) -> None:
    """Record ``keys`` with the current time, in the caller's transaction; ids of no chunk are ignored."""
    at = now(connection, namespace)
    groups = [None] * len(keys) if group_ids is None else group_ids
    group = "coalesce(excluded.group_id, group_id)" if group_ids is None else "excluded.group_id"
    connection.executemany(
        "INSERT INTO run_records (namespace, key, group_id, updated_at, noted)"  # noqa: S608  constants
        " SELECT ?1, ?2, ?3, ?4, 1 WHERE EXISTS (SELECT 1 FROM chunks WHERE id = ?2)"
        f" ON CONFLICT DO UPDATE SET group_id = {group}, updated_at = excluded.updated_at, noted = 1",
        [(namespace, key, its, at) for key, its in zip(keys, groups, strict=True)],
    )


def forget(connection: sqlite3.Connection, namespace: str, keys: Sequence[str]) -> None:
    """Delete the records of ``keys``, within the caller's transaction."""
    connection.execute(
        "DELETE FROM run_records WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))",
        (namespace, json_ids(keys)),
    )


def expect(connection: sqlite3.Connection, expected: Iterable[Expected]) -> None:
    """Record chunks as expected, in the transaction that writes them; existing records stay unchanged."""
    for chunks in expected:
        at = now(connection, chunks.namespace)
        connection.executemany(
            "INSERT OR IGNORE INTO run_records (namespace, key, updated_at, noted) VALUES (?, ?, ?, 0)",
            [(chunks.namespace, key, at) for key in sorted(chunks.keys)],
        )


def taken_out(connection: sqlite3.Connection, ids: Sequence[str] | None = None) -> list[Record]:
    """Return the records of chunks that are about to be replaced, or all records, for :func:`restore`."""
    query = "SELECT namespace, key, group_id, updated_at, noted FROM run_records"
    if ids is None:
        rows = connection.execute(query)
    else:
        rows = connection.execute(query + " WHERE key IN (SELECT value FROM json_each(?))", (json_ids(ids),))  # noqa: S608  constants
    return [tuple(row) for row in rows]


def restore(connection: sqlite3.Connection, records: Iterable[Record]) -> None:
    """Restore records from :func:`taken_out`, after their chunks have been inserted again."""
    connection.executemany(
        "INSERT INTO run_records (namespace, key, group_id, updated_at, noted) VALUES (?, ?, ?, ?, ?)", records
    )
