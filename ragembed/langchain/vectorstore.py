"""``RagVectorStore``: ragembed's store as a LangChain vector store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import NDArray

from ragembed.errors import ConfigError, StoreError
from ragembed.indexes import Hit, Store
from ragembed.indexes.filters import And, Where
from ragembed.langchain.arguments import chosen_ids, documents_of, listed, refuse
from ragembed.langchain.documents import to_document, to_record
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.external import checked_vectors
from ragembed.langchain.lazy_store import LazyStore

Floats = NDArray[np.float32]

_WAIT_SECONDS = 60.0
"""How long a write waits for another process that writes."""

_SNAPSHOT_TRIES = 5


class RagVectorStore(VectorStore):
    """Vector store in a folder: exact cosine search with FAISS, every write whole or not at all.

    It is the store of ragembed's command line: a folder made by ``ragembed index`` opens here, and documents found
    in it tell where they stand in their file in ``metadata`` (``source``, ``title``, ``headings``, ``start_line``,
    ``end_line``, ``page``). Documents added here come back with their own metadata, which has to be JSON.

    Threads may share one; several processes may open one folder, and writes wait for one another. The asynchronous
    methods run the others in a thread.

    Setup:
        Install ``ragembed`` with LangChain, FAISS and the default model.

        ```bash
        pip install -U "ragembed[langchain,cpu,embedded]"
        ```

    Key init args:
        * embedding: any LangChain embeddings. May be left out for a store that exists and was made with ragembed's own
          embedder, which it brings along; otherwise it must be the one the store was made with.
        * path: folder of the store, made at the first addition if need be. Left out, a temporary folder that goes
          with the object.

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
        A document whose id is there already replaces that one.

        ```python
        from langchain_core.documents import Document

        document_1 = Document(id="1", page_content="foo", metadata={"baz": "bar"})
        document_2 = Document(id="2", page_content="thud", metadata={"bar": "baz"})
        document_3 = Document(id="3", page_content="i will be deleted :(")

        vector_store.add_documents([document_1, document_2, document_3])
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
        operators are ``$eq $ne $gt $gte $lt $lte $in $nin $exists $contains $like $and $or $not``.

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

    Async:
        ```python
        await vector_store.aadd_documents([document_1])
        results = await vector_store.asimilarity_search(query="thud", k=1)
        await vector_store.adelete(ids=["3"])
        ```

    Use as Retriever:
        ```python
        retriever = vector_store.as_retriever(
            search_type="mmr",
            search_kwargs={"k": 1, "fetch_k": 2, "lambda_mult": 0.5},
        )
        retriever.invoke("thud")
        ```

    Open again:
        The same goes for a store made by ``ragembed index``.

        ```python
        vector_store = RagVectorStore(path="my-store")
        ```
    """

    def __init__(self, embedding: Embeddings | None = None, path: str | Path | None = None) -> None:
        self._opened = LazyStore(embedding, path)
        self._writing = threading.Lock()

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._opened.path

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings,
        metadatas: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        path: str | Path | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> RagVectorStore:
        """Return a store with these texts, at ``path`` or in a temporary folder; see :meth:`add_texts`.

        :class:`RagEmbeddings` that are not fitted are fitted on the texts. Texts are added to a store that is at
        ``path`` already; that one needs fitted embeddings.
        """
        refuse("from_texts", kwargs)
        documents = documents_of(texts, metadatas)
        chosen = chosen_ids(documents, ids)
        store = cls(embedding, path)
        if documents and isinstance(embedding, RagEmbeddings) and not embedding.is_fitted:
            embedding.fit([document.page_content for document in documents])
        store.add_documents(documents, ids=chosen, batch_size=batch_size)
        return store

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or those that the store brings along."""
        return self._opened.embeddings

    # Adding and removing

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents and return their ids, in order; all of them are added, or none.

        The id is that of ``ids``, else the document's, else a new UUID. A document whose id is in the store already,
        or comes earlier in ``documents``, replaces that one. ``batch_size`` is the number of texts that are embedded
        together.
        """
        refuse("add_documents", kwargs)
        if batch_size is not None and batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: expected 1 or more texts")
        documents = list(documents)
        chosen = chosen_ids(documents, ids)
        records = list({i: to_record(document, i) for document, i in zip(documents, chosen, strict=True)}.values())
        if not records:
            return []
        with self._writing:
            store = self._opened.made()
            texts = [record.chunk.embedded_text for record in records]
            with store.writer(_WAIT_SECONDS) as writer:
                step = batch_size or len(texts)
                for start in range(0, len(texts), step):
                    writer.stage(texts[start : start + step])
                writer.commit(chunks=records)
                writer.merge()
        return chosen

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Iterable[Mapping[str, Any]] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts with their metadata and return their ids; see :meth:`add_documents`."""
        refuse("add_texts", kwargs)
        return self.add_documents(documents_of(texts, metadatas), ids=ids, batch_size=batch_size)

    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> bool:
        """Delete documents and return True: those with these ids and those that ``filter`` selects.

        Without either, all documents, and what is known of files. Unknown ids are no error.
        """
        refuse("delete", kwargs)
        wanted = None if ids is None else listed("ids", ids)
        store = self._opened.store()
        if store is None or (wanted == [] and filter is None):
            return True
        with self._writing:
            if wanted is not None or filter is not None:
                store.delete(wanted or (), where=filter, wait_seconds=_WAIT_SECONDS)
            else:
                store.delete(paths=store.sources(), where=And(()), wait_seconds=_WAIT_SECONDS)
        return True

    # Looking in

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, each once and in the order asked; unknown ids are left out."""
        store = self._opened.store()
        return [] if store is None else [to_document(record) for record in store.get(listed("ids", ids))]

    def __len__(self) -> int:
        store = self._opened.store()
        return 0 if store is None else len(store)

    # Searching

    # A filter, in every search, selects the documents that are searched: a dictionary of LangChain's form, as in
    # {"year": {"$gte": 2020}}, or an expression, as in "year >= 2020"; see docs/filters.md.

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a question among those that ``filter`` selects, best first."""
        refuse("similarity_search", kwargs)
        return [document for document, _ in self.similarity_search_with_score(query, k, filter=filter)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the ``k`` documents nearest to a question with their cosines, from -1 to 1, highest first."""
        refuse("similarity_search_with_score", kwargs)
        store = self._opened.store()
        return [] if store is None else _scored(store.search(query, k, mode="dense", where=filter))

    def similarity_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a query's vector, best first."""
        refuse("similarity_search_by_vector", kwargs)
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, filter=filter)]

    def similarity_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the ``k`` documents nearest to a query's vector with their cosines, highest first."""
        refuse("similarity_search_with_score_by_vector", kwargs)
        store = self._opened.store()
        return [] if store is None else _scored(store.search_vector(_query_vector(embedding), k, where=filter))

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return ``k`` documents that are near to a question and unlike each other.

        They are chosen one by one from the ``fetch_k`` nearest (``k`` if that is more). ``lambda_mult`` 1 looks at
        nearness alone; at 0 the nearest comes first and each next is the one most unlike those before it.
        """
        refuse("max_marginal_relevance_search", kwargs)
        store = self._opened.store()
        if store is None or len(store) == 0:
            return []
        return _diverse(store, store.embedder.encode_queries([query])[0], k, fetch_k, lambda_mult, filter)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Where | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return ``k`` documents near to a query's vector and unlike each other; see the method by question."""
        refuse("max_marginal_relevance_search_by_vector", kwargs)
        store = self._opened.store()
        if store is None:
            return []
        return _diverse(store, _query_vector(embedding), k, fetch_k, lambda_mult, filter)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever; see the base class. ``k`` and the like go into ``search_kwargs``."""
        unknown = [name for name in kwargs if name not in VectorStoreRetriever.model_fields]
        if unknown:
            raise TypeError(
                f"as_retriever() got an unexpected keyword argument {unknown[0]!r}: settings of the search go into "
                f"search_kwargs={{{unknown[0]!r}: …}}"
            )
        return super().as_retriever(**kwargs)

    # Closing

    def close(self) -> None:
        """Let go of the store's files; the next use opens them again. A temporary folder goes with the object."""
        self._opened.close()

    def __enter__(self) -> RagVectorStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _scored(hits: Iterable[Hit]) -> list[tuple[Document, float]]:
    return [(to_document(hit), max(-1.0, min(1.0, float(hit.score)))) for hit in hits]


def _relevance(cosine: float) -> float:
    return max(0.0, min(1.0, (1.0 + cosine) / 2.0))


def _diverse(
    store: Store, vector: Floats, k: int, fetch_k: int, lambda_mult: float, where: Where | None
) -> list[Document]:
    if not 0.0 <= lambda_mult <= 1.0:
        raise ConfigError(f"lambda_mult is {lambda_mult}: expected a number from 0 to 1")
    hits, vectors = _candidates(store, vector, max(k, fetch_k), where)
    if not vector.any() or not vectors.any(axis=1).all():
        return [to_document(hit) for hit in hits[: max(k, 0)]]  # a zero vector has no direction to be unlike
    rows: Any = vectors
    return [to_document(hits[i]) for i in maximal_marginal_relevance(vector, rows, lambda_mult, k)]


def _candidates(store: Store, vector: Floats, k: int, where: Where | None) -> tuple[list[Hit], Floats]:
    """Return the ``k`` nearest and their vectors, looking again where one was deleted in between."""
    for _ in range(_SNAPSHOT_TRIES):
        hits = store.search_vector(vector, k, where=where)
        if not hits:
            return [], np.zeros((0, len(vector)), dtype=np.float32)
        with contextlib.suppress(KeyError):
            return hits, store.vectors([hit.id for hit in hits])
    raise StoreError(f"the store {store.path} is written faster than it can be searched: try again")


def _query_vector(embedding: Sequence[float]) -> Floats:
    vector: Floats = checked_vectors([embedding], 1, "the caller")[0]
    return vector
