"""Writing to a vector store: atomic writes, batches and invalid input."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from ragembed.errors import ConfigError
from ragembed.indexes import Store
from ragembed.langchain import RagEmbeddings, RagVectorStore
from ragembed.langchain.embeddings import ExternalEncoder

from .fakes import Angles


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    with RagVectorStore(Angles()) as store:
        yield store


def angle(degrees: float) -> list[float]:
    return Angles().embed_query(str(degrees))


def state(store: RagVectorStore) -> Any:
    """Return all contents and search results of a store."""
    return list(store), store.similarity_search_with_score("10", k=99), store.lexical_search_with_score("10 20 30", k=9)


# Ids


def test_last_given_vector_of_an_id_wins(store: RagVectorStore) -> None:
    assert store.add_embeddings([("1", angle(1)), ("90", angle(90))], [{"n": 0}, {"n": 1}], ids=["x", "x"]) == ["x"] * 2
    assert list(store) == [Document(id="x", page_content="90", metadata={"n": 1})]
    assert store.similarity_search_with_score("90")[0][1] == pytest.approx(1.0, abs=1e-3)
    store.add_embeddings([("45", angle(45))], ids=["x"])
    assert list(store) == [Document(id="x", page_content="45")]
    assert store.similarity_search_with_score("45")[0][1] == pytest.approx(1.0, abs=1e-3)


# Atomic writes


class Interrupted(BaseException):
    pass


def interrupt(*_: Any, **__: Any) -> None:
    raise Interrupted


class StumblesOn30(Angles):
    """Embeddings that a store identifies as :class:`Angles`, but that fail for one text."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if "30" in texts:
            raise Interrupted
        return super().embed_documents(texts)


StumblesOn30.__module__, StumblesOn30.__qualname__ = Angles.__module__, Angles.__qualname__


@pytest.mark.parametrize(
    ("embedding", "settings"),
    [(StumblesOn30(), {"batch_size": 1}), (Angles(), {"batch_size": 2, "progress": interrupt})],
)
def test_failure_in_a_later_batch_changes_nothing(tmp_path: Path, embedding: Angles, settings: Any) -> None:
    with RagVectorStore(embedding, tmp_path) as store:
        store.add_texts(["10", "20"], ids=["1", "2"])
        before = state(store)
        with pytest.raises(Interrupted):
            store.add_texts(["11", "12", "30"], ids=["1", "2", "3"], **settings)
        assert_same_and_sound(store, before)
    again = Angles()
    with RagVectorStore(again, tmp_path) as store:
        store.add_texts(["11", "12", "30"], ids=["1", "2", "3"])
        assert again.batches == [1]  # the vectors of the finished batches are kept


def assert_same_and_sound(store: RagVectorStore, before: Any) -> None:
    assert state(store) == before
    with RagVectorStore(Angles(), store.path) as again:
        assert state(again) == before
    with Store.open(store.path, ExternalEncoder(Angles())) as opened:
        assert opened.verify().problems == []


# Empty and invalid input


async def test_adding_nothing_creates_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with RagVectorStore(Angles(), path) as store:
        assert store.add_documents([]) == store.add_texts([], []) == store.add_embeddings([]) == []
        assert await store.aadd_documents([]) == await store.aadd_texts([]) == await store.aadd_embeddings([]) == []
    for made in (
        RagVectorStore.from_texts([], Angles(), path=path),
        RagVectorStore.from_documents([], Angles(), path=path),
        RagVectorStore.from_embeddings([], Angles(), path=path),
        RagVectorStore.from_texts(iter(()), Angles(), [], ids=[], path=path),
    ):
        with made:
            assert (len(made), made.similarity_search("1"), made.hybrid_search("1")) == (0, [], [])
    assert not path.exists()
    with RagVectorStore.from_embeddings([], Angles(), path=path) as made:
        assert made.add_texts(["1"], ids=["1"]) == ["1"]
        assert [document.id for document in made.similarity_search("1")] == ["1"]


def test_given_vectors_are_used_without_embedding() -> None:
    embedding = Angles(length=3.0)
    with RagVectorStore.from_embeddings([("90", angle(90)), ("0", angle(0))], embedding, ids=["90", "0"]) as store:
        store.add_embeddings([("45", [7.0, 7.0])], ids=["45"])
        assert embedding.batches == []
        assert [document.id for document in store.similarity_search("10", k=3)] == ["0", "45", "90"]
        assert store.lexical_search("90")[0].id == "90"


