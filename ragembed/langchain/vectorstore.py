"""``RagVectorStore``: a ragembed store as a LangChain vector store."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, overload
from weakref import WeakSet

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from typing_extensions import Self

from ragembed.adapters.filter_warnings import FilterWarnings
from ragembed.checks import one_of
from ragembed.config.collections import chosen_stores, read_registry
from ragembed.corpus import blocks
from ragembed.errors import ConfigError, StoreError, StoreNotFoundError
from ragembed.extractors.external import SAME
from ragembed.indexes import Budget, ChunkRecord, Fusion, Hit, RankingOptions, Store
from ragembed.indexes.filters import And, Ids, Where, parse
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.search.search import MODES, Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.types import SilentProgress
from ragembed.indexes.writing.index_selection import warn
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.langchain.documents import as_list, chosen_ids, detached, documents_of, to_document, to_record
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import model_name
from ragembed.langchain.lazy_store import LazyCollection, LazyStore, require_store
from ragembed.langchain.record_manager import RagRecordManager
from ragembed.langchain.retrievers import RagVectorStoreRetriever, TextSearch
from ragembed.models.vectors import checked_vectors
from ragembed.stopping import in_thread
from ragembed.types import Floats

Item = TypeVar("Item")
Scored: TypeAlias = "list[tuple[Document, float]]"

LangChainFilter: TypeAlias = "Where | Callable[[dict[str, Any]], bool]"
"""A filter: a dictionary such as ``{"year": {"$gte": 2020}}``, an expression such as ``"year >= 2020"``, or a function
of the metadata, which is called for every document."""

WriteMode = Literal["append", "overwrite", "error"]

Progress = Callable[[int, int], None]
"""Called with the number of embedded texts and the number of all texts."""

_INCLUDED = ("documents", "metadatas", "vectors", "embeddings")

_BATCH_SIZE = 1024
"""Default number of texts to embed together."""


class RagVectorStore(VectorStore):
    """LangChain vector store in a folder, with dense, lexical and hybrid search.

    Vectors are searched with FAISS, and texts with SQLite. Every write is atomic. The folder has the same format as a
    store of the command line: you can open a folder that ``ragembed index`` has made. The ``metadata`` of its documents
    contain their place in the file (``source``, ``title``, ``headings``, ``start_line``, ``end_line``, ``page``).
    Documents that you add keep their own metadata, which must be JSON values.

    Every search takes a ``filter``, which selects the documents to search, and most take a ``ranking``, a
    :class:`ragembed.RankingOptions` with steps after the search: folding near-duplicates, limiting the results
    per file, reranking. By default there are no such steps. Scores are always those of the search.

    Several threads can share one object. Several processes can open the same folder; writers wait for each other. The
    asynchronous methods run the synchronous ones in a thread. If one that writes is cancelled, it stops before its next
    batch or its commit: either all of its documents are added, or none.

    Parameters
    ----------
    embedding : Embeddings, optional
        Any LangChain embeddings. To open an existing store, pass the embeddings that it was made with; you can leave
        them out if they were :class:`RagEmbeddings`, which are saved in the store.
    path : str or pathlib.Path, optional
        Folder of the store; it is created by the first addition. By default, a temporary folder that is removed with
        the object.
    index : str, optional
        Kind of FAISS index: ``"auto"`` (default), ``"flat"``, ``"fp16"``, ``"sq8"``, ``"hnsw"``, ``"hnsw-sq8"``,
        ``"ivf"``, ``"ivf-sq8"``, ``"ivf-pq"`` or a FAISS factory string. ``"auto"`` is exact below 50,000 vectors.
    budget : ragembed.indexes.Budget, optional
        Limits for memory, latency and recall of the index.
    language : str, optional
        Language whose word endings lexical search ignores: ``"english"`` (default), ``"none"``, or another Snowball
        language.
    retrieval_mode : {"dense", "hybrid", "lexical"}
        What ``similarity_search`` and its variants for texts compute: the cosine (default), cosine and BM25 combined,
        or BM25. It sets the search of every retriever that calls ``similarity_search``. It is not saved.

    Raises
    ------
    StoreNotFoundError
        If there is no store at ``path`` and no ``embedding`` to create one with.
    IncompatibleStoreError
        If the store at ``path`` was made with other embeddings.
    ConfigError
        If the store at ``path`` has another index, budget or language, or if a value is unknown.

    Examples
    --------
    Setup:

    .. code-block:: bash

        pip install -U "ragembed[langchain,cpu]"

    Instantiate:

    .. code-block:: python

        from ragembed.langchain import RagEmbeddings, RagVectorStore

        embeddings = RagEmbeddings().fit(["foo", "thud"])
        vector_store = RagVectorStore(embeddings, path="my-store")

    Or fit the embeddings and add texts in one step:

    .. code-block:: python

        other_store = RagVectorStore.from_texts(["foo", "thud"], RagEmbeddings(), path="other-store")

    Add Documents:

    A document replaces an earlier one with the same id.

    .. code-block:: python

        from langchain_core.documents import Document

        document_1 = Document(id="1", page_content="foo", metadata={"baz": "bar"})
        document_2 = Document(id="2", page_content="thud", metadata={"bar": "baz"})
        document_3 = Document(id="3", page_content="i will be deleted :(")

        vector_store.add_documents([document_1, document_2, document_3])

    Update Documents:

    .. code-block:: python

        vector_store.add_documents([Document(id="1", page_content="foo, again", metadata={"baz": "bar"})])

    Inspect Documents:

    .. code-block:: python

        len(vector_store), vector_store.ids(), "1" in vector_store
        for doc in vector_store.iter_documents(filter={"bar": "baz"}):
            print(f"{doc.id}: {doc.page_content}")

    .. code-block:: text

        2: thud

    Delete Documents:

    .. code-block:: python

        vector_store.delete(ids=["3"])

    Search:

    .. code-block:: python

        results = vector_store.similarity_search(query="thud", k=1)
        for doc in results:
            print(f"* {doc.page_content} [{doc.metadata}]")

    .. code-block:: text

        * thud [{'bar': 'baz'}]

    Search with filter:

    The filter is applied before the search, so you get ``k`` results if ``k`` documents match. Operators are ``$eq``,
    ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in``, ``$nin``, ``$exists``, ``$contains``, ``$like``, ``$and``,
    ``$or`` and ``$not``. A filter can also be a function of the metadata; it is called for every document.

    .. code-block:: python

        results = vector_store.similarity_search(query="thud", k=1, filter={"bar": "baz"})

    Search with score:

    The score is the cosine, from -1 to 1; higher is better. The relevance score is ``(1 + cosine) / 2``. With
    ``search_type="hybrid"``, it is the calibrated relevance, which you can compare between queries; run ``ragembed
    refit`` or :func:`ragembed.indexes.refit_store` on the store once to fit it.

    .. code-block:: python

        results = vector_store.similarity_search_with_score(query="thud", k=1)
        for doc, score in results:
            print(f"* [SIM={score:.3f}] {doc.page_content} [{doc.metadata}]")

        results = vector_store.similarity_search_with_relevance_scores(query="thud", k=1, score_threshold=0.7)

    Hybrid search:

    Hybrid search combines cosine and BM25. It finds names, numbers and rare words that dense search misses.

    .. code-block:: python

        results = vector_store.hybrid_search(query="thud", k=1)

    Async:

    .. code-block:: python

        await vector_store.aadd_documents([document_1])
        results = await vector_store.asimilarity_search(query="thud", k=1)
        await vector_store.adelete(ids=["3"])

    Use as Retriever:

    The types of search are ``similarity``, ``similarity_score_threshold``, ``mmr``, ``hybrid`` and ``lexical``.

    .. code-block:: python

        retriever = vector_store.as_retriever(
            search_type="mmr",
            search_kwargs={"k": 1, "fetch_k": 2, "lambda_mult": 0.5},
        )
        retriever.invoke("thud")

    Index:

    The records of LangChain's indexing API are kept in the store itself.

    .. code-block:: python

        from langchain_core.indexing import index

        records = vector_store.record_manager("my-documents")
        index([document_1, document_2], records, vector_store, cleanup="full", key_encoder="sha256")

    Open again:

    .. code-block:: python

        vector_store = RagVectorStore(path="my-store")
    """

    # Create

    def __init__(
        self,
        embedding: Embeddings | None = None,
        path: str | Path | None = None,
        *,
        index: str | None = None,
        budget: Budget | None = None,
        language: str | None = None,
        retrieval_mode: Mode = "dense",
    ) -> None:
        one_of("retrieval_mode", retrieval_mode, MODES)
        self.retrieval_mode: Mode = retrieval_mode
        self._lazy = LazyStore(embedding, path, index, budget, language)
        self._start()

    def _start(self) -> None:
        self._record_managers: WeakSet[RagRecordManager] = WeakSet()
        self._filter_warnings = FilterWarnings()

    def __getstate__(self) -> dict[str, Any]:
        return {"retrieval_mode": self.retrieval_mode, "_lazy": self._lazy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @classmethod
    def open_collection(
        cls, stores: str | Mapping[str, str | Path], *, retrieval_mode: Mode = "dense"
    ) -> RagVectorStore:
        """Open several stores, to search them as one.

        Searches and retrievers work as with one store. The metadata of a document have the name of its store, under
        ``"store"``. The result cannot be changed.

        Parameters
        ----------
        stores : str or mapping of str to str or pathlib.Path
            Names of your collections, separated by commas, or ``"all"``, as for ``ragembed query --in``; or the folder
            of each store by name.
        retrieval_mode : {"dense", "hybrid", "lexical"}, default "dense"
            Mode of :meth:`similarity_search` and of retrievers.

        Returns
        -------
        RagVectorStore
            The stores together.

        Raises
        ------
        ConfigError
            If a collection is unknown.
        StoreError
            If no store can be opened.

        Examples
        --------
        >>> from ragembed.langchain import RagVectorStore
        >>> documents = RagVectorStore.open_collection({"mine": "notes"}, retrieval_mode="hybrid")
        >>> [document.metadata["store"] for document in documents.similarity_search("How do I brew tea?", k=1)]
        ['mine']
        """
        one_of("retrieval_mode", retrieval_mode, MODES)
        if isinstance(stores, str):
            stores = chosen_stores([name.strip() for name in stores.split(",")], [read_registry()])
        opened = cls.__new__(cls)
        opened.retrieval_mode = retrieval_mode
        opened._lazy = LazyCollection(stores)
        opened._start()
        return opened

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        mode: WriteMode = "append",
        retrieval_mode: Mode = "dense",
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Create a store from texts.

        :class:`RagEmbeddings` that are not fitted are fitted on the texts. If there is a store at ``path``, the texts
        are added to it.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        embedding : Embeddings
            The embeddings.
        metadatas : iterable of dict, optional
            Metadata of each text.
        ids : iterable of (str or None), optional
            Id of each text; by default, as for :meth:`add_documents`.
        path : str or pathlib.Path, optional
            Folder of the store; by default a temporary folder.
        index : str, optional
            Kind of FAISS index, as for the class.
        budget : ragembed.indexes.Budget, optional
            Limits for the index.
        mode : {"append", "overwrite", "error"}
            What to do if there is a store at ``path``: add to it, replace it when the new store is complete, or raise
            :class:`ragembed.errors.StoreError`.
        retrieval_mode : {"dense", "hybrid", "lexical"}
            What ``similarity_search`` computes, as for the class.
        batch_size : int, optional
            Number of texts to embed together; 1,024 by default.
        progress : callable, optional
            Called after each batch with the number of embedded texts and the number of all texts.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        RagVectorStore
            The store.

        Raises
        ------
        ConfigError
            If the numbers of texts, metadatas and ids differ.
        BudgetError
            If no index meets ``budget``; the documents are saved first.
        """
        _reject_unknown("from_texts", kwargs)
        documents = documents_of(texts, metadatas)
        chosen = chosen_ids(documents, ids)
        with cls._created(embedding, path, index, budget, mode, retrieval_mode) as store:
            store.add_documents(documents, ids=chosen, batch_size=batch_size, progress=progress)
        return store

    @classmethod
    def from_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        mode: WriteMode = "append",
        retrieval_mode: Mode = "dense",
    ) -> RagVectorStore:
        """Create a store from texts and their vectors; see :meth:`add_embeddings`.

        Parameters
        ----------
        text_embeddings : iterable of (str, sequence of float)
            Texts with their vectors.
        embedding : Embeddings
            The embeddings that made the vectors; not :class:`RagEmbeddings`.
        metadatas : iterable of dict, optional
            Metadata of each text.
        ids : iterable of (str or None), optional
            Id of each text; by default, as for :meth:`add_embeddings`.
        path : str or pathlib.Path, optional
            Folder of the store; by default a temporary folder.
        index : str, optional
            Kind of FAISS index, as for the class.
        budget : ragembed.indexes.Budget, optional
            Limits for the index.
        mode : {"append", "overwrite", "error"}
            What to do if there is a store at ``path``: add to it, replace it when the new store is complete, or raise
            :class:`ragembed.errors.StoreError`.
        retrieval_mode : {"dense", "hybrid", "lexical"}
            What ``similarity_search`` computes, as for the class.

        Returns
        -------
        RagVectorStore
            The store.

        Raises
        ------
        ConfigError
            If ``embedding`` is a :class:`RagEmbeddings`, or if texts, vectors, metadatas or ids do not match.
        """
        with cls._created(embedding, path, index, budget, mode, retrieval_mode) as store:
            store.add_embeddings(text_embeddings, metadatas, ids=ids)
        return store

    @classmethod
    @contextmanager
    def _created(
        cls,
        embedding: Embeddings,
        path: str | Path | None,
        index: str | None,
        budget: Budget | None,
        mode: WriteMode,
        retrieval_mode: Mode,
    ) -> Iterator[RagVectorStore]:
        """Yield a store for the ``with`` block to fill; with ``mode="overwrite"`` it replaces another afterwards."""
        one_of("mode", mode, get_args(WriteMode))
        exists = path is not None and is_store(Path(path))
        if exists and mode == "error":
            raise StoreError(
                f"a store exists at {path}: use mode='append' to add to it, mode='overwrite' to replace it, or another "
                "path"
            )
        replaces = exists and mode == "overwrite"
        store = cls(embedding, None if replaces else path, index=index, budget=budget, retrieval_mode=retrieval_mode)
        yield store
        if not replaces or path is None:
            return
        if store._lazy.needs_texts:  # no documents were added, so there is nothing to fit the embeddings on
            with cls(embedding, path) as replaced:
                replaced.clear()
            store._lazy = replaced._lazy
        else:
            store._lazy.move(Path(path))

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._lazy.path

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those saved in the store."""
        return self._lazy.embeddings

    # Write

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents; either all of them are added, or none.

        A document replaces an earlier one with the same id. The vectors of finished batches are saved: if the process
        is killed, the same call embeds only the remaining texts. If the store has outgrown its index, a new index is
        selected.

        Parameters
        ----------
        documents : iterable of Document
            The documents. Their metadata must be JSON values, dates, times, UUIDs, paths, decimals or NumPy scalars.
        ids : iterable of (str or None), optional
            Id of each document; by default the id of the document, else a hash of its text and metadata, so the same
            call again adds nothing.
        batch_size : int, optional
            Number of texts to embed together; 1,024 by default.
        progress : callable, optional
            Called after each batch with the number of embedded texts and the number of all texts.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of str
            The ids, in order.

        Raises
        ------
        ConfigError
            If the numbers of documents and ids differ, or ``batch_size`` is below 1.
        BudgetError
            If no index meets the budget of the store; the documents are saved first.

        Warns
        -----
        IndexWarning
            If the index finds too little or is too slow.
        """
        _reject_unknown("add_documents", kwargs)
        _require_batch_size(batch_size)
        documents = list(documents)
        chosen = chosen_ids(documents, ids)
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
        self._write(records, lambda writer: _stage_texts(writer, records, batch_size, progress))
        return chosen

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts with their metadata; see :meth:`add_documents`.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        metadatas : iterable of dict, optional
            Metadata of each text.
        ids : iterable of (str or None), optional
            Id of each text; by default, as for :meth:`add_documents`.
        batch_size : int, optional
            Number of texts to embed together; 1,024 by default.
        progress : callable, optional
            Called after each batch with the number of embedded texts and the number of all texts.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of str
            The ids, in order.

        Raises
        ------
        ConfigError
            If the numbers of texts, metadatas and ids differ.
        """
        _reject_unknown("add_texts", kwargs)
        return self.add_documents(documents_of(texts, metadatas), ids=ids, batch_size=batch_size, progress=progress)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Add texts with vectors that the store's embeddings have already made.

        A text may occur several times with different vectors, such as contextual embeddings.

        Parameters
        ----------
        text_embeddings : iterable of (str, sequence of float)
            Texts with their vectors.
        metadatas : iterable of dict, optional
            Metadata of each text.
        ids : iterable of (str or None), optional
            Id of each text; by default a hash of the text, its metadata and its vector.

        Returns
        -------
        list of str
            The ids, in order.

        Raises
        ------
        ConfigError
            If the embeddings are :class:`RagEmbeddings`, because their stores save raw vectors, from before
            post-processing.
        """
        if isinstance(self.embeddings, RagEmbeddings):
            raise ConfigError(
                "a store with RagEmbeddings saves raw vectors, from before post-processing, and embeddings cannot be "
                "converted back to them: add the texts with add_texts"
            )
        pairs = list(text_embeddings)
        vectors = checked_vectors([vector for _, vector in pairs], len(pairs), model_name(self.embeddings))
        documents = documents_of([text for text, _ in pairs], metadatas)
        chosen = chosen_ids(documents, ids, vectors)
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
        texts = [document.page_content for document in documents]
        self._write(records, lambda writer: dict(zip(chosen, writer.stage_vectors(texts, vectors), strict=True)))
        return chosen

    @overload
    def delete(self, ids: Iterable[str] | None = None, *, filter: None = None, **kwargs: Any) -> bool: ...

    @overload
    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LangChainFilter,
        **kwargs: Any,
    ) -> int: ...

    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> int:
        """Delete documents by id or filter; without either, delete all documents and all records of files.

        Parameters
        ----------
        ids : iterable of str, optional
            Ids of documents; unknown ids are ignored.
        filter : str, dict or callable, optional
            Selects further documents to delete.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        bool or int
            With a filter, the number of deleted documents; otherwise True.
        """
        _reject_unknown("delete", kwargs)
        wanted = None if ids is None else as_list("ids", ids)
        store, deleted = self._lazy.get(), 0
        if store is not None and (wanted != [] or filter is not None):
            where = self._where(store, filter)
            with self._lazy.writing() as wait_seconds:
                if wanted is not None or where is not None:
                    deleted = store.delete(wanted or (), where=where, wait_seconds=wait_seconds)
                else:
                    store.delete(paths=store.sources(), where=And(()), wait_seconds=wait_seconds)
        return True if filter is None else deleted

    def clear(self) -> None:
        """Delete all documents."""
        self.delete()

    def merge_from(self, other: RagVectorStore) -> list[str]:
        """Add the documents of another store.

        Documents with the same id are replaced. If both stores have the same embeddings, other than
        :class:`RagEmbeddings`, the vectors are copied; otherwise the texts are embedded again.

        Parameters
        ----------
        other : RagVectorStore
            The other store; it does not change.

        Returns
        -------
        list of str
            Ids of the added documents.
        """
        require_store(other._lazy)
        theirs = other._lazy.get()
        if theirs is None:
            return []
        same_embeddings = not isinstance(self.embeddings, RagEmbeddings) and model_name(self.embeddings) == model_name(
            other.embeddings
        )
        merged: list[str] = []
        for records in blocks(theirs.chunks(), _BATCH_SIZE):
            texts = [record.chunk.embedded_text for record in records]
            ids = [record.id for record in records]
            vectors = theirs.vectors(ids) if same_embeddings else None
            self._write(
                [detached(record) for record in records], partial(_stage, ids=ids, texts=texts, vectors=vectors)
            )
            merged += ids
        return merged

    def record_manager(self, namespace: str = "default") -> RagRecordManager:
        """Return a record manager for LangChain's indexing API that keeps its records in this store.

        Parameters
        ----------
        namespace : str
            Name that separates several programs that index into the same store.

        Returns
        -------
        RagRecordManager
            Pass it to ``langchain_core.indexing.index`` together with this vector store.
        """
        require_store(self._lazy)
        manager = RagRecordManager(self._lazy, namespace)
        self._record_managers.add(manager)
        return manager

    def _write(
        self, records: Sequence[ChunkRecord], stage: Callable[[StoreWriter], Mapping[str, bytes] | None]
    ) -> None:
        """Commit ``records`` after ``stage`` has saved their vectors and returned the keys of given ones, by id."""
        if not records:
            return
        require_store(self._lazy)
        store = self._lazy.get_or_create([record.chunk.embedded_text for record in records])
        ids = [record.id for record in records]
        expected = [manager.expected(ids) for manager in list(self._record_managers)]
        with self._lazy.writing() as wait_seconds, store.writer(wait_seconds) as writer:
            keys = stage(writer) or {}
            writer.commit(chunks=records, expected=expected, keys=keys)
            warn(self._lazy.fit_again(store, writer))
            writer.merge()
            warn(writer.refresh_index())
            warn(calibrate(store, writer, SilentProgress()))

    # Read

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents by id.

        Parameters
        ----------
        ids : sequence of str
            Ids of the documents.

        Returns
        -------
        list of Document
            The documents in the order of ``ids``, each once. Unknown ids are left out.
        """
        store = self._lazy.get()
        return [] if store is None else [to_document(record) for record in store.get(as_list("ids", ids))]

    def get(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: LangChainFilter | None = None,
        limit: int | None = None,
        offset: int = 0,
        include: Iterable[str] = ("documents", "metadatas"),
    ) -> dict[str, list[Any]]:
        """Return documents by id, by filter, or all of them, as a dictionary of lists.

        Parameters
        ----------
        ids : iterable of str, optional
            Ids of documents; unknown ids are left out. The result has their order.
        where : str, dict or callable, optional
            Selects documents, as ``filter`` of the searches. With ``ids``, documents have to match both.
        limit : int, optional
            Maximum number of documents; by default all.
        offset : int
            Number of documents to skip.
        include : iterable of {"documents", "metadatas", "vectors"}
            What to return besides the ids. ``"embeddings"`` is another name for ``"vectors"``.

        Returns
        -------
        dict of str to list
            The lists ``"ids"``, and one for each name in ``include``: texts, metadata, or vectors as lists of floats.
            Without ``ids``, documents are in order of insertion.

        Raises
        ------
        ConfigError
            If ``include`` has an unknown name, or ``limit`` or ``offset`` is negative.
        """
        names = as_list("include", include)
        for name in names:
            one_of("include", name, _INCLUDED)
        chosen = None if ids is None else list(dict.fromkeys(as_list("ids", ids)))
        store = self._lazy.get()
        records: list[ChunkRecord] = []
        if store is not None:
            condition = self._where(store, where)
            if chosen is None:
                records = list(store.chunks(where=condition, limit=limit, offset=offset))
            else:
                matched = [*(() if condition is None else (parse(condition),)), Ids(tuple(chosen))]
                by_id = {record.id: record for record in store.chunks(where=And(tuple(matched)))}
                known = [by_id[chunk_id] for chunk_id in chosen if chunk_id in by_id]
                records = known[_depth(0, offset) :][: None if limit is None else _depth(limit, 0)]
        documents = [to_document(record) for record in records]
        found: dict[str, list[Any]] = {"ids": [record.id for record in records]}
        for name in names:
            if name == "documents":
                found[name] = [document.page_content for document in documents]
            elif name == "metadatas":
                found[name] = [document.metadata for document in documents]
            else:
                found[name] = self.vectors(found["ids"]).tolist()
        return found

    def vectors(self, ids: Iterable[str]) -> Floats:
        """Return the vectors of documents, which searches compare with the vector of the query.

        Parameters
        ----------
        ids : iterable of str
            Ids of the documents.

        Returns
        -------
        numpy.ndarray
            Unit vectors, float32, shape ``(n, d)``, in the order of ``ids``.

        Raises
        ------
        ConfigError
            If a document is not in the store.
        """
        wanted, store = as_list("ids", ids), self._lazy.get()
        known = set() if store is None else {record.id for record in store.get(wanted)}
        self._require_ids(wanted, known)
        return np.zeros((0, 0), dtype=np.float32) if store is None else store.vectors(wanted)

    def _require_ids(self, wanted: Iterable[str], known: Collection[str]) -> None:
        for chunk_id in wanted:
            if chunk_id not in known:
                raise ConfigError(f"no document has the id {chunk_id!r}: expected an id of the store {self.path}")

    def update_document(self, document_id: str, document: Document) -> None:
        """Replace the text, metadata and vector of a document; see :meth:`update_documents`.

        Parameters
        ----------
        document_id : str
            Id of the document.
        document : Document
            The new document.
        """
        self.update_documents([document_id], [document])

    def update_documents(self, ids: Iterable[str], documents: Iterable[Document]) -> None:
        """Replace the texts, metadata and vectors of documents in the store, all of them or none.

        :meth:`add_documents` does the same, and also adds documents with new ids.

        Parameters
        ----------
        ids : iterable of str
            Ids of the documents.
        documents : iterable of Document
            The new documents, one for each id.

        Raises
        ------
        ConfigError
            If a document is not in the store, or the numbers of ids and documents differ.
        """
        wanted = as_list("ids", ids)
        self._require_ids(wanted, {document.id or "" for document in self.get_by_ids(wanted)})
        self.add_documents(documents, ids=wanted)

    def ids(self) -> list[str]:
        """Return the ids of all documents.

        Returns
        -------
        list of str
            The ids, in order of insertion.
        """
        store = self._lazy.get()
        return [] if store is None else store.ids()

    def iter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> Iterator[Document]:
        """Yield documents in order of insertion.

        Parameters
        ----------
        filter : str, dict or callable, optional
            Selects the documents; by default all.

        Yields
        ------
        Document
            A document. All of them are from the same snapshot of the store.
        """
        store = self._lazy.get()
        if store is not None:
            yield from (to_document(record) for record in store.chunks(where=self._where(store, filter)))

    def __iter__(self) -> Iterator[Document]:
        return self.iter_documents()

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.get_by_ids([chunk_id]))

    def __len__(self) -> int:
        store = self._lazy.get()
        return 0 if store is None else len(store)

    def __bool__(self) -> bool:
        return True  # an empty store is also true in ``if vector_store``

    # Search by text

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        score_threshold: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the best documents for a query: by cosine, unless ``retrieval_mode`` is another.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        score_threshold : float, optional
            Leave out documents with a lower relevance score, from 0 to 1.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, best first.
        """
        _reject_unknown("similarity_search", kwargs)
        return _documents(
            self.similarity_search_with_score(
                query, k, filter=filter, ranking=ranking, score_threshold=score_threshold, offset=offset
            )
        )

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        score_threshold: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> Scored:
        """Return the best documents for a query with their scores: cosines, unless ``retrieval_mode`` is another.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        score_threshold : float, optional
            Leave out documents with a lower relevance score, from 0 to 1.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their scores, highest first. Cosines are from -1 to 1.
        """
        _reject_unknown("similarity_search_with_score", kwargs)
        settings = TextSearch(self.retrieval_mode, filter, None, ranking, score_threshold, offset)
        return self._scored_many([query], k, settings)[0]

    def hybrid_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the best documents by cosine and BM25 combined.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        fusion : ragembed.Fusion, optional
            How the two scores are combined; by default the fusion of the store.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        min_relevance : float, optional
            Leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it: stores with
            :class:`RagEmbeddings` have one from 20 documents on.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, best first.
        """
        _reject_unknown("hybrid_search", kwargs)
        settings = TextSearch("hybrid", filter, fusion, ranking, min_relevance, offset)
        return _documents(self._scored_many([query], k, settings)[0])

    def hybrid_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> Scored:
        """Return the best documents by cosine and BM25 combined, with their fused scores.

        The scores are scaled over the candidates of a query, so you can compare only results of the same query.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        fusion : ragembed.Fusion, optional
            How the two scores are combined; by default the fusion of the store.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        min_relevance : float, optional
            Leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it: stores with
            :class:`RagEmbeddings` have one from 20 documents on.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their scores, highest first.
        """
        _reject_unknown("hybrid_search_with_score", kwargs)
        settings = TextSearch("hybrid", filter, fusion, ranking, min_relevance, offset)
        return self._scored_many([query], k, settings)[0]

    def lexical_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the best documents by words (BM25); none if no word matches.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        min_relevance : float, optional
            Leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it: stores with
            :class:`RagEmbeddings` have one from 20 documents on.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, best first.
        """
        _reject_unknown("lexical_search", kwargs)
        settings = TextSearch("lexical", filter, None, ranking, min_relevance, offset)
        return _documents(self._scored_many([query], k, settings)[0])

    def lexical_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> Scored:
        """Return the best documents by words with their BM25 scores.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        ranking : ragembed.RankingOptions, optional
            Steps after the search; none by default.
        min_relevance : float, optional
            Leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it: stores with
            :class:`RagEmbeddings` have one from 20 documents on.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their scores, above 0, highest first.
        """
        _reject_unknown("lexical_search_with_score", kwargs)
        settings = TextSearch("lexical", filter, None, ranking, min_relevance, offset)
        return self._scored_many([query], k, settings)[0]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return documents that are close to a query and different from each other (maximal marginal relevance).

        The documents are chosen one by one from the candidates. With ``lambda_mult=1`` they are ordered by closeness to
        the query. With ``lambda_mult=0`` the closest comes first, and each next one is the most different from the
        ones before.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        fetch_k : int
            Number of candidates, the documents closest to the query; ``k`` if that is more.
        lambda_mult : float
            From 0 (most diverse) to 1 (closest to the query).
        filter : str, dict or callable, optional
            Selects the documents to search.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, in the order in which they were chosen.
        """
        _reject_unknown("max_marginal_relevance_search", kwargs)
        return _documents(self.max_marginal_relevance_search_with_score(query, k, fetch_k, lambda_mult, filter=filter))

    def max_marginal_relevance_search_with_score(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> Scored:
        """Do the same as :meth:`max_marginal_relevance_search`, and return the cosines to the query as well.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        fetch_k : int
            Number of candidates, the documents closest to the query; ``k`` if that is more.
        lambda_mult : float
            From 0 (most diverse) to 1 (closest to the query).
        filter : str, dict or callable, optional
            Selects the documents to search.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their cosines to the query, in the order in which they were chosen.
        """
        _reject_unknown("max_marginal_relevance_search_with_score", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        where = self._where(store, filter)
        return _cosines(store.search_mmr(query, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # Search by vector

    def similarity_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        offset: int = 0,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the documents closest to the vector of a query by cosine.

        Parameters
        ----------
        embedding : sequence of float
            Vector of the query. It need not have unit length.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, best first.
        """
        _reject_unknown("similarity_search_by_vector", kwargs)
        return _documents(self.similarity_search_with_score_by_vector(embedding, k, filter=filter, offset=offset))

    def similarity_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        offset: int = 0,
        **kwargs: Any,
    ) -> Scored:
        """Return the documents closest to the vector of a query with their cosines.

        Parameters
        ----------
        embedding : sequence of float
            Vector of the query. It need not have unit length.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        offset : int
            Number of best documents to skip, for the next page of results.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their cosines, from -1 to 1, highest first.
        """
        _reject_unknown("similarity_search_with_score_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        depth = _depth(k, offset)
        hits = store.search_vector(_query_vector(embedding), depth, where=self._where(store, filter))
        return _cosines(hits[offset:])

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Do the same as :meth:`max_marginal_relevance_search` for the vector of a query.

        Parameters
        ----------
        embedding : sequence of float
            Vector of the query. It need not have unit length.
        k : int
            Number of documents.
        fetch_k : int
            Number of candidates, the documents closest to the query; ``k`` if that is more.
        lambda_mult : float
            From 0 (most diverse) to 1 (closest to the query).
        filter : str, dict or callable, optional
            Selects the documents to search.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of Document
            The documents, in the order in which they were chosen.
        """
        _reject_unknown("max_marginal_relevance_search_by_vector", kwargs)
        return _documents(
            self.max_marginal_relevance_search_with_score_by_vector(embedding, k, fetch_k, lambda_mult, filter=filter)
        )

    def max_marginal_relevance_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> Scored:
        """Do the same as :meth:`max_marginal_relevance_search_by_vector`, and return the cosines as well.

        Parameters
        ----------
        embedding : sequence of float
            Vector of the query. It need not have unit length.
        k : int
            Number of documents.
        fetch_k : int
            Number of candidates, the documents closest to the query; ``k`` if that is more.
        lambda_mult : float
            From 0 (most diverse) to 1 (closest to the query).
        filter : str, dict or callable, optional
            Selects the documents to search.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents with their cosines to the query, in the order in which they were chosen.
        """
        _reject_unknown("max_marginal_relevance_search_with_score_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        vector, where = _query_vector(embedding), self._where(store, filter)
        return _cosines(store.search_mmr_vector(vector, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    def similarity_search_with_vectors(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[tuple[Document, Floats]]:
        """Return the best documents for a query with their vectors.

        Parameters
        ----------
        query : str
            The query.
        k : int
            Number of documents.
        filter : str, dict or callable, optional
            Selects the documents to search.
        **kwargs
            Other arguments of :meth:`similarity_search`.

        Returns
        -------
        list of (Document, numpy.ndarray)
            The documents, best first, with their unit vectors, float32, shape ``(d,)``.
        """
        documents = self.similarity_search(query, k, filter=filter, **kwargs)
        return list(zip(documents, self.vectors(str(document.id) for document in documents), strict=True))

    # Search by type, and retrievers

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Search with a given type of search.

        Parameters
        ----------
        query : str
            The query.
        search_type : {"similarity", "similarity_score_threshold", "mmr", "hybrid", "lexical"}
            The type of search.
        **kwargs
            Arguments of that search, such as ``k`` and ``filter``.

        Returns
        -------
        list of Document
            The documents, best first.

        Raises
        ------
        ConfigError
            If the type of search is unknown.
        """
        return self.search_many([query], search_type, **kwargs)[0]

    def search_many(
        self, queries: Sequence[str], search_type: str = "similarity", **kwargs: Any
    ) -> list[list[Document]]:
        """Search for several queries, which all see the same state of the store; ``batch`` of retrievers uses it.

        Parameters
        ----------
        queries : sequence of str
            The queries.
        search_type : {"similarity", "similarity_score_threshold", "mmr", "hybrid", "lexical"}
            The type of search.
        **kwargs
            Arguments of that search, such as ``k`` and ``filter``. ``score_threshold`` is accepted by all types but
            ``"mmr"``.

        Returns
        -------
        list of list of Document
            For each query, the documents, best first.

        Raises
        ------
        ConfigError
            If the type of search is unknown, or ``queries`` is a str.
        """
        _require_known(search_type)
        queries = as_list("queries", queries)
        if search_type == "mmr":
            return [self.max_marginal_relevance_search(query, **kwargs) for query in queries]
        k, least = kwargs.pop("k", 4), kwargs.pop("score_threshold", None)
        of_text: dict[str, Mode] = {"hybrid": "hybrid", "lexical": "lexical"}
        mode = of_text.get(search_type, self.retrieval_mode)
        least = kwargs.pop("min_relevance", least) if mode != "dense" else least
        names = ("filter", "ranking", "offset", *(("fusion",) if mode == "hybrid" else ()))
        _reject_unknown(f"{search_type} search", {name: kwargs[name] for name in kwargs if name not in names})
        settings = TextSearch(mode, score_threshold=least, **kwargs)
        return [_documents(scored) for scored in self._scored_many(queries, k, settings)]

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever for one type of search.

        For a retriever with one field per setting, see :class:`ragembed.langchain.RagRetriever`.

        Parameters
        ----------
        **kwargs
            ``search_type``, as for :meth:`search`; settings of that search, such as ``k``, ``filter``,
            ``score_threshold``, ``fetch_k``, ``lambda_mult`` or ``ranking``, as arguments or together as the dict
            ``search_kwargs``; and other fields of LangChain's retrievers, such as ``tags``.

        Returns
        -------
        VectorStoreRetriever
            The retriever.

        Raises
        ------
        TypeError
            If an argument is unknown.
        """
        known = (*RagVectorStoreRetriever.model_fields, *RagVectorStoreRetriever.search_settings)
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise TypeError(
                f"as_retriever() got an unexpected keyword argument {unknown[0]!r}: expected one of {', '.join(known)}"
            )
        tags = [*(kwargs.pop("tags", None) or []), *self._get_retriever_tags()]
        return RagVectorStoreRetriever(vectorstore=self, tags=tags, **kwargs)

    def similarity_search_with_relevance_scores(
        self,
        query: str,
        k: int = 4,
        *,
        search_type: Mode | None = None,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        score_threshold: float | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return documents with relevance scores from 0 to 1.

        Parameters
        ----------
        query : str
            The query.
        k : int, default 4
            Maximum number of documents.
        search_type : {"dense", "hybrid", "lexical"}, optional
            What to compute; by default ``retrieval_mode``.
        filter : str, dict or callable, optional
            Selects the documents to search.
        ranking : ragembed.RankingOptions, optional
            Steps after the search.
        score_threshold : float, optional
            Leave out documents with a lower score, from 0 to 1.
        **kwargs
            ``offset``, and for hybrid search ``fusion``; any other argument raises ``TypeError``.

        Returns
        -------
        list of (Document, float)
            The documents, best first. The score of dense search is ``(1 + cosine) / 2``, else the calibrated relevance,
            which you can compare between queries. An unknown relevance is NaN, and no threshold applies to it.

        Warns
        -----
        UserWarning
            If the relevance is unknown, for example because the store has fewer than 20 documents.
        """
        mode = search_type or self.retrieval_mode
        fusion = kwargs.pop("fusion", None) if mode == "hybrid" else None
        offset = kwargs.pop("offset", 0)
        _reject_unknown("similarity_search_with_relevance_scores", kwargs)
        settings = TextSearch(mode, filter, fusion, ranking, score_threshold or 0.0, offset)
        if mode == "dense":
            return [(document, _relevance(cosine)) for document, cosine in self._scored_many([query], k, settings)[0]]
        return _relevances(self._hits_many([query], k, settings)[0])

    async def asimilarity_search_with_relevance_scores(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`similarity_search_with_relevance_scores` in a thread, with the same arguments."""
        return await run_in_executor(None, self.similarity_search_with_relevance_scores, query, k, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance

    def _scored_many(self, queries: Sequence[str], k: int, settings: TextSearch) -> list[Scored]:
        """Return the documents with their scores for each query."""
        found = self._hits_many(queries, k, settings)
        if settings.mode != "dense":
            return [_scored(hits) for hits in found]
        least = settings.score_threshold
        return [
            [(document, cosine) for document, cosine in _cosines(hits) if least is None or _relevance(cosine) >= least]
            for hits in found
        ]

    def _hits_many(self, queries: Sequence[str], k: int, settings: TextSearch) -> list[list[Hit]]:
        """Return the hits for each query; dense search does not apply the threshold."""
        depth = _depth(k, settings.offset)
        store = self._lazy.get()
        if store is None:
            return [[] for _ in queries]
        found = store.search_many(
            queries,
            depth,
            settings.mode,
            where=self._where(store, settings.filter),
            fusion=settings.fusion,
            ranking=settings.ranking,
            min_relevance=None if settings.mode == "dense" else settings.score_threshold,
        )
        return [hits[settings.offset :] for hits in found]

    def _where(self, store: Store, filter: LangChainFilter | None) -> Where | None:  # noqa: A002  LangChain's name
        """Convert a filter to the form that stores take; a function is called with the metadata of every document."""
        if filter is None:
            return None
        if isinstance(filter, (str, Mapping)) or not callable(filter):
            where = parse(filter)
            self._filter_warnings.warn(store, where, stacklevel=4)
            return where
        return Ids(tuple(record.id for record in store.chunks() if filter(to_document(record).metadata)))

    # Files

    def save_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Copy the store to the folder ``index_name`` in ``folder_path``; a store in that place is replaced.

        A store with a ``path`` is always on disk; use this method to keep a temporary store, or to make a copy.

        Parameters
        ----------
        folder_path : str or pathlib.Path
            The folder that contains the copy.
        index_name : str
            Name of the copy.
        """
        with self._lazy.writing() as wait_seconds:
            self._lazy.get_or_create().copy(Path(folder_path, index_name), wait_seconds)

    @classmethod
    def load_local(
        cls,
        folder_path: str | Path,
        embeddings: Embeddings | None = None,
        index_name: str = "index",
        *,
        allow_dangerous_deserialization: bool = False,  # noqa: ARG003  not needed here
        **kwargs: Any,
    ) -> RagVectorStore:
        """Open a store that :meth:`save_local` wrote; additions are saved in it.

        Parameters
        ----------
        folder_path : str or pathlib.Path
            The folder.
        embeddings : Embeddings, optional
            The embeddings, as for the class.
        index_name : str
            Name of the store in the folder.
        allow_dangerous_deserialization : bool
            Ignored: no code in the files is ever executed.
        **kwargs
            Not supported: any other argument raises ``TypeError``.

        Returns
        -------
        RagVectorStore
            The store.

        Raises
        ------
        StoreNotFoundError
            If there is no store of this name.
        """
        _reject_unknown("load_local", kwargs)
        folder = Path(folder_path, index_name)
        if not is_store(folder):
            raise StoreNotFoundError(
                f"no store {index_name!r} in {folder_path}: expected a store of ragembed, written with save_local; the "
                "guide 'Migrate from FAISS' copies a store of langchain-community"
            )
        return cls(embeddings, folder)

    def rebuild(
        self,
        embedding: Embeddings,
        path: str | Path | None = None,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Create a new store with the same documents and other embeddings.

        This store does not change. The new store has the same kind of index, budget, language, fusion, files and
        records of indexing runs. :class:`RagEmbeddings` that are not fitted are fitted on the documents. If their base
        made the vectors of this store, the vectors are reused.

        Parameters
        ----------
        embedding : Embeddings
            The embeddings of the new store.
        path : str or pathlib.Path, optional
            Folder of the new store; by default a temporary folder.
        batch_size : int, optional
            Number of texts to embed together; 1,024 by default.
        progress : callable, optional
            Called after each batch with the number of embedded texts and the number of all texts.

        Returns
        -------
        RagVectorStore
            The new store.

        Raises
        ------
        ConfigError
            If a store at ``path`` contains documents, or ``batch_size`` is below 1.
        """
        _require_batch_size(batch_size)
        if path is not None and _holds_documents(Path(path)):
            raise ConfigError(f"{path} already contains a store with documents: choose another folder")
        require_store(self._lazy)
        theirs = self._lazy.get()
        if theirs is None:
            return type(self)(embedding, path)
        wanted = theirs.wanted_index
        rebuilt = type(self)(embedding, path, index=wanted.kind, budget=wanted.budget, language=theirs.language)
        if not len(theirs) and rebuilt._lazy.needs_texts:
            return rebuilt
        store = rebuilt._lazy.get_or_create(theirs.embedded_texts() if len(theirs) else ())
        with store.writer() as writer:
            records = list(theirs.chunks())
            keys: dict[str, bytes] = {}
            if records and _made_by_base(embedding, self.embeddings, records[0], theirs):
                for batch in blocks(records, _BATCH_SIZE):
                    ids = [record.id for record in batch]
                    texts = [record.chunk.embedded_text for record in batch]
                    keys.update(_stage(writer, ids, texts, theirs.vectors(ids)))
            _stage_texts(writer, records, batch_size, progress)
            writer.commit(chunks=records, sources=list(theirs.sources().values()), keys=keys)
            writer.take_run_records(theirs._all_run_records())
            if theirs.fusion != Fusion():
                writer.set_meta({"fusion": theirs.fusion.to_dict()})
            warn(rebuilt._lazy.fit_again(store, writer))
            writer.merge()
            warn(writer.refresh_index(wanted))
        return rebuilt

    def close(self) -> None:
        """Close the files of the store; the next use opens them again. The folder is not removed."""
        self._lazy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Asynchronous methods that the base class of LangChain does not have, or that stop when they are cancelled

    async def aadd_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Run :meth:`add_documents` in a thread, with the same arguments."""
        return await in_thread(self.add_documents, documents, **kwargs)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Run :meth:`add_texts` in a thread, with the same arguments."""
        return await in_thread(self.add_texts, texts, metadatas, ids=ids, **kwargs)

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Run :meth:`delete` in a thread, with the same arguments."""
        return await in_thread(self.delete, ids, **kwargs)

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Run :meth:`from_texts` in a thread, with the same arguments."""
        return await in_thread(cls.from_texts, texts, embedding, metadatas, ids=ids, **kwargs)

    @classmethod
    async def afrom_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Run :meth:`from_embeddings` in a thread, with the same arguments."""
        return await in_thread(cls.from_embeddings, text_embeddings, embedding, metadatas, **kwargs)

    async def aadd_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Run :meth:`add_embeddings` in a thread, with the same arguments."""
        return await in_thread(self.add_embeddings, text_embeddings, metadatas, ids=ids)

    async def aclear(self) -> None:
        """Run :meth:`clear` in a thread."""
        await in_thread(self.clear)

    async def aids(self) -> list[str]:
        """Run :meth:`ids` in a thread."""
        return await run_in_executor(None, self.ids)

    async def aget(self, ids: Iterable[str] | None = None, **kwargs: Any) -> dict[str, list[Any]]:
        """Run :meth:`get` in a thread, with the same arguments."""
        return await run_in_executor(None, self.get, ids, **kwargs)

    async def avectors(self, ids: Iterable[str]) -> Floats:
        """Run :meth:`vectors` in a thread."""
        return await run_in_executor(None, self.vectors, ids)

    async def aupdate_document(self, document_id: str, document: Document) -> None:
        """Run :meth:`update_document` in a thread, with the same arguments."""
        await in_thread(self.update_document, document_id, document)

    async def aupdate_documents(self, ids: Iterable[str], documents: Iterable[Document]) -> None:
        """Run :meth:`update_documents` in a thread, with the same arguments."""
        await in_thread(self.update_documents, ids, documents)

    async def asearch_many(
        self, queries: Sequence[str], search_type: str = "similarity", **kwargs: Any
    ) -> list[list[Document]]:
        """Run :meth:`search_many` in a thread, with the same arguments."""
        return await run_in_executor(None, self.search_many, queries, search_type, **kwargs)

    async def asimilarity_search_with_vectors(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, Floats]]:
        """Run :meth:`similarity_search_with_vectors` in a thread, with the same arguments."""
        return await run_in_executor(None, self.similarity_search_with_vectors, query, k, **kwargs)

    async def aiter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> AsyncIterator[Document]:
        """Run :meth:`iter_documents` in a thread, 1,024 documents at a time."""
        found = self.iter_documents(filter=filter)
        while batch := await run_in_executor(None, list, islice(found, _BATCH_SIZE)):
            for document in batch:
                yield document

    async def amerge_from(self, other: RagVectorStore) -> list[str]:
        """Run :meth:`merge_from` in a thread, with the same arguments."""
        return await in_thread(self.merge_from, other)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Run :meth:`search` in a thread, with the same arguments."""
        return await run_in_executor(None, self.search, query, search_type, **kwargs)

    async def ahybrid_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Run :meth:`hybrid_search` in a thread, with the same arguments."""
        return await run_in_executor(None, self.hybrid_search, query, k, **kwargs)

    async def ahybrid_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`hybrid_search_with_score` in a thread, with the same arguments."""
        return await run_in_executor(None, self.hybrid_search_with_score, query, k, **kwargs)

    async def alexical_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Run :meth:`lexical_search` in a thread, with the same arguments."""
        return await run_in_executor(None, self.lexical_search, query, k, **kwargs)

    async def alexical_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`lexical_search_with_score` in a thread, with the same arguments."""
        return await run_in_executor(None, self.lexical_search_with_score, query, k, **kwargs)

    async def asimilarity_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, **kwargs: Any
    ) -> Scored:
        """Run :meth:`similarity_search_with_score_by_vector` in a thread, with the same arguments."""
        return await run_in_executor(None, self.similarity_search_with_score_by_vector, embedding, k, **kwargs)

    async def amax_marginal_relevance_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`max_marginal_relevance_search_with_score` in a thread, with the same arguments."""
        return await run_in_executor(None, self.max_marginal_relevance_search_with_score, query, k, **kwargs)

    async def amax_marginal_relevance_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, **kwargs: Any
    ) -> Scored:
        """Run :meth:`max_marginal_relevance_search_with_score_by_vector` in a thread, with the same arguments."""
        search = self.max_marginal_relevance_search_with_score_by_vector
        return await run_in_executor(None, search, embedding, k, **kwargs)

    async def asave_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Run :meth:`save_local` in a thread, with the same arguments."""
        await run_in_executor(None, self.save_local, folder_path, index_name)

    @classmethod
    async def aload_local(
        cls, folder_path: str | Path, embeddings: Embeddings | None = None, index_name: str = "index", **kwargs: Any
    ) -> RagVectorStore:
        """Run :meth:`load_local` in a thread, with the same arguments."""
        return await run_in_executor(None, cls.load_local, folder_path, embeddings, index_name, **kwargs)

    async def arebuild(self, embedding: Embeddings, path: str | Path | None = None, **kwargs: Any) -> RagVectorStore:
        """Run :meth:`rebuild` in a thread, with the same arguments."""
        return await in_thread(self.rebuild, embedding, path, **kwargs)


def _holds_documents(path: Path) -> bool:
    if not is_store(path):
        return False
    with Store.open(path) as store:
        return len(store) > 0


def _made_by_base(embedding: Embeddings, former: Embeddings, record: ChunkRecord, theirs: Store) -> bool:
    """Return whether the base of ``embedding`` made the vectors of a store with the embeddings ``former``."""
    if isinstance(former, RagEmbeddings) or not isinstance(embedding, RagEmbeddings):
        return False
    if embedding.base is None or embedding.template is not None or model_name(embedding.base) != model_name(former):
        return False
    now, stored = embedding.embedder.raw_documents([record.chunk.embedded_text]), theirs.vectors([record.id])
    return bool(now.shape == stored.shape and float(now[0] @ stored[0]) >= SAME)


def _require_batch_size(batch_size: int | None) -> None:
    """Raise :class:`ConfigError` if ``batch_size`` is below 1."""
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}: expected 1 or more")


def _stage_texts(
    writer: StoreWriter, records: Sequence[ChunkRecord], batch_size: int | None, progress: Progress | None
) -> None:
    """Embed the texts of ``records`` in batches and save their vectors; call ``progress`` after each batch."""
    texts = [record.chunk.embedded_text for record in records]
    step = batch_size or _BATCH_SIZE
    for start in range(0, len(texts), step):
        writer.stage(texts[start : start + step], batch_size=step)
        if progress is not None:
            progress(min(start + step, len(texts)), len(texts))


def _stage(writer: StoreWriter, ids: Sequence[str], texts: Sequence[str], vectors: Floats | None) -> dict[str, bytes]:
    """Save the vectors of chunks, or embed their texts; return the keys of given vectors by id."""
    if vectors is None:
        writer.stage(texts)
        return {}
    return dict(zip(ids, writer.stage_vectors(texts, vectors), strict=True))


def _last_of_each(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    return list({record.id: record for record in records}.values())


def _require_known(search_type: str) -> None:
    if search_type not in RagVectorStoreRetriever.allowed_search_types:
        raise ConfigError(
            f"unknown search_type {search_type!r}: expected one of "
            f"{', '.join(RagVectorStoreRetriever.allowed_search_types)}"
        )


def _documents(scored: Scored) -> list[Document]:
    return [document for document, _ in scored]


def _scored(hits: Iterable[Hit]) -> Scored:
    return [(to_document(hit), float(hit.score)) for hit in hits]


def _cosines(hits: Iterable[Hit]) -> Scored:
    return [(document, max(-1.0, min(1.0, score))) for document, score in _scored(hits)]


def _relevances(hits: Iterable[Hit]) -> Scored:
    return [(to_document(hit), math.nan if hit.relevance is None else hit.relevance) for hit in hits]


def _depth(k: int, offset: int) -> int:
    """Return the number of hits to read for ``k`` documents after the first ``offset``."""
    if offset < 0:
        raise ConfigError(f"offset is {offset}: expected 0 or more")
    if k < 0:
        raise ConfigError(f"k is {k}: expected 0 or more")
    return k + offset


def _relevance(cosine: float) -> float:
    return max(0.0, min(1.0, (1.0 + cosine) / 2.0))


def _query_vector(embedding: Sequence[float]) -> Floats:
    vector: Floats = checked_vectors([embedding], 1, "the caller")[0]
    return vector


def _reject_unknown(method: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for keyword arguments that a method accepts only to match LangChain's signature."""
    for name in kwargs:
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
