"""A store gives the same results in several shards as in one, and keeps their number through all changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed import Embedder
from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes import IndexConfig, RankingOptions, Store
from ragembed.indexes.ann import building, picking
from ragembed.indexes.ann.building import shard_sizes
from ragembed.indexes.ann.choosing import Budget, Machine, choose, cost
from ragembed.indexes.ann.index import SegmentIndex
from ragembed.indexes.ann.picking import best_scores
from ragembed.indexes.ann.specs import parse_spec
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.search import fanout
from ragembed.indexes.storage import catalog, compaction, segments
from ragembed.indexes.verify import verify_store
from ragembed.indexes.writing import index_selection
from tests.conftest import KnownEncoder, record

DIM, SIZE, LEAST = 16, 360, 60
WORDS = ["lock", "store", "writer", "reader", "segment", "vector", "index", "query", "file", "folder"]
QUERIES = [f"{' '.join(np.random.default_rng(1000 + i).choice(WORDS, 3))} n{17 * i}" for i in range(6)]
FILTERS = [None, "third = 1", "i < 12", "i != 5", "i > 10000", "third IN (0, 2)"]
SHARDS = [3, 7]
KINDS = ["flat", "fp16", "sq8", "hnsw", "hnsw-sq8", "ivf", "ivf-sq8"]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small(monkeypatch)


def small(patched):
    """Let small stores have the index kinds of large stores, on a machine with a known speed."""
    patched.setattr(segments, "LEAST_APPROXIMATE", LEAST)
    patched.setattr(picking, "LEAST_ASKED", LEAST)
    patched.setattr(index_selection, "QUERIES", 30)
    patched.setattr(picking, "measure_machine", lambda _dim: Machine(0.1, 0.1, 8 * 1024**3))
    patched.setattr(picking, "latency_ms", lambda *_: 1.0)


def encoder():
    """Vectors of texts; every ninth text has the same vector, so every shard has ties."""
    same = np.random.default_rng(5).normal(size=DIM).astype(np.float16).tolist()
    return KnownEncoder({text_of(i): same for i in range(0, SIZE, 9)}, dim=DIM)


def text_of(i):
    return f"{' '.join(np.random.default_rng(i).choice(WORDS, 6))} n{i}"


def records(start, stop):
    return [record(f"i{i}", text_of(i), metadata={"i": i, "third": i % 3}) for i in range(start, stop)]


def fill(folder, shards, kind="auto", deleted=True):
    """A store in ``shards``, each with unused rows."""
    store = Store.create(folder / f"s{shards}", encoder(), index=kind, shards=shards)
    for start in range(0, SIZE, 120):
        store.add(records(start, start + 120))
    store.optimize()
    if deleted:
        store.delete([f"i{i}" for i in range(0, SIZE, 20)])
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
    """Flat stores with the same chunks in one and in several shards. No test changes them."""
    folder = tmp_path_factory.mktemp("stores")
    with pytest.MonkeyPatch.context() as patched:
        small(patched)
        made = {shards: fill(folder, shards) for shards in (1, *SHARDS)}
        yield made
        for store in made.values():
            store.close()


@pytest.fixture(scope="module")
def of_kinds(tmp_path_factory):
    """Stores of several index kinds in two shards. No test changes them."""
    folder = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patched:
        small(patched)
        made = {kind: fill(folder / kind, 2, kind) for kind in KINDS}
        yield made
        for store in made.values():
            store.close()


# Contents of a shard


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_shards_have_similar_sizes(total, shards):
    sizes = shard_sizes(total, shards)
    assert sum(sizes) == total
    assert len(sizes) == max(1, min(total, shards))
    assert max(sizes) - min(sizes) <= 1
    assert total == 0 or min(sizes) > 0


def test_best_scores_of_shards_are_the_best_overall():
    left, right = np.array([[0.9, 0.2]], dtype=np.float32), np.array([[0.5, -np.inf]], dtype=np.float32)
    assert best_scores([left, right], 3).tolist() == [[np.float32(0.9), 0.5, np.float32(0.2)]]
    assert best_scores([left], 1) is left


def test_index_config_keeps_shards():
    wanted = IndexConfig("hnsw", Budget(min_recall=0.9), 4)
    assert IndexConfig.from_dict(wanted.to_dict()) == wanted
    assert wanted.describe() == "hnsw in 4 shards within recall@10 0.9"
    older = {name: value for name, value in IndexConfig("hnsw").to_dict().items() if name != "shards"}
    assert IndexConfig.from_dict(older) == IndexConfig("hnsw", shards=1)


@pytest.mark.parametrize("shards", [0, -1, 1.0, True, "2", None])
def test_invalid_number_of_shards_is_refused(shards):
    with pytest.raises(ConfigError, match=f"shards is {shards}: expected a whole number, 1 or more"):
        IndexConfig(shards=shards)
    with pytest.raises(ConfigError, match="shards"):
        IndexConfig.from_dict({**IndexConfig().to_dict(), "shards": shards})


def test_costs_of_several_shards():
    machine, spec = Machine(0.1, 0.1, 10**12), parse_spec("hnsw")
    in_four = {option.spec.name: option.cost for option in choose(10**6, 64, Budget(), machine, 4)}["hnsw"]
    one = cost(spec, 250_000, 64, machine)
    assert (in_four.bytes, in_four.latency_ms) == (4 * one.bytes, 4 * one.latency_ms)
    assert in_four.building_bytes == one.building_bytes
    assert choose(10**6, 64, Budget(), machine, 1) == choose(10**6, 64, Budget(), machine)


# Results


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("where", FILTERS)
def test_exact_search_does_not_depend_on_shards(stores, shards, mode, where):
    for query in QUERIES:
        for k in (1, 10):
            expected = told(stores[1].search(query, k, mode, where=where))
            assert told(stores[shards].search(query, k, mode, where=where)) == expected


@pytest.mark.parametrize("shards", SHARDS)
def test_batch_search_does_not_depend_on_shards(stores, shards):
    vectors = encoder().encode_queries(QUERIES)
    for one, several in (
        (stores[1].search_many(QUERIES, 15), stores[shards].search_many(QUERIES, 15)),
        (stores[1].search_vectors(vectors, 15), stores[shards].search_vectors(vectors, 15)),
    ):
        assert [told(hits) for hits in several] == [told(hits) for hits in one]


@pytest.mark.parametrize("shards", SHARDS)
def test_ranking_and_mmr_do_not_depend_on_shards(stores, shards):
    for query in QUERIES:
        arranged = RankingOptions(dedupe=True, per_file=2, mmr=0.5)
        one, several = (stores[n].search(query, 8, ranking=arranged) for n in (1, shards))
        assert told(several) == told(one)
        one, several = (stores[n].search_mmr(query, 8, fetch_k=60) for n in (1, shards))
        assert told(several) == told(one)


@pytest.mark.parametrize("shards", SHARDS)
def test_ties_in_several_shards_keep_their_order(stores, shards):
    same = encoder().encode_queries([text_of(0)])[0]
    one, several = (stores[n].search_vector(same, 25) for n in (1, shards))
    assert len({hit.score for hit in one}) < 5
    assert told(several) == told(one)
    [explained, *_] = stores[shards].explain(QUERIES[0], 3)
    assert explained.hit.id == stores[1].search(QUERIES[0], 1)[0].id
    assert np.array_equal(stores[shards].vectors(["i1", "i359"]), stores[1].vectors(["i1", "i359"]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", FILTERS)
def test_approximate_shards_have_high_recall(kind, where, of_kinds, stores):
    store = of_kinds[kind]
    assert kinds_of(store) == {kind}
    same = []
    for query in QUERIES:
        expected = told(stores[1].search(query, 10, "dense", where=where))
        found = told(store.search(query, 10, "dense", where=where))
        assert len(found) == len(expected)
        same += [each in expected for each in found]
    assert not same or np.mean(same) >= 0.9


# Threads


@pytest.mark.parametrize("threads", [2, 16])
def test_parallel_search_of_large_segments(stores, threads, monkeypatch):
    monkeypatch.setattr(fanout, "_LEAST_ROWS", 50)
    with Store.open(stores[3].path, encoder(), threads=threads) as store:
        for query in QUERIES:
            for where in (None, "third = 1"):
                assert told(store.search(query, 9, where=where)) == told(stores[1].search(query, 9, where=where))
        assert store._reader._searcher._pool is not None
        store.close()
        assert store._reader._searcher._pool is None
        assert told(store.search(QUERIES[0], 9)) == told(stores[1].search(QUERIES[0], 9))


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_parallel_search_of_a_flat_segment(tmp_path, threads, monkeypatch):
    asked = []

    def noted(self, queries, k, start, stop, allowed=None, search=SegmentIndex.search_part):
        asked.append((start, stop))
        return search(self, queries, k, start, stop, allowed)

    monkeypatch.setattr(SegmentIndex, "search_part", noted)
    with fill(tmp_path, 1, "flat") as whole:
        [size] = rows_of(whole)
        questions = [(query, k, where) for query in QUERIES for k in (1, 9, size) for where in FILTERS]
        expected = [told(whole.search(query, k, "dense", where=where)) for query, k, where in questions]
        assert not asked
    monkeypatch.setattr(fanout, "_LEAST_PART", 20)
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
        monkeypatch.setattr(fanout, "_LEAST_ROWS", 50)
        store.search_many(QUERIES * 2, mode="dense")
        assert store._reader._searcher._pool is None


def test_error_in_a_thread_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(fanout, "_LEAST_ROWS", 50)
    with fill(tmp_path, 3) as store:
        folder = store.status()["segments"][-1]["folder"]
    file = store.path / "segments" / folder / "index.faiss"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Store.open(store.path, encoder(), threads=3) as opened, pytest.raises(StoreDamagedError, match=folder):
        opened.search(QUERIES[0], mode="dense")


# Changes of a store


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_store_keeps_its_shards(kind, tmp_path):
    with fill(tmp_path, 3, kind, deleted=False) as store:
        assert (rows_of(store), kinds_of(store)) == ([SIZE // 3] * 3, {kind})
        assert store.wanted_index == IndexConfig(kind, shards=3)
        assert store.status()["index"]["wanted"]["shards"] == 3
        before = store.status()["segments"]
        store.optimize()
        assert store.status()["segments"] == before
        store.delete([f"i{i}" for i in range(0, SIZE, 2)])
        store.optimize()
        assert (rows_of(store), kinds_of(store)) == ([SIZE // 6] * 3, {kind})
        store.add(records(SIZE, SIZE + 40))
        store.optimize()
        assert (sorted(rows_of(store)), kinds_of(store)) == ([73, 73, 74], {kind})
        assert_sound(store)


def test_approximate_index_is_chosen_for_all_shards(tmp_path):
    with fill(tmp_path, 3, "ivf", deleted=False) as store:
        check, choice = store.index_check(), store.index_choice()
        assert set(check.segments) == {segment["folder"] for segment in store.status()["segments"]}
        sizes = [(store.path / "segments" / name / "index.faiss").stat().st_size for name in check.segments]
        assert (check.measurement.bytes, check.rows, choice.rows) == (sum(sizes), SIZE, SIZE)
        assert check.measurement.recall.mean >= 0.98
        assert not list(store.path.rglob("index.faiss.*"))
        store.add(records(SIZE, 2 * SIZE))
        assert (rows_of(store), store.index_choice().rows) == ([2 * SIZE // 3] * 3, 2 * SIZE)


def test_number_of_shards_can_be_changed(tmp_path):
    with fill(tmp_path, 2, "hnsw", deleted=False) as store:
        for shards in (4, 1, 2):
            store.optimize(index=IndexConfig("hnsw", shards=shards))
            assert rows_of(store) == [SIZE // shards] * shards
            assert len(store.index_check().segments) == shards
        store.optimize(index=IndexConfig("flat", shards=5))
        assert (rows_of(store), kinds_of(store)) == ([SIZE // 5] * 5, {"flat"})
        store.optimize(index=IndexConfig("flat"))
        assert rows_of(store) == [SIZE]
        assert_sound(store)


def test_minimum_vectors_apply_to_each_shard(tmp_path):
    with Store.create(tmp_path / "s", encoder(), index="hnsw", shards=4) as store:
        store.add(records(0, 4 * LEAST - 1))
        for shards in (5, 4):
            store.optimize(index=IndexConfig("hnsw", shards=shards))
            reason = f"an index of kind hnsw needs at least {LEAST} vectors in each of {shards} shards"
            assert store.index_choice().reasons == (reason,)
            assert len(rows_of(store)) == shards
        assert kinds_of(store) == {"flat"}
        store.add(records(4 * LEAST - 1, 4 * LEAST))
        assert (rows_of(store), kinds_of(store)) == ([LEAST] * 4, {"hnsw"})


def test_at_most_one_shard_per_vector(tmp_path):
    with Store.create(tmp_path / "s", encoder(), shards=9) as store:
        store.optimize()
        store.add(records(0, 4))
        store.optimize()
        assert rows_of(store) == [1] * 4
        assert len(store.search(QUERIES[0], 9, "dense")) == 4
        store.delete([f"i{i}" for i in range(4)])
        store.optimize()
        assert rows_of(store) == []


def test_merge_does_not_touch_shards(tmp_path):
    with fill(tmp_path, 4, deleted=False) as store:
        before = {segment["folder"] for segment in store.status()["segments"]}
        for i in range(20):
            store.add(records(SIZE + i, SIZE + i + 1))
        segments_now = store.status()["segments"]
        assert before <= {segment["folder"] for segment in segments_now}
        assert len(segments_now) < 4 + 20
        store.optimize()
        assert rows_of(store) == [(SIZE + 20) // 4] * 4


@pytest.mark.parametrize("shards", [1, 3])
def test_rewriting_of_a_single_shard(shards, tmp_path):
    with Store.create(tmp_path / "s", encoder(), shards=shards) as store:
        for i in range(0, 56, 8):
            store.add(records(i, i + 8))
        with store.writer() as writer:
            records_of = catalog.segments(writer._connection)
            assert len(records_of) == 7
            assert compaction.worth_rewriting(writer._connection) == []
        store.add(records(56, 64))
        assert rows_of(store) == [64]


def test_adopt_keeps_the_number_of_shards(tmp_path, tiny_config):
    texts = [text_of(i) for i in range(40)]
    plain = tiny_config.replace(postprocess=("normalize",), query_fit="shared", weighting="uniform")
    with Store.create(tmp_path / "s", Embedder(plain).fit(texts), shards=3) as store:
        store.add(record(f"i{i}", text) for i, text in enumerate(texts))
        store.optimize()
        refit_store(store.path, ("center", "normalize"), "separate")
        assert rows_of(store) == [13, 13, 14]
        with Store.create(tmp_path / "one", store.embedder) as one:
            one.add(record(f"i{i}", text) for i, text in enumerate(texts))
            assert told(store.search(texts[5], 9)) == told(one.search(texts[5], 9))


def test_only_a_damaged_shard_is_rebuilt(tmp_path):
    with fill(tmp_path, 3, "hnsw", deleted=False) as store:
        folders = [segment["folder"] for segment in store.status()["segments"]]
        expected = told(store.search(QUERIES[0], 9, "dense"))
    (store.path / "segments" / folders[1] / "index.faiss").write_bytes(b"nothing")
    verify_store(store.path, encoder(), repair=True)
    with Store.open(store.path, encoder()) as opened:
        now = [segment["folder"] for segment in opened.status()["segments"]]
        assert [now[0], now[2]] == [folders[0], folders[2]]
        assert told(opened.search(QUERIES[0], 9, "dense")) == expected
        assert_sound(opened)


def test_interrupted_shards_leave_no_files(tmp_path, monkeypatch):
    with fill(tmp_path, 1, deleted=False) as store:
        before = store.status()["segments"]
        built = []

        def build_index(*given, **named):
            built.append(given)
            if len(built) == 2:
                raise KeyboardInterrupt
            return building.build_index(*given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(segments, "build_index", build_index)
            with pytest.raises(KeyboardInterrupt):
                store.optimize(index=IndexConfig(shards=3))
        assert store.status()["segments"] == before
        assert [folder.name for folder in (store.path / "segments").iterdir()] == [before[0]["folder"]]
        store.optimize()
        assert rows_of(store) == [SIZE // 3] * 3


# From the command line


@pytest.mark.usefixtures("needs_minilm")
def test_shards_option_of_the_command_line(cli, in_folder):
    (in_folder / "docs").mkdir()
    for i in range(9):
        (in_folder / "docs" / f"{i}.txt").write_text(text_of(i))
    cli("index", "docs", "--preset", "re", "--shards", "3")
    cli("optimize")
    assert "flat in 3 segments; requested: auto in 3 shards" in cli("status").output
    cli("optimize", "--index", "fp16")
    assert "fp16 in 3 segments; requested: fp16 in 3 shards" in cli("status").output
    cli("optimize", "--shards", "1")
    assert "fp16 in 1 segment; requested: fp16" in cli("status").output
    assert "--shards" in cli("index", "docs", "--shards", "0", exit_code=2).output
