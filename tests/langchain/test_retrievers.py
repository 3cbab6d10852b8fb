"""Retrievers over a vector store: ``as_retriever`` and ``RagRetriever``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore, VectorStoreRetriever
from pydantic import ValidationError

from ragembed.langchain import RagRetriever, RagVectorStore

from .fakes import Angles, FirstAngle, ids

TYPES = ("similarity", "similarity_score_threshold", "mmr", "hybrid", "lexical")
OWN_TYPES = ("hybrid", "dense", "lexical", "mmr")


@pytest.fixture(scope="module")
def store() -> Iterator[RagVectorStore]:
    """Documents at 0, 10, … 90 degrees, which tests do not change."""
    with RagVectorStore(FirstAngle()) as store:
        store.add_documents(
            [Document(id=f"d{n}", page_content=str(10 * n), metadata={"n": n, "even": n % 2 == 0}) for n in range(10)]
        )
        yield store


# as_retriever


@pytest.mark.parametrize("search_type", TYPES)
async def test_every_type_of_search_as_a_retriever(store: RagVectorStore, search_type: str) -> None:
    search_kwargs: dict[str, Any] = {"k": 3, "filter": {"n": {"$gte": 4}}}
    if search_type == "similarity_score_threshold":
        search_kwargs["score_threshold"] = 0.1
    retriever = store.as_retriever(search_type=search_type, search_kwargs=search_kwargs)
    assert isinstance(retriever, VectorStoreRetriever)
    expected = store.search("60", search_type, **search_kwargs)
    assert len(expected) == (1 if search_type == "lexical" else 3)
    assert retriever.invoke("60") == await retriever.ainvoke("60") == expected
    assert ids(retriever.invoke("60"))[0] == "d6"
    at_call = {"k": 1, "filter": {"even": False}}
    if search_type != "lexical":
        assert len(retriever.invoke("60", **at_call)) == len(await retriever.ainvoke("60", **at_call)) == 1
    assert all(not document.metadata["even"] for document in retriever.invoke("60", **at_call))
    assert retriever.search_kwargs == search_kwargs


def test_invalid_retriever_settings_are_errors(store: RagVectorStore) -> None:
    for unknown in ("dense", "", "HYBRID"):
        with pytest.raises(ValueError, match=f"search_type is {unknown!r}: expected one of similarity"):
            store.as_retriever(search_type=unknown)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'n': expected one of .*, k, filter, "):
        store.as_retriever(n=3)


@pytest.mark.parametrize("threshold", [None, "0.5", float("nan"), 1.1])
def test_invalid_thresholds_are_errors(store: RagVectorStore, threshold: Any) -> None:
    given = {} if threshold is None else {"score_threshold": threshold}
    with pytest.raises(ValueError, match=r"score_threshold is .*: expected a number from 0 to 1"):
        store.as_retriever(search_type="similarity_score_threshold", search_kwargs=given)


def test_retriever_has_class_tags_and_own_tags(store: RagVectorStore) -> None:
    assert store.as_retriever().tags == ["RagVectorStore", "FirstAngle"]
    assert store.as_retriever(tags=["mine"]).tags == ["mine", "RagVectorStore", "FirstAngle"]
    assert store.as_retriever(name="finder", metadata={"a": 1}).metadata == {"a": 1}


# RagRetriever


@pytest.mark.parametrize("search_type", OWN_TYPES)
async def test_fields_can_be_given_per_call(store: RagVectorStore, search_type: Any) -> None:
    plain = {
        "hybrid": store.hybrid_search,
        "dense": store.similarity_search,
        "lexical": store.lexical_search,
        "mmr": store.max_marginal_relevance_search,
    }[search_type]
    retriever = RagRetriever(vectorstore=store, k=2, search_type=search_type, filter={"even": True})
    other = RagRetriever(vectorstore=store, search_type="hybrid" if search_type == "dense" else "dense")
    for query in ("60", "40 0"):
        expected = plain(query, k=2, filter={"even": True})
        assert len(expected) == (1 if (search_type, query) == ("lexical", "60") else 2)
        assert retriever.invoke(query) == await retriever.ainvoke(query) == expected
        called = {"k": 2, "filter": {"even": True}, "search_type": search_type}
        assert other.invoke(query, **called) == await other.ainvoke(query, **called) == expected
        assert retriever.invoke(query, filter=None) == plain(query, k=2)
    assert (other.k, other.filter) == (4, None)  # a call does not change the retriever
    assert len(other.invoke("60")) == 4


@pytest.mark.parametrize("search_type", OWN_TYPES)
async def test_score_key_adds_the_score(store: RagVectorStore, search_type: Any) -> None:
    with_score = {
        "hybrid": store.hybrid_search_with_score,
        "dense": store.similarity_search_with_score,
        "lexical": store.lexical_search_with_score,
        "mmr": store.max_marginal_relevance_search_with_score,
    }[search_type]
    retriever = RagRetriever(vectorstore=store, k=3, search_type=search_type, score_key="score")
    expected = with_score("60 20", k=3)
    for found in (retriever.invoke("60 20"), await retriever.ainvoke("60 20")):
        assert [(document.id, document.metadata["score"]) for document in found] == [(d.id, s) for d, s in expected]
        assert {type(document.metadata["score"]) for document in found} == {float}
    assert all("score" not in document.metadata for document in retriever.invoke("60 20", score_key=None))
    assert "relevance" in RagRetriever(vectorstore=store).invoke("60", score_key="relevance")[0].metadata
    assert all("score" not in document.metadata for document in store)


async def test_unknown_arguments_are_errors(store: RagVectorStore) -> None:
    retriever = RagRetriever(vectorstore=store)
    for name in ("n", "score_threshold", "reranker", "vectorstore", "rrf_k", "tags"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}': expected one of k, search_type"):
            retriever.invoke("60", **{name: 1})
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            await retriever.ainvoke("60", **{name: 1})
    for name in ("n", "search_kwargs", "score_threshold", "weights"):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            RagRetriever(vectorstore=store, **{name: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"k": -1},
        {"search_type": "similarity"},
        {"fetch_k": 0},
        {"lambda_mult": 1.5},
    ],
)
def test_values_are_checked_in_fields_and_calls(store: RagVectorStore, settings: dict[str, Any]) -> None:
    [name] = settings
    with pytest.raises(ValidationError, match=f"1 validation error for RagRetriever\n{name}\n"):
        RagRetriever(vectorstore=store, **settings)
    with pytest.raises(ValidationError, match=f"1 validation error for RagRetriever\n{name}\n"):
        RagRetriever(vectorstore=store).invoke("60", **settings)


def test_retriever_needs_a_rag_vector_store() -> None:
    with pytest.raises(ValueError, match="a InMemoryVectorStore: expected a RagVectorStore"):
        RagRetriever(vectorstore=InMemoryVectorStore(Angles()))


async def test_retriever_in_a_chain(store: RagVectorStore) -> None:
    retriever = RagRetriever(vectorstore=store, k=2, search_type="dense")
    chain = retriever | RunnableLambda(ids)
    assert chain.invoke("0") == await chain.ainvoke("0") == ["d0", "d1"]
    assert chain.batch(["0", "90"]) == [["d0", "d1"], ["d9", "d8"]]
    assert ids(retriever.bind(k=1).invoke("90")) == ["d9"]


# Reranker


class Seen(BaseCallbackHandler):
    """Record starts and ends of runs with their parent run."""

    def __init__(self) -> None:
        self.retrievers: list[UUID] = []
        self.ended: list[list[str | None]] = []
        self.children: list[tuple[Any, UUID | None]] = []
        self.errors: list[str] = []

    def on_retriever_start(
        self, serialized: dict[str, Any], query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        self.retrievers.append(run_id)

    def on_retriever_end(self, documents: Sequence[Document], **_: Any) -> None:
        self.ended.append(ids(documents))

    def on_retriever_error(self, error: BaseException, **_: Any) -> None:
        self.errors.append(str(error))

    def on_chain_start(
        self, serialized: dict[str, Any], inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        self.children.append((inputs, parent_run_id))


class FewestFirst(BaseDocumentCompressor):
    """Sort by number with a chain that calls the given callbacks; optionally drop odd numbers."""

    only_even: bool = False
    got: list[list[str | None]] = []  # noqa: RUF012  pydantic copies it for each object

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        self.got.append(ids(documents))
        kept = [document for document in documents if document.metadata["even"] or not self.only_even]
        chain = RunnableLambda(lambda _: sorted(kept, key=lambda document: document.metadata["n"]))
        return tuple(chain.invoke(query, {"callbacks": callbacks}))


class FewestFirstAwaited(FewestFirst):
    """The same for asynchronous calls only."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        raise AssertionError("there is an asynchronous way")

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        chain = RunnableLambda(lambda _: sorted(documents, key=lambda document: document.metadata["n"]))
        return await chain.ainvoke(query, {"callbacks": callbacks})


