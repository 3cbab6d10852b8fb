"""Retrievers over a ``RagVectorStore``, and the translation of the filters that a language model writes for one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from numbers import Real
from typing import Any, ClassVar, Literal, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery, Visitor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict, Field, InstanceOf, model_validator
from typing_extensions import override

from ragembed.errors import ConfigError
from ragembed.indexes import Fusion, RankingOptions
from ragembed.indexes.filters.nodes import moment_key
from ragembed.langchain.searching import SEARCH_TYPES, Scored, SearchableDocuments
from ragembed.progress import in_thread

SearchType = Literal["hybrid", "dense", "lexical", "mmr"]

_WILDCARDS = ("%", "_")

Found: TypeAlias = "Mapping[str, Sequence[Document]]"
"""The documents that were found for several queries at once, by query."""


class _BatchRetriever(BaseRetriever):
    """A retriever that searches for all queries of a batch at once. Each query has its own run for the callbacks."""

    @abstractmethod
    def _find(self, queries: Sequence[str], settings: Mapping[str, Any]) -> list[list[Document]]:
        """Return the documents for each query; ``settings`` are those of one call."""

    def _find_together(self, queries: Sequence[str], settings: Mapping[str, Any]) -> Found:
        """Return the documents by query, to be given to ``invoke`` as ``found``."""
        different = list(dict.fromkeys(queries))
        return dict(zip(different, self._find(different, settings), strict=True))

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, found: Found | None = None, **kwargs: Any
    ) -> list[Document]:
        return self._find([query], kwargs)[0] if found is None else _copies(found[query])

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, found: Found | None = None, **kwargs: Any
    ) -> list[Document]:
        return (await in_thread(self._find, [query], kwargs))[0] if found is None else _copies(found[query])

    def batch(
        self,
        inputs: list[str],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[list[Document]]:
        """Return the documents for each query; see :meth:`invoke`. The queries are searched for together."""
        with suppress(Exception):  # the error is raised again below, in the run of each query
            kwargs["found"] = self._find_together(inputs, kwargs)
        return super().batch(inputs, config, return_exceptions=return_exceptions, **kwargs)

    async def abatch(
        self,
        inputs: list[str],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[list[Document]]:
        """Do the same as :meth:`batch`, in a thread."""
        with suppress(Exception):  # as above
            kwargs["found"] = await in_thread(self._find_together, inputs, kwargs)
        return await super().abatch(inputs, config, return_exceptions=return_exceptions, **kwargs)


class RagVectorStoreRetriever(_BatchRetriever, VectorStoreRetriever):
    """LangChain's vector store retriever with hybrid and lexical search; ``RagVectorStore.as_retriever`` returns it.

    Settings of the search, such as ``k``, can be given as arguments or in ``search_kwargs``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    allowed_search_types: ClassVar[tuple[str, ...]] = SEARCH_TYPES
    search_settings: ClassVar[tuple[str, ...]] = (
        *("k", "filter", "score_threshold", "ranking", "fusion", "min_relevance", "offset"),
        *("fetch_k", "lambda_mult"),
    )

    @model_validator(mode="before")
    @classmethod
    def validate_search_type(cls, values: dict[str, Any]) -> Any:
        """Check the type of search and the threshold, and move settings of the search to ``search_kwargs``."""
        settings = {name: values[name] for name in cls.search_settings if name in values}
        values = {name: value for name, value in values.items() if name not in settings}
        values["search_kwargs"] = {**(values.get("search_kwargs") or {}), **settings}
        search_type = values.get("search_type", "similarity")
        if search_type not in cls.allowed_search_types:
            raise ConfigError(f"search_type is {search_type!r}: expected one of {', '.join(cls.allowed_search_types)}")
        threshold = values["search_kwargs"].get("score_threshold")
        is_wanted = search_type == "similarity_score_threshold" or threshold is not None
        is_number = isinstance(threshold, Real) and not isinstance(threshold, bool)
        if is_wanted and not (is_number and 0 <= float(threshold) <= 1):
            raise ConfigError(
                f"score_threshold is {threshold!r}: expected a number from 0 to 1 in search_kwargs, such as "
                "search_kwargs={'score_threshold': 0.7}"
            )
        return values

    @override
    def _find(self, queries: Sequence[str], settings: Mapping[str, Any]) -> list[list[Document]]:
        store: Any = self.vectorstore
        documents: list[list[Document]] = store.search_many(
            queries, self.search_type, **{**self.search_kwargs, **settings}
        )
        return documents


def _copies(documents: Sequence[Document]) -> list[Document]:
    """Return copies, because a query may occur twice in a batch."""
    return [document.model_copy(deep=True) for document in documents]


