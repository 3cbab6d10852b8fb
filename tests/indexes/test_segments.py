"""A store gives the same results from several segments as from one."""

import numpy as np
import pytest

from ragembed.errors import StoreDamagedError
from ragembed.indexes import RankingOptions, Store
from ragembed.indexes.faiss_index.index import SegmentIndex
from ragembed.indexes.storage import reader
from ragembed.indexes.verification import verify_store
from tests.conftest import KnownEncoder, record

DIM, SIZE = 16, 360
WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
QUERIES = [f"{' '.join(np.random.default_rng(1000 + i).choice(WORDS, 3))} n{17 * i}" for i in range(6)]
FILTERS = [None, "third = 1", "i < 12", "i != 5", "i > 10000", "third IN (0, 2)"]
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


def kinds_of(store):
    return {segment["kind"] for segment in store.status()["segments"]}


def told(hits):
    return [(hit.id, hit.score, hit.dense, hit.lexical) for hit in hits]


def assert_sound(store):
    report = verify_store(store.path, encoder())
    assert (report.problems, report.leftovers) == ([], 0)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Flat stores with the same chunks in one and in several segments. No test changes them."""
    folder = tmp_path_factory.mktemp("stores")
    made = {count: fill(folder, count) for count in (1, *SEGMENTS)}
    yield made
    for store in made.values():
        store.close()


# Results


@pytest.mark.parametrize("count", SEGMENTS)
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("where", FILTERS)
def test_exact_search_does_not_depend_on_segments(stores, count, mode, where):
    for query in QUERIES:
        for k in (1, 10):
            expected = told(stores[1].search(query, k, mode, where=where))
            assert told(stores[count].search(query, k, mode, where=where)) == expected


@pytest.mark.parametrize("count", SEGMENTS)
def test_batch_search_does_not_depend_on_segments(stores, count):
    vectors = encoder().encode_queries(QUERIES)
    for one, several in (
        (stores[1].search_many(QUERIES, 15), stores[count].search_many(QUERIES, 15)),
        (stores[1].search_vectors(vectors, 15), stores[count].search_vectors(vectors, 15)),
    ):
        assert [told(hits) for hits in several] == [told(hits) for hits in one]


@pytest.mark.parametrize("count", SEGMENTS)
def test_ranking_and_mmr_do_not_depend_on_segments(stores, count):
    for query in QUERIES:
        arranged = RankingOptions(dedupe=True, per_file=2, mmr=0.5)
        one, several = (stores[n].search(query, 8, ranking=arranged) for n in (1, count))
        assert told(several) == told(one)
        one, several = (stores[n].search_mmr(query, 8, fetch_k=60) for n in (1, count))
        assert told(several) == told(one)


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


@pytest.mark.parametrize("threads", [2, 16])
def test_parallel_search_of_large_segments(stores, threads, monkeypatch):
    monkeypatch.setattr(reader, "_LEAST_ROWS", 50)
    with Store.open(stores[3].path, encoder(), threads=threads) as store:
        for query in QUERIES:
            for where in (None, "third = 1"):
                assert told(store.search(query, 9, where=where)) == told(stores[1].search(query, 9, where=where))
        assert store.reader.searcher._pool is not None
        store.close()
        assert store.reader.searcher._pool is None
        assert told(store.search(QUERIES[0], 9)) == told(stores[1].search(QUERIES[0], 9))


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_parallel_search_of_a_flat_segment(tmp_path, threads, monkeypatch):
    asked = []

    def noted(self, queries, k, start, stop, allowed=None, search=SegmentIndex.search_part):
        asked.append((start, stop))
        return search(self, queries, k, start, stop, allowed)

    monkeypatch.setattr(SegmentIndex, "search_part", noted)
    with fill(tmp_path, 1) as whole:
        [size] = rows_of(whole)
        questions = [(query, k, where) for query in QUERIES for k in (1, 9, size) for where in FILTERS]
        expected = [told(whole.search(query, k, "dense", where=where)) for query, k, where in questions]
        assert not asked
    monkeypatch.setattr(reader, "_LEAST_PART", 20)
    with Store.open(whole.path, encoder(), threads=threads) as store:
        assert [told(store.search(query, k, "dense", where=where)) for query, k, where in questions] == expected
        starts, stops = zip(*sorted(set(asked)), strict=True)
        assert len(starts) == min(threads, size // 20)
        assert (starts[0], stops[-1]) == (0, size)
        assert starts[1:] == stops[:-1]
        asked.clear()
        store.search_many(QUERIES * 2, mode="dense")
        assert not asked


@pytest.mark.parametrize("threads", [None, 1, 4])
def test_small_segments_and_many_queries_use_no_extra_threads(stores, threads, monkeypatch):
    with Store.open(stores[3].path, encoder(), threads=threads) as store:
        store.search(QUERIES[0])
        monkeypatch.setattr(reader, "_LEAST_ROWS", 50)
        store.search_many(QUERIES * 2, mode="dense")
        assert store.reader.searcher._pool is None


def test_error_in_a_thread_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_LEAST_ROWS", 50)
    with fill(tmp_path, 3) as store:
        folder = store.status()["segments"][-1]["folder"]
    file = store.path / "segments" / folder / "index.faiss"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Store.open(store.path, encoder(), threads=3) as opened, pytest.raises(StoreDamagedError, match=folder):
        opened.search(QUERIES[0], mode="dense")


# Changes of a store


def test_only_a_damaged_segment_is_rebuilt(tmp_path):
    with fill(tmp_path, 3, deleted=False) as store:
        folders = [segment["folder"] for segment in store.status()["segments"]]
        expected = told(store.search(QUERIES[0], 9, "dense"))
    (store.path / "segments" / folders[1] / "index.faiss").write_bytes(b"nothing")
    verify_store(store.path, encoder(), repair=True)
    with Store.open(store.path, encoder()) as opened:
        now = [segment["folder"] for segment in opened.status()["segments"]]
        assert [now[0], now[2]] == [folders[0], folders[2]]
        assert told(opened.search(QUERIES[0], 9, "dense")) == expected
        assert_sound(opened)
