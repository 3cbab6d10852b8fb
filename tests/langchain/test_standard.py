"""LangChain's own suites, none of their tests left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, VectorStoreIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from ragembed.langchain import RagEmbeddings, RagVectorStore


class TestEmbeddingsUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[RagEmbeddings]:
        return RagEmbeddings


class TestFittedEmbeddings(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[RagEmbeddings]:
        return RagEmbeddings

    @pytest.fixture
    def model(self, saved_embeddings: Path) -> RagEmbeddings:
        from_file = RagEmbeddings.load(saved_embeddings)
        return from_file.fit(["foo", "bar and baz", "qux"])


class TestReloadedEmbeddings(EmbeddingsIntegrationTests):
    @pytest.fixture(autouse=True)
    def _folder(self, saved_embeddings: Path) -> None:
        self.folder = saved_embeddings

    @property
    def embeddings_class(self) -> type[RagEmbeddings]:
        return RagEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"path": str(self.folder)}


class TestStoreOnPath(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[RagVectorStore]:
        with RagVectorStore(self.get_embeddings(), tmp_path / "store") as store:
            yield store


class TestTemporaryStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[RagVectorStore]:
        with RagVectorStore(self.get_embeddings()) as store:
            yield store


class TestReopenedStore(VectorStoreIntegrationTests):
    """Made, filled and emptied by another object."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[RagVectorStore]:
        with RagVectorStore(DeterministicFakeEmbedding(size=6), tmp_path / "store") as first:
            first.add_texts(["foo", "bar"], ids=["1", "x"])
            first.delete()
        with RagVectorStore(self.get_embeddings(), tmp_path / "store") as store:
            yield store


class TestStoreWithRagEmbeddings(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, fitted: RagEmbeddings) -> Iterator[RagVectorStore]:
        with RagVectorStore(fitted) as store:
            yield store
