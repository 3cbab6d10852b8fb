"""LangChain integration: embeddings, a vector store, a retriever. The only importer of langchain_core.

Importing this package imports neither faiss nor torch; :class:`RagVectorStore` brings faiss in when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes, needed_for

with needed_for("ragembed.langchain"):
    import langchain_core as _langchain_core  # noqa: F401  named here so that its absence is told in one place

if TYPE_CHECKING:
    from ragembed.langchain.embeddings import RagEmbeddings
    from ragembed.langchain.record_manager import RagRecordManager
    from ragembed.langchain.retrievers import RagRetriever
    from ragembed.langchain.vectorstore import RagVectorStore

__all__ = ["RagEmbeddings", "RagRecordManager", "RagRetriever", "RagVectorStore"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "embeddings": ("RagEmbeddings",),
        "record_manager": ("RagRecordManager",),
        "retrievers": ("RagRetriever",),
        "vectorstore": ("RagVectorStore",),
    },
)