async def test_reranker_gets_fetch_k_candidates_and_returns_k(store: RagVectorStore) -> None:
    reranker = FewestFirst()
    retriever = RagRetriever(vectorstore=store, k=2, fetch_k=4, search_type="dense", reranker=reranker)
    assert ids(retriever.invoke("90")) == ids(await retriever.ainvoke("90")) == ["d6", "d7"]
    assert reranker.got == [["d9", "d8", "d7", "d6"]] * 2
    assert ids(retriever.invoke("90", k=3, fetch_k=1)) == ["d7", "d8", "d9"]
    assert ids(retriever.invoke("90", k=1, filter={"n": {"$gt": 7}})) == ["d8"]
    few = RagRetriever(vectorstore=store, k=3, fetch_k=4, search_type="dense", reranker=FewestFirst(only_even=True))
    assert ids(few.invoke("90")) == ["d6", "d8"]
    assert isinstance(few.invoke("90"), list)


def test_reranker_runs_inside_the_retriever_run(store: RagVectorStore) -> None:
    seen = Seen()
    retriever = RagRetriever(vectorstore=store, k=1, search_type="dense", reranker=FewestFirst())
    retriever.invoke("90", {"callbacks": [seen]})
    assert len(seen.retrievers) == 1
    assert seen.children == [("90", seen.retrievers[0])]
    assert seen.ended == [["d0"]]


async def test_asynchronous_reranker_is_awaited(store: RagVectorStore) -> None:
    seen = Seen()
    retriever = RagRetriever(vectorstore=store, k=1, search_type="dense", reranker=FewestFirstAwaited())
    assert ids(await retriever.ainvoke("90", {"callbacks": [seen]}, k=2)) == ["d0", "d1"]
    assert seen.children == [("90", seen.retrievers[0])]


def test_callbacks_get_results_and_errors(store: RagVectorStore) -> None:
    seen = Seen()
    for retriever in (RagRetriever(vectorstore=store, k=1, search_type="dense"), store.as_retriever()):
        assert ids(retriever.invoke("90", {"callbacks": [seen]}, k=1)) == ["d9"]
        with pytest.raises(TypeError):
            retriever.invoke("90", {"callbacks": [seen]}, n=1)
    assert seen.ended == [["d9"], ["d9"]]
    assert len(seen.retrievers) == 4
    assert [("'n'" in error) for error in seen.errors] == [True, True]
