"""Warnings of filters that cannot match, for adapters whose users never see the notes of a store."""

from __future__ import annotations

import warnings

from ragembed.indexes import Store
from ragembed.indexes.filters import Filter
from ragembed.indexes.filters.notes import comparisons


class FilterWarnings:
    """Issues the notes on filters as warnings, each of them once."""

    def __init__(self) -> None:
        self._checked: set[tuple[str, ...]] = set()
        self._noted: set[str] = set()

    def warn(self, store: Store, where: Filter, stacklevel: int) -> None:
        """Warn of the parts of a filter that cannot match, unless a filter with the same comparisons was checked.

        ``stacklevel`` is that of the caller; see :func:`warnings.warn`.
        """
        found = comparisons(where)
        if found <= self._checked or not len(store):
            return
        self._checked |= found
        for note in store.filter_notes(where):
            if note not in self._noted:
                self._noted.add(note)
                warnings.warn(note, stacklevel=stacklevel + 1)
