"""Which chunks and rows a search may return, and which row each chunk uses."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.filters import Filter
from ragembed.indexes.per_generation import PerGeneration
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import Keys, Rows
from ragembed.types import Bools

_SHARE = 0.1
"""Share of a store's chunks that a reader looks up in the database before it reads all. By then, both take as long."""


class Admission(Protocol):
    """Which chunks a search may return, of one store (:class:`Selection`) or of several."""

    def admits(self, keys: Keys) -> Bools:
        """Return for each of the chunk keys, shape ``(n,)``, whether it may be returned."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The chunks that a search may return.

    ``mask`` says for each vector row whether it may be returned. ``keys`` are the chunks, ascending, or None for all
    chunks except ``without``, ascending: those that hold only boilerplate.
    """

    mask: Bools
    keys: Keys | None
    without: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def admits(self, keys: Keys) -> Bools:
        """Return for each of the chunk keys, shape ``(n,)``, whether it may be returned."""
        if self.keys is None:
            return ~among(keys, self.without)
        return among(keys, self.keys)

    @property
    def most_left_out(self) -> int | None:
        """Maximum number of chunks that are left out, or None if it is unknown."""
        return len(self.without) if self.keys is None else None


def among(keys: Keys, ascending: Keys) -> Bools:
    """Return for each of ``keys`` whether it is in ``ascending``."""
    if len(ascending) == 0:
        return np.zeros(len(keys), dtype=bool)
    return np.asarray(ascending[places_in(ascending, keys)] == keys)


def select(connection: sqlite3.Connection, where: Filter | None) -> Selection | None:
    """Return the chunks that match ``where`` and can be found, or None if every row belongs to such a chunk."""
    size = catalog.last_row(connection) + 1
    without, rows_without = catalog.boilerplate_only_chunks(connection)
    if where is not None:
        keys, rows = catalog.matching(connection, where)
        searched = ~among(keys, without)
        mask = np.zeros(size, dtype=bool)
        mask[rows[searched]] = True
        return Selection(mask, keys[searched])
    dead = catalog.dead_rows(connection)
    if len(dead) == 0 and len(without) == 0:
        return None
    mask = np.ones(size, dtype=bool)
    mask[dead] = False
    mask[catalog.rows_of_boilerplate_only(connection, rows_without.tolist())] = False
    return Selection(mask, None, without)


class ChunkRows:
    """The keys of all chunks, ascending, and the vector row of each; int64, shapes ``(n,)``."""

    def __init__(self, keys: Keys, rows: Rows) -> None:
        self._keys, self._rows = keys, rows
        self._by_row, self._ordered = keys, rows
        if bool((rows[1:] < rows[:-1]).any()):
            order = np.argsort(rows, kind="stable")
            self._by_row, self._ordered = keys[order], rows[order]
        self._distinct = bool((self._ordered[1:] > self._ordered[:-1]).all())

    def of_keys(self, keys: Keys) -> Rows:
        """Return the row of each of ``keys``; raise KeyError for an unknown key."""
        at = places_in(self._keys, keys)
        if not np.array_equal(self._keys[at], keys):
            raise KeyError(int(keys[self._keys[at] != keys][0]))
        rows: Rows = self._rows[at]
        return rows

    def of_rows(self, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        if self._distinct:
            at = places_in(self._ordered, rows)
            at = at[self._ordered[at] == rows]
        else:
            rows = np.unique(rows)
            first, stop = (np.searchsorted(self._ordered, rows, side) for side in ("left", "right"))
            lengths = stop - first
            ends = np.cumsum(lengths)
            at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + lengths, lengths)
        keys = self._by_row[at]
        order = np.argsort(keys)
        return keys[order], self._ordered[at[order]]


@dataclass(slots=True)
class _LookedUp:
    """How many rows were looked up, and all rows of the store once they were read."""

    number: int = 0
    rows: ChunkRows | None = None


class KeptRows:
    """Looks up rows of chunks: a few in the database, many in memory. Threads may share an instance."""

    def __init__(self) -> None:
        self._kept: PerGeneration[_LookedUp] = PerGeneration()

    def clear(self) -> None:
        """Drop everything that is kept, because the store may have been replaced."""
        self._kept.clear()

    def of_keys(self, connection: sqlite3.Connection, generation: object, chunks: int, keys: Keys) -> Rows:
        """Return the row of each of ``keys``, shape ``(n,)``; raise KeyError for an unknown key."""
        rows = self._all(connection, generation, chunks, len(keys))
        if rows is not None:
            return rows.of_keys(keys)
        found = catalog.rows_of_keys(connection, keys.tolist())
        return np.array([found[key] for key in keys.tolist()], dtype=np.int64)

    def of_rows(self, connection: sqlite3.Connection, generation: object, chunks: int, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        found = self._all(connection, generation, chunks, len(rows))
        return catalog.chunks_of_rows(connection, rows.tolist()) if found is None else found.of_rows(rows)

    def _all(self, connection: sqlite3.Connection, generation: object, chunks: int, looked_up: int) -> ChunkRows | None:
        """Return the rows of all chunks, or None if the reader has looked up few chunks of this generation."""
        kept = self._kept.of(generation, lambda _: _LookedUp())
        with self._kept.lock:
            if kept.rows is None and chunks and kept.number >= _SHARE * chunks:
                kept.rows = ChunkRows(*catalog.chunk_rows(connection))
            kept.number += looked_up
            return kept.rows
