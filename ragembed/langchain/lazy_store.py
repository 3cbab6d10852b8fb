"""The store of a vector store: opened if it exists, else created by the first addition."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeGuard, cast

from langchain_core.embeddings import Embeddings

from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError, NotFittedError, StoreNotFoundError
from ragembed.indexes import Budget, IndexConfig, Store, VectorEncoder
from ragembed.indexes.ann.specs import AUTO, parse_spec
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.text.stemming import ENGLISH, AnalyzerConfig
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import ExternalEncoder

_WAIT_SECONDS = 60.0
"""How long a write waits until another process has finished writing."""


class LazyStore:
    """A store at ``path``, or in a temporary folder that is removed with this object; it may not exist yet.

    ``index``, ``budget`` and ``language`` are passed to :meth:`Store.create`.

    Raises
    ------
    StoreNotFoundError
        If there is no store, and no embedding to create one with.
    IncompatibleStoreError
        If the store was made with another embedding.
    ConfigError
        If the store has another index, budget or language, or one of them is unknown.
    """

    def __init__(
        self,
        embedding: Embeddings | None,
        path: str | Path | None,
        index: str | None = None,
        budget: Budget | None = None,
        language: str | None = None,
    ) -> None:
        if embedding is not None and not isinstance(embedding, Embeddings):
            raise ConfigError(
                f"embedding is of type {type(embedding).__name__}: expected LangChain Embeddings; wrap an Embedder as "
                "RagEmbeddings.from_embedder(embedder)"
            )
        if embedding is None and path is None:
            raise ConfigError("no embedding and no path: give an embedding, or the path of an existing store")
        if index not in (None, AUTO):
            parse_spec(index)  # raises for an unknown index before anything is created
        if language is not None:
            AnalyzerConfig.of_language(language)  # the same for the language
        self._index, self._budget, self._language = index, budget, language
        self._embedding = embedding
        self._encoder: VectorEncoder | None = None
        self._stores: list[Store] = []  # at most one; the finalizer needs a list to see a store that is opened later
        self._lock = threading.RLock()
        self._write_lock = threading.Lock()
        self.path = Path(tempfile.mkdtemp(prefix="ragembed-") if path is None else path)
        weakref.finalize(self, _release, self._stores, self.path if path is None else None, os.getpid())
        if self.get() is None and embedding is None:
            raise StoreNotFoundError(f"no store at {self.path}: give an embedding to create one")

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those saved in the store."""
        if self._embedding is not None:
            return self._embedding
        return RagEmbeddings.from_embedder(_own_embedder(self._stores[0]))

    def get(self) -> Store | None:
        """Return the store and open it if necessary; return None if it does not exist yet."""
        if not self._stores:
            with self._lock:
                if not self._stores and is_store(self.path):
                    if _is_only_base(self._embedding):
                        store = Store.open(self.path, self._embedding.embedder)
                        self._embedding = RagEmbeddings.from_embedder(_own_embedder(store))
                        self._encoder = self._embedding.embedder
                    else:
                        self._encoder = None if self._embedding is None else _encoder_of(self._embedding)
                        store = _open(self.path, self._encoder)
                    self._require_index(store)
                    self._require_language(store)
                    self._stores.append(store)
        if not self._stores:
            return None
        if isinstance(self._embedding, RagEmbeddings) and self._embedding.embedder is not self._encoder:
            raise IncompatibleStoreError(
                f"the embeddings of the store {self.path} were fitted again after it was opened, but its vectors have "
                "the earlier fit: open the store without an embedding, or create a new store"
            )
        return self._stores[0]

    def get_or_create(self) -> Store:
        """Return the store and create it if it does not exist."""
        with self._lock:
            store = self.get()
            if store is None:
                self._encoder = _encoder_of(self.embeddings)
                store = Store.create(
                    self.path,
                    self._encoder,
                    index=self._index or AUTO,
                    budget=self._budget,
                    language=self._language or ENGLISH,
                )
                self._stores.append(store)
            return store

    @contextmanager
    def writing(self) -> Iterator[float]:
        """Wait until no other thread writes with this object; yield the seconds to wait for other processes."""
        with self._write_lock:
            yield _WAIT_SECONDS

    def _require_index(self, store: Store) -> None:
        wanted = store.wanted_index
        given = IndexConfig(self._index or wanted.kind, self._budget or wanted.budget, wanted.shards)
        if given != wanted:
            store.close()
            raise ConfigError(
                f"the store {self.path} has {_described(wanted)}, but {_described(given)} was given: leave out index "
                "and budget, or change the index of the store with Store.optimize or ragembed optimize"
            )

    def _require_language(self, store: Store) -> None:
        if self._language not in (None, store.language):
            found = store.language
            store.close()
            raise ConfigError(
                f"the store {self.path} has the language {found!r}, but {self._language!r} was given: leave out "
                "language or choose another path, because the language of a store cannot change"
            )

    def close(self) -> None:
        """Close the store's files; the next use opens them again."""
        for store in self._stores:
            store.close()


def _is_only_base(embedding: Embeddings | None) -> TypeGuard[RagEmbeddings]:
    """Return whether ``embedding`` has a base and no fit, so that an existing store supplies the fit."""
    return isinstance(embedding, RagEmbeddings) and embedding.base is not None and not embedding.is_fitted


def _own_embedder(store: Store) -> Embedder:
    return cast("Embedder", store.embedder)


def _encoder_of(embedding: Embeddings) -> VectorEncoder:
    if not isinstance(embedding, RagEmbeddings):
        return ExternalEncoder(embedding)
    if not embedding.is_fitted:
        raise NotFittedError(
            "the RagEmbeddings of this vector store is not fitted: call embeddings.fit(texts) first, or create the "
            "store with RagVectorStore.from_texts or from_documents, which fit it on their texts; to open an existing "
            "store, leave out the embedding"
        )
    return embedding.embedder


def _open(path: Path, encoder: VectorEncoder | None) -> Store:
    """Open the store at ``path``; raise :class:`IncompatibleStoreError` if its vectors are from another encoder."""
    store = Store.open(path, encoder)
    try:
        made_by = store.embedder
        if encoder is not None and encoder.fingerprint != made_by.fingerprint:
            raise IncompatibleStoreError(
                f"the vectors of {path} were made by {_name(made_by)}, but {_name(encoder)} was given: leave out the "
                "embedding to use the one saved in the store, or choose another path"
            )
    except BaseException:
        store.close()
        raise
    return store


def _described(wanted: IndexConfig) -> str:
    limits = ", ".join(f"{name}={value}" for name, value in asdict(wanted.budget).items() if value is not None)
    return f"the index {wanted.kind!r}" + (f" with {limits}" if limits else "")


def _name(encoder: VectorEncoder) -> str:
    return f"{encoder.describe()['model']} ({encoder.fingerprint[:12]})"


def _release(stores: Sequence[Store], temporary: Path | None, owner: int) -> None:
    if os.getpid() != owner:
        return  # in a forked process, the files still belong to the parent
    for store in stores:
        store.close()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
