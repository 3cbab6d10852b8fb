"""Indexing on Ray equals that in one process. tests/slow tests several nodes and failures."""

import sys

import pytest

from ragembed.distributed.ray_workers import RayWorkers
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.indexes import Store
from ragembed.ray_cluster import connected
from tests.distributed.ray_fixtures import answers, contents


def test_store_equals_that_of_one_process(on_a_cluster, documents):
    assert on_a_cluster["indexed"]["skipped"] == {}
    assert contents(documents / "ray") == contents(documents / "alone")
    assert answers(documents / "ray") == answers(documents / "alone")
    assert not (documents / "ray" / "work").exists()


def test_stores_of_a_collection_are_written_on_a_cluster(on_a_cluster, documents):
    with Store.open(documents / "alone") as store:
        assert on_a_cluster["members"] == {"chunks": len(store), "stores": 3, "same": [True] * 6}


def test_unreachable_address_is_an_error(on_a_cluster):
    kind, message = on_a_cluster["nobody_there"]
    assert kind == "WorkerLostError"
    assert "no Ray cluster answers at 127.0.0.1:9" in message
    assert "ray start --head" in message


def test_ray_prints_nothing(on_a_cluster):
    """Indexing adds nothing to the output of the cluster, which the test itself starts."""
    lines = on_a_cluster["stderr"].splitlines()
    assert [line for line in lines if "Failed to determine local IP" not in line] == []
    assert "raylet" not in on_a_cluster["stdout"]


@pytest.mark.parametrize("options", [{"workers": 0}, {"cpus": 0}, {"cpus": float("nan")}, {"gpus": -1}])
def test_invalid_numbers_are_rejected(options):
    with pytest.raises(ConfigError, match="expected"):
        RayWorkers(**options)


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:", ":6379"])
def test_invalid_addresses_are_rejected(address):
    with pytest.raises(ConfigError, match="expected HOST:PORT"), connected(address):
        pass


def test_missing_package_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ragembed\[ray\]"):
        RayWorkers()


def test_a_stage_without_tasks_needs_no_cluster():
    pytest.importorskip("ray")
    assert list(RayWorkers("127.0.0.1:1").run(list, "embed", [])) == []
