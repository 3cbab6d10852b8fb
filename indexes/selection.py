"""Which rows and chunks a search may return."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import catalog
from ragembed.indexes.filters import Filter

Mask = NDArray[np.bool_]
Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Selection:
    """What may be found: ``mask`` tells it of each vector row, ``keys`` are the chunks, ascending, None for all."""

    mask: Mask
    keys: Keys | None

    def admits(self, keys: Keys) -> Mask:
        """Tell of each of the chunk keys, shape ``(n,)``, whether it may be found."""
        if self.keys is None:
            return np.ones(len(keys), dtype=bool)
        if len(self.keys) == 0:
            return np.zeros(len(keys), dtype=bool)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.asarray(self.keys[at] == keys)


def select(connection: sqlite3.Connection, where: Filter | None) -> Selection | None:
    """Return what ``where`` leaves of the chunks, None where that is all of them and there is no row without one."""
    size = catalog.last_row(connection) + 1
    if where is not None:
        keys, rows = catalog.matching(connection, where)
        mask = np.zeros(size, dtype=bool)
        mask[rows] = True
        return Selection(mask, keys)
    dead = catalog.dead_rows(connection)
    if len(dead) == 0:
        return None
    mask = np.ones(size, dtype=bool)
    mask[dead] = False
    return Selection(mask, None)
