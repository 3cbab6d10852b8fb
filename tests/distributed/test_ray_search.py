"""A store that is searched on actors of Ray answers as in one process, whatever becomes of actors, nodes and store."""

import importlib.util
from pathlib import Path

import pytest

from ragembed import Embedder
from ragembed.documents.model import Chunk
from ragembed.errors import MissingExtraError
from ragembed.indexes import ChunkRecord, Store, index_choice, kinds
from ragembed.indexes.ann import picking
from tests.conftest import WORDS

SCENARIOS = Path(__file__).with_name("search_scenarios.py")
SIZE, LEAST = 240, 50
KINDS = ("flat", "hnsw", "hnsw-sq8", "ivf")


@pytest.fixture(scope="module")
def stores(tmp_path_factory, tiny_config):
    """Stores of three shards, and one that is not sharded, with chunks that were deleted."""
    import numpy as np

    folder = tmp_path_factory.mktemp("ray") / "stores"
    folder.mkdir()
    texts = [" ".join(np.random.default_rng(i).choice(WORDS[8:], 12)) for i in range(SIZE)]
    config = tiny_config.replace(postprocess=("zscore", "normalize"), sides="two")
    embedder = Embedder(config).fit(texts)
    records = [ChunkRecord(f"i{i}", Chunk(text, metadata={"i": i, "third": i % 3})) for i, text in enumerate(texts)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kinds, "LEAST_APPROXIMATE", LEAST)
        patched.setattr(picking, "LEAST_ASKED", LEAST)
        patched.setattr(index_choice, "QUERIES", 20)
        patched.setattr(picking, "latency_ms", lambda *_: 1.0)
        for name, kind, shards in (("one", "flat", 1), *((kind, kind, 3) for kind in KINDS)):
            with Store.create(folder / name, embedder, index=kind, shards=shards) as store:
                store.add(records)
                store.optimize()
                assert [segment["kind"] for segment in store.status()["segments"]] == [kind] * shards
                store.delete([f"i{i}" for i in range(0, SIZE, 15)])
    return folder


@pytest.fixture(scope="module")
def on_a_cluster(run_in_namespace, stores):
    return run_in_namespace(SCENARIOS, "cluster", stores, timeout=500)


@pytest.fixture(scope="module")
def by_itself(run_in_namespace, stores):
    return run_in_namespace(SCENARIOS, "itself", stores)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", *KINDS])
def test_it_answers_as_in_one_process(on_a_cluster, name):
    found = on_a_cluster["same_answers"][name]
    assert found["differing"] == []
    assert found["asked"] == 40
    assert found["actors"] == (2 if name == "one" else 6)


@pytest.mark.slow
def test_actors_are_spread_over_nodes(on_a_cluster):
    assert max(found["nodes"] for found in on_a_cluster["same_answers"].values()) == 2


@pytest.mark.slow
def test_actors_that_are_killed_cost_no_answer(on_a_cluster):
    assert on_a_cluster["killed_actors"] == {"wrong": [], "asked": True, "replaced": True, "differing": []}


@pytest.mark.slow
def test_actors_open_what_a_writer_has_made_and_drop_the_rest(on_a_cluster):
    found = on_a_cluster["a_store_that_is_written"]
    assert found == {"differing": [], "held": [True, True, True], "same_process": True, "new": "new"}


@pytest.mark.slow
def test_a_question_that_no_actor_survives_is_an_error(on_a_cluster):
    kind, message = on_a_cluster["actors_that_die_again_and_again"]
    assert kind == "WorkerLostError"
    assert message.startswith("4 actors died over one question to a shard of ")
    assert "\n" not in message


@pytest.mark.slow
def test_what_an_actor_raises_arrives_as_itself(on_a_cluster):
    kind, message = on_a_cluster["a_damaged_segment"]
    assert kind == "StoreDamagedError"
    assert "index.faiss is not the file that was committed" in message


@pytest.mark.slow
def test_stores_share_a_connection_that_ends_with_the_last(on_a_cluster):
    found = on_a_cluster["stores_that_are_closed"]
    kind, message, connected = found.pop("left")
    assert (kind, connected) == ("WorkerLostError", False)
    assert "close the store and open it again" in message
    assert found == {
        "second": True,
        "connected": False,
        "again": True,
        "other_actors": True,
        "connected_at_the_end": False,
        "after": True,
    }


@pytest.mark.slow
def test_a_node_that_is_lost_costs_no_answer(on_a_cluster):
    assert on_a_cluster["a_lost_node"] == {"before": [], "after": []}


@pytest.mark.slow
def test_without_an_address_a_node_is_started_here(by_itself):
    assert (by_itself["differing"], by_itself["nodes"]) == ([], 1)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_error_says_what_to_install(stores):
    with pytest.raises(MissingExtraError, match=r"pip install 'ragembed\[ray\]'"):
        Store.open(stores / "one", engine="ray")
