"""The index of a store over its life: picked again as it grows and shrinks, measured, kept where a pick fails."""

from contextlib import closing

import numpy as np
import pytest

from ragembed.errors import ConfigError, IndexWarning
from ragembed.indexes import Store
from ragembed.indexes.faiss_index import choose
from ragembed.indexes.faiss_index.choose import Machine
from ragembed.indexes.faiss_index.records import Budget, IndexConfig
from ragembed.indexes.storage import catalog, upkeep
from ragembed.indexes.storage.schema import connect
from ragembed.indexes.storage.upkeep import needs_check, needs_pick
from tests.conftest import KnownEncoder, record

DIM, LEAST, SIZE = 16, 100, 600
WORDS = [f"word{i}" for i in range(50)]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let small stores have what otherwise large ones have, on a machine whose speed is known."""
    for module in (choose, upkeep):
        monkeypatch.setattr(module, "LEAST_ASKED", LEAST, raising=False)
    monkeypatch.setattr(upkeep, "LEAST_APPROXIMATE", LEAST)
    monkeypatch.setattr(upkeep, "QUERIES_PER_CHECK", 30)
    monkeypatch.setattr(choose, "measure_machine", lambda _dim: Machine(0.1, 0.1, 8 * 1024**3))
    monkeypatch.setattr(choose, "latency_ms", lambda *_: 1.0)


def records(start, stop):
    return [record(f"i{i}", f"n{i} {' '.join(np.random.default_rng(i).choice(WORDS, 30))}") for i in range(start, stop)]


def new_store(folder, size=0, **asked):
    store = Store.create(folder / "s", KnownEncoder(dim=DIM), **asked)
    if size:
        store.add(records(0, size))
    return store


def kinds_of(store):
    return [(segment["kind"], segment["rows"]) for segment in store.status()["segments"]]


def state(store):
    """All that a pick could have changed."""
    status = store.status()
    files = sorted(str(file.relative_to(store.path)) for file in (store.path / "segments").rglob("*"))
    return status["index"], status["segments"], status["generation"], status["chunks"], files


def assert_sound(store):
    report = store.verify()
    assert (report.problems, report.notes, report.leftovers) == ([], [], 0)


def spoil(store):
    """Let searches of the index look into one list only, as if it had been tuned for other vectors."""
    with store.writer() as writer:
        writer.set_meta({"index_choice": {**writer.meta("index_choice"), "effort": 1}})


# When it is picked


def test_selection_is_repeated_after_doubling_or_quartering(tmp_path):
    wanted = IndexConfig("flat", Budget(max_memory=10**9))
    store = new_store(tmp_path, LEAST, index=wanted.kind, budget=wanted.budget)
    assert store.index_choice().rows == LEAST
    with closing(connect(store.path / "store.db", writable=False)) as connection:
        due = {rows: needs_pick(connection, wanted, rows) for rows in (0, 1, 25, 26, 99, 100, 199, 200, 10**6)}
        assert due == {
            0: False,
            1: True,
            25: True,
            26: False,
            99: False,
            100: False,
            199: False,
            200: True,
            10**6: True,
        }
        assert needs_pick(connection, IndexConfig("flat", Budget(max_memory=10**8)), 100)
        assert needs_pick(connection, IndexConfig("hnsw"), 100)
        assert not needs_pick(connection, IndexConfig("flat"), 100)  # it is


def test_store_without_a_request_is_flat_until_selection(tmp_path):
    store = new_store(tmp_path, LEAST - 1)
    assert (store.index_choice(), store.index_check()) == (None, None)
    store.add(records(LEAST - 1, LEAST))
    choice = store.index_choice()
    assert (choice.kind, choice.rows, choice.runner_up.split()[0]) == ("flat", LEAST, "sq8")
    assert store.index_check().measurement.recall.mean == 1.0


def test_growing_and_shrinking_repeat_the_selection(tmp_path):
    store = new_store(tmp_path, LEAST, index="ivf")
    assert (store.index_choice().kind, store.index_choice().rows) == ("ivf", LEAST)
    store.add(records(LEAST, 2 * LEAST - 1))
    assert kinds_of(store) == [("ivf", LEAST), ("flat", LEAST - 1)]
    store.add(records(2 * LEAST - 1, 2 * LEAST))
    assert (store.index_choice().rows, kinds_of(store)) == (2 * LEAST, [("ivf", 2 * LEAST)])
    store.delete([f"i{i}" for i in range(50, 2 * LEAST)])
    assert (store.index_choice().kind, store.index_choice().rows) == ("flat", 50)
    assert store.index_choice().reasons == (f"an index of kind ivf needs at least {LEAST} vectors",)
    assert kinds_of(store) == [("flat", 50)]
    assert_sound(store)


def test_new_request_selects_a_new_index(tmp_path):
    store = new_store(tmp_path, LEAST)
    for wanted in (
        IndexConfig("hnsw"),
        IndexConfig("ivf-sq8", Budget(max_memory=10**9)),
        IndexConfig("flat"),
        IndexConfig("fp16"),
    ):
        store.optimize(index=wanted)
        assert (store.wanted_index, store.index_choice().wanted) == (wanted, wanted)
        assert kinds_of(store) == [(wanted.kind, LEAST)]
    store.close()
    assert Store.open(store.path, KnownEncoder(dim=DIM)).wanted_index == IndexConfig("fp16")
    assert_sound(store)


# Picks that fail


@pytest.mark.parametrize(
    "wanted",
    [
        IndexConfig(budget=Budget(max_memory=1_000)),
        IndexConfig("hnsw", Budget(max_memory=1_000)),
        IndexConfig("IVF4,PQ5"),
    ],
)
def test_failed_selection_changes_nothing(wanted, tmp_path):
    store = new_store(tmp_path, SIZE, index="ivf")
    before, hits = state(store), store.search("n5 word1", 10)
    with pytest.raises(ConfigError):
        store.optimize(index=wanted)
    assert state(store) == before
    assert store.wanted_index == IndexConfig("ivf")
    assert store.search("n5 word1", 10) == hits
    assert_sound(store)


def test_outgrown_budget_warns_once_and_keeps_the_index(tmp_path):
    store = new_store(tmp_path, LEAST, index="flat", budget=Budget(max_memory=LEAST * (4 * DIM + 8) + 200))
    with pytest.warns(
        IndexWarning, match=r"index no longer meets its limits: no index of 210 vectors .* closest is flat"
    ):
        store.add(records(LEAST, 210))
    assert store.index_choice().kind == "flat"
    assert sum(rows for _, rows in kinds_of(store)) == 210
    store.add(records(210, 230))
    assert_sound(store)


def test_store_over_its_budget_can_be_optimized(tmp_path):
    store = new_store(tmp_path, SIZE, index="hnsw", budget=Budget(max_memory=SIZE * 400))
    with pytest.warns(IndexWarning, match="no longer meets its limits"):
        store.add(records(SIZE, 2 * SIZE))
    with pytest.warns(IndexWarning, match="the index misses its target"):
        store.delete([f"i{i}" for i in range(0, 2 * SIZE, 9)])
    with pytest.warns(IndexWarning, match="no longer meets its limits"):
        store.optimize()
    assert store.status()["unused_vectors"] == 0
    assert_sound(store)


@pytest.mark.parametrize("moment", ["while it is built", "while it is measured", "in the transaction"])
def test_killed_selection_keeps_the_former_index(moment, tmp_path, monkeypatch):
    store = new_store(tmp_path, SIZE, index="ivf")
    before, hits = state(store), store.search("n5 word1", 10)

    def killed(*arguments):
        if moment != "in the transaction" or arguments[1] == "index_check":
            raise KeyboardInterrupt
        set_meta(*arguments)

    set_meta = catalog.set_meta
    targets = {
        "while it is built": (choose, "build_index"),
        "while it is measured": (choose, "latency_ms"),
        "in the transaction": (catalog, "set_meta"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*targets[moment], killed)
        with pytest.raises(KeyboardInterrupt):
            store.optimize(index=IndexConfig("hnsw"))
    assert state(store)[:4] == before[:4]
    assert store.search("n5 word1", 10) == hits
    with store.writer():
        pass
    assert state(store) == before
    assert_sound(store)


# Measuring


def test_measurement_is_repeated_after_a_tenth_of_new_rows(tmp_path):
    store = new_store(tmp_path, SIZE, index="ivf")
    with closing(connect(store.path / "store.db", writable=False)) as connection:
        assert [needs_check(connection, rows) for rows in (539, 540, 600, 660, 661)] == [
            True,
            False,
            False,
            False,
            True,
        ]
    store.add(records(SIZE, SIZE + 60))
    assert store.index_check().rows == SIZE
    store.add(records(SIZE + 60, SIZE + 61))
    assert store.index_check().rows == SIZE + 61
    assert set(store.index_check().segments) == {segment["folder"] for segment in store.status()["segments"]}


DEGRADED = r"the index misses its target .*: recall@10 0\.\d+ .*, before: recall@10 .*ragembed doctor --repair"


def assert_mended(store):
    assert store.index_check().measurement.recall.mean >= 0.98
    assert store.index_check().rows == len(store)
    assert store.index_choice().effort > 1
    assert_sound(store)


def test_index_degraded_by_chunks_is_reported_and_optimized(tmp_path):
    store = new_store(tmp_path, SIZE, index="ivf")
    assert store.index_check().measurement.recall.mean >= 0.98
    spoil(store)
    with pytest.warns(IndexWarning, match=DEGRADED):
        store.add(records(SIZE, SIZE + 70))
    found = store.status()["index"]["check"]
    assert found["rows"] == SIZE + 70
    assert found["measurement"]["recall"]["mean"] < 0.98
    store.optimize()
    assert kinds_of(store) == [("ivf", SIZE + 70)]
    assert_mended(store)
