"""Several queries at once give the same results as single searches, on every kind of index."""

import shutil
from itertools import chain

import faiss
import numpy as np
import pytest

from ragembed.errors import ConfigError, IncompatibleStoreError, StoreDamagedError
from ragembed.indexes import Store
from ragembed.indexes.faiss_index import choose, index
from ragembed.indexes.faiss_index import vectors as products
from ragembed.indexes.faiss_index.choose import Machine
from ragembed.indexes.search import hybrid, pipeline
from ragembed.indexes.storage import reader, segments, upkeep
from tests.conftest import KnownEncoder, record

DIM, SIZE = 16, 420
WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
QUERIES = [f"{' '.join(np.random.default_rng(i).choice(WORDS, 3))} n{7 * i}" for i in range(8)]


def small_stores(patched):
    """Let small stores have the index kinds of large stores, on a machine with a known speed."""
    patched.setattr(segments, "LEAST_APPROXIMATE", 256)
    patched.setattr(choose, "LEAST_ASKED", 256)
    patched.setattr(upkeep, "LEAST_ASKED", 256, raising=False)
    patched.setattr(upkeep, "QUERIES_PER_CHECK", 20)
    patched.setattr(choose, "measure_machine", lambda _dim: Machine(0.1, 0.1, 8 * 1024**3))


@pytest.fixture
def _small(monkeypatch):
    small_stores(monkeypatch)


def records(start, stop):
    return [
        record(f"i{i}", f"{' '.join(np.random.default_rng(i).choice(WORDS, 6))} n{i}", metadata={"i": i})
        for i in range(start, stop)
    ]


def fill(folder, kind):
    """A store of two segments, the smaller one flat, with some deleted chunks."""
    store = Store.create(folder / "s", KnownEncoder(dim=DIM), index=kind)
    store.add(records(0, 300))
    store.add(records(300, SIZE))
    store.delete([f"i{i}" for i in range(0, SIZE, 20)])
    return store


@pytest.fixture(scope="module", params=["flat", "hnsw", "ivf-pq"])
def store(request, tmp_path_factory):
    """A store that no test changes."""
    with pytest.MonkeyPatch.context() as patched:
        small_stores(patched)
        with fill(tmp_path_factory.mktemp("store"), request.param) as store:
            yield store


def found(hits):
    return [hit.id for hit in hits], [hit.score for hit in hits]


def assert_same_hits(many, one):
    assert len(many) == len(one)
    for a, b in zip(many, one, strict=True):
        assert found(a)[0] == found(b)[0]
        np.testing.assert_allclose(found(a)[1], found(b)[1], atol=1e-5)


# Batches


@pytest.mark.parametrize("where", [None, "i >= 100", "i < 0"])
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_search_many_equals_single_searches(store, mode, where):
    few = [*QUERIES[:2], "?!", "", QUERIES[0]]
    for k, queries in ((3, [*QUERIES, *few]), (10**9, few)):
        many = store.search_many(queries, k, mode, where=where)
        assert_same_hits(many, [store.search(query, k, mode, where=where) for query in queries])


def test_search_vectors_equals_single_searches(store):
    vectors = np.random.default_rng(1).normal(size=(25, DIM))
    for where in (None, "i >= 100"):
        many = store.search_vectors(vectors, 10, where=where)
        assert_same_hits(many, [store.search_vector(vector, 10, where=where) for vector in vectors])
        assert_same_hits(store.search_vectors(vectors.tolist(), 10, where=where), many)


def test_queries_are_encoded_together(store, monkeypatch):
    asked = []
    encode = KnownEncoder.encode_queries
    monkeypatch.setattr(KnownEncoder, "encode_queries", lambda self, texts: asked.append(texts) or encode(self, texts))
    store.search_many(QUERIES, 3)
    assert [list(texts) for texts in asked] == [QUERIES]


