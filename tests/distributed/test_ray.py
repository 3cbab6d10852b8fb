"""Ray makes the same stores as one process. tests/slow tests several nodes and failures."""

import sys

import pytest

from ragembed.distributed.ray_workers import RayWorkers, connected
from ragembed.errors import ConfigError, MissingExtraError
from tests.distributed.documents import contents

needs_ray_to_start = pytest.mark.slow


@needs_ray_to_start
def test_ray_makes_the_same_stores_as_one_process(on_a_cluster, documents):
    assert on_a_cluster["written"]["skipped"] == {}
    assert on_a_cluster["written"]["tasks"] == {"read": 3, "write": 3, "finish": 3}
    assert contents(documents / "ray") == contents(documents / "alone")


@needs_ray_to_start
def test_unreachable_address_is_an_error(on_a_cluster):
    kind, message = on_a_cluster["nobody_there"]
    assert kind == "WorkerLostError"
    assert "no Ray cluster answers at 127.0.0.1:9" in message
    assert "ray start --head" in message


@needs_ray_to_start
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
    with pytest.raises(MissingExtraError, match=r"\[ray\]"):
        RayWorkers()
