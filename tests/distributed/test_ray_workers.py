"""Tasks on Ray: a cluster of two nodes whose workers and nodes die, a node of its own, and no Ray at all."""

import sys
from pathlib import Path

import pytest

from ragembed.distributed.ray_workers import RayWorkers
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.ray_cluster import connected

SCENARIOS = Path(__file__).with_name("engine_scenarios.py")


@pytest.fixture(scope="module")
def on_a_cluster(run_in_namespace):
    return run_in_namespace(SCENARIOS, "cluster")


@pytest.fixture(scope="module")
def by_itself(run_in_namespace):
    return run_in_namespace(SCENARIOS, "itself")


@pytest.mark.slow
def test_tasks_run_on_both_nodes_at_once(on_a_cluster):
    found = on_a_cluster["both_nodes"]
    first = {"done": list(range(8)), "items": 280, "nodes": 2, "workers": 2}
    assert found["first"] == first
    assert found["second"]["done"] == [11]


@pytest.mark.slow
def test_a_task_whose_worker_is_killed_is_done_again(on_a_cluster):
    found = on_a_cluster["a_killed_worker"]
    assert found["done"] == list(range(6))
    assert found["attempts"] == 2


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_in_an_error_that_names_it(on_a_cluster):
    found = on_a_cluster["a_poisoned_task"]
    kind, message = found["failure"]
    assert kind == "WorkerLostError"
    assert "task 2 of stage 'embed' died 6 times" in message
    assert 2 not in found["done"]
    assert found["attempts"][2] == 6
    assert max(found["attempts"][:2] + found["attempts"][3:]) == 1


@pytest.mark.slow
def test_what_a_task_raises_arrives_as_itself_and_is_not_tried_again(on_a_cluster):
    found = on_a_cluster["an_error"]
    assert found["error"] == ["DocumentError", "embed 1 cannot be read"]
    assert found["attempts"] == 1
    assert "engine_scenarios.py" in found["cause"]


@pytest.mark.slow
def test_a_worker_that_cannot_be_made_says_why(on_a_cluster):
    assert on_a_cluster["an_error_of_making"] == ["RagembedError", "there is no such model"]


@pytest.mark.slow
def test_a_cluster_without_room_for_a_worker(on_a_cluster):
    kind, message = on_a_cluster["no_room"]
    assert kind == "WorkerLostError"
    assert "room for a worker of 3 CPUs and 0 GPUs" in message


@pytest.mark.slow
def test_workers_share_a_gpu(on_a_cluster):
    found = on_a_cluster["parts_of_a_gpu"]
    assert (found["done"], found["nodes"], found["workers"]) == ([0, 1, 2, 3], 1, 2)


@pytest.mark.slow
def test_leaving_early_ends_the_workers(on_a_cluster):
    found = on_a_cluster["left_early"]
    assert found["first"] == 0
    assert found["close"] < 10
    assert found["gone"] < 10


@pytest.mark.slow
def test_an_interrupt_ends_the_workers(on_a_cluster):
    found = on_a_cluster["interrupted"]
    assert found["after"] < 10
    assert found["gone"] < 10


@pytest.mark.slow
def test_tasks_of_a_node_that_goes_are_done_elsewhere(on_a_cluster):
    found = on_a_cluster["a_removed_node"]
    assert found["done"] == list(range(6))
    assert found["nodes"] == 1
    assert found["attempts"] == [1, 1, 1, 1, 1, 2]


@pytest.mark.slow
def test_the_terminal_shows_nothing_of_ray(on_a_cluster, by_itself):
    """Beside what the cluster itself says when it is started by the test."""
    lines = on_a_cluster["stderr"].splitlines() + by_itself["stderr"].splitlines()
    assert [line for line in lines if "Failed to determine local IP" not in line] == []
    assert "raylet" not in on_a_cluster["stdout"] + by_itself["stdout"]


@pytest.mark.slow
def test_without_an_address_a_node_is_started_and_ended(by_itself):
    found = by_itself["an_own_node"]
    assert (found["done"], found["nodes"], found["attempts"]) == ([0, 1, 2, 3], 1, 2)
    assert found["gone"] < 10


@pytest.mark.slow
def test_an_address_where_nobody_answers(by_itself):
    found = by_itself["nobody_there"]
    kind, message = found["error"]
    assert kind == "WorkerLostError"
    assert "no Ray cluster answers at 127.0.0.1:9" in message
    assert "ray start --head" in message
    assert found["seconds"] < 10


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
