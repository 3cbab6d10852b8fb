"""LangChain's integration tests of retrievers. They need no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_ragembed import RagembedRetriever, RagembedVectorStore


class TestRagembedRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _filled(self) -> Iterator[None]:
        with RagembedVectorStore(DeterministicFakeEmbedding(size=6)) as self.store:
            self.store.add_texts([f"{word} of the lock" for word in ("wing", "flow", "heat", "wave")])
            yield

    @property
    def retriever_constructor(self) -> type[RagembedRetriever]:
        return RagembedRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": self.store}

    @property
    def retriever_query_example(self) -> str:
        return "which lock?"
