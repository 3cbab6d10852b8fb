"""Which rows and chunks a search may return."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes import catalog
from ragembed.indexes.filters import Filter

Mask = NDArray[np.bool_]
Keys = NDArray[np.int64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Selection:
    """What may be found: ``mask`` tells it of each vector row, ``keys`` are the chunks, ascending, None for all.

    ``without`` are chunks, ascending, that may not be found though ``keys`` are all. ``last`` are those of nothing but
    boilerplate, which come after all others, where there are any.
    """

    mask: Mask
    keys: Keys | None
    without: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    last: Selection | None = None

    def admits(self, keys: Keys) -> Mask:
        """Tell of each of the chunk keys, shape ``(n,)``, whether it may be found."""
        if self.keys is None:
            return ~_among(keys, self.without)
        return _among(keys, self.keys)

    @property
    def most_left_out(self) -> int | None:
        """How many chunks are left out at most, None where that is not known."""
        return len(self.without) if self.keys is None else None


def _among(keys: Keys, ascending: Keys) -> Mask:
    if len(ascending) == 0:
        return np.zeros(len(keys), dtype=bool)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.asarray(ascending[at] == keys)


def select(connection: sqlite3.Connection, where: Filter | None) -> Selection | None:
    """Return what ``where`` leaves of the chunks, None where that is all of them and there is no row without one."""
    size = catalog.last_row(connection) + 1
    last, rows_of_last = catalog.chunks_of_nothing_else(connection)
    if where is not None:
        keys, rows = catalog.matching(connection, where)
        others = ~_among(keys, last)
        chosen = Selection(_mask(size, rows[~others]), keys[~others]) if not others.all() else None
        return Selection(_mask(size, rows[others]), keys[others], last=chosen)
    dead = catalog.dead_rows(connection)
    if len(dead) == 0 and len(last) == 0:
        return None
    mask = np.ones(size, dtype=bool)
    mask[dead] = False
    if len(last) == 0:
        return Selection(mask, None)
    mask[catalog.rows_of_those_alone(connection, rows_of_last.tolist())] = False
    return Selection(mask, None, last, Selection(_mask(size, rows_of_last), last))


def _mask(size: int, rows: Rows) -> Mask:
    mask = np.zeros(size, dtype=bool)
    mask[rows] = True
    return mask
