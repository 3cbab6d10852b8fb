"""What follows a retriever in a chain: ``RagContext`` packs documents for a prompt, ``RagGenerator`` answers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator
from typing_extensions import override

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes import ChunkRecord, Context, ContextBlock, Hit, Store
from ragembed.indexes.search.context import ContextFormat
from ragembed.langchain.documents import place_of
from ragembed.langchain.embeddings import RagEmbeddings
from ragembed.langchain.retrievers import require_rag_store

if TYPE_CHECKING:
    from ragembed.models.generation import Generator

_CONTEXT = "{context}"


class RagContext(BaseDocumentCompressor):
    """Packs the documents of a retriever into a budget of tokens, best first, as :meth:`ragembed.Store.context` does.

    In a chain, put it after a retriever: it turns documents into the text for the prompt. As a document compressor, it
    returns one document per block, with its place in the metadata.

    Parameters
    ----------
    vectorstore : RagVectorStore
        The store that the documents come from. Documents of other stores are packed with their own texts.
    budget : int
        Maximum number of tokens of the text, 4000 by default.
    format : {"text", "markdown", "json", "xml"}
        Format of the text.
    tokenizer : str, pathlib.Path or callable, optional
        Tokenizer of the model that reads the text: a file ``tokenizer.json``, its folder, or a function that returns
        the number of tokens of a text. By default, an estimate that is rarely too low.

    Raises
    ------
    ConfigError
        If ``vectorstore`` is not a :class:`ragembed.langchain.RagVectorStore`.

    Examples
    --------
    .. code-block:: python

        from langchain_core.language_models import FakeListChatModel
        from langchain_core.prompts import ChatPromptTemplate
        from langchain_core.runnables import RunnablePassthrough
        from ragembed.langchain import RagContext, RagEmbeddings, RagRetriever, RagVectorStore

        vector_store = RagVectorStore.from_texts(["Tea needs hot water.", "Birds fly south."], RagEmbeddings())
        retriever = RagRetriever(vectorstore=vector_store, k=20)
        prompt = ChatPromptTemplate.from_template("Answer {question} from: {context}")
        model = FakeListChatModel(responses=["hot water"])

        packed = retriever | RagContext(vectorstore=vector_store, budget=2000)
        chain = {"context": packed, "question": RunnablePassthrough()} | prompt | model
        answer = chain.invoke("What does tea need?")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    vectorstore: VectorStore
    budget: int = Field(default=4000, ge=1)
    format: ContextFormat = "text"
    tokenizer: Any = None

    @model_validator(mode="after")
    def _check_store(self) -> RagContext:
        require_rag_store(self.vectorstore)
        return self

    def __call__(self, documents: Sequence[Document]) -> str:
        """Return the text for a prompt. The documents must be in order, best first."""
        return self.pack(documents).text

    @override
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Return one document per block, in the order of the text, with its place in the metadata.

        Parameters
        ----------
        documents, query
            As in :meth:`pack`.
        callbacks : Callbacks, optional
            Not used.
        """
        return [_as_document(block) for block in self.pack(documents, query).blocks]

    def pack(self, documents: Sequence[Document], query: str = "") -> Context:
        """Return the blocks, their text, and the documents that did not fit.

        Parameters
        ----------
        documents : sequence of Document
            Documents, best first.
        query : str, default ""
            If the best document is longer than the budget, the lines with most of the words of this text are kept.
        """
        vectorstore: Any = self.vectorstore
        store: Store = vectorstore.store
        ids = [document.id for document in documents if document.id is not None]
        records = {(record.store, record.id): record for record in store.get(ids)}
        hits = []
        for rank, document in enumerate(documents):
            name = document.id or ""
            record = records.get((document.metadata.get("store"), name)) or records.get((None, name))
            if record is None or record.chunk.text != document.page_content:
                chunk = Chunk(document.page_content, metadata=document.metadata)
                record = ChunkRecord(document.id or f"document {rank + 1}", chunk)
            hits.append(Hit(record.id, record.chunk, record.source, -float(rank), store=record.store))
        return store.pack(hits, self.budget, query, format=self.format, tokenizer=self.tokenizer)


def _as_document(block: ContextBlock) -> Document:
    path = {} if block.path is None else {"path": block.path}
    metadata = {**path, **place_of(block.store, block.source, block)}
    return Document(id=block.ids[0] if block.ids else None, page_content=block.text, metadata=metadata)


class RagGenerator(RunnableSerializable[str, dict[str, Any]]):
    r"""Retrieve documents for a query and answer it with the decoder that encoded it (one model for both).

    The weights are in memory once. The prompt begins with the text that was encoded: the prompt of queries and the
    query. The keys and values of these tokens are taken from the encoding, so only the rest of the prompt is computed.
    Use it like any LangChain ``Runnable``: ``generator.invoke(query)``.

    Parameters
    ----------
    embeddings : RagEmbeddings
        The embeddings of the retriever, with the extractor ``transformer`` and a decoder such as GPT-2, Llama or Qwen
        that has a language-modelling head.
    retriever : Runnable
        Finds documents for a query, such as :class:`RagRetriever`, or returns the context as text, such as
        ``retriever | RagContext(...)``.
    prompt : str
        Text after the query, with the place of the documents as ``{context}``.
    max_new_tokens : int
        Maximum number of tokens of an answer, 128 by default.
    generation : mapping, optional
        Further settings of transformers' ``generate``, such as ``{"do_sample": True}``. By default, the most probable
        token is chosen each time.

    Raises
    ------
    ConfigError
        If the embeddings have no decoder, or the prompt does not contain ``{context}`` once.
    ModelError
        If the model has no language-modelling head.

    Examples
    --------
    .. code-block:: python

        from ragembed.langchain import RagEmbeddings, RagGenerator, RagRetriever, RagVectorStore

        embeddings = RagEmbeddings(model="Qwen/Qwen2.5-0.5B", pooling="last", weighting="uniform")
        vector_store = RagVectorStore.from_texts(["Tea needs hot water.", "Birds fly south."], embeddings)
        generator = RagGenerator(embeddings=embeddings, retriever=RagRetriever(vectorstore=vector_store, k=2))

        answer = generator.invoke("What does tea need?")["answer"]
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    embeddings: RagEmbeddings
    retriever: Runnable[str, Any]
    prompt: str = "\n\nContext:\n{context}\n\nAnswer:"
    max_new_tokens: int = Field(default=128, ge=1)
    generation: Mapping[str, Any] = Field(default_factory=dict)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        if prompt.count(_CONTEXT) != 1:
            raise ConfigError(f"prompt is {prompt!r}: expected a text with {_CONTEXT} once")
        return prompt

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Answer the query ``input``; further arguments go to the retriever.

        The result has the keys ``input`` (the query), ``context`` (what the retriever returned), ``answer``, ``tokens``
        (number of tokens of the prompt) and ``reused_tokens`` (those of them that the encoding of the query computed).

        Parameters
        ----------
        input : str
            The query.
        config : RunnableConfig, optional
            Configuration of the run, for the callbacks.
        **kwargs
            Arguments for the retriever.
        """
        answer: Any = self._answer  # LangChain's types do not have functions that take a config only
        result: dict[str, Any] = self._call_with_config(answer, input, config, **kwargs)
        return result

    def _answer(self, query: str, config: RunnableConfig, **kwargs: Any) -> dict[str, Any]:
        generator = self._generator  # before the query is encoded, so that its keys and values are kept
        with self._lock:  # another query would replace the keys and values of this one
            retrieved = self.retriever.invoke(query, config, **kwargs)
            ids = self._prompt_ids(query, retrieved)
            answer = generator.generate(ids, self.max_new_tokens, self.generation)
            return {
                "input": query,
                "context": retrieved,
                "answer": self._model.tokenizer.text(answer),
                "tokens": len(ids),
                "reused_tokens": generator.reused,
            }

    def _prompt_ids(self, query: str, retrieved: Any) -> list[int]:
        """Return the prompt: the encoded query, then the context, cut at its end to fit the window, and the rest."""
        before, after = self.prompt.split(_CONTEXT)
        context = retrieved if isinstance(retrieved, str) else "\n\n".join(_texts(retrieved))
        begin = self._model.query_ids(query)
        parts = [ids.tolist() for ids in self._model.tokenizer.ids([before, context, after])]
        fixed = len(begin) + len(parts[0]) + len(parts[2])
        room = self._generator.max_tokens - fixed - self.max_new_tokens
        if room < 1:
            raise ConfigError(
                f"the query and the prompt take {fixed} tokens, the answer "
                f"{self.max_new_tokens}, and the model has {self._generator.max_tokens}: shorten the prompt or lower "
                "max_new_tokens"
            )
        return [*begin, *parts[0], *parts[1][:room], *parts[2]]

    @property
    def _model(self) -> Any:
        extractor = self.embeddings.fitted().extractor
        if not isinstance(extractor, TransformerExtractor):
            raise ConfigError(
                f"the extractor is {self.embeddings.embedder.config.extractor!r}: expected 'transformer', whose model "
                "generates"
            )
        return extractor.model

    @cached_property
    def _generator(self) -> Generator:
        generator: Generator = self._model.generator()
        return generator


def _texts(documents: Any) -> list[str]:
    if not all(isinstance(document, Document) for document in documents):
        raise ConfigError(
            "the retriever does not return documents or a text: give a retriever, or a chain that ends in RagContext"
        )
    return [document.page_content for document in documents]
