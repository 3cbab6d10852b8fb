"""Haystack integration: a document store, retrievers and embedders.

- :class:`RagembedDocumentStore` is a document store in a folder, which embeds its documents itself or takes theirs.
- :class:`RagembedRetriever` is a retriever for texts, with hybrid search by default.
- :class:`RagembedEmbeddingRetriever` is a retriever for embeddings of queries.
- :class:`RagembedTextEmbedder` and :class:`RagembedDocumentEmbedder` embed queries and documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes, needed_for

with needed_for("ragembed.haystack"):
    import haystack as _haystack  # noqa: F401  if it is missing, the error is raised here

if TYPE_CHECKING:
    from ragembed.haystack.components import (
        RagembedDocumentEmbedder,
        RagembedEmbeddingRetriever,
        RagembedRetriever,
        RagembedTextEmbedder,
    )
    from ragembed.haystack.document_store import RagembedDocumentStore

__all__ = [
    "RagembedDocumentEmbedder",
    "RagembedDocumentStore",
    "RagembedEmbeddingRetriever",
    "RagembedRetriever",
    "RagembedTextEmbedder",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "document_store": ("RagembedDocumentStore",),
        "components": tuple(name for name in __all__ if name != "RagembedDocumentStore"),
    },
)
