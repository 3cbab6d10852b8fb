"""``RagVectorStore``: ragembed's store as a LangChain vector store."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from typing_extensions import Self

from ragembed.corpus import blocks
from ragembed.errors import ConfigError, StoreNotFoundError
from ragembed.indexes import Budget, ChunkRecord, Fusion, Hit, RankingOptions, Store
from ragembed.indexes.filters import And, Ids, Where
from ragembed.indexes.search.search import Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.writing.index_selection import warn
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.langchain.documents import as_list, chosen_ids, documents_of, loose, to_document, to_record
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import checked_vectors, model_name
from ragembed.langchain.lazy_store import LazyStore
from ragembed.langchain.record_manager import RagRecordManager
from ragembed.langchain.retrievers import RagVectorStoreRetriever
from ragembed.types import Floats

Item = TypeVar("Item")
Scored: TypeAlias = "list[tuple[Document, float]]"

LangChainFilter: TypeAlias = "Where | Callable[[dict[str, Any]], bool]"
"""A dictionary in LangChain's form, as in ``{"year": {"$gte": 2020}}``, an expression, as in ``"year >= 2020"``, or a
function of a document's metadata, which is called for every document. See docs/reference/filters.md."""

Progress = Callable[[int, int], None]
"""Called with the number of texts that are embedded, and the number of all."""

_BATCH_SIZE = 1024
"""Texts that are embedded together."""


