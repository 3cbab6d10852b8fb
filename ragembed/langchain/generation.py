"""``RagGenerator``: answer with the decoder that also encodes the queries."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from ragembed.errors import ConfigError
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.langchain.embeddings import RagEmbeddings

if TYPE_CHECKING:
    from ragembed.models.generation import Generator

_CONTEXT = "{context}"


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
        found: dict[str, Any] = self._call_with_config(answer, input, config, **kwargs)
        return found

    def _answer(self, query: str, config: RunnableConfig, **kwargs: Any) -> dict[str, Any]:
        generator = self._generator  # before the query is encoded, so that its keys and values are kept
        with self._lock:  # another query would replace the keys and values of this one
            found = self.retriever.invoke(query, config, **kwargs)
            ids = self._prompt_ids(query, found)
            answer = generator.generate(ids, self.max_new_tokens, self.generation)
            return {
                "input": query,
                "context": found,
                "answer": self._text(answer),
                "tokens": len(ids),
                "reused_tokens": generator.reused,
            }

    def _prompt_ids(self, query: str, found: Any) -> list[int]:
        """Return the prompt: the encoded query, then the context, cut at its end to fit the window, and the rest."""
        before, after = self.prompt.split(_CONTEXT)
        context = found if isinstance(found, str) else "\n\n".join(_texts(found))
        begin = self._model.query_ids(query)
        parts = [ids.tolist() for ids in self._model.tokenizer.ids([before, context, after])]
        room = self._generator.max_tokens - len(begin) - len(parts[0]) - len(parts[2]) - self.max_new_tokens
        if room < 1:
            raise ConfigError(
                f"the query and the prompt take {len(begin) + len(parts[0]) + len(parts[2])} tokens, the answer "
                f"{self.max_new_tokens}, and the model has {self._generator.max_tokens}: shorten the prompt or lower "
                "max_new_tokens"
            )
        return [*begin, *parts[0], *parts[1][:room], *parts[2]]

    def _text(self, ids: list[int]) -> str:
        """Return the text of generated tokens, without special tokens."""
        text: str = self._model.tokenizer.text(ids)
        return text

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


def _texts(found: Any) -> list[str]:
    """Return the texts of documents."""
    if not all(isinstance(each, Document) for each in found):
        raise ConfigError(
            "the retriever does not return documents or a text: give a retriever, or a chain that ends in RagContext"
        )
    return [each.page_content for each in found]
