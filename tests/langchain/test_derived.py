"""Methods that are derived from another one: asynchronous versions, and searches without scores."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ragembed.langchain import RagRecordManager, RagVectorStore
from tests.langchain.fakes import Angles

OWN = {"aiter_documents", "afrom_documents"}  # an asynchronous iterator, and a method of LangChain's class
TWINS = [
    (kind, name)
    for kind in (RagVectorStore, RagRecordManager)
    for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
    if not name.startswith("_") and name not in OWN
]
WITHOUT_SCORES = [name for name in dir(RagVectorStore) if re.fullmatch(r"[a-z_]+_with_score(_by_vector)?", name)]


@pytest.fixture
def angles() -> Iterator[RagVectorStore]:
    with RagVectorStore.from_texts(["0", "30", "90"], Angles(), ids=["0", "30", "90"]) as store:
        yield store


@pytest.mark.parametrize(("kind", "name"), TWINS, ids=lambda part: getattr(part, "__name__", part))
def test_an_asynchronous_method_has_the_signature_of_its_twin(kind: type, name: str) -> None:
    twin, method = getattr(kind, name), getattr(kind, name[1:])
    assert inspect.signature(twin) == inspect.signature(method)
    assert twin.__name__ == name
    assert f":meth:`{name[1:]}`" in inspect.getdoc(twin)


def test_searches_without_scores_have_the_parameters_of_those_with_scores() -> None:
    pairs = [name for name in WITHOUT_SCORES if not name.startswith("a") and name != "search_many_with_score"]
    assert len(pairs) == 6
    for name in pairs:
        derived, method = (
            inspect.signature(getattr(RagVectorStore, each)) for each in (name.replace("_with_score", ""), name)
        )
        assert derived.parameters == method.parameters
        assert derived.return_annotation == "list[Document]"


async def test_a_derived_method_calls_the_method_of_a_subclass() -> None:
    class Logged(RagVectorStore):
        def lexical_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Any:
            return super().lexical_search_with_score(query.removeprefix("find "), k, **kwargs)

    with Logged.from_texts(["0", "30"], Angles()) as store:
        assert [document.page_content for document in store.lexical_search("find 30", k=1)] == ["30"]
        assert [document.page_content for document in await store.alexical_search("find 30", k=1)] == ["30"]


@pytest.mark.parametrize("search_type", ["similarity", "mmr", "lexical"])
async def test_several_queries_give_scores(angles: RagVectorStore, search_type: str) -> None:
    results = angles.search_many_with_score(["30", "0"], search_type, 1)
    assert [[document.id for document, _ in scored] for scored in results] == [["30"], ["0"]]
    assert all(isinstance(score, float) and score > 0.0 for scored in results for _, score in scored)
    assert await angles.asearch_many_with_score(["30", "0"], search_type, 1) == results


def test_a_mode_of_one_call_replaces_that_of_the_store(angles: RagVectorStore) -> None:
    angles.retrieval_mode = "lexical"
    assert len(angles.search_many_with_score(["30"])[0]) == 1
    assert len(angles.search_many_with_score(["30"], retrieval_mode="dense")[0]) == 3


def test_the_store_is_accessible(angles: RagVectorStore) -> None:
    assert angles.store.ids() == angles.ids() == ["0", "30", "90"]
    assert angles.store.path == angles.path
