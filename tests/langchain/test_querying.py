"""Searching a vector store: dense, lexical and hybrid search, scores and filters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.indexes import Store
from ragembed.langchain import RagVectorStore
from ragembed.langchain.embeddings import ExternalEncoder

from .fakes import Angles, Given


class Worded(Embeddings):
    """The first number in a text is its angle in degrees, 0 if there is none; vectors have length 2."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        number = re.search(r"\d+", text)
        angle = math.radians(float(number[0]) if number else 0.0)
        return [2 * math.cos(angle), 2 * math.sin(angle)]


@pytest.fixture(scope="module")
def store() -> Iterator[RagVectorStore]:
    """Five documents, which tests do not change, with words in all, two or one of them."""
    with RagVectorStore(Worded()) as store:
        store.add_texts(
            ["lock 0", "lock 30 wing", "lock 60", "lock 90 wing air", "lock 180"],
            [{"n": n, "wing": "wing" if n in (1, 3) else None} for n in range(5)],
            ids=["at 0", "at 30", "at 60", "at 90", "at 180"],
        )
        yield store


VECTOR = Worded().embed_query("0")

SEARCHES: dict[str, tuple[str, Any]] = {
    "similarity": ("similarity_search_with_score", "lock"),
    "similarity by vector": ("similarity_search_with_score_by_vector", VECTOR),
    "relevance": ("similarity_search_with_relevance_scores", "lock"),
    "mmr": ("max_marginal_relevance_search_with_score", "lock"),
    "mmr by vector": ("max_marginal_relevance_search_with_score_by_vector", VECTOR),
    "hybrid": ("hybrid_search_with_score", "lock wing"),
    "lexical": ("lexical_search_with_score", "lock wing"),
}
"""The method with scores, and its query, by name."""


def called(name: str, prefix: str = "", *, plain: bool = False) -> Callable[..., Any]:
    """Return a function that searches; ``plain`` means without scores, and the prefix ``a`` asynchronously."""
    method, query = SEARCHES[name]
    if plain and name == "relevance":
        return lambda store, k=4, **how: getattr(store, f"{prefix}search")(
            query, "similarity_score_threshold", k=k, **how
        )
    method = method.replace("_with_score", "") if plain else method
    return lambda store, k=4, **how: getattr(store, prefix + method)(query, k, **how)


SCORED = {name: called(name) for name in SEARCHES}


def ids(found: list[Any]) -> list[str]:
    return [(one if isinstance(one, Document) else one[0]).id for one in found]


# All searches


@pytest.mark.parametrize("name", SCORED)
async def test_search_variants_return_the_same(store: RagVectorStore, name: str) -> None:
    for how in ({}, {"k": 2}, {"filter": {"n": {"$gte": 1}}}):
        scored = SCORED[name](store, **how)
        assert len(scored) == how.get("k", 4)
        assert called(name, plain=True)(store, **how) == [document for document, _ in scored]
        assert await called(name, "a")(store, **how) == scored
        assert await called(name, "a", plain=True)(store, **how) == [document for document, _ in scored]


@pytest.mark.parametrize("name", SCORED)
def test_every_score_is_a_python_float_and_results_are_json(store: RagVectorStore, name: str) -> None:
    found = SCORED[name](store, k=5)
    assert {type(score) for _, score in found} == {float}
    decoded = json.loads(json.dumps([[document.model_dump(), score] for document, score in found], allow_nan=False))
    assert [(document["id"], score) for document, score in decoded] == [(d.id, score) for d, score in found]


@pytest.mark.parametrize("name", SCORED)
def test_values_of_k(store: RagVectorStore, name: str, tmp_path: Path) -> None:
    search = SCORED[name]
    assert search(store, k=0) == []
    assert len(search(store, k=3)) == 3
    assert set(ids(search(store, k=10**9))) == set(store.ids())
    with pytest.raises(ConfigError, match="k is -1: expected 0 or more"):
        search(store, k=-1)
    empty = RagVectorStore(Worded(), tmp_path / "store")
    assert search(empty) == []
    empty.add_texts(["lock"], ids=["1"])
    assert ids(search(empty)) == ["1"]
    empty.clear()
    assert search(empty) == search(empty, filter={"n": 1}) == []


# Scores


@pytest.mark.parametrize("name", ["similarity", "mmr by vector"])
def test_score_is_the_cosine(store: RagVectorStore, name: str) -> None:
    for how in ({}, {"filter": {"n": {"$lt": 9}}}):
        scores = {document.id: score for document, score in SCORED[name](store, k=5, **how)}
        assert scores == {
            f"at {angle}": pytest.approx(math.cos(math.radians(angle)), abs=1e-3) for angle in (0, 30, 60, 90, 180)
        }
        assert all(-1.0 <= score <= 1.0 for score in scores.values())


