"""The default mode of a store, settings of retrievers, and batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_classic.retrievers import MultiQueryRetriever, ParentDocumentRetriever
from langchain_classic.storage import InMemoryStore
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_text_splitters import CharacterTextSplitter
from pydantic import ValidationError

from ragembed.errors import ConfigError
from ragembed.indexes import Store
from ragembed.langchain import RagEmbeddings, RagRetriever, RagVectorStore

from .fakes import FAKE, Angles, ids

TEXTS = ["part 7 of the wing", "lock for writers", "zebra", "the wing is part of a bird", "air"]


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    """A store whose dense search is random, so that only words find anything."""
    with RagVectorStore(FAKE, retrieval_mode="lexical") as store:
        store.add_texts(TEXTS, ids=TEXTS)
        yield store


@pytest.fixture
def angles() -> Iterator[RagVectorStore]:
    with RagVectorStore(Angles()) as store:
        store.add_texts(["0", "60", "120", "180"], ids=["0", "60", "120", "180"])
        yield store


async def test_mode_of_a_store_is_that_of_its_searches(store: RagVectorStore) -> None:
    expected = store.lexical_search_with_score("zebra wing")
    documents = [document for document, _ in expected]
    assert len(expected) == 3
    assert store.similarity_search_with_score("zebra wing") == expected
    assert store.similarity_search("zebra wing") == store.search("zebra wing", "similarity") == documents
    assert await store.asimilarity_search("zebra wing") == store.as_retriever().invoke("zebra wing") == documents
    assert len(store.similarity_search_by_vector(FAKE.embed_query("zebra wing"))) == 4
    with pytest.raises(ConfigError, match="retrieval_mode is 'sparse': expected one of hybrid, dense, lexical"):
        RagVectorStore(FAKE, retrieval_mode="sparse")  # type: ignore[arg-type]


def test_retrievers_of_langchain_use_the_mode(store: RagVectorStore) -> None:
    splitter = CharacterTextSplitter(separator=". ", chunk_size=20, chunk_overlap=0)
    parents = ParentDocumentRetriever(vectorstore=store, docstore=InMemoryStore(), child_splitter=splitter)
    document = Document("A quagga is here. It is extinct. It was seen in 1883.")
    parents.add_documents([document])
    assert parents.invoke("quagga") == [document]
    model = FakeListChatModel(responses=["zebra\nlock"])
    several = MultiQueryRetriever.from_llm(retriever=store.as_retriever(k=1), llm=model)
    assert ids(several.invoke("which animal?")) == ["zebra", "lock for writers"]


# Settings of retrievers


def test_settings_are_arguments_or_search_kwargs(angles: RagVectorStore) -> None:
    for retriever in (
        angles.as_retriever(k=3),
        angles.as_retriever(search_kwargs={"k": 3}),
        angles.as_retriever(k=3, search_kwargs={"k": 1}),
        angles.as_retriever(search_type="mmr", k=3, fetch_k=3, lambda_mult=1.0),
        angles.as_retriever(k=4, score_threshold=0.3),
        angles.as_retriever(search_kwargs={"score_threshold": 0.7, "k": 4}).with_config(tags=["x"]),
    ):
        found = retriever.invoke("10")
        assert ids(found) == ["0", "60", "120"][: 2 if "x" in str(retriever) and len(found) == 2 else 3]
    assert ids(angles.as_retriever(search_kwargs={"score_threshold": 0.9}).invoke("10")) == ["0"]
    assert ids(angles.as_retriever(k=1, offset=2).invoke("10")) == ["120"]
    assert ids(angles.as_retriever(filter=lambda _: True, k=1).invoke("170")) == ["180"]
    assert ids(angles.similarity_search("10", score_threshold=0.75)) == ["0", "60"]


def test_threshold_of_hybrid_search_is_the_relevance(unfitted: RagEmbeddings) -> None:
    texts = [f"{word} number {n} in folder {n * 7}" for n in range(6) for word in ("lock", "wing", "zebra", "writer")]
    with RagVectorStore.from_texts(texts, unfitted, retrieval_mode="hybrid") as store:
        scored = store.similarity_search_with_relevance_scores("zebra number 3", k=8)
        assert [relevance for _, relevance in scored] == [
            hit.relevance for hit in store.store.search("zebra number 3", 8)
        ]
        least = sorted(relevance for _, relevance in scored)[4]
        expected = {document.id for document, relevance in scored if relevance >= least}
        for retriever in (
            store.as_retriever(k=8, score_threshold=least),
            store.as_retriever(search_type="similarity_score_threshold", k=8, score_threshold=least),
            store.as_retriever(search_type="hybrid", search_kwargs={"k": 8, "min_relevance": least}),
            RagRetriever(vectorstore=store, k=8, min_relevance=least),
        ):
            assert set(ids(retriever.invoke("zebra number 3"))) == expected
        assert len(store.hybrid_search("zebra number 3", 8, min_relevance=least)) == len(expected)
        assert len(store.lexical_search("zebra number 3", 24, min_relevance=0.999)) < 24
        with pytest.raises(ValidationError, match="min_relevance cannot be combined: use 'hybrid'"):
            RagRetriever(vectorstore=store, search_type="dense", min_relevance=0.5)


async def test_a_threshold_is_not_applied_to_unknown_relevance(unfitted: RagEmbeddings) -> None:
    unknown = "relevance of results is unknown"
    unapplied = f"{unknown}, so the threshold 0.9 was not applied: it is fitted for 20 chunks or more"
    with RagVectorStore.from_texts(["lock", "lock and writer", "wing"], unfitted, retrieval_mode="hybrid") as store:
        best = ids(store.similarity_search("lock", 2))
        for retriever in (
            store.as_retriever(k=2, search_type="similarity_score_threshold", score_threshold=0.9),
            store.as_retriever(k=2, score_threshold=0.9),
            store.as_retriever(k=2, search_type="hybrid", search_kwargs={"min_relevance": 0.9}),
            RagRetriever(vectorstore=store, k=2, min_relevance=0.9),
        ):
            with pytest.warns(UserWarning, match=unapplied) as warned:
                assert ids(retriever.invoke("lock")) == best
            assert len(warned) == 1
        for threshold, message in ((0.9, unapplied), (None, unknown)):
            with pytest.warns(UserWarning, match=message):
                scored = store.similarity_search_with_relevance_scores("lock", 2, score_threshold=threshold)
            with pytest.warns(UserWarning, match=message):
                again = await store.asimilarity_search_with_relevance_scores("lock", 2, score_threshold=threshold)
            for found in (scored, again):
                assert ids([document for document, _ in found]) == best
                assert all(math.isnan(score) for _, score in found)


# Batches


class Runs(BaseCallbackHandler):
    """Counts the runs of retrievers."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.errors = 0

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.ended.append(len(documents))

    def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors += 1


