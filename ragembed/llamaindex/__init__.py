"""LlamaIndex integration: a vector store and an embedding.

- :class:`RagembedVectorStore` is a vector store in a folder, with dense, lexical and hybrid search.
- :class:`RagembedEmbedding` is an embedding that is fitted on your corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes, needed_for

with needed_for("ragembed.llamaindex"):
    import llama_index.core as _llama_index  # noqa: F401  if it is missing, the error is raised here

if TYPE_CHECKING:
    from ragembed.llamaindex.embedding import RagembedEmbedding
    from ragembed.llamaindex.vector_store import RagembedVectorStore

__all__ = ["RagembedEmbedding", "RagembedVectorStore"]

__getattr__, __dir__ = lazy_attributes(
    __name__, {"embedding": ("RagembedEmbedding",), "vector_store": ("RagembedVectorStore",)}
)
