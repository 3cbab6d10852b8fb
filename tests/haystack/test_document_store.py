"""The Haystack document store: Haystack's own tests, files, vectors and pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack", reason="Haystack is not installed: pip install 'ragembed[haystack]'")

from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.errors import FilterError
from haystack.testing import document_store as standard
from haystack.testing import document_store_async as standard_async

from ragembed.errors import ConfigError, IncompatibleStoreError, NotFittedError
from ragembed.haystack import (
    RagembedDocumentEmbedder,
    RagembedDocumentStore,
    RagembedEmbeddingRetriever,
    RagembedRetriever,
    RagembedTextEmbedder,
)

TEXTS = [f"the {word} number {n}" for n in range(12) for word in ("wing", "lock", "zebra")]


@pytest.fixture
def settings(tiny_model: Path) -> dict[str, Any]:
    """Settings of an embedder that needs no model."""
    changes = {"model": str(tiny_model), "extractor": "re:dim=16", "postprocess": ["center", "normalize"]}
    return {"preset": "re", "settings": changes}


@pytest.fixture
def store(settings: dict[str, Any], tmp_path: Path) -> Iterator[RagembedDocumentStore]:
    made = RagembedDocumentStore(str(tmp_path / "store"), **settings)
    yield made
    made.close()


class TestBaseSuite(
    standard.DocumentStoreBaseExtendedTests,
    standard.CountDocumentsByFilterTest,
    standard.CountUniqueMetadataByFilterTest,
    standard.GetMetadataFieldsInfoTest,
    standard.GetMetadataFieldMinMaxTest,
    standard.GetMetadataFieldUniqueValuesTest,
):
    """Haystack's tests of document stores."""

    @pytest.fixture
    def document_store(self, store: RagembedDocumentStore) -> RagembedDocumentStore:
        return store

    def test_write_documents(self, document_store: RagembedDocumentStore) -> None:
        documents = [Document(id="1", content="a"), Document(id="2", content="b")]
        assert document_store.write_documents(documents) == 2
        with pytest.raises(DuplicateDocumentError, match="the store has a document with the id '2'"):
            document_store.write_documents([Document(id="3", content="c"), documents[1]])
        assert document_store.filter_documents() == documents


class TestAsyncSuite(
    standard_async.CountDocumentsByFilterAsyncTest,
    standard_async.DeleteDocumentsAsyncTest,
    standard_async.FilterDocumentsAsyncTest,
    standard_async.WriteDocumentsAsyncTest,
):
    """Some of them for the asynchronous methods, which are made of the others."""

    @pytest.fixture
    def document_store(self, store: RagembedDocumentStore) -> RagembedDocumentStore:
        return store

    async def test_write_documents_async(self, document_store: RagembedDocumentStore) -> None:
        documents = [Document(id="1", content="a"), Document(id="2", content="b")]
        assert await document_store.write_documents_async(documents) == 2
        assert await document_store.filter_documents_async() == documents


async def test_retrievers_and_embedders_run_asynchronously(
    store: RagembedDocumentStore, settings: dict[str, Any]
) -> None:
    await store.write_documents_async([Document(id=text, content=text, meta={"a": {"b": [1]}}) for text in TEXTS])
    pipeline = Pipeline()
    pipeline.add_component("retriever", RagembedRetriever(store, top_k=1, mode="lexical"))
    answer = await pipeline.run_async({"retriever": {"query": "zebra number 3"}})
    assert [each.id for each in answer["retriever"]["documents"]] == ["the zebra number 3"]
    embedder = RagembedTextEmbedder(**settings)
    embedder.fit(TEXTS)
    assert await embedder.run_async("zebra") == embedder.run("zebra")
    nested = {"field": "meta.a.b", "operator": "==", "value": [1]}
    assert store.get_metadata_field_unique_values("meta.a") == ([{"b": [1]}], 1)
    with pytest.raises(FilterError):
        await store.filter_documents_async(nested)


