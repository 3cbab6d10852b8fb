"""Retrievers: LangChain's own with hybrid and lexical search, and ``RagRetriever`` with one field per setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict, Field, InstanceOf, model_validator

from ragembed.errors import ConfigError
from ragembed.indexes import Fusion, RankingOptions

SearchType = Literal["hybrid", "dense", "lexical", "mmr"]


class RagVectorStoreRetriever(VectorStoreRetriever):
    """LangChain's vector store retriever with hybrid and lexical search; ``RagVectorStore.as_retriever`` returns it."""

    allowed_search_types: ClassVar[tuple[str, ...]] = (
        "similarity",
        "similarity_score_threshold",
        "mmr",
        "hybrid",
        "lexical",
    )

    @model_validator(mode="before")
    @classmethod
    def validate_search_type(cls, values: dict[str, Any]) -> Any:
        """Check the type of search and the threshold; the threshold can be any real number type."""
        search_type = values.get("search_type", "similarity")
        if search_type not in cls.allowed_search_types:
            raise ConfigError(f"search_type is {search_type!r}: expected one of {', '.join(cls.allowed_search_types)}")
        if search_type == "similarity_score_threshold":
            threshold = values.get("search_kwargs", {}).get("score_threshold")
            if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= float(threshold) <= 1:
                raise ConfigError(
                    f"score_threshold is {threshold!r}: expected a number from 0 to 1 in search_kwargs, such as "
                    "search_kwargs={'score_threshold': 0.7}"
                )
        return values

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002  LangChain's signature
        **kwargs: Any,
    ) -> list[Document]:
        return self.vectorstore.search(query, self.search_type, **{**self.search_kwargs, **kwargs})

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002  LangChain's signature
        **kwargs: Any,
    ) -> list[Document]:
        return await self.vectorstore.asearch(query, self.search_type, **{**self.search_kwargs, **kwargs})


class RagRetriever(BaseRetriever):
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
    filter : str, dict or callable, optional
        Selects the documents to search, as in the searches of the store.
    fusion : ragembed.Fusion, optional
        How ``"hybrid"`` combines the two scores; by default the fusion of the store.
    ranking : ragembed.RankingOptions, optional
        Steps after the search, such as folding near-duplicates or limiting the results per file; none by default. It
        cannot be combined with ``"mmr"``.
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
        Leave out documents with a lower relevance, from 0 to 1; by default, none is left out. The relevance must have
        been fitted, for example by ``ragembed refit``. For ``"hybrid"`` only.

    Raises
    ------
    ConfigError
        If ``vectorstore`` is not a :class:`ragembed.langchain.RagVectorStore`, or ``ranking`` is combined with
        ``"mmr"``, or ``min_relevance`` with another type than ``"hybrid"``.

    Examples
    --------
    Setup:

    .. code-block:: bash

        pip install -U "ragembed[langchain,cpu,embedded]"

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
        "k",
        "search_type",
        "filter",
        "fusion",
        "ranking",
        "fetch_k",
        "lambda_mult",
        "score_key",
        "min_relevance",
    )

    @model_validator(mode="after")
    def _check_store(self) -> RagRetriever:
        if not hasattr(self.vectorstore, "hybrid_search_with_score"):
            raise ConfigError(
                f"vectorstore is a {type(self.vectorstore).__name__}: expected a RagVectorStore; for other stores "
                "use as_retriever()"
            )
        if self.ranking is not None and self.search_type == "mmr":
            raise ConfigError(
                "search_type 'mmr' and ranking cannot be combined: use RankingOptions(mmr=0.5) with 'hybrid', 'dense' "
                "or 'lexical'"
            )
        if self.min_relevance is not None and self.search_type != "hybrid":
            raise ConfigError(f"search_type {self.search_type!r} and min_relevance cannot be combined: use 'hybrid'")
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        settings = self._with_settings(kwargs)
        documents = settings._candidates(query)
        if settings.reranker is None:
            return documents
        ranked = settings.reranker.compress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: settings.k]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        settings = self._with_settings(kwargs)
        documents = await run_in_executor(None, settings._candidates, query)
        if settings.reranker is None:
            return documents
        ranked = await settings.reranker.acompress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: settings.k]

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

    def _candidates(self, query: str) -> list[Document]:
        wanted = self.k if self.reranker is None else max(self.k, self.fetch_k)
        scored = self._search(query, wanted)
        if self.score_key is not None:
            for document, score in scored:
                document.metadata[self.score_key] = score
        return [document for document, _ in scored]

    def _search(self, query: str, k: int) -> list[tuple[Document, float]]:
        store: Any = self.vectorstore
        searches: dict[str, Callable[..., list[tuple[Document, float]]]] = {
            "hybrid": partial(
                store.hybrid_search_with_score,
                fusion=self.fusion,
                ranking=self.ranking,
                min_relevance=self.min_relevance,
            ),
            "dense": partial(store.similarity_search_with_score, ranking=self.ranking),
            "lexical": partial(store.lexical_search_with_score, ranking=self.ranking),
            "mmr": partial(
                store.max_marginal_relevance_search_with_score, fetch_k=self.fetch_k, lambda_mult=self.lambda_mult
            ),
        }
        return searches[self.search_type](query, k, filter=self.filter)
