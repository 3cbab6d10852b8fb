"""The store of one object of a framework: opened when it is used, in a folder that may be temporary."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from ragembed.indexes import Store
from ragembed.indexes.filters import Filter
from ragembed.indexes.filters.notes import comparisons
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.refit import refit_if_due
from ragembed.indexes.writing.upkeep import warn
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.progress import SilentProgress

WAIT_SECONDS = 60.0
"""How long a write waits until another process has finished writing."""


class OwnStore:
    """A store at ``path``, or in a temporary folder that is removed with this object; it may not exist yet.

    Threads can share the object. In a forked process, the files still belong to the parent.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ragembed-") if path is None else path)
        self._start(is_temporary=path is None)

    def _start(self, is_temporary: bool) -> None:
        self._stores: list[Store] = []  # at most one; the finalizer needs a list to see a store that is opened later
        self._lock = threading.RLock()
        self._checked: set[tuple[str, ...]] = set()
        self._noted: set[str] = set()
        weakref.finalize(self, _release, self._stores, self.path if is_temporary else None, os.getpid())

    def warn_of_filter(self, store: Store, where: Filter, stacklevel: int) -> None:
        """Warn of the parts of a filter that cannot match, each once; ``stacklevel`` is that of the caller.

        A filter with the same comparisons as earlier ones is not checked again.
        """
        new = comparisons(where)
        if new <= self._checked or not len(store):
            return
        self._checked |= new
        for note in store.filter_notes(where):
            if note not in self._noted:
                self._noted.add(note)
                warnings.warn(note, stacklevel=stacklevel + 1)

    def close(self) -> None:
        """Close the store's files; the next use opens them again."""
        for store in self._stores:
            store.close()


def refit_if_wanted(store: Store, writer: StoreWriter) -> list[str]:
    """Fit the embedder of a store that fits it itself again, if the store has outgrown its fit; return warnings."""
    return [] if writer.meta("wanted") is None else refit_if_due(store, writer)


def finish_write(store: Store, writer: StoreWriter, fit_again: Callable[[Store, StoreWriter], list[str]]) -> None:
    """Fit the store again if it has outgrown its fit, bring its index up to date, and issue the warnings of both."""
    warn(fit_again(store, writer))
    writer.merge()
    warn(writer.refresh_index())
    warn(calibrate(store, writer, SilentProgress()))


def _release(stores: Sequence[Store], temporary: Path | None, owner: int) -> None:
    if os.getpid() != owner:
        return
    for store in stores:
        store.close()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
