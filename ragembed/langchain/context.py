"""``RagContext``: pack retrieved documents into a budget of tokens, as documents or as text for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import override

from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Context, ContextBlock, Hit, Store
from ragembed.indexes.search.context import ContextFormat
from ragembed.langchain.retrievers import require_rag_store


class RagContext(BaseDocumentCompressor):
    """Packs the documents of a retriever into a budget of tokens, best first, as :meth:`ragembed.Store.context` does.

    Near-duplicates are folded, documents from files are widened to their sections, and overlapping pieces are merged.
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
        """Return one document per block, in the order of the text, with its place in the metadata; see :meth:`pack`.

        Parameters
        ----------
        documents : sequence of Document
            Documents, best first.
        query : str
            Text of the query. If the best document is longer than the budget, the lines with most of its words are
            kept.
        callbacks : Callbacks, optional
            Not used.
        """
        return [_as_document(block) for block in self.pack(documents, query).blocks]

    def pack(self, documents: Sequence[Document], query: str = "") -> Context:
        """Return the blocks, their text, and the documents that did not fit; ``documents`` are in order, best first.

        If the best document is longer than the budget, the lines with most of the words of ``query`` are kept.

        Parameters
        ----------
        documents : sequence of Document
            Documents, best first.
        query : str, default ""
            Text of the query.
        """
        vectorstore: Any = self.vectorstore
        store: Store = vectorstore.store
        found = store.get([each.id for each in documents if each.id is not None])
        records = {(record.store, record.id): record for record in found}
        hits = []
        for rank, document in enumerate(documents):
            named = document.id or ""
            record = records.get((document.metadata.get("store"), named)) or records.get((None, named))
            if record is None or record.chunk.text != document.page_content:
                chunk = Chunk(document.page_content, metadata=document.metadata)
                record = ChunkRecord(document.id or f"document {rank + 1}", chunk)
            hits.append(Hit(record.id, record.chunk, record.source, -float(rank), store=record.store))
        return store.pack(hits, self.budget, query, format=self.format, tokenizer=self.tokenizer)


def _as_document(block: ContextBlock) -> Document:
    place = {
        "path": block.path,
        "store": block.store,
        "source": block.source,
        "title": block.title,
        "headings": list(block.headings) or None,
        "start_line": block.start_line,
        "end_line": block.end_line,
        "page": block.page,
    }
    known = {name: value for name, value in place.items() if value is not None}
    return Document(id=block.ids[0] if block.ids else None, page_content=block.text, metadata=known)
