"""A store of documents for a framework: created by the first addition, with vectors of its own or given ones."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.adapters.filter_warnings import FilterWarnings
from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import NotFittedError
from ragembed.indexes import ChunkRecord, Fusion, Hit, Store
from ragembed.indexes.filters import And, Filter
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.fitting import create_store
from ragembed.indexes.indexing.refit import refit_if_due
from ragembed.indexes.indexing.request import require_same
from ragembed.indexes.search.search import Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.types import SilentProgress
from ragembed.indexes.writing.index_selection import warn
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

_WAIT_SECONDS = 60.0
"""How long a write waits until another process has finished writing."""

_GIVEN = "given vectors"


class GivenVectors:
    """A :class:`ragembed.indexes.VectorEncoder` for vectors that a framework makes. It encodes nothing itself."""

    fingerprint = raw_fingerprint = hashlib.sha256(_GIVEN.encode()).hexdigest()[:32]

    def raw_documents(
        self,
        texts: Sequence[str],  # noqa: ARG002  the protocol's signature
        progress: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> Floats:
        """Raise :class:`ragembed.errors.NotFittedError`."""
        raise NotFittedError("this store holds vectors that were made elsewhere: give the vectors of documents")

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw`` with unit length."""
        return unit_rows(raw)

    def encode_queries(self, texts: Sequence[str]) -> Floats:  # noqa: ARG002  as above
        """Raise :class:`ragembed.errors.NotFittedError`."""
        raise NotFittedError(
            "this store holds vectors that were made elsewhere: give the vector of the query, or search by words with "
            "the mode 'lexical'"
        )

    def describe(self) -> Mapping[str, Any]:
        """Return the kind and the name."""
        return {"kind": "given", "model": _GIVEN}

    def save(self, folder: str) -> None:
        """Do nothing: there is nothing to save."""


def embedder_of(preset: str | None, settings: Mapping[str, Any] | None, device: str | None = None) -> Embedder:
    """Return an embedder for a preset with some settings changed, not fitted."""
    return Embedder(EmbedderConfig.from_preset(preset or DEFAULT_PRESET, **(settings or {})), device=device)


def ready(embedder: Embedder) -> Embedder:
    """Return a fitted embedder; raise :class:`ragembed.errors.NotFittedError` if it has to learn from texts first."""
    if not embedder.is_fitted:
        if embedder.learns:
            raise NotFittedError(
                "the embedder is not fitted: call fit(texts) with the texts of your corpus, give the folder of a saved "
                "embedder, or choose settings that learn nothing, such as weighting='uniform'"
            )
        embedder.fit([""])  # any text makes the same fit
    return embedder


class DocumentFolder:
    """A store at ``path``, or in a temporary folder that is removed with this object; the first addition creates it.

    Without ``settings``, documents come with their vectors. With them, the store makes the vectors: its first documents
    fit the embedder, and it is fitted again when the store has outgrown the fit. Threads can share the object.
    """

    def __init__(self, path: str | Path | None, settings: Embedder | None, **about: Any) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ragembed-") if path is None else path)
        self._settings, self._about = settings, about
        self._filter_warnings = FilterWarnings()
        self._opened: list[Store] = []
        self._lock = threading.RLock()
        weakref.finalize(self, _release, self._opened, self.path if path is None else None)
        self.get()

    def get(self) -> Store | None:
        """Return the store, opened if necessary; None if it does not exist yet."""
        with self._lock:
            if not self._opened and is_store(self.path):
                if self._settings is None:
                    store = Store.open(self.path, GivenVectors())
                    store.embedder  # noqa: B018  raises if the vectors have another origin
                else:
                    store = Store.open(self.path, device=self._settings._device)
                    if isinstance(embedder := store.embedder, Embedder):
                        require_same(embedder, self._settings, store._wanted_chain(), self.path)
                self._opened.append(store)
            return self._opened[0] if self._opened else None

    def get_for(self, where: Filter | None) -> Store | None:
        """Return the store, to select chunks by the filter of a user; warn of the parts of it that cannot match."""
        store = self.get()
        if store is not None and where is not None:
            self._filter_warnings.warn(store, where, stacklevel=4)
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
            with store.writer(_WAIT_SECONDS) as writer:
                keys: dict[str, bytes] = {}
                if vectors is None:
                    writer.stage(texts)
                else:
                    staged = writer.stage_vectors(texts, np.asarray(vectors, dtype=np.float32))
                    keys = dict(zip((record.id for record in records), staged, strict=True))
                writer.commit(chunks=records, keys=keys)
                if writer.meta("wanted") is not None:
                    warn(refit_if_due(store, writer))
                writer.merge()
                warn(writer.refresh_index())
                warn(calibrate(store, writer, SilentProgress()))

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
        return 0 if store is None else store.delete(where=where, wait_seconds=_WAIT_SECONDS)

    def clear(self) -> int:
        """Delete all chunks; return their number."""
        return self.delete(And(()))

    def __len__(self) -> int:
        store = self.get()
        return 0 if store is None else len(store)

    def close(self) -> None:
        """Close the files of the store; the next use opens them again."""
        for store in self._opened:
            store.close()


def _release(opened: Sequence[Store], temporary: Path | None) -> None:
    for store in opened:
        store.close()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