def test_all_queries_read_one_generation(store, tmp_path, monkeypatch):
    store = Store.open(shutil.copytree(store.path, tmp_path / "s"), KnownEncoder(dim=DIM))
    before = store.search_many(QUERIES, 10**6, "dense")
    encode = KnownEncoder.encode_queries
    other = Store.open(store.path, KnownEncoder(dim=DIM))

    def encode_while_another_writes(self, texts):
        other.delete(where="i >= 100")
        return encode(self, texts)

    monkeypatch.setattr(KnownEncoder, "encode_queries", encode_while_another_writes)
    assert_same_hits(store.search_many(QUERIES, 10**6, "dense"), before)
    monkeypatch.setattr(KnownEncoder, "encode_queries", encode)
    assert len(store.search_many(QUERIES, 10**6, "dense")[0]) == 95


def test_nothing_asked_and_an_empty_store_give_no_results(store, tmp_path):
    empty = Store.create(tmp_path / "empty", KnownEncoder(dim=DIM))
    assert empty.search_vectors(np.zeros((2, DIM)), 5) == [[], []]
    for mode in ("dense", "lexical", "hybrid"):
        assert store.search_many([], 5, mode) == empty.search_many([], 5, mode) == []
        assert store.search_many(["a", "b"], 0, mode) == empty.search_many(["a", "b"], 5, mode) == [[], []]
    assert store.search_vectors(np.zeros((0, DIM)), 5) == store.search_vectors([], 5) == []


def test_invalid_arguments_are_refused(store):
    with pytest.raises(ConfigError, match="queries is the text 'lock': expected a list of texts; use search for one"):
        store.search_many("lock")
    with pytest.raises(ConfigError, match="k is -1"):
        store.search_many(["lock"], -1)
    with pytest.raises(ConfigError, match="'fuzzy'"):
        store.search_many([], 1, "fuzzy")


@pytest.mark.parametrize("shape", [(DIM,), (2, DIM + 1), (1, 1, DIM)])
def test_wrong_vector_shapes_are_refused(store, tmp_path, shape):
    empty = Store.create(tmp_path / "empty", KnownEncoder(dim=DIM))
    for searched in (store, *([] if len(shape) == 2 else [empty])):
        with pytest.raises(IncompatibleStoreError, match=r"shape|dimension"):
            searched.search_vectors(np.zeros(shape), 5)
    with pytest.raises(ConfigError, match="k is -1"):
        empty.search_vectors(np.zeros((1, DIM)), -1)


# Threads


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_limit_is_kept(store, threads, monkeypatch):
    used = []
    set_threads = faiss.omp_set_num_threads
    set_threads(4)
    monkeypatch.setattr(faiss, "omp_set_num_threads", lambda count: used.append(count) or set_threads(count))
    with Store.open(store.path, KnownEncoder(dim=DIM), threads=threads) as bounded:
        bounded.search_many(3 * QUERIES, 5, "dense")
        assert set(used[::2]) == {threads}  # Restores the default.
        assert set(used[1::2]) == {4}
        used.clear()
        bounded.search("lock", 5, "dense")
        assert set(used[::2]) == {1}
    assert faiss.omp_get_max_threads() == 4
    set_threads(1)


@pytest.mark.parametrize("threads", [0, -1])
def test_zero_threads_are_refused(store, threads):
    with pytest.raises(ConfigError, match=f"threads is {threads}: expected 1 or more"):
        Store.open(store.path, threads=threads)


def test_error_in_a_thread_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_LEAST_ROWS", 50)
    with fill(tmp_path, "flat") as store:
        folder = store.status()["segments"][-1]["folder"]
    file = store.path / "segments" / folder / "index.faiss"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with (
        Store.open(store.path, KnownEncoder(dim=DIM), threads=3) as opened,
        pytest.raises(StoreDamagedError, match=folder),
    ):
        opened.search(QUERIES[0], mode="dense")


# Every kind of index


