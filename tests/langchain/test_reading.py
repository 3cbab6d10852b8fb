"""Reading documents and vectors, updating, deleting by filter, filters on texts, and pages of results."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  the objects reopen their store
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed.errors import ConfigError
from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore

from .fakes import Angles, ids

NAMES = ["0", "10", "20", "30", "40"]


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    with RagVectorStore(Angles()) as store:
        store.add_texts(NAMES, [{"n": i} for i in range(5)], ids=[f"d{i}" for i in range(5)])
        yield store


def test_get_by_ids_filter_and_page(store: RagVectorStore) -> None:
    assert store.get() == {
        "ids": ["d0", "d1", "d2", "d3", "d4"],
        "documents": NAMES,
        "metadatas": [{"n": i} for i in range(5)],
    }
    assert store.get(["d3", "no", "d1", "d3"], include=[]) == {"ids": ["d3", "d1"]}
    assert store.get(["d3", "d1"], where={"n": {"$lt": 2}}, include=["documents"])["documents"] == ["10"]
    assert store.get(where="n >= 1", limit=2, offset=1, include=["documents"]) == {
        "ids": ["d2", "d3"],
        "documents": ["20", "30"],
    }
    assert store.get(["d4", "d3", "d2"], limit=1, offset=1)["ids"] == ["d3"]
    assert store.get(where=lambda metadata: metadata["n"] == 4)["ids"] == ["d4"]
    assert store.get(limit=0)["ids"] == store.get(offset=9)["ids"] == []
    found = store.get(["d3", "d0"], include=["vectors", "embeddings"])
    np.testing.assert_allclose(found["vectors"], [[np.cos(np.pi / 6), 0.5], [1.0, 0.0]], atol=1e-3)
    assert found["embeddings"] == found["vectors"] == store.vectors(["d3", "d0"]).tolist()
    with RagVectorStore(Angles()) as empty:
        assert empty.get(include=["vectors"]) == {"ids": [], "vectors": []}


def test_invalid_arguments_of_get(store: RagVectorStore) -> None:
    for ids_or_none in (None, ["d0"]):
        with pytest.raises(ConfigError, match="-1: expected 0 or more"):
            store.get(ids_or_none, limit=-1)
        with pytest.raises(ConfigError, match="offset is -1: expected 0 or more"):
            store.get(ids_or_none, offset=-1)
    with pytest.raises(ConfigError, match="include is 'texts': expected one of documents, metadatas, vectors"):
        store.get(include=["texts"])
    with pytest.raises(ConfigError, match="no document has the id 'no': expected an id of the store"):
        store.vectors(["d0", "no"])


def test_update_documents(store: RagVectorStore) -> None:
    store.update_documents(["d0", "d1"], [Document("90", metadata={"new": True}), Document("91")])
    store.update_document("d2", Document("92", id="other"))
    assert store.get(["d0", "d1", "d2"])["documents"] == ["90", "91", "92"]
    assert len(store) == 5
    assert ids(store.similarity_search("91", k=1)) == ["d1"]
    assert store.get_by_ids(["d0"])[0].metadata == {"new": True}
    with pytest.raises(ConfigError, match="no document has the id 'no'"):
        store.update_documents(["d3", "no"], [Document("1"), Document("2")])
    with pytest.raises(ConfigError, match="got 1 ids for 2 documents"):
        store.update_documents(["d3"], [Document("1"), Document("2")])
    assert store.get(["d3"])["documents"] == ["30"]


def test_search_with_vectors(store: RagVectorStore) -> None:
    found = store.similarity_search_with_vectors("29", k=2, filter={"n": {"$ne": 3}})
    assert ids([document for document, _ in found]) == ["d2", "d4"]
    np.testing.assert_allclose([vector for _, vector in found], store.vectors(["d2", "d4"]))
    assert found[0][1].dtype == np.float32


@pytest.mark.parametrize("name", ["similarity_search", "hybrid_search", "lexical_search"])
def test_pages_of_results(name: str) -> None:
    with RagVectorStore(Angles()) as store:
        store.add_texts([f"{n}0" for n in range(9)])
        search = getattr(store, name)
        query = "30" if name != "lexical_search" else "30 40 50 60"
        whole = search(query, k=9)
        assert [each for at in range(0, 12, 2) for each in search(query, k=2, offset=at)] == whole
        assert search(query, k=0, offset=3) == []
        with pytest.raises(ConfigError, match="offset is -1: expected 0 or more"):
            search(query, offset=-1)
        assert store.similarity_search_by_vector([1.0, 0.0], k=2, offset=1) == store.similarity_search("0", k=3)[1:]


# Copies of the objects


def test_pickled_and_copied_stores_and_retrievers_reopen_the_store(tmp_path: Path, unfitted: RagEmbeddings) -> None:
    kept = RagVectorStore.from_texts(["wing", "lock"], unfitted, path=tmp_path / "s", retrieval_mode="hybrid")
    temporary = RagVectorStore.from_texts(["0", "90"], Angles())
    for store, query, least in ((kept, "wing", "lock"), (temporary, "0", "90")):
        retrievers = (store.as_retriever(k=1), RagRetriever(vectorstore=store, k=1))
        for again in (pickle.loads(pickle.dumps(store)), copy.copy(store), copy.deepcopy(store)):
            assert again is not store
            assert (again.path, again.retrieval_mode, len(again)) == (store.path, store.retrieval_mode, len(store))
            assert again.similarity_search(query, k=1) == store.similarity_search(query, k=1)
            again.add_texts([least])
            assert len(store) == len(again)
            again.close()
        for retriever in retrievers:
            for again in (pickle.loads(pickle.dumps(retriever)), copy.deepcopy(retriever)):
                assert again.invoke(query) == retriever.invoke(query)
                again.vectorstore.close()


def test_copy_of_an_empty_store_keeps_its_embeddings(unfitted: RagEmbeddings, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(RagVectorStore(unfitted, tmp_path / "s")))
    again.add_texts(["wing"], ids=["w"])
    assert ids(RagVectorStore(path=tmp_path / "s").similarity_search("wing")) == ["w"]
