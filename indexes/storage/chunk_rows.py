"""Which vector row each chunk uses, in memory once a reader looks up many of them."""

from __future__ import annotations

import sqlite3

import numpy as np

from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import Keys, Rows

_SHARE = 0.1
"""Share of a store's chunks that a reader looks up in the database before it reads all. By then, both take as long."""


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
