"""Which chunks and rows a search may return, and which row each chunk uses."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import numpy as np

from ragembed.indexes.faiss_index.vectors import among, places_in
from ragembed.indexes.filters import Filter
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import Keys, Rows
from ragembed.types import Bools

_SHARE = 0.1
"""Share of a store's chunks that a reader looks up in the database before it reads all. By then, both take as long."""


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


class KeptRows:
    """Looks up rows of chunks in one generation: a few in the database, many in memory. Threads may share an object."""

    def __init__(self) -> None:
        self._number = 0
        self._rows: ChunkRows | None = None

    def of_keys(self, connection: sqlite3.Connection, chunks: int, keys: Keys) -> Rows:
        """Return the row of each of ``keys``, shape ``(n,)``; raise KeyError for an unknown key."""
        if (rows := self._all(connection, chunks, len(keys))) is not None:
            return rows.of_keys(keys)
        of_keys = catalog.rows_of_keys(connection, keys.tolist())
        return np.array([of_keys[key] for key in keys.tolist()], dtype=np.int64)

    def of_rows(self, connection: sqlite3.Connection, chunks: int, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        every = self._all(connection, chunks, len(rows))
        return catalog.chunks_of_rows(connection, rows.tolist()) if every is None else every.of_rows(rows)

    def _all(self, connection: sqlite3.Connection, chunks: int, looked_up: int) -> ChunkRows | None:
        """Return the rows of all chunks, or None if few of the ``chunks`` have been looked up."""
        if self._rows is None and chunks and self._number >= _SHARE * chunks:
            self._rows = ChunkRows(*catalog.chunk_rows(connection))
        self._number += looked_up
        return self._rows