def test_every_part_of_a_document_returns(store: RagembedDocumentStore, settings: dict[str, Any]) -> None:
    document = Document(
        id="1",
        content=None,
        meta={"day": date(2026, 1, 31), "list": [1, "a"], "none": None},
        blob=ByteStream(b"\x00\xff", mime_type="image/png"),
        embedding=[0.5, -2.5],
        sparse_embedding=SparseEmbedding(indices=[3], values=[0.5]),
    )
    store.write_documents([document, Document(id="2", content="")])
    store.close()
    again = RagembedDocumentStore(str(store.path), **settings)
    assert again.filter_documents() == [document, Document(id="2", content="")]
    assert again.filter_documents({"field": "meta.day", "operator": ">", "value": "2026-01-30"}) == [document]


def test_store_fits_and_searches_its_documents(store: RagembedDocumentStore) -> None:
    documents = [Document(id=text, content=text, meta={"n": n}) for n, text in enumerate(TEXTS)]
    store.write_documents(documents[:5])
    store.write_documents(documents[5:])
    opened = store._folder.get()
    assert opened is not None
    assert opened.embedder.describe()["config"]["postprocess"] == ["center", "normalize"]
    for mode in ("hybrid", "dense", "lexical"):
        found = RagembedRetriever(store, top_k=2, mode=mode).run("the zebra number 7")["documents"]
        assert found[0].id == "the zebra number 7"
        assert found[0].score is not None
    filters = {"field": "meta.n", "operator": "<", "value": 3}
    retriever = RagembedRetriever(store, filters=filters, filter_policy="merge")
    assert len(retriever.run("zebra")["documents"]) == 3
    more = {"field": "meta.n", "operator": ">", "value": 1}
    assert {each.meta["n"] for each in RagembedRetriever(store, 99).run("zebra", filters=more)["documents"]} == set(
        range(2, 36)
    )
    assert retriever.run("zebra", top_k=1, filters={"field": "id", "operator": "==", "value": TEXTS[2]})["documents"]


def test_documents_with_their_own_embeddings(tmp_path: Path) -> None:
    store = RagembedDocumentStore(str(tmp_path / "s"), embedding="documents")
    places = {"east": [2.0, 0.0], "north": [0.0, 1.0]}
    store.write_documents([Document(id=name, content="same", embedding=place) for name, place in places.items()])
    retriever = RagembedEmbeddingRetriever(store, top_k=1)
    assert retriever.run(query_embedding=[0.1, 1.0])["documents"][0].id == "north"
    hybrid = RagembedRetriever(store)
    assert [each.id for each in hybrid.run("same", query_embedding=[1.0, 0.0])["documents"]] == ["east", "north"]
    assert len(RagembedRetriever(store, mode="lexical").run("same")["documents"]) == 2
    with pytest.raises(NotFittedError, match="give the vector of the query"):
        RagembedRetriever(store, mode="dense").run("same")
    with pytest.raises(ConfigError, match="the document 'x' has no embedding: run an embedder before"):
        store.write_documents([Document(id="x", content="x")])
    with pytest.raises(IncompatibleStoreError, match="dimension 3"):
        store.write_documents([Document(id="x", content="x", embedding=[1.0, 2.0, 3.0])])
    assert store.count_documents() == 2


def test_pipelines_are_saved_and_loaded(store: RagembedDocumentStore) -> None:
    store.write_documents([Document(id=text, content=text) for text in TEXTS])
    pipeline = Pipeline()
    pipeline.add_component("retriever", RagembedRetriever(store, top_k=1, mode="lexical"))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["ragembed.haystack.*"])
    found = again.run({"retriever": {"query": "zebra number 3"}})["retriever"]["documents"]
    assert [each.id for each in found] == ["the zebra number 3"]
    embedding = RagembedEmbeddingRetriever(store, filters={"field": "meta.n", "operator": "==", "value": 1})
    assert RagembedEmbeddingRetriever.from_dict(embedding.to_dict()).to_dict() == embedding.to_dict()


