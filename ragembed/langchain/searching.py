"""Search the documents of a store by text or by vector."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

from langchain_core.documents import Document

from ragembed.adapters.own_store import twin
from ragembed.errors import ConfigError
from ragembed.indexes import Fusion, Hit, RankingOptions
from ragembed.indexes.search.pipeline import Mode
from ragembed.langchain.documents import as_list, reject_unknown, to_document
from ragembed.langchain.stored_documents import LangChainFilter, StoredDocuments, depth
from ragembed.models.vectors import checked_vectors
from ragembed.types import Floats

Parameters = ParamSpec("Parameters")
Scored: TypeAlias = "list[tuple[Document, float]]"
SEARCH_TYPES = ("similarity", "similarity_score_threshold", "mmr", "hybrid", "lexical")


def without_scores(method: Callable[Parameters, Scored]) -> Callable[Parameters, list[Document]]:
    """Return the version of a search that returns only the documents; its name is the same without ``_with_score``."""
    name = method.__name__

    @wraps(method)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> list[Document]:
        owner, *arguments = args
        scored: Scored = getattr(owner, name)(*arguments, **kwargs)
        return [document for document, _ in scored]

    run.__signature__ = inspect.signature(method).replace(return_annotation="list[Document]")  # type: ignore[attr-defined]
    run.__name__ = name.replace("_with_score", "")
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{run.__name__}"
    run.__doc__ = f"Do the same as :meth:`{name}`, and return only the documents."
    return run


class SearchableDocuments(StoredDocuments):
    """The documents of a store with all searches."""

    retrieval_mode: Mode

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,
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
            The documents with their scores, highest first.
        """
        reject_unknown("similarity_search", kwargs)
        settings = {"filter": filter, "ranking": ranking, "offset": offset}
        return self._scored_many([query], k, self.retrieval_mode, score_threshold, **settings)[0]

    def hybrid_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
    ) -> Scored:
        """Return the best documents by cosine and BM25 combined, with their fused scores.

        The scores are scaled over the candidates of a query, so you can compare only results of the same query.

        Parameters
        ----------
        query, k, filter, ranking, offset
            As in :meth:`similarity_search_with_score`.
        fusion : ragembed.Fusion, optional
            How the two scores are combined; by default the fusion of the store.
        min_relevance : float, optional
            Leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it: stores with
            :class:`RagEmbeddings` have one from 20 documents on.
        """
        settings = {"filter": filter, "fusion": fusion, "ranking": ranking, "offset": offset}
        return self._scored_many([query], k, "hybrid", min_relevance, **settings)[0]

    def lexical_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,
        ranking: RankingOptions | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
    ) -> Scored:
        """Return the best documents by words with their BM25 scores, above 0; none if no word matches.

        The arguments are those of :meth:`hybrid_search_with_score`.
        """
        settings = {"filter": filter, "ranking": ranking, "offset": offset}
        return self._scored_many([query], k, "lexical", min_relevance, **settings)[0]

    def similarity_search_with_relevance_scores(
        self,
        query: str,
        k: int = 4,
        *,
        search_type: Mode | None = None,
        filter: LangChainFilter | None = None,
        ranking: RankingOptions | None = None,
        score_threshold: float | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return documents with relevance scores from 0 to 1.

        Parameters
        ----------
        query, k, filter, ranking, score_threshold
            As in :meth:`similarity_search_with_score`.
        search_type : {"dense", "hybrid", "lexical"}, optional
            What to compute; by default ``retrieval_mode``.
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
        settings = {"filter": filter, "ranking": ranking, **_taken(kwargs, mode, "offset")}
        reject_unknown("similarity_search_with_relevance_scores", kwargs)
        least = score_threshold or 0.0
        if mode == "dense":
            scored = self._scored_many([query], k, mode, least, **settings)[0]
            return [(document, _relevance(cosine)) for document, cosine in scored]
        hits = self._hits_many([query], k, mode, least, **settings)[0]
        return [(to_document(hit), math.nan if hit.relevance is None else hit.relevance) for hit in hits]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance

    def max_marginal_relevance_search_with_score(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Return documents that are close to a query and different from each other (maximal marginal relevance).

        Parameters
        ----------
        query, k, filter, **kwargs
            As in :meth:`similarity_search_with_score`.
        fetch_k : int
            Number of candidates, the documents closest to the query; ``k`` if that is more.
        lambda_mult : float
            From 0 (most diverse) to 1 (closest to the query).

        Returns
        -------
        list of (Document, float)
            The documents with their cosines to the query, in the order in which they were chosen.
        """
        reject_unknown("max_marginal_relevance_search", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        where = self._where(store, filter)
        return _cosines(store.search_mmr(query, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    # By vector

    def similarity_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        *,
        filter: LangChainFilter | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> Scored:
        """Return the documents closest to the vector of a query with their cosines, from -1 to 1, highest first.

        The vector need not have unit length. The other arguments are those of :meth:`similarity_search_with_score`.
        """
        reject_unknown("similarity_search_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        hits = store.search_vector(_query_vector(embedding), depth(k, offset), where=self._where(store, filter))
        return _cosines(hits[offset:])

    def max_marginal_relevance_search_with_score_by_vector(
        self,
        embedding: Sequence[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: LangChainFilter | None = None,
        **kwargs: Any,
    ) -> Scored:
        """Do the same as :meth:`max_marginal_relevance_search_with_score` for the vector of a query."""
        reject_unknown("max_marginal_relevance_search_by_vector", kwargs)
        store = self._lazy.get()
        if store is None:
            return []
        vector, where = _query_vector(embedding), self._where(store, filter)
        return _cosines(store.search_mmr_vector(vector, k, fetch_k=fetch_k, lambda_mult=lambda_mult, where=where))

    similarity_search = without_scores(similarity_search_with_score)
    hybrid_search = without_scores(hybrid_search_with_score)
    lexical_search = without_scores(lexical_search_with_score)
    max_marginal_relevance_search = without_scores(max_marginal_relevance_search_with_score)
    similarity_search_by_vector = without_scores(similarity_search_with_score_by_vector)
    max_marginal_relevance_search_by_vector = without_scores(max_marginal_relevance_search_with_score_by_vector)

    def similarity_search_with_vectors(
        self, query: str, k: int = 4, *, filter: LangChainFilter | None = None, **kwargs: Any
    ) -> list[tuple[Document, Floats]]:
        """Do the same as :meth:`similarity_search`, and return the vectors too.

        They have unit length, float32, shape ``(d,)``.
        """
        documents = self.similarity_search(query, k, filter=filter, **kwargs)
        return list(zip(documents, self.vectors(str(document.id) for document in documents), strict=True))

    # By type

    def search_many_with_score(
        self,
        queries: Sequence[str],
        search_type: str = "similarity",
        k: int = 4,
        *,
        retrieval_mode: Mode | None = None,
        **kwargs: Any,
    ) -> list[Scored]:
        """Search for several queries, which all see the same state of the store; ``batch`` of retrievers uses it.

        Parameters
        ----------
        queries : sequence of str
            The queries.
        search_type : {"similarity", "similarity_score_threshold", "mmr", "hybrid", "lexical"}
            The type of search.
        k : int
            Number of documents for each query.
        retrieval_mode : {"dense", "hybrid", "lexical"}, optional
            What ``"similarity"`` computes; by default as the store says.
        **kwargs
            Arguments of that search, such as ``filter``. ``score_threshold`` is accepted by all types but ``"mmr"``.

        Returns
        -------
        list of list of (Document, float)
            For each query, the documents with their scores, best first.

        Raises
        ------
        ConfigError
            If the type of search is unknown, or ``queries`` is a str.
        """
        if search_type not in SEARCH_TYPES:
            raise ConfigError(f"unknown search_type {search_type!r}: expected one of {', '.join(SEARCH_TYPES)}")
        queries = as_list("queries", queries)
        if search_type == "mmr":
            return [self.max_marginal_relevance_search_with_score(query, k, **kwargs) for query in queries]
        own_modes: dict[str, Mode] = {"hybrid": "hybrid", "lexical": "lexical"}
        mode = own_modes.get(search_type, retrieval_mode or self.retrieval_mode)
        least = kwargs.pop("score_threshold", None)
        least = kwargs.pop("min_relevance", least) if mode != "dense" else least
        settings = _taken(kwargs, mode, "filter", "ranking", "offset")
        reject_unknown(f"{search_type} search", kwargs)
        return self._scored_many(queries, k, mode, least, **settings)

    def search_many(
        self, queries: Sequence[str], search_type: str = "similarity", **kwargs: Any
    ) -> list[list[Document]]:
        """Do the same as :meth:`search_many_with_score`, and return only the documents of each query."""
        results = self.search_many_with_score(queries, search_type, **kwargs)
        return [[document for document, _ in scored] for scored in results]

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Do the same as :meth:`search_many` for one query."""
        return self.search_many([query], search_type, **kwargs)[0]

    asimilarity_search = twin(similarity_search)
    asimilarity_search_with_score = twin(similarity_search_with_score)
    asimilarity_search_with_relevance_scores = twin(similarity_search_with_relevance_scores)
    asimilarity_search_with_vectors = twin(similarity_search_with_vectors)
    asimilarity_search_by_vector = twin(similarity_search_by_vector)
    asimilarity_search_with_score_by_vector = twin(similarity_search_with_score_by_vector)
    ahybrid_search = twin(hybrid_search)
    ahybrid_search_with_score = twin(hybrid_search_with_score)
    alexical_search = twin(lexical_search)
    alexical_search_with_score = twin(lexical_search_with_score)
    amax_marginal_relevance_search = twin(max_marginal_relevance_search)
    amax_marginal_relevance_search_with_score = twin(max_marginal_relevance_search_with_score)
    amax_marginal_relevance_search_by_vector = twin(max_marginal_relevance_search_by_vector)
    amax_marginal_relevance_search_with_score_by_vector = twin(max_marginal_relevance_search_with_score_by_vector)
    asearch = twin(search)
    asearch_many = twin(search_many)
    asearch_many_with_score = twin(search_many_with_score)

    def _scored_many(
        self, queries: Sequence[str], k: int, mode: Mode, least: float | None, **settings: Any
    ) -> list[Scored]:
        """Return the documents with their scores for each query; ``least`` is the lowest relevance, from 0 to 1."""
        results = self._hits_many(queries, k, mode, least, **settings)
        if mode != "dense":
            return [[(to_document(hit), float(hit.score)) for hit in hits] for hits in results]
        return [
            [(document, cosine) for document, cosine in _cosines(hits) if least is None or _relevance(cosine) >= least]
            for hits in results
        ]

    def _hits_many(
        self,
        queries: Sequence[str],
        k: int,
        mode: Mode,
        least: float | None,
        *,
        filter: LangChainFilter | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
        offset: int = 0,
    ) -> list[list[Hit]]:
        """Return the hits for each query; dense search does not apply ``least``."""
        number, store = depth(k, offset), self._lazy.get()
        if store is None:
            return [[] for _ in queries]
        results = store.search_many(
            queries,
            number,
            mode,
            where=self._where(store, filter),
            fusion=fusion,
            ranking=ranking,
            min_relevance=None if mode == "dense" else least,
        )
        return [hits[offset:] for hits in results]


def _taken(kwargs: dict[str, Any], mode: Mode, *names: str) -> dict[str, Any]:
    """Take the settings of a search with these names, and ``fusion`` for hybrid search, out of ``kwargs``."""
    allowed = (*names, "fusion") if mode == "hybrid" else names
    return {name: kwargs.pop(name) for name in allowed if name in kwargs}


def _cosines(hits: Iterable[Hit]) -> Scored:
    return [(to_document(hit), max(-1.0, min(1.0, float(hit.score)))) for hit in hits]


def _relevance(cosine: float) -> float:
    return max(0.0, min(1.0, (1.0 + cosine) / 2.0))


def _query_vector(embedding: Sequence[float]) -> Floats:
    vector: Floats = checked_vectors([embedding], 1, "the caller")[0]
    return vector
