"""Inspecting a vector store, and deleting by id, by filter or everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragembed.langchain import RagVectorStore

from .fakes import Angles

FAKE = DeterministicFakeEmbedding(size=16)


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    """Documents at 0, 10, … 90 degrees; every second one has the metadata ``even``."""
    with RagVectorStore(Angles()) as store:
        store.add_documents(
            [Document(id=f"d{n}", page_content=str(10 * n), metadata={"n": n, "even": n % 2 == 0}) for n in range(10)]
        )
        yield store


# Inspect


def test_ids_and_documents_come_in_order_of_insertion(store: RagVectorStore) -> None:
    names = [f"d{n}" for n in range(10)]
    assert store.ids() == names
    assert [document.id for document in store] == [document.id for document in store.iter_documents()] == names
    assert list(store)[3] == Document(id="d3", page_content="30", metadata={"n": 3, "even": False})
    store.add_texts(["5"], ids=["d0"])  # a replaced document counts as new
    store.delete(["d1"])
    assert store.ids() == [document.id for document in store] == [*names[2:], "d0"]


@pytest.mark.parametrize("condition", [{"n": {"$gte": 8}}, "n >= 8", lambda metadata: metadata["n"] >= 8])
def test_iterate_documents_by_filter(store: RagVectorStore, condition: Any) -> None:
    assert [document.id for document in store.iter_documents(filter=condition)] == ["d8", "d9"]
    assert store.delete(filter=condition) == 2
    assert list(store.iter_documents(filter=condition)) == []
    assert len(store) == 8


def test_length_and_contains(store: RagVectorStore) -> None:
    assert len(store) == 10
    assert "d3" in store
    assert "30" not in store
    assert 3 not in store
    store.delete(["d3"])
    assert "d3" not in store
    assert len(store) == 9


async def test_delete_everything_keeps_the_store(store: RagVectorStore) -> None:
    store.clear()
    assert (len(store), store.ids(), list(store), store.similarity_search("0")) == (0, [], [], [])
    assert bool(store) is True
    assert store.lexical_search("10") == []
    store.add_texts(["1"], ids=["1"])
    assert store.ids() == ["1"]
    await store.aclear()
    assert store.ids() == []


def test_inspect_an_empty_store(tmp_path: Path) -> None:
    store = RagVectorStore(FAKE, tmp_path / "store")
    assert (len(store), store.ids(), list(store), store.get_by_ids(["1"])) == (0, [], [], [])
    assert list(store.iter_documents(filter={"n": 1})) == []
    assert "1" not in store
    assert bool(store) is True
    store.clear()
    assert not (tmp_path / "store").exists()


# Delete


def test_delete_of_unknown_id_returns_true(store: RagVectorStore) -> None:
    for ids in (["x"], ["x", "x"], [], (), iter(["x"])):
        assert store.delete(ids) is True
    assert len(store) == 10
    assert store.delete(["d1", "x", "d1"]) is True
    assert store.delete(["d1"]) is True
    assert len(store) == 9
    assert store.delete(ids=None) is True
    assert store.delete() is True
    assert len(store) == 0


def test_delete_by_ids_and_filter(store: RagVectorStore) -> None:
    assert store.delete(["d1", "d2"], filter={"n": {"$gt": 6}, "even": False}) == 4
    assert store.ids() == ["d0", "d3", "d4", "d5", "d6", "d8"]
    assert store.delete([], filter={"even": True}) == 4
    assert store.ids() == ["d3", "d5"]
    assert store.delete(None, filter={"n": 3}) == 1  # a filter alone does not delete everything
    assert store.ids() == ["d5"]
