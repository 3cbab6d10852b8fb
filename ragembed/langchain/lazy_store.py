"""The store of a vector store: opened if it exists, else created by the first addition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from langchain_core.embeddings import Embeddings
from typing_extensions import override

from ragembed.adapters.own_store import WAIT_SECONDS, OwnStore
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError, NotFittedError, StoreNotFoundError
from ragembed.indexes import Budget, Collection, IndexConfig, Store, VectorEncoder
from ragembed.indexes.faiss_index.records import AUTO, parse_spec
from ragembed.indexes.indexing.fitting import create_store
from ragembed.indexes.indexing.refit import refit_if_due
from ragembed.indexes.indexing.request import open_to_fit, stored_config
from ragembed.indexes.lexical.analyzer import ENGLISH, AnalyzerConfig
from ragembed.indexes.storage.embedders import named_embedder
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.langchain.embeddings import ExternalEncoder, RagEmbeddings

if TYPE_CHECKING:
    from ragembed.langchain.record_manager import RagRecordManager

_READ_ONLY = "a collection is only searched: to change one of its stores, open it as RagVectorStore(path=...)"


class LazyStore(OwnStore):
    """A store at ``path``, or in a temporary folder that is removed with this object; it may not exist yet.

    ``index``, ``budget`` and ``language`` are passed to :meth:`Store.create`; a store that exists must have the same.
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
        super().__init__(path)
        if self.get() is None and embedding is None:
            raise StoreNotFoundError(f"no store at {self.path}: give an embedding to create one")

    def _start(self, is_temporary: bool) -> None:
        super()._start(is_temporary)
        self._encoder: VectorEncoder | None = None
        self._write_lock = threading.Lock()
        self.record_managers: WeakSet[RagRecordManager] = WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        """Return what reopens the store; embeddings that the store contains are left out."""
        embedding = self._embedding
        if isinstance(embedding, RagEmbeddings) and embedding.base is None and is_store(self.path):
            embedding = None
        return {
            "path": self.path.absolute(),
            "_embedding": embedding,
            "_index": self._index,
            "_budget": self._budget,
            "_language": self._language,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start(is_temporary=False)

    def __copy__(self) -> LazyStore:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyStore:
        return self  # the store is on disk, and threads can share this object

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those of the store."""
        if self._embedding is None:
            with self._lock:
                if self._embedding is None:
                    store = self.get_or_create()
                    embedding = RagEmbeddings.from_embedder(_own_embedder(store))
                    config = stored_config(store)
                    embedding.take_fit(embedding.embedder, Embedder(config, download=False), self.path)
                    self._embedding = embedding
        return self._embedding

    def get(self) -> Store | None:
        """Return the store and open it if necessary; return None if it does not exist yet."""
        if not self._stores:
            with self._lock:
                if not self._stores and is_store(self.path):
                    self._open()
        if not self._stores:
            return None
        embedding, encoder = self._embedding, self._encoder
        if isinstance(embedding, RagEmbeddings) and (
            embedding.fitted_by is None if encoder is None else embedding.embedder is not encoder
        ):  # the user has fitted them since the store was opened
            raise IncompatibleStoreError(
                f"the embeddings of the store {self.path} were fitted again after it was opened, but its vectors have "
                "the earlier fit: open the store without an embedding, or create a new store"
            )
        return self._stores[0]

    def _open(self) -> None:
        settings = self._settings()
        if settings is None:
            self._encoder = None if self._embedding is None else _encoder_of(self._embedding)
            store = Store.open(self.path, self._encoder)
        else:
            store = open_to_fit(self.path, settings)
        try:
            self._require_encoder(store)
            self._require_index(store)
            self._require_language(store)
            if settings is not None:
                self._share_fit(store, settings)
        except BaseException:
            store.close()
            raise
        self._stores.append(store)

    def _settings(self) -> Embedder | None:
        """Return an embedder that the store has to fit, or None if the vectors have nothing to do with its texts."""
        return self._embedding.without_fit() if isinstance(self._embedding, RagEmbeddings) else None

    def _share_fit(self, store: Store, settings: Embedder) -> None:
        """Give the fit of the store to the embeddings; those that another store has fitted are replaced."""
        embedding = cast("RagEmbeddings", self._embedding)
        if embedding.fitted_by not in (None, str(self.path)):
            self._embedding = embedding = RagEmbeddings.from_embedder(settings)
        embedding.take_fit(_own_embedder(store), settings, self.path)

    def get_or_create(self, texts: Iterable[str] = ()) -> Store:
        """Return the store; if it does not exist, create it and fit its embedder on ``texts`` if necessary."""
        with self._lock:
            store = self.get()
            if store is None:
                store = self._create(texts)
                self._stores.append(store)
            return store

    @property
    def needs_texts(self) -> bool:
        """Whether the store does not exist and cannot be created without texts."""
        with self._lock:
            return self.get() is None and (settings := self._settings()) is not None and settings.learns

    def _create(self, texts: Iterable[str]) -> Store:
        settings = self._settings()
        about: dict[str, Any] = {
            "index": self._index or AUTO,
            "budget": self._budget,
            "language": self._language or ENGLISH,
        }
        if settings is None:
            self._encoder = _encoder_of(self.embeddings)
            return Store.create(self.path, self._encoder, **about)
        if not texts:
            if settings.learns:
                raise NotFittedError(
                    f"the vector store at {self.path} has no documents to fit its embeddings on: add documents first, "
                    "or call embeddings.fit(texts)"
                )
            texts = [""]
        create_store(self.path, settings, texts, **about)
        store = open_to_fit(self.path, settings)
        self._share_fit(store, settings)
        return store

    def fit_again(self, store: Store, writer: StoreWriter) -> list[str]:
        """Fit the embedder of the store if the store has outgrown its fit; return warnings.

        A fit that the user has made is kept.
        """
        if self._encoder is not None:
            return []
        notes = refit_if_due(store, writer)
        embedding = self._embedding
        if isinstance(embedding, RagEmbeddings) and embedding.fitted_by is not None:
            embedding.take_fit(_own_embedder(store), cast("Embedder", embedding.without_fit()), self.path)
        return notes

    def move(self, path: Path) -> None:
        """Copy the store to ``path``, replacing a store in that place, and continue there."""
        with self._lock, self.writing() as wait_seconds:
            store = self.get_or_create()
            store.copy(path, wait_seconds)
            store.close()
            self._stores.clear()
            self.path = path
            embedding = self._embedding
            if isinstance(embedding, RagEmbeddings) and embedding.fitted_by is not None:
                embedding.take_fit(embedding.embedder, cast("Embedder", embedding.without_fit()), path)

    @contextmanager
    def writing(self) -> Iterator[float]:
        """Wait until no other thread writes with this object; yield the seconds to wait for other processes."""
        with self._write_lock:
            yield WAIT_SECONDS

    def _require_encoder(self, store: Store) -> None:
        made_by, given = store.embedder, self._encoder
        if given is not None and given.fingerprint != made_by.fingerprint:
            raise IncompatibleStoreError(
                f"the vectors of {self.path} were made by {named_embedder(made_by)}, but {named_embedder(given)} was "
                "given: leave out the embedding to use the one saved in the store, or choose another path"
            )

    def _require_index(self, store: Store) -> None:
        wanted = store.wanted_index
        config = IndexConfig(self._index or wanted.kind, self._budget or wanted.budget)
        if config != wanted:
            raise ConfigError(
                f"the store {self.path} has {_described(wanted)}, but {_described(config)} was given: leave out index "
                "and budget, or change the index of the store with Store.optimize or ragembed doctor --repair"
            )

    def _require_language(self, store: Store) -> None:
        if self._language not in (None, store.language):
            raise ConfigError(
                f"the store {self.path} has the language {store.language!r}, but {self._language!r} was given: leave "
                "out language or choose another path, because the language of a store cannot change"
            )


class LazyCollection(LazyStore):
    """Several stores that are searched as one, and cannot be changed."""

    def __init__(self, stores: Mapping[str, str | Path]) -> None:
        self._paths = {name: Path(path).absolute() for name, path in stores.items()}
        self.path = next(iter(self._paths.values()), Path())
        self._embedding = None
        self._start(is_temporary=False)
        self.get()

    def __getstate__(self) -> dict[str, Any]:
        """Return what opens the stores again."""
        return {"_paths": self._paths, "path": self.path, "_embedding": None}

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings of the stores."""
        embedder = self._collection().embedder.refittable
        if embedder is None:
            raise ConfigError(
                "the vectors of the stores were not made by ragembed, so there are no embeddings of them: search with "
                "vectors of your own"
            )
        return RagEmbeddings.from_embedder(embedder)

    def get(self) -> Store:
        """Return the collection, which has the reading methods of a store."""
        return cast("Store", self._collection())

    @override
    def get_or_create(self, texts: Iterable[str] = ()) -> Store:
        """Return the same as :meth:`get`."""
        return self.get()

    def _collection(self) -> Collection:
        with self._lock:
            if not self._stores:
                self._stores.append(cast("Store", Collection.open(self._paths)))
            return cast("Collection", self._stores[0])

    @contextmanager
    def writing(self) -> Iterator[float]:
        """Raise :class:`ConfigError`: it is not known which store to change."""
        require_store(self)
        yield 0.0


def require_store(lazy: LazyStore) -> None:
    """Raise :class:`ConfigError` for a collection."""
    if isinstance(lazy, LazyCollection):
        raise ConfigError(_READ_ONLY)


def _own_embedder(store: Store) -> Embedder:
    return cast("Embedder", store.embedder)


def _encoder_of(embedding: Embeddings) -> VectorEncoder:
    return embedding.embedder if isinstance(embedding, RagEmbeddings) else ExternalEncoder(embedding)


def _described(wanted: IndexConfig) -> str:
    limits = ", ".join(f"{name}={value}" for name, value in asdict(wanted.budget).items() if value is not None)
    return f"the index {wanted.kind!r}" + (f" with {limits}" if limits else "")
