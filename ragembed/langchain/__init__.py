"""LangChain integration: embeddings, a vector store, a retriever. The only importer of langchain_core.

Importing this package imports neither faiss nor torch; :class:`RagVectorStore` brings faiss in when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragembed.errors import MissingExtraError

try:
    import langchain_core as _langchain_core  # noqa: F401  named here so that its absence is told in one place
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "ragembed.langchain") from error

if TYPE_CHECKING:
    from ragembed.langchain.embeddings import RagEmbeddings
    from ragembed.langchain.record_manager import RagRecordManager
    from ragembed.langchain.retrievers import RagRetriever
    from ragembed.langchain.vectorstore import RagVectorStore

__all__ = ["RagEmbeddings", "RagRecordManager", "RagRetriever", "RagVectorStore"]

_HOMES = {
    "RagEmbeddings": "ragembed.langchain.embeddings",
    "RagRecordManager": "ragembed.langchain.record_manager",
    "RagRetriever": "ragembed.langchain.retrievers",
    "RagVectorStore": "ragembed.langchain.vectorstore",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragembed.langchain' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
