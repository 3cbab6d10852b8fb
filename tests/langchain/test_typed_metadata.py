"""Metadata of Python types that JSON does not have, and filters that cannot match."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.langchain import RagVectorStore
from ragembed.metadata_values import from_json, to_json

from .fakes import FAKE, ids

ZONE = timezone(timedelta(hours=2))
DAY = datetime(2024, 5, 1, 10, 0, tzinfo=ZONE)
FIRST, SECOND = UUID(int=1), UUID(int=2)


@pytest.fixture
def store() -> Iterator[RagVectorStore]:
    """Three documents, a day and a unit apart."""
    with RagVectorStore(FAKE) as store:
        store.add_documents(
            Document(
                id=str(i),
                page_content=f"text {i}",
                metadata={
                    "at": DAY + timedelta(days=i),
                    "naive": datetime(2024, 5, 1 + i, 10, 30, 0, 250),
                    "day": date(2024, 5, 1 + i),
                    "uuid": UUID(int=i + 1),
                    "file": Path("docs", f"{i}.md"),
                    "price": Decimal("9.90") + i,
                    "count": np.int64(i),
                    "share": np.float64(i) / 4,
                    "flag": np.bool_(i == 1),
                    "name": np.str_(f"n{i}"),
                    "year": 2020 + i,
                    "nested": {"days": [date(2024, 1, 1), {"id": UUID(int=i)}]},
                    "tags": ["a", "b"],
                },
            )
            for i in range(3)
        )
        yield store


def test_values_return_with_their_types(store: RagVectorStore, tmp_path: Path) -> None:
    store.save_local(tmp_path)
    with RagVectorStore.load_local(tmp_path, FAKE) as again:
        [found] = again.get_by_ids(["1"])
        assert [found] == again.similarity_search("text 1", k=1) == store.get_by_ids(["1"])
    assert found.metadata["at"] == DAY + timedelta(days=1)
    assert found.metadata["at"].utcoffset() == timedelta(hours=2)
    assert found.metadata["price"] == Decimal("10.90")
    assert str(found.metadata["price"]) == "10.90"
    assert found.metadata["file"] == Path("docs/1.md")
    assert found.metadata["nested"] == {"days": [date(2024, 1, 1), {"id": UUID(int=1)}]}
    assert {name: type(value) for name, value in found.metadata.items()} == {
        "at": datetime,
        "naive": datetime,
        "day": date,
        "uuid": UUID,
        "file": type(Path()),
        "price": Decimal,
        "count": int,
        "share": float,
        "flag": bool,
        "name": str,
        "year": int,
        "nested": dict,
        "tags": list,
    }


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"at": {"$gt": DAY}}, "12"),
        ({"at": datetime(2024, 5, 2, 8, 0, tzinfo=timezone.utc)}, "1"),  # the same moment with another offset
        ("at < '2024-05-02'", "0"),
        ({"naive": {"$lte": datetime(2024, 5, 2, 10, 30, 0, 250)}}, "01"),
        ({"day": {"$in": [date(2024, 5, 1), date(2024, 5, 3)]}}, "02"),
        ({"uuid": {"$nin": [FIRST, SECOND]}}, "2"),
        ({"file": Path("docs/2.md")}, "2"),
        ({"price": {"$lt": Decimal("11")}}, "01"),
        ({"flag": np.bool_(True)}, "1"),
        (lambda metadata: metadata["day"] > date(2024, 5, 2), "2"),
    ],
)
def test_filters_compare_by_type(store: RagVectorStore, condition: Any, expected: str) -> None:
    found = store.similarity_search("text", k=9, filter=condition)
    assert sorted(ids(found)) == list(expected)


def test_reserved_key_and_damaged_types_are_errors(store: RagVectorStore) -> None:
    with pytest.raises(ConfigError, match=r"the metadata key '\$types' is reserved"):
        store.add_texts(["x"], [{"$types": 1}])
    with pytest.raises(ConfigError, match="the decimal NaN cannot be compared"):
        store.add_texts(["x"], [{"price": Decimal("NaN")}])
    with pytest.raises(ConfigError, match="metadata of 'x' cannot be stored"):
        store.add_texts(["x"], [{"bytes": b""}], ids=["x"])
    assert len(store) == 3
    assert to_json({"a": 1}) == {"a": 1}
    for damaged in ([[["a"], "date", "x"]], [[["b", 0], "date", "2024-01-01"]], [[["a"], "cow", ""]], 3):
        with pytest.raises(StoreDamagedError, match="types of the metadata"):
            from_json({"a": 1, "$types": damaged})


# Filters that cannot match


@pytest.mark.parametrize(
    ("condition", "note"),
    [
        ({"yeer": 2020}, "no chunk has the field 'yeer': did you mean 'year'?"),
        ("year > 1 AND name = 3", "'name' is compared with a number, but its values are strings"),
    ],
)
def test_filter_that_cannot_match_warns_once(store: RagVectorStore, condition: Any, note: str) -> None:
    with pytest.warns(UserWarning, match="field") as caught:
        store.similarity_search("text", filter=condition)
    assert [note in str(warning.message) for warning in caught] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.similarity_search("text", filter=condition)
        store.delete(filter={"$and": [{"year": 0}, condition]} if isinstance(condition, dict) else condition)


@pytest.mark.parametrize(
    "condition",
    [
        {"year": {"$gte": 2021}, "tags": {"$contains": "a"}},
        lambda metadata: "zzz" in metadata,
    ],
)
def test_filter_that_can_match_does_not_warn(store: RagVectorStore, condition: Any) -> None:
    store.similarity_search("text", filter=condition)  # warnings are errors
    with RagVectorStore(FAKE) as empty:
        assert empty.similarity_search("text", filter={"zzz": 1}) == []
