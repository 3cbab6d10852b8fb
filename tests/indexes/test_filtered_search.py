"""Filters apply before the search, work alike in every mode and form, and see all changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.filters import And, Comparison, Field, Filter, Glob, Not, Or
from ragembed.indexes.storage import reader
from ragembed.indexes.types import SourceRecord
from tests.conftest import WORDS, KnownEncoder

SIZE = 240
FILES = {
    f"{folder}/{name}{i}.{ext}": ext
    for i, (folder, name, ext) in enumerate([("docs", "a", "md"), ("docs/deep", "b", "TXT"), ("notes", "c", "md")])
}


def text(i):
    return f"{WORDS[i % 50]} {WORDS[(7 * i) % 50]} lock {i % 60}"


def chunk(i):
    """Return a chunk of one of three files or of none; every fourth chunk has the text of another."""
    metadata = {"i": i, "tenth": i % 10, "flag": i % 2 == 0, "name": WORDS[i % 5]}
    if i % 3 == 0:
        metadata["rare"] = [i % 7, "x"]
    return Chunk(text(i), metadata=metadata, page=i % 9 or None, title="Title" if i % 5 == 0 else None)


def source(i):
    return None if i % 4 == 3 else list(FILES)[i % 4]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A store of many chunks in several segments, with some chunks deleted."""
    path = tmp_path_factory.mktemp("filtered") / "store"
    with Store.create(path, KnownEncoder()) as store, store.writer() as writer:
        records = [ChunkRecord(f"id{i}", chunk(i), source(i)) for i in range(SIZE)]
        for name in FILES:
            writer.commit(sources=[SourceRecord(name, 10, 10**9, "0" * 64, "r")])
        for start in range(0, SIZE, 80):
            writer.stage(record.chunk.embedded_text for record in records[start : start + 80])
            writer.commit(chunks=records[start : start + 80])
        writer.delete([f"id{i}" for i in range(0, SIZE, 11)])
    return path


@pytest.fixture(scope="module")
def store(path):
    with Store.open(path, KnownEncoder()) as store:
        yield store


ALIVE = [i for i in range(SIZE) if i % 11]

CONDITIONS = {
    "i >= 0": lambda i: True,
    "flag = true AND NOT name = 'the'": lambda i: i % 2 == 0 and i % 5 != 0,
    "ext = 'md'": lambda i: i % 4 in (0, 2),
    "ext = 'txt' OR ext IS NULL": lambda i: i % 4 in (1, 3),
    "path GLOB 'docs/**'": lambda i: i % 4 in (0, 1),
    "path IS NULL": lambda i: i % 4 == 3,
    "rare CONTAINS 'x' AND i BETWEEN 30 AND 60": lambda i: i % 3 == 0 and 30 <= i <= 60,
    "missing != 1": lambda i: True,
}


def matching(holds):
    return {f"id{i}" for i in ALIVE if holds(i)}


def ids(hits):
    return [hit.id for hit in hits]


@pytest.mark.parametrize("where", CONDITIONS)
def test_filtered_search_equals_unfiltered_search_without_other_chunks(store, where):
    wanted = matching(CONDITIONS[where])
    for mode in ("dense", "lexical"):
        for query in ("lock 7", "one two three lock 50"):
            everything = [hit for hit in store.search(query, SIZE, mode) if hit.id in wanted]
            found = store.search(query, SIZE, mode, where=where)
            assert ids(found) == ids(everything)
            np.testing.assert_allclose([h.score for h in found], [h.score for h in everything], atol=1e-5)
            assert ids(store.search(query, 4, mode, where=where)) == ids(everything[:4])