@pytest.mark.parametrize("length", [1e-20, 40.0])
def test_relevance_formula(length: float) -> None:
    with RagVectorStore(Angles(length)) as store:
        store.add_texts(["180", "90", "30", "0"], ids=["180", "90", "30", "0"])
        found = store.similarity_search_with_relevance_scores("0", k=4)
        assert ids(found) == ["0", "30", "90", "180"]
        assert [score for _, score in found] == pytest.approx([1.0, 0.9330, 0.5, 0.0], abs=1e-3)
        assert all(0.0 <= score <= 1.0 for _, score in found)
        assert ids(store.similarity_search_with_relevance_scores("0", k=4, score_threshold=0.6)) == ["0", "30"]
        best = [store.similarity_search_with_relevance_scores(str(n), k=1)[0][1] for n in (0, 30, 90, 180)]
        assert best == pytest.approx([1.0] * 4, abs=1e-6)


# Lexical and hybrid search


def test_lexical_scores_equal_those_of_the_store(store: RagVectorStore) -> None:
    with Store.open(store.path, ExternalEncoder(Worded())) as opened:
        for mode, search in (("lexical", store.lexical_search_with_score), ("hybrid", store.hybrid_search_with_score)):
            hits = opened.search("wing 60", 5, mode)  # type: ignore[arg-type]
            assert [(hit.id, hit.score) for hit in hits] == [(d.id, score) for d, score in search("wing 60", 5)]


# Search by vector, batches of queries, types of search


def test_search_by_vector_equals_search_by_text(store: RagVectorStore) -> None:
    question = "17"
    vector = Worded().embed_query(question)
    by_text = store.similarity_search_with_score(question, k=5)
    assert store.similarity_search_with_score_by_vector(vector, k=5) == by_text
    assert store.similarity_search_with_score_by_vector(np.array(vector), k=5) == by_text  # type: ignore[arg-type]
    longer = [1000 * value for value in vector]
    assert ids(store.similarity_search_by_vector(longer, k=5)) == ids(by_text)
    diverse = store.max_marginal_relevance_search_with_score(question, k=3, lambda_mult=0.3)
    assert store.max_marginal_relevance_search_with_score_by_vector(vector, k=3, lambda_mult=0.3) == diverse


@pytest.mark.parametrize("vector", [[1.0, 0.0, 0.0], [math.nan, 1.0]])
def test_query_vector_of_wrong_dimension_is_an_error(store: RagVectorStore, vector: Any) -> None:
    for search in (
        store.similarity_search_by_vector,
        store.similarity_search_with_score_by_vector,
        store.max_marginal_relevance_search_by_vector,
        store.max_marginal_relevance_search_with_score_by_vector,
    ):
        with pytest.raises((ConfigError, IncompatibleStoreError)):
            search(vector)


async def test_search_accepts_every_type(store: RagVectorStore) -> None:
    for search_type, expected in (
        ("similarity", store.similarity_search("wing", k=3)),
        ("mmr", store.max_marginal_relevance_search("wing", k=3)),
        ("hybrid", store.hybrid_search("wing", k=3)),
        ("lexical", store.lexical_search("wing", k=3)),
        ("similarity_score_threshold", store.similarity_search("wing", k=3)),
    ):
        assert store.search("wing", search_type, k=3) == expected
        assert await store.asearch("wing", search_type, k=3) == expected
    assert ids(store.search("wing", "similarity_score_threshold", k=5, score_threshold=0.9)) == ["at 0", "at 30"]
    for unknown in ("dense", "", "Hybrid"):
        with pytest.raises(ValueError, match=f"search_type {unknown!r}: expected one of similarity, .*, lexical"):
            store.search("wing", unknown)
        with pytest.raises(ValueError, match="expected one of similarity"):
            await store.asearch("wing", unknown)


# Filters


@pytest.mark.parametrize("name", SCORED)
def test_every_search_accepts_a_filter_function(store: RagVectorStore, name: str) -> None:
    assert set(ids(SCORED[name](store, k=5, filter=lambda metadata: metadata["n"] in (1, 2, 4)))) == {
        "at 30",
        "at 60",
        "at 180",
    }
    assert SCORED[name](store, k=5, filter=lambda metadata: False) == []
    assert SCORED[name](store, k=5, filter=lambda metadata: True) == SCORED[name](store, k=5)
    assert SCORED[name](store, filter=lambda metadata: metadata["n"] > 0) == SCORED[name](store, filter="n > 0")


def test_filter_function_gets_a_copy_of_all_metadata(store: RagVectorStore) -> None:
    called: list[int] = []

    def spoils(metadata: dict[str, Any]) -> bool:
        called.append(metadata.pop("n"))
        return True

    assert len(store.similarity_search("lock", k=1, filter=spoils)) == 1
    assert called == [0, 1, 2, 3, 4]
    assert [document.metadata["n"] for document in store] == called


def test_invalid_filter_is_an_error_in_every_search(store: RagVectorStore) -> None:
    for search in SCORED.values():
        with pytest.raises(ConfigError):
            search(store, filter={"$nor": []})


# Maximal marginal relevance


def test_zero_vectors_have_cosine_0() -> None:
    with RagVectorStore(Given([[0.0, 0.0]])) as store:
        store.add_texts(["a"])
        assert [score for _, score in store.similarity_search_with_score("a")] == [0.0]
        assert [score for _, score in store.similarity_search_with_relevance_scores("a")] == [0.5]


def test_errors_in_filter_functions_are_raised(store: RagVectorStore) -> None:
    with pytest.raises(KeyError, match="no such"):
        store.similarity_search("lock", filter=lambda metadata: metadata["no such"])
