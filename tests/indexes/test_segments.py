"""A store gives the same results from several segments as from one."""

import numpy as np
import pytest

from ragembed.errors import StoreDamagedError
from ragembed.indexes import Store
from ragembed.indexes.storage import reader
from tests.conftest import KnownEncoder, record

DIM, SIZE = 16, 360
WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
QUERIES = [f"{' '.join(np.random.default_rng(1000 + i).choice(WORDS, 3))} n{17 * i}" for i in range(4)]
FILTERS = [None, "third = 1", "i < 12"]
SEGMENTS = [3, 7]


def encoder():
    """Vectors of texts; every ninth text has the same vector, so every segment has ties."""
    same = np.random.default_rng(5).normal(size=DIM).astype(np.float16).tolist()
    return KnownEncoder({text_of(i): same for i in range(0, SIZE, 9)}, dim=DIM)


def text_of(i):
    return f"{' '.join(np.random.default_rng(i).choice(WORDS, 6))} n{i}"


def records(start, stop):
    return [record(f"i{i}", text_of(i), metadata={"i": i, "third": i % 3}) for i in range(start, stop)]


def fill(folder, count, deleted=True):
    """A flat store of ``count`` segments, each with unused rows."""
    store = Store.create(folder / f"s{count}", encoder())
    for part in np.array_split(np.arange(SIZE), count):
        store.add(records(part[0], part[-1] + 1))
    if deleted:
        store.delete([f"i{i}" for i in range(0, SIZE, 20)])
    assert len(rows_of(store)) == count
    return store


def rows_of(store):
    return [segment["rows"] for segment in store.status()["segments"]]


def told(hits):
    return [(hit.id, hit.score, hit.dense, hit.lexical) for hit in hits]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Flat stores with the same chunks in one and in several segments. No test changes them."""
    folder = tmp_path_factory.mktemp("stores")
    made = {count: fill(folder, count) for count in (1, *SEGMENTS)}
    yield made
    for store in made.values():
        store.close()


# Results


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("where", FILTERS)
def test_exact_search_does_not_depend_on_segments(stores, mode, where):
    for query in QUERIES:
        expected = told(stores[1].search(query, 10, mode, where=where))
        assert told(stores[7].search(query, 10, mode, where=where)) == expected


@pytest.mark.parametrize("count", SEGMENTS)
def test_ties_in_several_segments_keep_their_order(stores, count):
    same = encoder().encode_queries([text_of(0)])[0]
    one, several = (stores[n].search_vector(same, 25) for n in (1, count))
    assert len({hit.score for hit in one}) < 5
    assert told(several) == told(one)
    [explained, *_] = stores[count].explain(QUERIES[0], 3)
    assert explained.hit.id == stores[1].search(QUERIES[0], 1)[0].id
    assert np.array_equal(stores[count].vectors(["i1", "i359"]), stores[1].vectors(["i1", "i359"]))


# Threads


def test_error_in_a_thread_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_LEAST_ROWS", 50)
    with fill(tmp_path, 3) as store:
        folder = store.status()["segments"][-1]["folder"]
    file = store.path / "segments" / folder / "index.faiss"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Store.open(store.path, encoder(), threads=3) as opened, pytest.raises(StoreDamagedError, match=folder):
        opened.search(QUERIES[0], mode="dense")