def test_embedders_in_a_pipeline(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(texts\)"):
        RagembedTextEmbedder(**settings).run("zebra")
    documents = RagembedDocumentEmbedder(**settings).fit(TEXTS)
    documents.embedder.save(tmp_path / "embedder")
    queries = RagembedTextEmbedder(path=str(tmp_path / "embedder"))
    embedded = documents.run([Document(content=text) for text in TEXTS])["documents"]
    assert all(each.embedding is not None and len(each.embedding) == 16 for each in embedded)
    store = RagembedDocumentStore(embedding="documents")
    store.write_documents(embedded)
    pipeline = Pipeline()
    pipeline.add_component("embedder", queries)
    pipeline.add_component("retriever", RagembedEmbeddingRetriever(store, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    found = pipeline.run({"embedder": {"text": "the zebra number 7"}})["retriever"]["documents"]
    assert found[0].content == "the zebra number 7"
    assert (
        Pipeline.loads(pipeline.dumps(), allowed_modules=["ragembed.haystack.*"]).get_component("embedder").to_dict()
        == queries.to_dict()
    )


NOON = {"noon": "2025-03-01T12:00:00+00:00", "eleven": "2025-03-01T13:00:00+02:00", "midnight": "2025-03-02T00:00:00Z"}
MORE = {"fraction": "2025-03-01T12:00:00.25Z", "naive": "2025-03-01T11:00:00", "day": "2025-03-02", "none": None}
CONDITIONS = [{"field": "meta.a", "operator": "==", "value": 1}, {"field": "meta.b", "operator": "==", "value": 1}]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RagembedDocumentStore, InMemoryDocumentStore]]:
    """A store and Haystack's own, with the same documents, which no test changes."""
    folder = tmp_path_factory.mktemp("both") / "store"
    stores = RagembedDocumentStore(str(folder), embedding="documents"), InMemoryDocumentStore()
    made = [
        Document(id=name, content=name, meta={"at": at}, embedding=[1.0, 0.0]) for name, at in {**NOON, **MORE}.items()
    ]
    made += [
        Document(id=f"{a}{b}", content="x", meta={"a": a, "b": b, "tags": ["t"]}, embedding=[1.0, 0.0])
        for a in (0, 1)
        for b in (0, 1)
    ]
    for each in stores:
        each.write_documents(made)
    yield stores
    stores[0].close()


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
@pytest.mark.parametrize(
    "value",
    [
        *NOON.values(),
        "2025-03-01T12:00:00.250000Z",
        "2025-03-01T11:00:00Z",
        "2025-03-01T12:30:00+01:30",
        "2025-03-02",
        "2025-03-02 00:00",
        datetime(2025, 3, 1, 11, 30, tzinfo=timezone.utc),
        datetime(2025, 3, 1, 12),
    ],
)
def test_dates_are_the_moments_that_haystack_compares(both: Any, operator: str, value: Any) -> None:
    given = [value, "2025-03-01T11:00:00Z"] if operator in ("in", "not in") else value
    condition = {"field": "meta.at", "operator": operator, "value": given}
    ours, theirs = ({each.id for each in store.filter_documents(condition)} for store in both)
    # A time without an offset is in UTC. Haystack takes the offset of the other time, so its order is not transitive.
    has_offset = str(value)[19:] in ("+02:00", "+01:30")
    left_out = {"naive", "day"} if has_offset else {"eleven"} if str(value)[19:] == "" else set()
    assert ours - left_out == theirs - left_out


@pytest.mark.parametrize("name", ["AND", "OR", "NOT"])
@pytest.mark.parametrize(
    "conditions", [[], CONDITIONS[:1], CONDITIONS, [{"operator": "NOT", "conditions": CONDITIONS}] * 2]
)
def test_logic_is_that_of_haystack(both: Any, name: str, conditions: list[Any]) -> None:
    condition = {"operator": name, "conditions": conditions}
    ours, theirs = ({each.id for each in store.filter_documents(condition)} for store in both)
    assert ours == theirs


def test_filter_that_cannot_match_warns(both: Any) -> None:
    store = both[0]
    for field, value, note in (
        ("meta.att", "2025-03-01", "no chunk has the field 'att': did you mean 'at'"),
        ("meta.a", "1", "'a' is compared with a string, but its values are numbers"),
        ("meta.tags", "t", "its values are lists: the comparison is never true; to compare the elements"),
    ):
        condition = {"field": field, "operator": "==", "value": value}
        for search in (store.filter_documents, store.count_documents_by_filter, store.delete_by_filter):
            again = RagembedDocumentStore(str(store.path), embedding="documents")
            with pytest.warns(UserWarning, match=note):
                getattr(again, search.__name__)(condition)
            again.close()


def test_retrievers_need_a_ragembed_store() -> None:
    with pytest.raises(ConfigError, match="document_store is a str: expected a RagembedDocumentStore"):
        RagembedRetriever("store")  # type: ignore[arg-type]
