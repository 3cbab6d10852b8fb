"""Retrievers over a vector store: LangChain's own with two more types of search, and one with fields of its own."""

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
    """What ``RagVectorStore.as_retriever`` returns: LangChain's retriever, with hybrid and lexical search."""

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
        """Check the type of search and its threshold, which may be any real number."""
        search_type = values.get("search_type", "similarity")
        if search_type not in cls.allowed_search_types:
            raise ConfigError(f"search_type is {search_type!r}: expected one of {', '.join(cls.allowed_search_types)}")
        if search_type == "similarity_score_threshold":
            threshold = values.get("search_kwargs", {}).get("score_threshold")
            if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= float(threshold) <= 1:
                raise ConfigError(
                    f"score_threshold is {threshold!r}: expected a relevance from 0 to 1 in search_kwargs, as in "
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
    """Retriever over a :class:`ragembed.langchain.RagVectorStore`, hybrid unless another search is asked for.

    Every field but the vector store and the reranker may also be given to one call, as in ``invoke(query, k=3)``.

    Setup:
        Install ``ragembed`` with LangChain, FAISS and the default model.

        ```bash
        pip install -U "ragembed[langchain,cpu,embedded]"
        ```

    Key init args:
        * vectorstore: the store that is searched.
        * k: number of documents, 4 if left out.
        * search_type: ``"hybrid"`` (cosine and BM25 together), ``"dense"`` (cosine), ``"lexical"`` (BM25) or ``"mmr"``
          (near to the query and unlike each other).
        * filter: which documents are searched, as in every search of the store.
        * fusion: a :class:`ragembed.indexes.Fusion`, how ``"hybrid"`` makes one score of two.
        * ranking: a :class:`ragembed.indexes.RankingOptions`, whether near-duplicates are folded, how many come from
          one file, and the like; nothing of that is done if left out. Not for ``"mmr"``.
        * fetch_k: number of candidates that ``"mmr"`` or the reranker chooses from.
        * lambda_mult: for ``"mmr"``, from 0 (unlike each other) to 1 (near to the query).
        * score_key: name under which the score goes into each document's metadata; none does if left out.
        * reranker: any LangChain document compressor, which gets ``fetch_k`` candidates; the first ``k`` of what it
          returns are the result.

    Instantiate:
        ```python
        from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore

        vector_store = RagVectorStore.from_texts(["foo", "bar baz", "thud"], RagEmbeddings())
        retriever = RagRetriever(vectorstore=vector_store, k=2, score_key="score")
        ```

    Usage:
        ```python
        documents = retriever.invoke("baz")
        documents = retriever.invoke("baz", k=1, search_type="dense")
        ```

    Use within a chain:
        ```python
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
        ```
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

    _CALL_TIME: ClassVar[tuple[str, ...]] = (
        "k",
        "search_type",
        "filter",
        "fusion",
        "ranking",
        "fetch_k",
        "lambda_mult",
        "score_key",
    )

    @model_validator(mode="after")
    def _check_store(self) -> RagRetriever:
        if not hasattr(self.vectorstore, "hybrid_search_with_score"):
            raise ConfigError(
                f"vectorstore is a {type(self.vectorstore).__name__}: expected a RagVectorStore; other stores have "
                "as_retriever()"
            )
        if self.ranking is not None and self.search_type == "mmr":
            raise ConfigError(
                "search_type is 'mmr' and ranking is given: expected one of them; RankingOptions(mmr=0.5) is for "
                "'hybrid', 'dense' and 'lexical'"
            )
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        settings = self._with(kwargs)
        documents = settings._candidates(query)
        if settings.reranker is None:
            return documents
        ranked = settings.reranker.compress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: settings.k]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        settings = self._with(kwargs)
        documents = await run_in_executor(None, settings._candidates, query)
        if settings.reranker is None:
            return documents
        ranked = await settings.reranker.acompress_documents(documents, query, callbacks=run_manager.get_child())
        return list(ranked)[: settings.k]

    def _with(self, kwargs: Mapping[str, Any]) -> RagRetriever:
        """Return a retriever with the settings of one call, checked as the fields are."""
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
            "hybrid": partial(store.hybrid_search_with_score, fusion=self.fusion, ranking=self.ranking),
            "dense": partial(store.similarity_search_with_score, ranking=self.ranking),
            "lexical": partial(store.lexical_search_with_score, ranking=self.ranking),
            "mmr": partial(
                store.max_marginal_relevance_search_with_score, fetch_k=self.fetch_k, lambda_mult=self.lambda_mult
            ),
        }
        return searches[self.search_type](query, k, filter=self.filter)