@pytest.mark.parametrize("kind", ["flat", "hnsw-sq8", "ivf"])
@pytest.mark.usefixtures("_small")
def test_ties_keep_insertion_order_in_every_index(tmp_path, kind):
    draw = np.random.default_rng(3)
    few = draw.normal(size=(3, DIM)).tolist()
    table = {f"t{i:03}": few[i // 10 % 3] if i % 10 == 0 else draw.normal(size=DIM).tolist() for i in range(SIZE)}
    store = Store.create(tmp_path / "s", KnownEncoder(table), index=kind)
    for numbers in (range(300), range(300, SIZE)):  # The ties are in segments of two kinds.
        store.add([record(f"t{i:03}", f"t{i:03}", metadata={"i": i}) for i in numbers])
    for where, last in ((None, SIZE), ("i >= 0", SIZE), ("i < 200", 200)):
        for count in (3, 12):
            for hits in store.search_vectors(draw.normal(size=(count, DIM)), SIZE, where=where):
                names = [hit.id for hit in hits]
                for start in range(0, 30, 10):
                    tied = {f"t{i:03}": None for i in range(start, last, 30)}
                    assert [name for name in names if name in tied] == list(tied)
        for start, hits in zip(range(0, 30, 10), store.search_vectors(np.array(few), 5, where=where), strict=True):
            assert [hit.id for hit in hits] == [f"t{i:03}" for i in range(start, start + 150, 30)]


@pytest.mark.parametrize("kind", ["flat", "sq8"])
@pytest.mark.usefixtures("_small")
def test_products_of_many_queries_give_the_results_of_single_searches(tmp_path, monkeypatch, kind):
    """Near and equal vectors come one after the other, so an estimate of the lowest score is sometimes too high."""
    draw = np.random.default_rng(5)
    near = draw.normal(size=DIM) + 0.01 * draw.normal(size=(60, DIM))
    vectors = np.concatenate([np.repeat(near, 2, axis=0), draw.normal(size=(SIZE - 120, DIM))])
    table = {f"t{i}": vector.tolist() for i, vector in enumerate(vectors)}
    store = Store.create(tmp_path / "s", KnownEncoder(table), index=kind)
    store.add([record(f"t{i}", f"t{i}", metadata={"i": i}) for i in range(SIZE)])
    queries = np.concatenate([near[:10], draw.normal(size=(20, DIM))])
    searches = [(1, "i >= 100"), (5, None), (5, "i < 130"), (40, None), (40, "i >= 100")]
    expected = [[store.search_vector(query, k, where=where) for query in queries] for k, where in searches]
    multiplied = []
    for module, name, value in (
        (products, "_LEAST_VECTORS", 64),
        (products, "_LEAST_SHARE", 1),
        (products, "_SAMPLED", 32),
        (products, "_MORE", 0),
        (products, "_BLOCK", 50),
        (reader, "_LEAST_PART", 100),
    ):
        monkeypatch.setattr(module, name, value)
    estimate = index.above_estimate
    monkeypatch.setattr(index, "above_estimate", lambda *given: multiplied.append(given) or estimate(*given))
    for threads in (1, 3):
        with Store.open(store.path, KnownEncoder(table), threads=threads) as opened:
            found = [opened.search_vectors(queries, k, where=where) for k, where in searches]
        for many, one in zip(chain(*found), chain(*expected), strict=True):
            assert_same_hits([many], [one])
        assert multiplied
        multiplied.clear()


def test_queries_beyond_a_block_are_encoded_block_by_block(store, monkeypatch):
    for module in (hybrid, pipeline):
        monkeypatch.setattr(module, "QUERIES_AT_ONCE", 3)
    asked = []
    encode = KnownEncoder.encode_queries
    monkeypatch.setattr(KnownEncoder, "encode_queries", lambda self, texts: asked.append(texts) or encode(self, texts))
    many = store.search_many(QUERIES, 3)
    assert sorted(map(len, asked)) == [2, 3, 3]
    assert_same_hits(many, [store.search(query, 3) for query in QUERIES])