def test_store_with_rag_embeddings_accepts_no_vectors(fitted: RagEmbeddings) -> None:
    with RagVectorStore(fitted) as store:
        with pytest.raises(ConfigError, match="add the texts with add_texts"):
            store.add_embeddings([("a", fitted.embed_query("a"))])
        assert len(store) == 0


# Batches


class Watched(Embeddings):
    """Return arrays, and count how many earlier arrays are still in memory."""

    def __init__(self) -> None:
        self.given: list[weakref.ref[Any]] = []
        self.sizes: list[int] = []
        self.alive: list[int] = []

    def embed_documents_array(self, texts: list[str]) -> Any:
        self.alive.append(sum(reference() is not None for reference in self.given))
        vectors = np.array([angle(float(text)) for text in texts], dtype=np.float32)
        self.given.append(weakref.ref(vectors))
        self.sizes.append(len(texts))
        return vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError("the store has a faster way")

    def embed_query(self, text: str) -> list[float]:
        return angle(float(text))


@pytest.mark.parametrize(
    ("count", "batch_size", "sizes"),
    [(16, 7, [7, 7, 2]), (1100, None, [1024, 76])],
)
def test_only_one_batch_of_vectors_is_in_memory(count: int, batch_size: int | None, sizes: list[int]) -> None:
    embedding = Watched()
    with RagVectorStore(embedding) as store:
        store.add_texts((str(n / 100) for n in range(count)), batch_size=batch_size)
    assert embedding.sizes == sizes
    assert set(embedding.alive) == {0}


def test_progress_is_called_after_each_batch(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))

    texts = [str(n) for n in range(7)]
    with RagVectorStore.from_texts(texts, Angles(), path=tmp_path, batch_size=3, progress=progress) as store:
        assert calls == [(3, 7), (6, 7), (7, 7)]
        calls.clear()
        store.add_documents([Document(text) for text in texts], batch_size=4, progress=progress)
        assert calls == [(4, 7), (7, 7)]  # although all texts have vectors
        calls.clear()
        store.add_texts(["8", "9"], progress=progress)
        assert calls == [(2, 2)]
        store.add_texts([], progress=progress)
        assert calls == [(2, 2)]


# Replaced and deleted documents


def test_documents_are_copied() -> None:
    metadata = {"list": [1], "nested": {"a": 1}}
    document = Document(id="1", page_content="1", metadata=metadata)
    with RagVectorStore(Angles()) as store:
        store.add_documents([document], ids=["other"])
        store.add_texts(["2"], [metadata], ids=["2"])
        assert document == Document(id="1", page_content="1", metadata={"list": [1], "nested": {"a": 1}})
        metadata["list"].append(2)
        document.metadata["nested"]["a"] = 2
        for found in (
            *store.similarity_search("1"),
            *store.hybrid_search("1"),
            *store.lexical_search("1 2"),
            *store.max_marginal_relevance_search("1"),
            *(document for document, _ in store.similarity_search_with_relevance_scores("1")),
            *store.get_by_ids(["2", "other"]),
            *store,
        ):
            assert found.metadata == {"list": [1], "nested": {"a": 1}}
            found.metadata["nested"].clear()
            found.metadata["list"] = None
            found.page_content = "changed"
        assert [found.page_content for found in store] == ["1", "2"]


# Unknown arguments


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.add_texts(["1"], metadata=[{}]),
        lambda store: store.add_embeddings([("1", [1.0, 0.0])], id=["1"]),
        lambda store: store.delete(["1"], where={}),
        lambda store: store.hybrid_search("1", n=1),
        lambda store: store.similarity_search("1", fetch_k=20),
        lambda store: store.max_marginal_relevance_search_with_score("1", n=1),
        lambda store: store.load_local(store.path, Angles(), index="index"),
        lambda store: RagVectorStore(Angles(), folder="x"),
    ],
)
def test_unknown_argument_is_a_type_error(store: RagVectorStore, call: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        call(store)
    assert len(store) == 0
