"""The searches of the vector store, by text and by vector, and their asynchronous twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.indexes import Arrangement, Fusion, Hit, Store
from ragembed.indexes.filters import Ids, Where
from ragembed.indexes.search import Mode
from ragembed.langchain.arguments import refuse
from ragembed.langchain.documents import to_document
from ragembed.langchain.external import checked_vectors
from ragembed.langchain.lazy_store import LazyStore
from ragembed.langchain.retrievers import RagVectorStoreRetriever

Floats = NDArray[np.float32]
Scored: TypeAlias = "list[tuple[Document, float]]"

LangChainFilter: TypeAlias = "Where | Callable[[dict[str, Any]], bool]"
"""A dictionary of LangChain's form, as in ``{"year": {"$gte": 2020}}``, an expression, as in ``"year >= 2020"``, or a
function of a document's metadata, which is called for every document. See docs/filters.md."""


class Querying(VectorStore):
    """What a vector store answers.

    A ``filter``, in every search, selects the documents that are searched. An ``arrangement``, a
    :class:`ragembed.indexes.Arrangement`, says what becomes of those that are found: whether near-duplicates are
    folded, how many come from one file, whether a reranker orders them; without it nothing of that is done. Scores
    stay those of the search.
    """

    _opened: LazyStore

    # By text

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a question among those that ``filter`` selects, best first."""
        refuse("similarity_search", kwargs)
        return _documents(self.similarity_search_with_score(query, k, filter=filter, arrangement=arrangement))

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return the ``k`` documents nearest to a question with their cosines, from -1 to 1, highest first."""
        refuse("similarity_search_with_score", kwargs)
        return _cosines(self._found(query, k, "dense", filter, arrangement=arrangement))

    def hybrid_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents that are best by cosine and BM25 together, best first.

        ``fusion``, a :class:`ragembed.indexes.Fusion`, says how the two become one.
        """
        refuse("hybrid_search", kwargs)
        return _documents(
            self.hybrid_search_with_score(query, k, filter=filter, fusion=fusion, arrangement=arrangement)
        )

    def hybrid_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        fusion: Fusion | None = None,
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return what :meth:`hybrid_search` does, with fused scores, highest first.

        They are scaled over the candidates of the question: they compare results of one question only.
        """
        refuse("hybrid_search_with_score", kwargs)
        return _scored(self._found(query, k, "hybrid", filter, fusion, arrangement))

    def lexical_search(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents that are best by their words (BM25), best first; none where no word matches."""
        refuse("lexical_search", kwargs)
        return _documents(self.lexical_search_with_score(query, k, filter=filter, arrangement=arrangement))

    def lexical_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        arrangement: Arrangement | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return what :meth:`lexical_search` does, with BM25 scores, above 0, highest first."""
        refuse("lexical_search_with_score", kwargs)
        return _scored(self._found(query, k, "lexical", filter, arrangement=arrangement))

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
        """Return ``k`` documents that are near to a question and unlike each other.

        They are chosen one by one from the ``fetch_k`` nearest (``k`` if that is more). ``lambda_mult`` 1 looks at
        nearness alone; at 0 the nearest comes first and each next is the one most unlike those before it.
        """
        refuse("max_marginal_relevance_search", kwargs)
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
        """Return what :meth:`max_marginal_relevance_search` does, in its order, with the cosines to the question."""
        refuse("max_marginal_relevance_search_with_score", kwargs)
        store = self._opened.store()
        if store is None:
            return []
        where = resolved(store, filter)
        return _cosines(store.search_mmr(query, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # By vector

    def similarity_search_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,  # noqa: A002  LangChain's name
        **kwargs: Any,
    ) -> list[Document]:
        """Return the ``k`` documents nearest to a query's vector, best first."""
        refuse("similarity_search_by_vector", kwargs)
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
        refuse("similarity_search_with_score_by_vector", kwargs)
        store = self._opened.store()
        if store is None:
            return []
        return _cosines(store.search_vector(_query_vector(embedding), k, where=resolved(store, filter)))

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
        """Return ``k`` documents near to a query's vector and unlike each other; see the method by question."""
        refuse("max_marginal_relevance_search_by_vector", kwargs)
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
        refuse("max_marginal_relevance_search_with_score_by_vector", kwargs)
        store = self._opened.store()
        if store is None:
            return []
        vector, where = _query_vector(embedding), resolved(store, filter)
        return _cosines(store.search_mmr_vector(vector, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # By type of search

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
        ``score_threshold``, ``fetch_k``, ``lambda_mult``, ``arrangement``. See
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
        arrangement: Arrangement | None = None,
    ) -> list[Hit]:
        store = self._opened.store()
        if store is None:
            return []
        where = resolved(store, filter)
        return store.search(query, k, mode=mode, where=where, fusion=fusion, arrangement=arrangement)

    # Asynchronous, beside those that LangChain has for the others

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


def resolved(store: Store, filter: LangChainFilter | None) -> Where | None:  # noqa: A002  LangChain's name
    """Return a filter as stores take it; a function is asked of every document's metadata."""
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
