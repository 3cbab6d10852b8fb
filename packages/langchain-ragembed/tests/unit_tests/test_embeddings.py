"""LangChain's unit tests of embeddings."""

from __future__ import annotations

from langchain_tests.unit_tests import EmbeddingsUnitTests

from langchain_ragembed import RagembedEmbeddings


class TestRagembedEmbeddings(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[RagembedEmbeddings]:
        return RagembedEmbeddings
