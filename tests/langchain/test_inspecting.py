"""Inspecting a vector store, and deleting by id, by filter or everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.records import NAMES
from ragembed.indexes.storage import compaction, reader, segments, upkeep
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


def test_iteration_sees_a_snapshot(store: RagVectorStore) -> None:
    begun = iter(store)
    assert next(begun).id == "d0"
    store.delete(["d1", "d2"])
    store.add_texts(["31", "100"], ids=["d3", "new"])
    assert [(document.id, document.page_content) for document in begun] == [
        (f"d{n}", f"{10 * n}") for n in range(1, 10)
    ]
    assert len(list(store)) == 9


def test_get_by_ids_returns_each_document_once(store: RagVectorStore) -> None:
    assert [document.id for document in store.get_by_ids(["d9", "d1", "d9", "x", "d1", "d0"])] == ["d9", "d1", "d0"]
    assert [document.id for document in store.get_by_ids([*reversed(store.ids())])] == store.ids()[::-1]


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


def test_deletion_cost_does_not_grow_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written_by_one_deletion(documents: int) -> tuple[int, int]:
        """Return the number of vectors that a deletion writes, and of rows that it marks as deleted."""
        written: list[int] = []
        with RagVectorStore(FAKE, tmp_path / str(documents)) as store:
            store.add_texts(map(str, range(documents)), ids=map(str, range(documents)))
            original = segments.write_segment

            def write_segment(*given: Any) -> Any:
                files, rows = original(*given)
                written.append(files.rows)
                return files, rows

            with monkeypatch.context() as patch:
                patch.setattr(compaction, "write_segment", write_segment)
                store.delete([str(documents // 2)])
            status = store._lazy.get_or_create().status()
            assert status["vectors"] == documents
            assert len(store.similarity_search("1", k=documents)) == documents - 1
            return sum(written), status["unused_vectors"]

    assert written_by_one_deletion(20) == written_by_one_deletion(2000) == (0, 1)


# Random changes and searches, compared with a dictionary

OPERATION = st.one_of(
    st.tuples(st.just("add"), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 359)), max_size=6)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 13), max_size=6)),
    st.tuples(st.just("delete where"), st.integers(0, 359)),
    st.tuples(st.just("search"), st.integers(0, 359)),
)


@given(st.lists(OPERATION, max_size=8))
def test_random_changes_match_a_dictionary(operations: list[tuple[str, Any]]) -> None:
    known: dict[str, int] = {}
    with RagVectorStore(Angles()) as store:
        for name, value in [*operations, ("search", 123)]:
            if name == "add":
                store.add_texts(
                    [str(a) for _, a in value], [{"a": a} for _, a in value], ids=[str(n) for n, _ in value]
                )
                for n, a in value:
                    known.pop(str(n), None)
                    known[str(n)] = a
            elif name == "delete":
                store.delete([str(n) for n in value])
                known = {n: a for n, a in known.items() if int(n) not in value}
            elif name == "delete where":
                store.delete(filter={"a": {"$lte": value}})
                known = {n: a for n, a in known.items() if a > value}
            else:
                found = store.similarity_search_with_score(str(value), k=len(known) + 1)
                assert {document.id: document.metadata["a"] for document, _ in found} == known
                assert all(document.page_content == str(document.metadata["a"]) for document, _ in found)
                cosines = [np.cos(np.radians(value - document.metadata["a"])) for document, _ in found]
                assert [score for _, score in found] == pytest.approx(cosines, abs=2e-3)
        assert {document.id: int(document.page_content) for document in store} == known


@pytest.mark.parametrize("kind", [*NAMES, "IVF4,SQ8"])
def test_no_index_returns_deleted_documents(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results have the expected text and score, even after changes; low limits trigger merges early."""
    for module, name, value in (
        (segments, "LEAST_APPROXIMATE", 256),
        (choose, "LEAST_ASKED", 256),
        (upkeep, "QUERIES_PER_CHECK", 10),
        (reader, "_EXACT_ROWS", 16),
        (reader, "_EXACT_SHARE", 0.0),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(upkeep, "degradation", lambda *_: None)  # other tests measure recall
    draw = np.random.default_rng(1)
    known: dict[str, str] = {}
    with RagVectorStore(FAKE, index=kind) as store:

        def add(names: list[str], version: int) -> None:
            known.update({name: f"{name} v{version}" for name in names})
            store.add_texts([known[name] for name in names], [{"v": version}] * len(names), ids=names)

        def delete(names: list[str]) -> None:
            store.delete(names)
            for name in names:
                known.pop(name, None)

        def some(share: float) -> list[str]:
            return [name for name in known if draw.random() < share]

        add([str(n) for n in range(500)], 0)
        for version in range(1, 5):
            delete(some(0.08))
            add([*some(0.05), *(f"{version}-{n}" for n in range(20))], version)
            assert len(store) == len(known)
            for query in some(0.01):
                for condition in (None, {"v": {"$gte": 1}}):
                    assert_right(store, known[query], condition, known)
        assert kind in {segment["kind"] for segment in store._lazy.get_or_create().status()["segments"]}


def assert_right(store: RagVectorStore, query: str, condition: Any, known: dict[str, str]) -> None:
    possible = {name: text for name, text in known.items() if condition is None or not text.endswith("v0")}
    found = store.similarity_search_with_score(query, k=10, filter=condition)
    assert len({document.id for document, _ in found}) == len(found) == min(10, len(possible))
    target = unit(FAKE.embed_query(query))
    for document, score in found:
        assert possible[str(document.id)] == document.page_content
        assert score == pytest.approx(unit(FAKE.embed_query(document.page_content)) @ target, abs=2e-3)
    if query in possible.values():
        assert found[0][0].page_content == query


def unit(vector: list[float]) -> Any:
    return np.array(vector) / np.linalg.norm(vector)
