"""Which rows and chunks a search may return."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import numpy as np

from ragembed.indexes.faiss_index.vectors import among
from ragembed.indexes.filters import Filter
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import Keys
from ragembed.types import Bools


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
