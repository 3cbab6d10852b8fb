"""Reading ids and chunks, with and without filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes import Store
from ragembed.indexes.filters import And, Comparison, Field, Ids, Not
from ragembed.indexes.types import SourceRecord
from tests.conftest import KnownEncoder, record

NAMES = [f"n{i}" for i in range(20)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Twenty chunks, numbered in their metadata; every other one comes from the file a.md."""
    with Store.create(tmp_path_factory.mktemp("looking") / "s", KnownEncoder()) as store:
        with store.writer() as writer:
            chunks = [
                record(name, f"text {i}", "a.md" if i % 2 else None, metadata={"i": i}) for i, name in enumerate(NAMES)
            ]
            writer.stage(chunk.chunk.embedded_text for chunk in chunks)
            writer.commit(chunks=chunks, sources=[SourceRecord("a.md", 3, 0, "0" * 64, "text")])
        yield store


def ids(chunks):
    return [chunk.id for chunk in chunks]


def test_ids_are_in_insertion_order(tmp_path, encoder):
    with Store.create(tmp_path / "s", encoder) as store:
        assert store.ids() == []
        store.add([record(name, name) for name in ("z", "a", "m")])
        store.add([record("b", "b"), record("z", "another z")])
        assert store.ids() == ids(store.chunks()) == ["a", "m", "b", "z"]
        store.delete(["m"])
        assert store.ids() == ["a", "b", "z"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"i": {"$lt": 3}}, NAMES[:3]),
        (Ids(("n7", "n3", "nowhere", "n3")), ["n3", "n7"]),
        (Ids(()), []),
        ("ext = 'md' AND i < 4", ["n1", "n3"]),
    ],
)
def test_filtered_chunks_are_in_insertion_order(store, where, expected):
    assert ids(store.chunks(where=where)) == expected


@given(chosen=st.lists(st.sampled_from([*NAMES, "nowhere", "'", '"', "%", ""]), max_size=8), below=st.integers(0, 20))
def test_id_filter_combines_with_other_filters(store, chosen, below):
    some, few = Ids(tuple(chosen)), Comparison(Field("i"), "<", below)
    assert ids(store.chunks(where=some)) == [name for name in NAMES if name in chosen]
    assert ids(store.chunks(where=Not(some))) == [name for name in NAMES if name not in chosen]
    both = [name for i, name in enumerate(NAMES) if name in chosen and i < below]
    assert ids(store.chunks(where=And((some, few)))) == both
    assert store.count_selected(where=And((some, few))) == len(both)
    either = [name for i, name in enumerate(NAMES) if name not in chosen or i >= below]
    assert ids(store.chunks(where=Not(And((some, few))))) == either


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_search_with_an_id_filter(store, mode):
    hits = store.search("text 4", 9, mode, where=Ids(("n4", "n11", "n0", "nowhere")))
    assert hits[0].id == "n4"
    assert {hit.id for hit in hits} == {"n4", "n11", "n0"}
    assert store.search("text 4", 9, mode, where=Ids(())) == []


def test_more_ids_than_sqlite_parameters(tmp_path, encoder):
    names = [f"id {i}" for i in range(40_000)]
    with Store.create(tmp_path / "s", encoder) as store:
        store.add([record(name, "one text") for name in (names[0], names[-1], "other")])
        assert ids(store.chunks(where=Ids(tuple(names)))) == [names[0], names[-1]]
        assert store.delete(where=Not(Ids(tuple(names)))) == 1
        assert store.ids() == [names[0], names[-1]]
