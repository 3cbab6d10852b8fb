"""LangChain's standard test suites, without exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore

# Embeddings


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


# Vector stores


class TestStoreWithHybridSearch(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[RagVectorStore]:
        with RagVectorStore(self.get_embeddings(), retrieval_mode="hybrid") as store:
            yield store


class TestReopenedStore(VectorStoreIntegrationTests):
    """A store in a folder that another object has filled and cleared."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[RagVectorStore]:
        with RagVectorStore(DeterministicFakeEmbedding(size=6), tmp_path / "store") as first:
            first.add_texts(["foo", "bar"], ids=["1", "x"])
            first.delete()
        with RagVectorStore(self.get_embeddings(), tmp_path / "store") as store:
            yield store


# Retrievers


class OverRagRetriever(RetrieversIntegrationTests):
    """Common parts of the suites of all retrievers."""

    store: RagVectorStore
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _filled(self) -> Iterator[None]:
        with RagVectorStore(DeterministicFakeEmbedding(size=6)) as self.store:
            self.store.add_texts([f"{word} of the lock" for word in ("wing", "flow", "heat", "wave", "body", "air")])
            yield

    @property
    def retriever_constructor(self) -> type[RagRetriever]:
        return RagRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": self.store, **self.settings}

    @property
    def retriever_query_example(self) -> str:
        return "which lock?"


class TestHybridRetriever(OverRagRetriever):
    pass
