"""LangChain integration: embeddings, a vector store, a retriever and a record manager.

- :class:`RagEmbeddings` are embeddings that are fitted on your corpus.
- :class:`RagVectorStore` is a vector store in a folder, with dense, lexical and hybrid search.
- :class:`RagRetriever` is a retriever over the vector store, with one field per setting.
- :class:`RagContext` packs retrieved documents into a budget of tokens.
- :class:`RagGenerator` answers with the decoder that also encodes the queries.
- :class:`RagQueryTranslator` translates the filters that a language model writes for ``SelfQueryRetriever``.
- :class:`RagRecordManager` keeps the records of LangChain's indexing API in the store.

Importing this package does not import FAISS or PyTorch, because each class is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes, needed_for

with needed_for("ragembed.langchain"):
    import langchain_core as _langchain_core  # noqa: F401  if it is missing, the error is raised here

if TYPE_CHECKING:
    from ragembed.langchain.chains import RagContext, RagGenerator
    from ragembed.langchain.embeddings import RagEmbeddings
    from ragembed.langchain.record_manager import RagRecordManager
    from ragembed.langchain.retrievers import RagQueryTranslator, RagRetriever
    from ragembed.langchain.vectorstore import RagVectorStore

__all__ = [
    "RagContext",
    "RagEmbeddings",
    "RagGenerator",
    "RagQueryTranslator",
    "RagRecordManager",
    "RagRetriever",
    "RagVectorStore",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "chains": ("RagContext", "RagGenerator"),
        "embeddings": ("RagEmbeddings",),
        "record_manager": ("RagRecordManager",),
        "retrievers": ("RagQueryTranslator", "RagRetriever"),
        "vectorstore": ("RagVectorStore",),
    },
)