class RagVectorStore(VectorStore):
    """Vector store in a folder: cosine, BM25 and hybrid search with FAISS and SQLite, every write whole or not at all.

    It is the store of ragembed's command line: a folder made by ``ragembed index`` opens here, and the ``metadata`` of
    its documents hold their place in their file (``source``, ``title``, ``headings``, ``start_line``, ``end_line``,
    ``page``). Documents added here come back with their own metadata, which must be JSON.

    A ``filter``, in every search, selects the documents that are searched. ``ranking``, a
    :class:`ragembed.indexes.RankingOptions`, sets what is done with the results: whether near-duplicates are folded,
    how many come from one file, whether a reranker orders them; by default none of that. Scores stay those of the
    search.

    Threads may share one; several processes may open one folder, and writes wait for one another. The asynchronous
    methods run the others in a thread.

    Setup:
        Install ``ragembed`` with LangChain, FAISS and the default model.

        ```bash
        pip install -U "ragembed[langchain,cpu,embedded]"
        ```

    Key init args:
        * embedding: any LangChain embeddings. Optional for an existing store that was made with ragembed's own
          embedder, which is saved in it; otherwise it must be the one that the store was made with.
        * path: folder of the store, created at the first addition. By default, a temporary folder that is removed with
          the object.
        * index: kind of FAISS index, a name of docs/how-to/choose-an-index.md or a factory string; by default ``"auto"``, which
          is exact below 50,000 vectors.
        * budget: a :class:`ragembed.indexes.Budget` of memory, latency and recall for the index.
        * language: the language whose stems words are found by, one of those in docs/how-to/search.md; English by default.

    Instantiate:
        ```python
        from ragembed.langchain import RagEmbeddings, RagVectorStore

        embeddings = RagEmbeddings().fit(["foo", "thud"])
        vector_store = RagVectorStore(embeddings, path="my-store")
        ```

        or, fitting the embeddings and adding at once:

        ```python
        other_store = RagVectorStore.from_texts(["foo", "thud"], RagEmbeddings(), path="other-store")
        ```

    Add Documents:
        A document replaces an earlier one with the same id.

        ```python
        from langchain_core.documents import Document

        document_1 = Document(id="1", page_content="foo", metadata={"baz": "bar"})
        document_2 = Document(id="2", page_content="thud", metadata={"bar": "baz"})
        document_3 = Document(id="3", page_content="i will be deleted :(")

        vector_store.add_documents([document_1, document_2, document_3])
        ```

    Update Documents:
        ```python
        vector_store.add_documents([Document(id="1", page_content="foo, again", metadata={"baz": "bar"})])
        ```

    Inspect Documents:
        ```python
        len(vector_store), vector_store.ids(), "1" in vector_store
        for doc in vector_store.iter_documents(filter={"bar": "baz"}):
            print(f"{doc.id}: {doc.page_content}")
        ```

        ```txt
        2: thud
        ```

    Delete Documents:
        ```python
        vector_store.delete(ids=["3"])
        ```

    Search:
        ```python
        results = vector_store.similarity_search(query="thud", k=1)
        for doc in results:
            print(f"* {doc.page_content} [{doc.metadata}]")
        ```

        ```txt
        * thud [{'bar': 'baz'}]
        ```

    Search with filter:
        Documents that do not match are left out before the search, so that ``k`` are found where ``k`` match. The
        operators are ``$eq $ne $gt $gte $lt $lte $in $nin $exists $contains $like $and $or $not``; a function of the
        metadata works, too, and is called for every document.

        ```python
        results = vector_store.similarity_search(query="thud", k=1, filter={"bar": "baz"})
        ```

    Search with score:
        The score is the cosine, from -1 to 1, higher is better. The relevance score is ``(1 + cosine) / 2``.

        ```python
        results = vector_store.similarity_search_with_score(query="thud", k=1)
        for doc, score in results:
            print(f"* [SIM={score:.3f}] {doc.page_content} [{doc.metadata}]")
        ```

    Hybrid search:
        Cosine and BM25 together find names, numbers and rare words that vectors miss.

        ```python
        results = vector_store.hybrid_search(query="thud", k=1)
        ```

    Async:
        ```python
        await vector_store.aadd_documents([document_1])
        results = await vector_store.asimilarity_search(query="thud", k=1)
        await vector_store.adelete(ids=["3"])
        ```

    Use as Retriever:
        The types of search are ``similarity``, ``similarity_score_threshold``, ``mmr``, ``hybrid`` and ``lexical``.

        ```python
        retriever = vector_store.as_retriever(
            search_type="mmr",
            search_kwargs={"k": 1, "fetch_k": 2, "lambda_mult": 0.5},
        )
        retriever.invoke("thud")
        ```

    Index:
        The records of LangChain's indexing API are kept in the store itself.

        ```python
        from langchain_core.indexing import index

        records = vector_store.record_manager("my-documents")
        index([document_1, document_2], records, vector_store, cleanup="full", key_encoder="sha256")
        ```

    Open again:
        A store made by ``ragembed index`` opens in the same way.

        ```python
        vector_store = RagVectorStore(path="my-store")
        ```
    """

    # Creating

    def __init__(
        self,
        embedding: Embeddings | None = None,
        path: str | Path | None = None,
        *,
        index: str | None = None,
        budget: Budget | None = None,
        language: str | None = None,
    ) -> None:
        self._lazy = LazyStore(embedding, path, index, budget, language)
        self._record_managers: WeakSet[RagRecordManager] = WeakSet()

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
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Return a store with these texts, at ``path`` or in a temporary folder; see :meth:`add_texts`.

        :class:`RagEmbeddings` that are not fitted are fitted on the texts. If there is a store at ``path``, the texts
        are added to it; then the embeddings must be fitted.
        """
        _reject_unknown("from_texts", kwargs)
        documents = documents_of(texts, metadatas)
        chosen = chosen_ids(documents, ids)
        store = cls(embedding, path, index=index, budget=budget)
        if documents:
            _fit(embedding, (document.page_content for document in documents))
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
    ) -> RagVectorStore:
        """Return a store with these texts and their vectors; see :meth:`add_embeddings`."""
        store = cls(embedding, path, index=index, budget=budget)
        store.add_embeddings(text_embeddings, metadatas, ids=ids)
        return store

    @classmethod
    def from_community_faiss(
        cls,
        folder_path: str | Path,
        embeddings: Embeddings,
        *,
        index_name: str = "index",
        path: str | Path | None = None,
        index: str | None = None,
        budget: Budget | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Return a store with the documents of a folder that langchain-community's FAISS store saved.

        Nothing in the folder is executed. Its vectors are used; with :class:`RagEmbeddings`, which are fitted on the
        documents if they are not fitted yet, the texts are embedded again. Similarity is the cosine, whatever the
        folder's index compared by. Times, paths and the like in metadata become text. If vectors have lost their
        documents, a warning says so and all texts are embedded again. Raises :class:`ragembed.errors.StoreError` for a
        folder that holds anything but documents.
        """
        from ragembed.langchain.community import read_folder  # only here, so that nothing else imports pickle

        found = read_folder(Path(folder_path), index_name)
        if found.dropped:
            warnings.warn(
                f"{folder_path} has {found.dropped} vectors or documents without a partner, which an addition that was "
                "refused leaves behind: they are left out, and all other texts are embedded again, because their "
                "vectors may be mixed up",
                stacklevel=2,
            )
        texts = [document.page_content for document in found.documents]
        metadatas = [document.metadata for document in found.documents]
        ids = [document.id for document in found.documents]
        if found.dropped or isinstance(embeddings, RagEmbeddings):
            return cls.from_texts(
                texts,
                embeddings,
                metadatas,
                ids=ids,
                path=path,
                index=index,
                budget=budget,
                batch_size=batch_size,
                progress=progress,
            )
        pairs = zip(texts, found.vectors, strict=True)
        return cls.from_embeddings(pairs, embeddings, metadatas, ids=ids, path=path, index=index, budget=budget)

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._lazy.path

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those that are saved in the store."""
        return self._lazy.embeddings

    # Writing

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents and return their ids, in order; either all of them are added, or none.

        The id is taken from ``ids``, else from the document, else it is a new UUID. A document replaces an earlier one
        with the same id, in the store or in ``documents``. ``batch_size`` is the number of texts that are embedded
        together, 1,024 by default; ``progress`` is called after each batch with the number of finished texts and the
        number of all. Finished batches are kept: if the process is killed, the same call embeds only what is missing.

        If the store has outgrown its index, another one is selected; problems with it are reported as
        :class:`ragembed.errors.IndexWarning`. Raises :class:`ragembed.errors.BudgetError`, after the documents are
        stored, if no index meets the budget of the store.
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
        """Add texts with their metadata and return their ids; see :meth:`add_documents`."""
        _reject_unknown("add_texts", kwargs)
        return self.add_documents(documents_of(texts, metadatas), ids=ids, batch_size=batch_size, progress=progress)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Add texts with the vectors that the store's embeddings made of them, and return their ids.

        Works as :meth:`add_documents`, but embeds nothing. A text has one vector in a store. Raises
        :class:`ConfigError` if a document with the same text has another vector, and for :class:`RagEmbeddings`,
        because their store keeps vectors from before post-processing.
        """
        if isinstance(self.embeddings, RagEmbeddings):
            raise ConfigError(
                "the store keeps vectors from before the post-processing of its RagEmbeddings, and finished vectors "
                "cannot be converted back: add the texts with add_texts"
            )
        pairs = list(text_embeddings)
        vectors = checked_vectors([vector for _, vector in pairs], len(pairs), model_name(self.embeddings))
        documents = documents_of([text for text, _ in pairs], metadatas)
        chosen = chosen_ids(documents, ids)
        records = _last_of_each(to_record(document, i) for document, i in zip(documents, chosen, strict=True))
        texts = [document.page_content for document in documents]
        self._write(records, lambda writer: writer.stage_vectors(texts, vectors))
        return chosen

    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> bool:
        """Delete the documents with these ids and those that ``filter`` selects, and return True.

        Without either, delete all documents and all records of files. Unknown ids are no error.
        """
        _reject_unknown("delete", kwargs)
        wanted = None if ids is None else as_list("ids", ids)
        store = self._lazy.get()
        if store is None or (wanted == [] and filter is None):
            return True
        where = _where(store, filter)
        with self._lazy.writing() as wait_seconds:
            if wanted is not None or where is not None:
                store.delete(wanted or (), where=where, wait_seconds=wait_seconds)
            else:
                store.delete(paths=store.sources(), where=And(()), wait_seconds=wait_seconds)
        return True

    def clear(self) -> None:
        """Delete all documents."""
        self.delete()

    def merge_from(self, other: RagVectorStore) -> list[str]:
        """Add the documents of another store, which stays as it is, and return their ids.

        Documents with an id that both stores have are replaced. If both have the same embeddings, other than
        :class:`RagEmbeddings`, the vectors are copied; otherwise the texts are embedded.
        """
        theirs = other._lazy.get()
        if theirs is None:
            return []
        taken = not isinstance(self.embeddings, RagEmbeddings) and model_name(self.embeddings) == model_name(
            other.embeddings
        )
        merged: list[str] = []
        for records in blocks(theirs.chunks(), _BATCH_SIZE):
            texts = [record.chunk.embedded_text for record in records]
            ids = [record.id for record in records]
            stage: Callable[[StoreWriter], object]
            if taken:
                stage = partial(StoreWriter.stage_vectors, texts=texts, vectors=theirs.vectors(ids))
            else:
                stage = partial(StoreWriter.stage, texts=texts)
            self._write([loose(record) for record in records], stage)
            merged += ids
        return merged

    def record_manager(self, namespace: str = "default") -> RagRecordManager:
        """Return a record manager for ``langchain_core.indexing.index`` that keeps its records in the store itself.

        ``namespace`` separates the programs that index into one store.
        """
        manager = RagRecordManager(self._lazy, namespace)
        self._record_managers.add(manager)
        return manager

    def _write(self, records: Sequence[ChunkRecord], stage: Callable[[StoreWriter], object]) -> None:
        """Commit ``records``, after ``stage`` has committed their vectors."""
        if not records:
            return
        store = self._lazy.get_or_create()
        ids = [record.id for record in records]
        expected = [manager.expected(ids) for manager in list(self._record_managers)]
        with self._lazy.writing() as wait_seconds, store.writer(wait_seconds) as writer:
            stage(writer)
            writer.commit(chunks=records, expected=expected)
            writer.merge()
            warn(writer.refresh_index())

    # Reading

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, each once and in the order asked; unknown ids are left out."""
        store = self._lazy.get()
        return [] if store is None else [to_document(record) for record in store.get(as_list("ids", ids))]

    def ids(self) -> list[str]:
        """Return the ids of all documents, in order of insertion."""
        store = self._lazy.get()
        return [] if store is None else store.ids()

    def iter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> Iterator[Document]:
        """Yield the documents that ``filter`` selects, in order of insertion, as they are when iteration begins."""
        store = self._lazy.get()
        if store is not None:
            yield from (to_document(record) for record in store.chunks(where=_where(store, filter)))

    def __iter__(self) -> Iterator[Document]:
        return self.iter_documents()

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.get_by_ids([chunk_id]))

    def __len__(self) -> int:
        store = self._lazy.get()
        return 0 if store is None else len(store)

    def __bool__(self) -> bool:
        return True  # ``if vector_store`` asks whether there is a store, not whether it holds documents

    # Searching by text

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a query among those that ``filter`` selects, best first."""
        _reject_unknown("similarity_search", kwargs)
        return _documents(self.similarity_search_with_score(query, k, filter=filter, ranking=ranking))

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return the ``k`` documents nearest to a query with their cosines, from -1 to 1, highest first."""
        _reject_unknown("similarity_search_with_score", kwargs)
        return _cosines(self._found(query, k, "dense", filter, ranking=ranking))

    def hybrid_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents that are best by cosine and BM25 together, best first.

        ``fusion``, a :class:`ragembed.indexes.Fusion`, sets how the two scores become one.
        """
        _reject_unknown("hybrid_search", kwargs)
        return _documents(self.hybrid_search_with_score(query, k, filter=filter, fusion=fusion, ranking=ranking))

    def hybrid_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return what :meth:`hybrid_search` does, with fused scores, highest first.

        They are scaled over the candidates of the query, so they compare results of one query only.
        """
        _reject_unknown("hybrid_search_with_score", kwargs)
        return _scored(self._found(query, k, "hybrid", filter, fusion, ranking))

    def lexical_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents that are best by their words (BM25), best first; none if no word matches."""
        _reject_unknown("lexical_search", kwargs)
        return _documents(self.lexical_search_with_score(query, k, filter=filter, ranking=ranking))

    def lexical_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        ranking: RankingOptions | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return what :meth:`lexical_search` does, with BM25 scores, above 0, highest first."""
        _reject_unknown("lexical_search_with_score", kwargs)
        return _scored(self._found(query, k, "lexical", filter, ranking=ranking))

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
        """Return ``k`` documents that are near to a query and unlike each other.

        They are chosen one by one from the ``fetch_k`` nearest (``k`` if that is more). With ``lambda_mult`` 1 only
        nearness counts; with 0 the nearest comes first, and each next one is the most unlike those before it.
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
        """Return what :meth:`max_marginal_relevance_search` does, in its order, with the cosines to the query."""
        _reject_unknown("max_marginal_relevance_search_with_score", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        where = _where(store, filter)
        return _cosines(store.search_mmr(query, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # Searching by vector

    def similarity_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a query's vector, best first."""
        _reject_unknown("similarity_search_by_vector", kwargs)
        return _documents(self.similarity_search_with_score_by_vector(embedding, k, filter=filter))

    def similarity_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> Scored:
        """Return the ``k`` documents nearest to a query's vector with their cosines, highest first."""
        _reject_unknown("similarity_search_with_score_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        return _cosines(store.search_vector(_query_vector(embedding), k, where=_where(store, filter)))

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
        """Return ``k`` documents near to a query's vector and unlike each other; see the method by text."""
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
        """Return what :meth:`max_marginal_relevance_search_by_vector` does, with the cosines to the query's vector."""
        _reject_unknown("max_marginal_relevance_search_with_score_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        vector, where = _query_vector(embedding), _where(store, filter)
        return _cosines(store.search_mmr_vector(vector, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # Searching by type, and retrievers

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Return what the search of this type does.

        ``search_type`` is ``"similarity"``, ``"similarity_score_threshold"``, ``"mmr"``, ``"hybrid"`` or
        ``"lexical"``; ``kwargs`` are the arguments of that search.
        """
        if search_type == "hybrid":
            return self.hybrid_search(query, **kwargs)
        if search_type == "lexical":
            return self.lexical_search(query, **kwargs)
        _require_known(search_type)
        return super().search(query, search_type, **kwargs)

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever for one type of search.

        ``search_type`` is one of :meth:`search`; ``search_kwargs`` are the arguments of that search: ``k``, ``filter``,
        ``score_threshold``, ``fetch_k``, ``lambda_mult``, ``ranking``. See
        :class:`ragembed.langchain.RagRetriever` for one with fields of its own.
        """
        unknown = [name for name in kwargs if name not in RagVectorStoreRetriever.model_fields]
        if unknown:
            raise TypeError(
                f"as_retriever() got an unexpected keyword argument {unknown[0]!r}: settings of the search go into "
                f"search_kwargs={{{unknown[0]!r}: …}}"
            )
        tags = [*(kwargs.pop("tags", None) or []), *self._get_retriever_tags()]
        return RagVectorStoreRetriever(vectorstore=self, tags=tags, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance

    def _found(
        self,
        query: str,
        k: int,
        mode: Mode,
        filter: LangChainFilter | None,  # noqa: A002  as above
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
    ) -> list[Hit]:
        store = self._lazy.get()
        if store is None:
            return []
        where = _where(store, filter)
        return store.search(query, k, mode=mode, where=where, fusion=fusion, ranking=ranking)

    # Files

    def save_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Write a copy of the store to the folder ``index_name`` in ``folder_path``, in place of a store there.

        A store at a path is on the disk already; a temporary one is kept by this.
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
        allow_dangerous_deserialization: bool = False,  # noqa: ARG003  nothing here is
        **kwargs: Any,
    ) -> RagVectorStore:
        """Open what :meth:`save_local` wrote; what is added to it afterwards is kept at once.

        A folder of langchain-community's FAISS store is read by :meth:`from_community_faiss` into a temporary store.
        ``allow_dangerous_deserialization`` changes nothing, as neither executes what files hold.
        """
        _reject_unknown("load_local", kwargs)
        folder = Path(folder_path, index_name)
        if is_store(folder):
            return cls(embeddings, folder)
        from ragembed.langchain.community import is_folder

        if not is_folder(Path(folder_path), index_name):
            raise StoreNotFoundError(
                f"there is no store {index_name!r} in {folder_path}, neither ragembed's nor langchain-community's: "
                "make one with save_local"
            )
        if embeddings is None:
            raise ConfigError(f"{folder_path} is a folder of langchain-community's FAISS: give the embeddings it has")
        return cls.from_community_faiss(folder_path, embeddings, index_name=index_name)

    def rebuild(
        self,
        embedding: Embeddings,
        path: str | Path | None = None,
        *,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> RagVectorStore:
        """Return another store with the same documents, embedded again, at ``path`` or in a temporary folder.

        This store stays as it is; the new one has the same index and budget, language, fusion, files, and records of
        indexing runs. :class:`RagEmbeddings` that are not fitted are fitted on the documents. ``batch_size`` and
        ``progress`` are those of :meth:`add_documents`. Raises :class:`ConfigError` if a store at ``path`` holds
        documents.
        """
        _require_batch_size(batch_size)
        if path is not None and _holds_documents(Path(path)):
            raise ConfigError(f"there is a store at {path} already: choose another folder")
        theirs = self._lazy.get()
        if theirs is None:
            return type(self)(embedding, path)
        if len(theirs):
            _fit(embedding, theirs.embedded_texts())
        wanted = theirs.wanted_index
        rebuilt = type(self)(embedding, path, index=wanted.kind, budget=wanted.budget, language=theirs.language)
        with rebuilt._lazy.get_or_create().writer() as writer:
            records = list(theirs.chunks())
            _stage_texts(writer, records, batch_size, progress)
            writer.commit(chunks=records, sources=list(theirs.sources().values()))
            writer.take_run_records(theirs._all_run_records())
            if theirs.fusion != Fusion():
                writer.set_meta({"fusion": theirs.fusion.to_dict()})
            writer.merge()
            warn(writer.refresh_index(wanted))
        return rebuilt

    def close(self) -> None:
        """Close the store's files; the next use opens them again. A temporary folder is removed with the object."""
        self._lazy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Asynchronous twins, beside those that LangChain's base class has

    @classmethod
    async def afrom_embeddings(
        cls,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        embedding: Embeddings,
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Run :meth:`from_embeddings` in a thread."""
        return await run_in_executor(None, cls.from_embeddings, text_embeddings, embedding, metadatas, **kwargs)

    @classmethod
    async def afrom_community_faiss(
        cls, folder_path: str | Path, embeddings: Embeddings, **kwargs: Any
    ) -> RagVectorStore:
        """Run :meth:`from_community_faiss` in a thread."""
        return await run_in_executor(None, cls.from_community_faiss, folder_path, embeddings, **kwargs)

    async def aadd_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Run :meth:`add_embeddings` in a thread."""
        return await run_in_executor(None, self.add_embeddings, text_embeddings, metadatas, ids=ids)

    async def aclear(self) -> None:
        """Run :meth:`clear` in a thread."""
        await run_in_executor(None, self.clear)

    async def aids(self) -> list[str]:
        """Run :meth:`ids` in a thread."""
        return await run_in_executor(None, self.ids)

    async def aiter_documents(
        self,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
    ) -> AsyncIterator[Document]:
        """Yield what :meth:`iter_documents` does, read in a thread, a thousand at a time."""
        found = self.iter_documents(filter=filter)
        while batch := await run_in_executor(None, list, islice(found, _BATCH_SIZE)):
            for document in batch:
                yield document

    async def amerge_from(self, other: RagVectorStore) -> list[str]:
        """Run :meth:`merge_from` in a thread."""
        return await run_in_executor(None, self.merge_from, other)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Run :meth:`search` in a thread."""
        return await run_in_executor(None, self.search, query, search_type, **kwargs)

    async def ahybrid_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Run :meth:`hybrid_search` in a thread."""
        return await run_in_executor(None, self.hybrid_search, query, k, **kwargs)

    async def ahybrid_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`hybrid_search_with_score` in a thread."""
        return await run_in_executor(None, self.hybrid_search_with_score, query, k, **kwargs)

    async def alexical_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Run :meth:`lexical_search` in a thread."""
        return await run_in_executor(None, self.lexical_search, query, k, **kwargs)

    async def alexical_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`lexical_search_with_score` in a thread."""
        return await run_in_executor(None, self.lexical_search_with_score, query, k, **kwargs)

    async def asimilarity_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, **kwargs: Any
    ) -> Scored:
        """Run :meth:`similarity_search_with_score_by_vector` in a thread."""
        return await run_in_executor(None, self.similarity_search_with_score_by_vector, embedding, k, **kwargs)

    async def amax_marginal_relevance_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Run :meth:`max_marginal_relevance_search_with_score` in a thread."""
        return await run_in_executor(None, self.max_marginal_relevance_search_with_score, query, k, **kwargs)

    async def amax_marginal_relevance_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, **kwargs: Any
    ) -> Scored:
        """Run :meth:`max_marginal_relevance_search_with_score_by_vector` in a thread."""
        search = self.max_marginal_relevance_search_with_score_by_vector
        return await run_in_executor(None, search, embedding, k, **kwargs)

    async def asave_local(self, folder_path: str | Path, index_name: str = "index") -> None:
        """Run :meth:`save_local` in a thread."""
        await run_in_executor(None, self.save_local, folder_path, index_name)

    @classmethod
    async def aload_local(
        cls, folder_path: str | Path, embeddings: Embeddings | None = None, index_name: str = "index", **kwargs: Any
    ) -> RagVectorStore:
        """Run :meth:`load_local` in a thread."""
        return await run_in_executor(None, cls.load_local, folder_path, embeddings, index_name, **kwargs)

    async def arebuild(self, embedding: Embeddings, path: str | Path | None = None, **kwargs: Any) -> RagVectorStore:
        """Run :meth:`rebuild` in a thread."""
        return await run_in_executor(None, self.rebuild, embedding, path, **kwargs)


def _holds_documents(path: Path) -> bool:
    if not is_store(path):
        return False
    with Store.open(path) as store:
        return len(store) > 0


def _fit(embedding: Embeddings, texts: Iterable[str]) -> None:
    if isinstance(embedding, RagEmbeddings) and not embedding.is_fitted:
        embedding.fit(texts)


def _require_batch_size(batch_size: int | None) -> None:
    """Raise :class:`ConfigError` for a batch size below 1."""
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}: expected 1 or more texts")


def _stage_texts(
    writer: StoreWriter, records: Sequence[ChunkRecord], batch_size: int | None, progress: Progress | None
) -> None:
    """Embed and stage the texts of ``records``, ``batch_size`` at a time; call ``progress`` after each batch."""
    texts = [record.chunk.embedded_text for record in records]
    step = batch_size or _BATCH_SIZE
    for start in range(0, len(texts), step):
        writer.stage(texts[start : start + step], batch_size=step)
        if progress is not None:
            progress(min(start + step, len(texts)), len(texts))


def _last_of_each(records: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    return list({record.id: record for record in records}.values())


def _where(store: Store, filter: LangChainFilter | None) -> Where | None:  # noqa: A002  LangChain's name
    """Return a filter as stores take it; a function is called with every document's metadata."""
    if filter is None or isinstance(filter, (str, Mapping)) or not callable(filter):
        return filter
    return Ids(tuple(record.id for record in store.chunks() if filter(to_document(record).metadata)))


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


def _relevance(cosine: float) -> float:
    return max(0.0, min(1.0, (1.0 + cosine) / 2.0))


def _query_vector(embedding: Sequence[float]) -> Floats:
    vector: Floats = checked_vectors([embedding], 1, "the caller")[0]
    return vector


def _reject_unknown(method: str, kwargs: Mapping[str, Any]) -> None:
    """Raise for keyword arguments that a method takes only because LangChain's signature has them."""
    for name in kwargs:
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
