"""Run the tasks of a stage on the actors of a Ray cluster. Each actor is one worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from typing_extensions import Self, override

from ragembed.distributed.workers import Perform, TaskReport, TaskWorker, WorkerLost, WorkerPool
from ragembed.errors import ConfigError, WorkerLostError
from ragembed.extras import require
from ragembed.ray_cluster import connected


class RayWorkers(WorkerPool):
    """Runs tasks on the actors of a Ray cluster. The ``with`` block connects, and stops all workers at its end.

    ``address`` is that of :func:`ragembed.ray_cluster.connected`. ``workers`` is the number of workers, by default as
    many as fit on the live nodes; on a running cluster, never more than that. Each reserves ``cpus`` and ``gpus``, also
    fractions.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        super().__init__()
        require("ray", "a Ray cluster")
        if workers is not None and workers < 1:
            raise ConfigError(f"workers is {workers}: expected at least 1")
        if not cpus > 0 or not gpus >= 0:
            raise ConfigError(
                f"{cpus:g} CPUs and {gpus:g} GPUs per worker: expected more than 0 CPUs and at least 0 GPUs"
            )
        self._address = address
        self._most = workers
        self._cpus = cpus
        self._gpus = gpus
        self._connection = ExitStack()
        self._ray: Any = None

    @override
    def __enter__(self) -> Self:
        wanted = None if self._most is None else self._most * self._cpus
        self._ray = self._connection.enter_context(connected(self._address, cpus=wanted))
        return self

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._connection.close()

    @override
    def size(self, tasks: int) -> int:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = sum(_fits(resources, self._cpus, self._gpus) for resources in nodes)
        if not room:
            raise WorkerLostError(
                f"no node of the Ray cluster has room for a worker with {self._cpus:g} CPUs and {self._gpus:g} GPUs:"
                " request fewer, or add a node ('ray start --address HOST:PORT')"
            )
        return min(room, tasks, self._most or tasks)

    @override
    def worker(self, make: Callable[[], Perform]) -> TaskWorker:
        return _RayWorker(self._ray, make, {"num_cpus": self._cpus, "num_gpus": self._gpus})


class _RayWorker:
    def __init__(self, ray: Any, make: Callable[[], Perform], reserved: Mapping[str, float]) -> None:
        self._ray, self._make, self._reserved = ray, make, reserved
        self._start()

    def _start(self) -> None:
        # The pool repeats a task itself, to count how many workers it kills.
        options = {**self._reserved, "max_restarts": 0, "max_task_retries": 0}
        self._actor = self._ray.remote(**options)(_Actor).remote(self._make)
        self.started: Future[None] = self._actor.start.remote().future()

    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        task: Future[TaskReport] = self._actor.perform.remote(stage, number).future()
        return task

    def report(self, task: Future[TaskReport]) -> TaskReport:
        try:
            return task.result()
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(str(error)) from error

    def renew(self) -> None:
        self.stop()  # it may only be unreachable
        self._start()

    def stop(self) -> None:
        self._ray.kill(self._actor)


class _Actor:
    """The state of an actor: the ``Perform`` callable, which it makes when it receives its first task."""

    def __init__(self, make: Callable[[], Perform]) -> None:
        self._make = make
        self._perform: Perform | None = None

    def start(self) -> None:
        """Do nothing; the call ends when the actor runs."""

    def perform(self, stage: str, number: int) -> TaskReport:
        """Perform a task."""
        if self._perform is None:
            self._perform = self._make()
        return self._perform(stage, number)


def _fits(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Return the number of workers that fit on a node with these resources, tolerating rounding errors of fractions."""
    room = resources.get("CPU", 0.0) / cpus
    if gpus:
        room = min(room, resources.get("GPU", 0.0) / gpus)
    return int(room + 1e-9)
