"""LangChain's standard test suites, without exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.unit_tests import EmbeddingsUnitTests

from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.records import NAMES, IndexSpec
from ragembed.indexes.storage import segments, upkeep
from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore
from ragembed.langchain.retrievers import RagVectorStoreRetriever

FACTORY = "IVF1,SQ8"

# Embeddings


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


class TestEmbeddingsThatLearnNothing(EmbeddingsIntegrationTests):
    """Embeddings that are used as soon as they are made."""

    @property
    def embeddings_class(self) -> type[RagEmbeddings]:
        return RagEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"weighting": "uniform", "device": "cpu"}


# Vector stores


class TestStoreThatFitsItsEmbeddings(VectorStoreIntegrationTests):
    """A store whose embeddings are fitted on its first documents."""

    @pytest.fixture(params=[None, "store"])
    def vectorstore(
        self, request: pytest.FixtureRequest, unfitted: RagEmbeddings, tmp_path: Path
    ) -> Iterator[RagVectorStore]:
        with RagVectorStore(unfitted, request.param and tmp_path / request.param) as store:
            yield store


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


class TestStoreWithRagEmbeddings(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, fitted: RagEmbeddings) -> Iterator[RagVectorStore]:
        with RagVectorStore(fitted) as store:
            yield store


class TestReopenedStoreWithItsOwnEmbeddings(VectorStoreIntegrationTests):
    """A store opened without embeddings, which are saved in it."""

    @pytest.fixture
    def vectorstore(self, unfitted: RagEmbeddings, tmp_path: Path) -> Iterator[RagVectorStore]:
        with RagVectorStore.from_texts(["foo", "bar"], unfitted, path=tmp_path / "store") as first:
            first.clear()
        with RagVectorStore(path=tmp_path / "store") as store:
            yield store


class TestStoreBelowItsIndex(VectorStoreIntegrationTests):
    """A store with too few vectors for the requested index."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[RagVectorStore]:
        with RagVectorStore(self.get_embeddings(), tmp_path / "store", index="ivf-pq") as store:
            yield store


class TestStoreThatIsApproximateAtOnce(VectorStoreIntegrationTests):
    """Every kind of index that can be built from a single vector; product quantisers need 256."""

    @pytest.fixture(params=[*(kind for kind in NAMES if kind != "ivf-pq"), FACTORY])
    def vectorstore(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[RagVectorStore]:
        monkeypatch.setattr(IndexSpec, "least_rows", 0)
        monkeypatch.setattr(segments, "LEAST_APPROXIMATE", 1)
        monkeypatch.setattr(choose, "LEAST_ASKED", 1)
        monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 10)
        with RagVectorStore(self.get_embeddings(), tmp_path / "store", index=request.param) as store:
            yield store
            store.add_texts(["of", "this", "kind"])
            built = store._lazy.get_or_create().status()["segments"]
            assert {segment["kind"] for segment in built} == {request.param}


# Retrievers


class Reversed(BaseDocumentCompressor):
    """A reranker that reverses the order."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        return list(documents)[::-1]


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


class OverStore(OverRagRetriever):
    """Common parts of the suites of the retrievers that ``as_retriever`` returns."""

    @property
    def retriever_constructor(self) -> type[RagVectorStoreRetriever]:  # type: ignore[override]
        return RagVectorStoreRetriever


class TestStoreRetriever(OverStore):
    pass


class TestHybridStoreRetriever(OverStore):
    settings: ClassVar[dict[str, Any]] = {"search_type": "hybrid"}


class TestDiverseStoreRetriever(OverStore):
    settings: ClassVar[dict[str, Any]] = {"search_type": "mmr", "fetch_k": 5}


class TestHybridRetriever(OverRagRetriever):
    pass


class TestDenseRetriever(OverRagRetriever):
    settings: ClassVar[dict[str, Any]] = {"search_type": "dense"}


class TestLexicalRetriever(OverRagRetriever):
    settings: ClassVar[dict[str, Any]] = {"search_type": "lexical"}


class TestDiverseRetriever(OverRagRetriever):
    settings: ClassVar[dict[str, Any]] = {"search_type": "mmr", "fetch_k": 5}


class TestRerankingRetriever(OverRagRetriever):
    settings: ClassVar[dict[str, Any]] = {"fetch_k": 5, "reranker": Reversed()}
