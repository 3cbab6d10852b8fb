"""The store of one object of a framework: in a folder that may be temporary, with documents and asynchronous twins."""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ragembed.adapters.encoders import GivenVectors
from ragembed.embedder import Embedder
from ragembed.indexes import ChunkRecord, Fusion, Hit, Store
from ragembed.indexes.filters import And, Filter
from ragembed.indexes.filters.notes import comparisons
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.fitting import create_store
from ragembed.indexes.indexing.refit import refit_if_due
from ragembed.indexes.indexing.request import open_to_fit
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.storage.upkeep import warn
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.progress import SilentProgress, in_thread
from ragembed.types import Floats

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def twin(method: Callable[Parameters, Result], named: str = "a{}") -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return the asynchronous version of a method. It runs the method, or that of a subclass, in a thread.

    If it is cancelled, a method that writes stops before its next batch or its commit.
    """
    name = method.__name__

    @wraps(method)
    async def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        owner, *rest = args
        result: Result = await in_thread(getattr(owner, name), *rest, **kwargs)
        return result

    run.__name__ = named.format(name)
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{run.__name__}"
    run.__doc__ = f"Run :meth:`{name}` in a thread.\n\n{inspect.getdoc(method)}"
    return run


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


class DocumentFolder(OwnStore):
    """A store at ``path``, or in a temporary folder that is removed with this object; the first addition creates it.

    Without ``settings``, documents come with their vectors. With them, the store makes the vectors: its first documents
    fit the embedder, and it is fitted again when the store has outgrown the fit. Threads can share the object.
    """

    def __init__(self, path: str | Path | None, settings: Embedder | None, **about: Any) -> None:
        super().__init__(path)
        self._settings, self._about = settings, about
        self.get()

    def get(self) -> Store | None:
        """Return the store, opened if necessary; None if it does not exist yet."""
        with self._lock:
            if not self._stores and is_store(self.path):
                if self._settings is None:
                    store = Store.open(self.path, GivenVectors())
                    store.embedder  # noqa: B018  raises if the vectors have another origin
                else:
                    store = open_to_fit(self.path, self._settings)
                self._stores.append(store)
            return self._stores[0] if self._stores else None

    def get_for(self, where: Filter | None) -> Store | None:
        """Return the store, to select chunks by the filter of a user; warn of the parts of it that cannot match."""
        store = self.get()
        if store is not None and where is not None:
            self.warn_of_filter(store, where, stacklevel=4)
        return store

    def add(self, records: Sequence[ChunkRecord], vectors: Floats | None = None) -> None:
        """Add chunks, replacing those with the same ids; ``vectors``, shape ``(n, d)``, are needed without settings."""
        if not records:
            return
        texts = [record.chunk.embedded_text for record in records]
        with self._lock:
            store = self.get()
            if store is None:
                if self._settings is None:
                    Store.create(self.path, GivenVectors(), **self._about).close()
                else:
                    create_store(self.path, copy(self._settings), texts, **self._about)
                store = self.get()
            assert store is not None  # noqa: S101  it was created above
            with store.writer(WAIT_SECONDS) as writer:
                keys: dict[str, bytes] = {}
                if vectors is None:
                    writer.stage(texts)
                else:
                    staged = writer.stage_vectors(texts, np.asarray(vectors, dtype=np.float32))
                    keys = dict(zip((record.id for record in records), staged, strict=True))
                writer.commit(chunks=records, keys=keys)
                finish_write(store, writer, refit_if_due)

    def search(
        self,
        query: str,
        k: int,
        mode: Mode,
        where: Filter | None = None,
        vector: Sequence[float] | None = None,
        fusion: Fusion | None = None,
    ) -> list[Hit]:
        """Return the best chunks for a query and, without settings, its vector."""
        store = self.get_for(where)
        if store is None:
            return []
        vectors = None if vector is None else np.asarray([vector], dtype=np.float32)
        return store.search_many([query], k, mode, where=where, vectors=vectors, fusion=fusion)[0]

    def records(self, where: Filter | None = None) -> list[ChunkRecord]:
        """Return the chunks that match ``where``, in order of insertion."""
        store = self.get_for(where)
        return [] if store is None else list(store.chunks(where=where))

    def count(self, where: Filter | None) -> int:
        """Return the number of chunks that match ``where``."""
        store = self.get_for(where)
        return 0 if store is None else store.count_selected(where=And(()) if where is None else where)

    def delete(self, where: Filter) -> int:
        """Delete the chunks that match ``where``; return their number."""
        store = self.get_for(where)
        return 0 if store is None else store.delete(where=where, wait_seconds=WAIT_SECONDS)

    def clear(self) -> int:
        """Delete all chunks; return their number."""
        return self.delete(And(()))

    def __len__(self) -> int:
        store = self.get()
        return 0 if store is None else len(store)
