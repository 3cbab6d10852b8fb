"""LangChain's integration tests of vector stores. They need no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from langchain_ragembed import RagembedEmbeddings, RagembedVectorStore


class TestRagembedVectorStore(VectorStoreIntegrationTests):
    """A store with other embeddings."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[RagembedVectorStore]:
        with RagembedVectorStore(self.get_embeddings(), tmp_path / "store") as store:
            yield store


class TestStoreThatFitsItsEmbeddings(VectorStoreIntegrationTests):
    """A store with embeddings that its first documents fit."""

    @pytest.fixture
    def vectorstore(self, tokenizer: Path) -> Iterator[RagembedVectorStore]:
        embeddings = RagembedEmbeddings(preset="re", model=str(tokenizer), extractor="re:dim=16")
        with RagembedVectorStore(embeddings) as store:
            yield store
