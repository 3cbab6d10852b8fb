"""LangChain integration of ragembed: the classes of :mod:`ragembed.langchain` under LangChain's names.

- :class:`RagembedVectorStore` is :class:`ragembed.langchain.RagVectorStore`.
- :class:`RagembedEmbeddings` is :class:`ragembed.langchain.RagEmbeddings`.
- :class:`RagembedRetriever` is :class:`ragembed.langchain.RagRetriever`.
- The other classes have the same names in both packages.
"""

from ragembed.langchain import (
    RagContext,
    RagEmbeddings,
    RagGenerator,
    RagQueryTranslator,
    RagRecordManager,
    RagRetriever,
    RagVectorStore,
)

RagembedEmbeddings = RagEmbeddings
RagembedRetriever = RagRetriever
RagembedVectorStore = RagVectorStore

__all__ = [
    "RagContext",
    "RagEmbeddings",
    "RagGenerator",
    "RagQueryTranslator",
    "RagRecordManager",
    "RagRetriever",
    "RagVectorStore",
    "RagembedEmbeddings",
    "RagembedRetriever",
    "RagembedVectorStore",
]
