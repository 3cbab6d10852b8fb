"""Records of indexing runs: which chunks a program that synchronises documents wrote, for which group, and when.

They are rows of the store's own database and cannot outlive the chunks that they are about. A chunk is *expected* from
its commit to the moment when the run says that it has taken note of it; a run that is killed in between leaves it so.
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
"""A row: namespace, key, group, time, and whether a run has taken note of it."""

_TICK = 1e-6
"""Seconds by which the clock goes on where the system's has not, or has gone back."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Chunks that a run of ``namespace`` is about to write, by id."""

    namespace: str
    keys: frozenset[str]


def now(connection: sqlite3.Connection, namespace: str) -> float:
    """Return the time, in seconds since 1970; it is later than that of every record of ``namespace``."""
    latest = connection.execute("SELECT max(updated_at) FROM run_records WHERE namespace = ?", (namespace,)).fetchone()[
        0
    ]
    return time.time() if latest is None else max(time.time(), latest + _TICK)


def noted(connection: sqlite3.Connection, namespace: str, keys: Sequence[str]) -> set[str]:
    """Return those of ``keys`` that a run has taken note of."""
    found = connection.execute(
        "SELECT key FROM run_records WHERE namespace = ? AND noted AND key IN (SELECT value FROM json_each(?))",
        (namespace, json_ids(keys)),
    )
    return {row[0] for row in found}


def listed(
    connection: sqlite3.Connection,
    namespace: str,
    before: float | None = None,
    after: float | None = None,
    group_ids: Sequence[str | None] | None = None,
    limit: int | None = None,
) -> list[str]:
    """Return keys by time, at most ``limit``: updated before and after these times, of any of these groups.

    The group of an expected chunk is not known, so it counts to each.
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
    found = connection.execute(
        f"SELECT key FROM run_records WHERE {' AND '.join(conditions)} ORDER BY updated_at, key LIMIT ?",  # noqa: S608  constants
        (*values, -1 if limit is None else limit),
    )
    return [row[0] for row in found]


def note(
    connection: sqlite3.Connection, namespace: str, keys: Sequence[str], group_ids: Sequence[str | None] | None
) -> None:
    """Take note of ``keys`` as of now, within the caller's transaction; those that are no chunk's are left out.

    Without ``group_ids``, one for each key, groups stay as they are.
    """
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
    """Record chunks as expected, within the transaction that writes them; what was noted before stays so."""
    for one in expected:
        at = now(connection, one.namespace)
        connection.executemany(
            "INSERT OR IGNORE INTO run_records (namespace, key, updated_at, noted) VALUES (?, ?, ?, 0)",
            [(one.namespace, key, at) for key in sorted(one.keys)],
        )


def taken_out(connection: sqlite3.Connection, ids: Sequence[str] | None = None) -> list[Record]:
    """Return the records of chunks that are about to be replaced, or all records, for :func:`put_back`."""
    query = "SELECT namespace, key, group_id, updated_at, noted FROM run_records"
    if ids is None:
        found = connection.execute(query)
    else:
        found = connection.execute(query + " WHERE key IN (SELECT value FROM json_each(?))", (json_ids(ids),))  # noqa: S608  constants
    return [tuple(row) for row in found]


def put_back(connection: sqlite3.Connection, records: Iterable[Record]) -> None:
    """Restore what :func:`taken_out` gave, once the chunks are there again."""
    connection.executemany(
        "INSERT INTO run_records (namespace, key, group_id, updated_at, noted) VALUES (?, ?, ?, ?, ?)", records
    )
