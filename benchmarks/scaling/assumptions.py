"""What is assumed and not measured: machines, networks, GPUs, failures. Change a value here and the tables follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

GB = 1e9
GIB = 2**30


def _assumed(value: float, unit: str, what: str) -> Any:
    return field(default=value, metadata={"unit": unit, "what": what})


@dataclass(frozen=True, slots=True)
class Assumptions:
    """One value each, in the unit of its metadata."""

    cores: float = _assumed(32, "", "cores of a machine, each as fast as one of the measured machine")
    memory: float = _assumed(128, "GiB", "memory of a machine")
    disk: float = _assumed(8_000, "GB", "disk of a machine")
    network: float = _assumed(1.25, "GB/s", "network of a machine: 10 Gbit/s")
    storage: float = _assumed(12.5, "GB/s", "what the shared disk or the object store gives to all machines together")
    gpu_tokens: float = _assumed(500_000, "tokens/s", "a GPU with a model of MiniLM's size, in half precision")
    dispatch: float = _assumed(0.001, "s", "of the driver for each task, handed out and noted as done")
    failure_hours: float = _assumed(1_000, "h", "a worker runs, on the average, before it is lost")
    restart: float = _assumed(60, "s", "until there is another worker in its place")
    variation: float = _assumed(0.1, "", "standard deviation of the logarithm of a task's time")
    slow_share: float = _assumed(0.01, "", "share of tasks on a machine that something else slows")
    slow_factor: float = _assumed(4, "×", "their time")
    requests: float = _assumed(3_500, "1/s", "writes that an object store takes below one prefix")
    folder_files: float = _assumed(1e6, "", "files in one folder before listing it takes minutes")
    core_rate: float = _assumed(3e10, "1/s", "float32 operations of a core in products of matrices")
    round_trip: float = _assumed(1, "ms", "from the machine that asks to one with a shard, and back")
    store_chunks: float = _assumed(2e7, "", "chunks of one store where there are several")

    def described(self) -> Iterator[tuple[str, float, str]]:
        """Yield what is assumed, its value, and its unit."""
        for one in fields(self):
            yield one.metadata["what"], getattr(self, one.name), one.metadata["unit"]
