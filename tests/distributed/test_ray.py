"""Workers and searches on Ray are as in one process, and errors are told; see also tests/slow."""

import importlib.util
import sys

import pytest

from ragembed.distributed.ray_workers import RayWorkers
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.indexes import Store
from ragembed.ray_cluster import connected
from tests.distributed.ray_fixtures import answers, contents


def test_the_store_is_that_of_one_process(on_a_cluster, documents):
    assert on_a_cluster["indexed"]["skipped"] == {}
    assert contents(documents / "ray") == contents(documents / "alone")
    assert answers(documents / "ray") == answers(documents / "alone")
    assert not (documents / "ray" / "work").exists()


def test_tasks_run_on_both_nodes_at_once(on_a_cluster):
    found = on_a_cluster["both_nodes"]
    assert found["first"] == {"done": list(range(8)), "items": 280, "nodes": 2, "workers": 2}
    assert found["second"]["done"] == [11]


def test_an_error_in_a_task_arrives_as_itself_and_the_task_is_not_repeated(on_a_cluster):
    found = on_a_cluster["an_error"]
    assert found["error"] == ["DocumentError", "embed 1 cannot be read"]
    assert found["attempts"] == 1
    assert "engine_scenarios.py" in found["cause"]


def test_a_cluster_without_room_for_a_worker_is_an_error(on_a_cluster):
    kind, message = on_a_cluster["no_room"]
    assert kind == "WorkerLostError"
    assert "room for a worker of 3 CPUs and 0 GPUs" in message


def test_an_address_where_nobody_answers_is_an_error(on_a_cluster):
    kind, message = on_a_cluster["nobody_there"]
    assert kind == "WorkerLostError"
    assert "no Ray cluster answers at 127.0.0.1:9" in message
    assert "ray start --head" in message


def test_the_terminal_shows_nothing_of_ray(on_a_cluster):
    """Indexing adds nothing to the lines of the cluster that the test itself starts."""
    lines = on_a_cluster["stderr"].splitlines()
    assert [line for line in lines if "Failed to determine local IP" not in line] == []
    assert "raylet" not in on_a_cluster["stdout"].partition("searches\n")[0]


@pytest.mark.parametrize("kind", ["flat", "hnsw-sq8"])
def test_searches_answer_as_in_one_process_on_actors_of_both_nodes(on_a_cluster, kind):
    assert on_a_cluster["same_answers"][kind] == {"differing": [], "asked": 40, "actors": 6, "nodes": 2}


def test_actors_open_the_segments_that_a_writer_makes_and_drop_the_rest(on_a_cluster):
    found = on_a_cluster["a_store_that_is_written"]
    assert found == {"differing": [], "held": [True, True, True], "same_process": True, "new": "new"}


def test_an_error_in_an_actor_arrives_as_itself(on_a_cluster):
    kind, message = on_a_cluster["a_damaged_segment"]
    assert kind == "StoreDamagedError"
    assert "index.faiss is not the file that was committed" in message


@pytest.mark.parametrize("options", [{"workers": 0}, {"cpus": 0}, {"cpus": float("nan")}, {"gpus": -1}])
def test_numbers_that_cannot_be(options):
    with pytest.raises(ConfigError, match="expected"):
        RayWorkers(**options)


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:", ":6379"])
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigError, match="expected HOST:PORT"), connected(address):
        pass


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ragembed\[ray\]"):
        list(RayWorkers().run(list, "embed", [1]))


def test_a_stage_without_tasks_needs_no_cluster(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert list(RayWorkers().run(list, "embed", [])) == []


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_error_says_what_to_install(stores):
    with pytest.raises(MissingExtraError, match=r"pip install 'ragembed\[ray\]'"):
        Store.open(stores / "flat", engine="ray")
