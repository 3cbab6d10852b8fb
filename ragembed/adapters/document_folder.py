"""A store of documents for a framework: created by the first addition, with vectors of its own or given ones."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.adapters.encoders import GivenVectors
from ragembed.adapters.own_store import WAIT_SECONDS, OwnStore, finish_write, refit_if_wanted
from ragembed.embedder import Embedder
from ragembed.indexes import ChunkRecord, Fusion, Hit, Store
from ragembed.indexes.filters import And, Filter
from ragembed.indexes.indexing.fitting import create_store
from ragembed.indexes.indexing.request import open_to_fit
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.types import Floats


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
                finish_write(store, writer, refit_if_wanted)

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