class RagRetriever(_BatchRetriever):
    """LangChain retriever over a :class:`ragembed.langchain.RagVectorStore`, with hybrid search by default.

    All fields except ``vectorstore`` and ``reranker`` can also be given to a single call, such as
    ``invoke(query, k=3)``.

    Parameters
    ----------
    vectorstore : RagVectorStore
        The store to search.
    k : int
        Number of documents to return.
    search_type : {"hybrid", "dense", "lexical", "mmr"}
        ``"hybrid"`` combines cosine and BM25, ``"dense"`` uses the cosine, ``"lexical"`` uses BM25, and ``"mmr"``
        returns documents that are close to the query and different from each other.
    filter, fusion, ranking
        As in :meth:`RagVectorStore.hybrid_search_with_score`; ``ranking`` cannot be combined with ``"mmr"``.
    fetch_k : int
        Number of candidates for ``"mmr"`` or ``reranker``.
    lambda_mult : float
        For ``"mmr"``, from 0 (most diverse) to 1 (closest to the query).
    score_key : str, optional
        Metadata key for the score of each document; by default, scores are not added.
    reranker : BaseDocumentCompressor, optional
        A LangChain document compressor. It gets ``fetch_k`` candidates, or ``k`` if that is more; the first ``k`` of
        its output are returned.
    min_relevance : float, optional
        For ``"hybrid"``: leave out documents with a lower relevance, from 0 to 1. The store needs a fit of it.

    Raises
    ------
    ConfigError
        If ``vectorstore`` is not a :class:`ragembed.langchain.RagVectorStore`, or ``ranking`` is combined with
        ``"mmr"``, or ``min_relevance`` with another type than ``"hybrid"``.

    Examples
    --------
    Setup:

    .. code-block:: bash

        pip install '.[cpu,langchain]'  # in a clone of the repository

    Instantiate:

    .. code-block:: python

        from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore

        vector_store = RagVectorStore.from_texts(["foo", "bar baz", "thud"], RagEmbeddings())
        retriever = RagRetriever(vectorstore=vector_store, k=2, score_key="score")

    Usage:

    .. code-block:: python

        documents = retriever.invoke("baz")
        documents = retriever.invoke("baz", k=1, search_type="dense")

    Use within a chain:

    .. code-block:: python

        from langchain_core.language_models import FakeListChatModel
        from langchain_core.output_parsers import StrOutputParser
        from langchain_core.prompts import ChatPromptTemplate
        from langchain_core.runnables import RunnablePassthrough

        prompt = ChatPromptTemplate.from_template("Answer {question} from: {context}")
        model = FakeListChatModel(responses=["an answer"])


        def together(documents):
            return " ".join(document.page_content for document in documents)


        chain = (
            {"context": retriever | together, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()
        )
        answer = chain.invoke("What is baz?")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    vectorstore: VectorStore
    k: int = Field(default=4, ge=0)
    search_type: SearchType = "hybrid"
    filter: Any = None
    fusion: Fusion | None = None
    ranking: InstanceOf[RankingOptions] | None = None
    fetch_k: int = Field(default=20, ge=1)
    lambda_mult: float = Field(default=0.5, ge=0.0, le=1.0)
    score_key: str | None = None
    reranker: BaseDocumentCompressor | None = None
    min_relevance: float | None = Field(default=None, ge=0.0, le=1.0)

    _CALL_TIME: ClassVar[tuple[str, ...]] = (
        *("k", "search_type", "filter", "fusion", "ranking", "fetch_k", "lambda_mult", "score_key", "min_relevance"),
    )

    @model_validator(mode="after")
    def _check_store(self) -> RagRetriever:
        require_rag_store(self.vectorstore, "; for other stores use as_retriever()")
        if self.ranking is not None and self.search_type == "mmr":
            raise ConfigError(
                "search_type 'mmr' and ranking cannot be combined: use RankingOptions(mmr=0.5) with 'hybrid', 'dense' "
                "or 'lexical'"
            )
        if self.min_relevance is not None and self.search_type != "hybrid":
            raise ConfigError(f"search_type {self.search_type!r} and min_relevance cannot be combined: use 'hybrid'")
        return self

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, found: Found | None = None, **kwargs: Any
    ) -> list[Document]:
        documents = super()._get_relevant_documents(query, run_manager=run_manager, found=found, **kwargs)
        if self.reranker is None:
            return documents
        ranked = self.reranker.compress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: self._with_settings(kwargs).k]

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, found: Found | None = None, **kwargs: Any
    ) -> list[Document]:
        documents = await super()._aget_relevant_documents(query, run_manager=run_manager, found=found, **kwargs)
        if self.reranker is None:
            return documents
        ranked = await self.reranker.acompress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: self._with_settings(kwargs).k]

    @override
    def _find(self, queries: Sequence[str], settings: Mapping[str, Any]) -> list[list[Document]]:
        return self._with_settings(settings)._candidates(queries)

    def _with_settings(self, kwargs: Mapping[str, Any]) -> RagRetriever:
        """Return a retriever with the settings of one call, validated like the fields."""
        for name in kwargs:
            if name not in self._CALL_TIME:
                raise TypeError(
                    f"invoke() got an unexpected keyword argument {name!r}: expected one of "
                    f"{', '.join(self._CALL_TIME)}"
                )
        if not kwargs:
            return self
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **kwargs})

    def _candidates(self, queries: Sequence[str]) -> list[list[Document]]:
        """Return the candidates for each query, with their scores in the metadata if these are wanted."""
        wanted = self.k if self.reranker is None else max(self.k, self.fetch_k)
        results = self._search(queries, wanted)
        if self.score_key is not None:
            for document, score in chain.from_iterable(results):
                document.metadata[self.score_key] = score
        return [[document for document, _ in scored] for scored in results]

    def _search(self, queries: Sequence[str], k: int) -> list[Scored]:
        store: Any = self.vectorstore
        settings: dict[str, Any] = {"filter": self.filter}
        if self.search_type == "mmr":
            settings |= {"fetch_k": self.fetch_k, "lambda_mult": self.lambda_mult}
        else:
            settings |= {"ranking": self.ranking}
        if self.search_type == "hybrid":
            settings |= {"fusion": self.fusion, "min_relevance": self.min_relevance}
        kind, mode = ("similarity", "dense") if self.search_type == "dense" else (self.search_type, None)
        results: list[Scored] = store.search_many_with_score(queries, kind, k, retrieval_mode=mode, **settings)
        return results


def require_rag_store(vectorstore: VectorStore, instead: str = "") -> None:
    """Raise :class:`ConfigError` if ``vectorstore`` is another store; ``instead`` says what to do."""
    if not isinstance(vectorstore, SearchableDocuments):
        raise ConfigError(f"vectorstore is a {type(vectorstore).__name__}: expected a RagVectorStore{instead}")


class RagQueryTranslator(Visitor):
    """Translates structured queries, which a language model makes from a question, to filters of the store.

    All comparators and operators of LangChain are allowed. A pattern of ``like`` without ``%`` and ``_`` may occur
    anywhere in the value.

    Examples
    --------
    .. code-block:: python

        from langchain_core.structured_query import Comparator, Comparison, StructuredQuery
        from ragembed.langchain import RagQueryTranslator

        condition = Comparison(comparator=Comparator.GTE, attribute="year", value=2020)
        query = StructuredQuery(query="wing", filter=condition, limit=None)
        RagQueryTranslator().visit_structured_query(query)

    .. code-block:: text

        ('wing', {'filter': {'year': {'$gte': 2020}}})

    For a retriever that lets a model write the filter:

    .. code-block:: python

        retriever = SelfQueryRetriever.from_llm(
            model, store, "Reports", fields, structured_query_translator=RagQueryTranslator()
        )
    """

    allowed_comparators = tuple(Comparator)
    allowed_operators = (Operator.AND, Operator.OR, Operator.NOT)

    def visit_operation(self, operation: Operation) -> dict[str, Any]:
        """Translate an operation to a filter.

        Parameters
        ----------
        operation : Operation
            An operator with its arguments.
        """
        self._validate_func(operation.operator)
        parts = [part.accept(self) for part in operation.arguments]
        if operation.operator is not Operator.NOT:
            return {f"${operation.operator.value}": parts}
        if len(parts) != 1:
            raise ConfigError(f"the operator not has {len(parts)} arguments: expected one")
        return {"$not": parts[0]}

    def visit_comparison(self, comparison: Comparison) -> dict[str, Any]:
        """Translate a comparison to a filter.

        Parameters
        ----------
        comparison : Comparison
            A field, a comparator and a value.
        """
        self._validate_func(comparison.comparator)
        value = _value(comparison.value)
        is_pattern = comparison.comparator is Comparator.LIKE and isinstance(value, str)
        if is_pattern and not any(wildcard in value for wildcard in _WILDCARDS):
            value = f"%{value}%"
        name = "contains" if comparison.comparator is Comparator.CONTAIN else comparison.comparator.value
        return {comparison.attribute: {f"${name}": value}}

    def visit_structured_query(self, structured_query: StructuredQuery) -> tuple[str, dict[str, Any]]:
        """Translate a structured query to the text of a query and the arguments of its search.

        Parameters
        ----------
        structured_query : StructuredQuery
            The query with its filter.
        """
        if structured_query.filter is None:
            return structured_query.query, {}
        return structured_query.query, {"filter": structured_query.filter.accept(self)}


def _value(value: Any) -> Any:
    """Return a value of a comparison; dates and times are dictionaries with their text and type."""
    if isinstance(value, (list, tuple)):
        return [_value(part) for part in value]
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("date", "datetime"):
        return value
    if moment_key(value[kind]) is None:
        raise ConfigError(f"{value[kind]!r} is not a {kind}: expected ISO 8601, such as 2026-01-31")
    return value[kind]
