"""Run the tasks of a stage on the actors of a Ray cluster, one worker each. No other module connects to Ray."""

from __future__ import annotations

import logging
import math
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import Self, override

from ragembed.distributed.workers import Perform, RenewedWorkers, TaskPerformer, TaskReport, TaskWorker, WorkerLost
from ragembed.errors import ConfigError, WorkerLostError
from ragembed.extras import needed_for, require

# Ray transfers only numbers and short records; vectors go through files. Ray accepts no less than 75 MiB.
OBJECT_STORE_BYTES = 100 << 20
# Hide Ray's reports of restarted workers on stdout and its internal log. Values that the user has set take precedence.
QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_BACKEND_LOG_LEVEL": "fatal"}
# A head node that does not accept a connection in this time counts as unreachable.
REACH_SECONDS = 10.0


class RayWorkers(RenewedWorkers):
    """Runs tasks on the actors of a Ray cluster, to which the ``with`` block connects.

    ``workers`` is the number of workers, by default as many as fit on the live nodes, and never more. Each reserves
    ``cpus`` and ``gpus``, also fractions.
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
    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
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


class _RayWorker(TaskWorker):
    def __init__(self, ray: Any, make: Callable[[], Perform], reserved: Mapping[str, float]) -> None:
        self._ray, self._make, self._reserved = ray, make, reserved
        self._start()

    def _start(self) -> None:
        # The pool repeats a task itself, to count how many workers it kills.
        options = {**self._reserved, "max_restarts": 0, "max_task_retries": 0}
        self._actor = self._ray.remote(**options)(_Actor).remote(self._make)
        self.started: Future[None] = self._actor.start.remote().future()

    @override
    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        task: Future[TaskReport] = self._actor.perform.remote(stage, number).future()
        return task

    @override
    def report(self, task: Future[TaskReport]) -> TaskReport:
        try:
            return task.result()
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLost(str(error)) from error

    @override
    def renew(self) -> None:
        self.stop()  # it may only be unreachable
        self._start()

    @override
    def stop(self) -> None:
        self._ray.kill(self._actor)


class _Actor(TaskPerformer):
    """A performer whose start can be awaited."""

    def start(self) -> None:
        """Do nothing; the call ends when the actor runs."""


def _fits(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Return the number of workers that fit on a node with these resources, tolerating rounding errors of fractions."""
    room = resources.get("CPU", 0.0) / cpus
    if gpus:
        room = min(room, resources.get("GPU", 0.0) / gpus)
    return int(room + 1e-9)


# The connection


@contextmanager
def connected(address: str | None = None, *, cpus: float | None = None) -> Iterator[Any]:
    """Connect to Ray and yield the module ``ray``; the exit ends the actors, and the node if it was started here.

    ``address`` is ``HOST:PORT`` of the head node, or ``auto`` for the cluster that this machine belongs to; by default
    ``$RAY_ADDRESS``, else a node is started here with ``cpus`` CPUs, by default all.
    """
    chosen = address or os.environ.get("RAY_ADDRESS") or "local"
    host, _, port = chosen.rpartition(":")
    if chosen not in ("local", "auto") and (not host or not port.isdigit() or "/" in host):
        raise ConfigError(
            f"{chosen!r} is not the address of a Ray cluster: expected HOST:PORT of its head node, or 'auto'"
        )
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with needed_for("a Ray cluster"), _hide_deprecations():
        import ray
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if address not in (None, "local", "auto", current):
            raise ConfigError(
                f"the address is {address}, but this process is already connected to Ray at {current}: give no address"
            )
        yield ray
        return
    try:
        _connect(ray, chosen, cpus)
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str, cpus: float | None) -> None:
    """Connect to the cluster at ``address``, or start a node if it is ``"local"``."""
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        # Without a network route Ray finds no address for the node; the loopback address always works.
        options |= {"_node_ip_address": "127.0.0.1", "object_store_memory": OBJECT_STORE_BYTES}
        options |= {"include_dashboard": False, "num_cpus": None if cpus is None else math.ceil(cpus)}
    elif address != "auto":
        _check_reachable(address)
    try:
        with _hide_deprecations(), _silence_stderr():
            ray.init(address, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if address == "local":
            raise WorkerLostError(f"Ray did not start on this machine: {error}") from error
        raise WorkerLostError(
            f"the Ray cluster at {address!r} cannot be used from this machine ({error}): add this machine to the "
            "cluster with 'ray start --address HOST:PORT', and use the same versions of Python and Ray on all nodes"
        ) from error


def _check_reachable(address: str) -> None:
    """Raise :class:`WorkerLostError` if nothing listens at ``address``; Ray would retry for long and may exit."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise WorkerLostError(
            f"no Ray cluster answers at {address} ({error}): give the address that 'ray start --head' printed"
        ) from error


@contextmanager
def _hide_deprecations() -> Iterator[None]:
    """Hide Ray's warnings about its own future versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Hide what Ray's compiled parts write to stderr while they start; failures are raised as exceptions."""
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