leaves = st.one_of(
    st.builds(Comparison, st.just(Field("i")), st.sampled_from(["<", ">=", "="]), st.integers(-5, SIZE + 5)),
    st.builds(Comparison, st.just(Field("tenth")), st.just("="), st.integers(0, 10)),
    st.builds(Comparison, st.just(Field("flag")), st.just("="), st.booleans()),
    st.builds(Glob, st.just(Field("path")), st.sampled_from(["*.md", "docs/**", "*"])),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def holds(node: Filter, i: int) -> bool:
    if isinstance(node, Not):
        return not holds(node.operand, i)
    if isinstance(node, And):
        return all(holds(part, i) for part in node.operands)
    if isinstance(node, Or):
        return any(holds(part, i) for part in node.operands)
    if isinstance(node, Glob):
        name = source(i)
        return (
            name is not None
            and {"*": True, "*.md": name.endswith(".md"), "docs/**": name.startswith("docs/")}[node.pattern]
        )
    value = chunk(i).metadata[node.field.name]
    return {"<": value < node.value, ">=": value >= node.value, "=": value == node.value}[node.operator]


@given(node=trees, k=st.integers(1, 30))
def test_search_agrees_with_an_evaluation_in_python(store, node, k):
    wanted = {f"id{i}" for i in ALIVE if holds(node, i)}
    everything = [hit.id for hit in store.search("lock 7", SIZE, "dense") if hit.id in wanted]
    assert ids(store.search("lock 7", k, "dense", where=node)) == everything[:k]
    assert len(store.search("lock 7", k, where=node)) == min(k, len(wanted))


def test_filtered_search_sees_new_writes(tmp_path):
    path = tmp_path / "s"
    with Store.create(path, KnownEncoder()) as store, Store.open(path, KnownEncoder()) as other:
        where = "kind = 'new'"
        for turn in range(5):
            store.add([ChunkRecord(f"id{turn}", Chunk(f"text {turn}", metadata={"kind": "new"}))])
            for opened in (store, other):
                assert len(opened.search("text", 9, "dense", where=where)) == turn + 1
        store.add([ChunkRecord("id0", Chunk("text 0", metadata={"kind": "old"}))])
        assert set(ids(other.search("text", 9, "dense", where=where))) == {"id1", "id2", "id3", "id4"}
        store.delete(["id1"])
        store.optimize()
        assert set(ids(other.search("text", 9, where=where))) == {"id2", "id3", "id4"}
        assert store.delete(where=where) == 3
        assert other.search("text", 9, where=where) == []
        assert ids(other.search("text", 9)) == ["id0"]


def test_more_filters_than_the_cache_holds(store):
    for _ in range(2):
        for tenth in range(reader._SELECTIONS_KEPT + 2):
            found = store.search("lock", 50, "dense", where={"tenth": tenth})
            assert {hit.chunk.metadata["tenth"] for hit in found} == ({tenth} if tenth < 10 else set())
    with store.snapshot() as snapshot:
        assert len(snapshot.stores[0].kept.selections) <= reader._SELECTIONS_KEPT


def test_only_matching_chunks_are_deleted(tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        store.add([ChunkRecord(f"id{i}", chunk(i)) for i in range(40)])
        assert store.count_selected(["id1"], where="tenth = 3") == 5
        assert store.delete(["id1", "unknown"], where="tenth = 3") == 5
        assert {found.id for found in store.chunks()} == {f"id{i}" for i in range(40) if i != 1 and i % 10 != 3}
        assert store.delete(where="i > 1000") == 0
        generation = store.status()["generation"]
        assert store.delete(where="i > 1000") == 0
        assert store.status()["generation"] == generation
        assert store.delete(where={}) == 35
        assert len(store) == 0
        assert store.search("lock", 5, where="i > 3") == []


@pytest.mark.parametrize("where", ["tenth =", {"tenth": {"$near": 3}}])
def test_invalid_filter_raises_in_every_method(store, where):
    for use in (
        lambda: store.search("lock", where=where),
        lambda: store.search_vector(np.zeros(8), where=where),
        lambda: store.count_selected(where=where),
        lambda: store.delete(where=where),
    ):
        with pytest.raises(ConfigError):
            use()