@pytest.mark.parametrize("kind", ["similarity", "mmr", "RagRetriever"])
async def test_batch_searches_once_for_all_queries(store: RagVectorStore, kind: str, monkeypatch: Any) -> None:
    retriever = (
        RagRetriever(vectorstore=store, k=2, score_key="score")
        if kind == "RagRetriever"
        else store.as_retriever(search_type=kind, k=2)
    )
    queries = ["wing", "zebra", "lock for air", "wing"]
    expected = [retriever.invoke(query) for query in queries]
    calls: list[int] = []
    search_many = Store.search_many

    def counted(self: Store, queries: list[str], *args: Any, **settings: Any) -> Any:
        calls.append(len(queries))
        return search_many(self, queries, *args, **settings)

    monkeypatch.setattr(Store, "search_many", counted)
    seen = Runs()
    found = retriever.batch(queries, {"callbacks": [seen]})
    assert found == expected
    assert await retriever.abatch(queries) == expected
    assert calls == ([] if kind == "mmr" else [3, 3])
    assert seen.ended == [len(documents) for documents in expected]
    found[0][0].metadata["changed"] = True
    assert "changed" not in found[3][0].metadata
    assert ids(retriever.batch(queries, k=1)[1]) == ["zebra"]
    assert retriever.batch([]) == []


def test_errors_of_a_batch_are_those_of_each_query(store: RagVectorStore) -> None:
    seen, retriever = Runs(), store.as_retriever()
    with pytest.raises(ConfigError, match="k is -1"):
        retriever.batch(["a", "b"], k=-1)
    found = retriever.batch(["a", "b"], {"callbacks": [seen]}, return_exceptions=True, k=-1)
    assert [type(each) for each in found] == [ConfigError, ConfigError]
    assert seen.errors == 2
    with pytest.raises(ConfigError, match="queries is a str"):
        store.search_many("wing")
