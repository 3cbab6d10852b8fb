"""Structured queries as filters, and the retriever that lets a language model write them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest
from langchain_classic.retrievers import SelfQueryRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery

from ragembed.errors import ConfigError
from ragembed.langchain import RagQueryTranslator, RagVectorStore

from .fakes import FAKE, ids

MORNING = {"type": "datetime", "datetime": "2024-05-02T10:00:00+02:00"}


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    with RagVectorStore(FAKE) as store:
        metadatas = [
            {
                "n": n,
                "name": f"name {n}",
                "tags": ["all", f"t{n}"],
                "day": date(2024, 5, 1 + n),
                "at": datetime(2024, 5, 1 + n, 9, tzinfo=timezone.utc),
            }
            for n in range(4)
        ]
        store.add_texts([f"text {n}" for n in range(4)], metadatas, ids=list("0123"))
        yield store


def compare(comparator: Comparator, attribute: str, value: Any) -> Comparison:
    return Comparison(comparator=comparator, attribute=attribute, value=value)


def join(operator: Operator, *parts: Any) -> Operation:
    return Operation(operator=operator, arguments=list(parts))


TWO, NAMED = compare(Comparator.EQ, "n", 2), compare(Comparator.LIKE, "name", "NAME 3")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (TWO, "2"),
        (compare(Comparator.NE, "n", 2), "013"),
        (compare(Comparator.GT, "n", 2), "3"),
        (compare(Comparator.GTE, "n", 2), "23"),
        (compare(Comparator.LT, "n", 2), "01"),
        (compare(Comparator.LTE, "n", 2), "012"),
        (compare(Comparator.CONTAIN, "tags", "t1"), "1"),
        (compare(Comparator.LIKE, "name", "AME"), "0123"),
        (compare(Comparator.IN, "n", [0, 3, 9]), "03"),
        (compare(Comparator.NIN, "n", (0, 3, 9)), "12"),
        (compare(Comparator.GT, "day", {"type": "date", "date": "2024-05-02"}), "23"),
        (compare(Comparator.IN, "day", [{"type": "date", "date": "2024-05-02"}]), "1"),
        (compare(Comparator.LTE, "at", MORNING), "0"),
        (join(Operator.AND, compare(Comparator.GT, "n", 0), NAMED), "3"),
        (join(Operator.OR, TWO, NAMED), "23"),
        (join(Operator.NOT, join(Operator.OR, TWO, NAMED)), "01"),
        (None, "0123"),
    ],
)
def test_self_query_retriever_uses_every_comparator(store: RagVectorStore, condition: Any, expected: str) -> None:
    assert set(RagQueryTranslator.allowed_comparators) == set(Comparator)
    assert set(RagQueryTranslator.allowed_operators) == set(Operator)
    model = RunnableLambda(lambda _: StructuredQuery(query="text", filter=condition, limit=None))
    retriever = SelfQueryRetriever(
        vectorstore=store, query_constructor=model, structured_query_translator=RagQueryTranslator()
    )
    assert sorted(ids(retriever.invoke("what?"))) == list(expected)


def test_invalid_structured_queries_are_errors() -> None:
    translator = RagQueryTranslator()
    with pytest.raises(ConfigError, match="'soon' is not a date: expected ISO 8601"):
        compare(Comparator.EQ, "day", {"type": "date", "date": "soon"}).accept(translator)
    with pytest.raises(ConfigError, match="the operator not has 2 arguments: expected one"):
        join(Operator.NOT, TWO, TWO).accept(translator)
