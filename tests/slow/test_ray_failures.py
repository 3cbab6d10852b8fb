"""On several nodes of Ray, no failure of a worker, a node or the driver changes a store."""

import pytest

from ragembed.distributed.workers import MOST_LOSSES
from tests.distributed.documents import contents
from tests.distributed.ray_fixtures import documents, results_once, run_in_namespace

pytestmark = pytest.mark.slow
__all__ = ["documents", "results_once", "run_in_namespace"]


@pytest.fixture(scope="module")
def tasks(results_once):
    return results_once("engine_scenarios.py")


@pytest.fixture(scope="module")
def indexing(results_once, documents):
    return results_once("store_scenarios.py", documents)


def test_an_error_in_a_task_arrives_as_itself_and_the_task_is_not_repeated(tasks):
    found = tasks["an_error"]
    assert found["error"] == ["DocumentError", "embed 1 cannot be read"]
    assert found["attempts"] == 1
    assert "engine_scenarios.py" in found["cause"]


def test_a_cluster_without_room_for_a_worker_is_an_error(tasks):
    kind, message = tasks["no_room"]
    assert kind == "WorkerLostError"
    assert "room for a worker with 3 CPUs and 0 GPUs" in message


def test_a_task_that_kills_every_worker_ends_in_an_error_that_names_it(tasks):
    found = tasks["a_poisoned_task"]
    kind, message = found["failure"]
    assert kind == "WorkerLostError"
    assert f"{MOST_LOSSES} workers died on task 2 of stage 'embed'" in message
    assert 2 not in found["done"]
    assert found["attempts"][2] == MOST_LOSSES
    assert max(found["attempts"][:2] + found["attempts"][3:]) == 1


def test_workers_share_a_gpu(tasks):
    found = tasks["parts_of_a_gpu"]
    assert (found["done"], found["nodes"], found["workers"]) == ([0, 1, 2, 3], 1, 2)


def test_workers_end_with_the_run_that_is_left_or_interrupted(tasks):
    assert tasks["left_early"] == {"first": 0, "gone": True}
    assert tasks["interrupted"] == {"gone": True}


def test_without_an_address_a_node_is_started_and_ended(tasks):
    found = tasks["an_own_node"]
    assert (found["done"], found["nodes"], found["attempts"], found["gone"]) == ([0, 1, 2, 3], 1, 2, True)


@pytest.mark.parametrize("name", ["worker", "driver", "node"])
def test_the_stores_are_those_of_one_process(indexing, documents, name):
    assert contents(documents / name) == contents(documents / "alone")


def test_a_killed_driver_leaves_finished_parts(indexing):
    assert indexing["a_killed_driver"]["finished"] >= 2
    assert indexing["a_killed_driver"]["tasks"].get("read", 0) <= 8 - indexing["a_killed_driver"]["finished"]


def test_a_file_that_kills_its_readers_is_skipped_and_listed_once(indexing, documents):
    reason = "3 processes died while they read it"
    assert indexing["a_poisoned_file"]["skipped"] == {"../docs/05.md": reason}
    of_stores = contents(documents / "poisoned").values()
    names = [source.path for _, sources, *_ in of_stores for source in sources]
    assert sorted(names) == [f"../docs/{i:02}.md" for i in range(16) if i != 5]
