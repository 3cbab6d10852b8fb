"""Run the tasks of a stage on Ray: a Ray Data pipeline over a pool of actors. Each actor is one worker.

Ray Data sends an actor one task number at a time and receives its report. If the process of an actor dies, Ray starts a
new actor, on another node if necessary, and starts the task again, without a limit. A separate actor counts how often
each task was started, to detect tasks that kill their workers. An exception in a task is returned as data, so Ray sees
only the deaths of processes as errors.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from ragembed.distributed.workers import Perform, TaskReport
from ragembed.errors import ConfigError, RagembedError, WorkerLostError
from ragembed.extras import require
from ragembed.ray_cluster import connected

# Maximum number of times that a task is started. Each new attempt follows the death of a worker. It must be larger than
# MOST_DEATHS, after which a file that kills its readers is skipped.
ATTEMPTS = 6
# Ray Data may reserve memory for the output of each task. With its default of 128 MiB, only one task would run at a
# time.
BLOCK_BYTES = 1 << 20


class RayWorkers:
    """Runs tasks on the actors of a Ray cluster. Implements :class:`ragembed.distributed.workers.WorkerPool`.

    As a context manager, it connects at the first run and stays connected until the end, when it stops all workers.
    Without a ``with`` statement, it connects for each run.

    Parameters
    ----------
    address
        Address of the cluster, as in :func:`ragembed.ray_cluster.connected`.
    workers
        Number of workers. By default, as many as fit on the live nodes. On a running cluster, never more than that.
    cpus, gpus
        Number of CPUs and GPUs that each worker reserves. Fractions are allowed.

    Raises
    ------
    ConfigError
        If a number is out of range.
    MissingExtraError
        If Ray is not installed.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        require("ray", "a Ray cluster")
        if workers is not None and workers < 1:
            raise ConfigError(f"workers is {workers}: expected at least 1")
        if not cpus > 0 or not gpus >= 0:
            raise ConfigError(
                f"{cpus:g} CPUs and {gpus:g} GPUs per worker: expected more than 0 CPUs and at least 0 GPUs"
            )
        self._address = address
        self._workers = workers
        self._cpus = cpus
        self._gpus = gpus
        self._held: ExitStack | None = None
        self._ray: Any = None

    def __enter__(self) -> RayWorkers:
        self._held = ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.close()
            self._held = self._ray = None

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run the tasks and yield their reports; see :meth:`ragembed.distributed.workers.WorkerPool.run`."""
        if not numbers:
            return
        with self._connection() as ray, _silent():
            size = min(self._room(ray), len(numbers), self._workers or len(numbers))
            try:
                with _counting(ray) as attempts:
                    yield from _outcomes(self._pipeline(ray, (worker, stage, attempts), numbers, size))
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"Ray aborted stage {stage!r} ({error}): see Ray's logs for the cause, then run the same command"
                    " again; it continues from the finished tasks"
                ) from error

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        wanted = None if self._workers is None else self._workers * self._cpus
        connection = connected(self._address, cpus=wanted)
        if self._held is None:
            with connection as ray:
                yield ray
            return
        if self._ray is None:
            self._ray = self._held.enter_context(connection)
        yield self._ray

    def _room(self, ray: Any) -> int:
        """Return the number of workers that fit on the live nodes."""
        room = sum(_fits(node["Resources"], self._cpus, self._gpus) for node in ray.nodes() if node["Alive"])
        if not room:
            raise WorkerLostError(
                f"no node of the Ray cluster has room for a worker with {self._cpus:g} CPUs and {self._gpus:g} GPUs:"
                " request fewer, or add a node ('ray start --address HOST:PORT')"
            )
        return room

    def _pipeline(self, ray: Any, arguments: tuple[Any, ...], numbers: Sequence[int], size: int) -> Any:
        """Return the Ray Data pipeline. Each task number is one block, so each call of an actor performs one task.

        The defaults of Ray Data suit: it restarts dead actors and repeats their calls without a limit.
        """
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.target_max_block_size = BLOCK_BYTES
        with ray.data.DataContext.current(context):
            return ray.data.from_items(list(numbers), override_num_blocks=len(numbers)).map_batches(
                _Actor,
                fn_constructor_args=arguments,
                batch_size=1,
                batch_format="numpy",
                # One task in flight per actor, so the death of an actor can be attributed to this task.
                compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
                num_cpus=self._cpus,
                num_gpus=self._gpus or None,
            )


class _Actor:
    """The state of an actor: the ``Perform`` callable, which it makes when it receives its first task."""

    def __init__(self, worker: Callable[[], Perform], stage: str, attempts: Any) -> None:
        self._make = worker
        self._stage = stage
        self._attempts = attempts
        self._perform: Perform | None = None

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return, for each number in ``item``, a pickled report or exception, and the traceback of the exception."""
        outcomes = [self._outcome(int(number)) for number in batch["item"]]
        outcome = np.empty(len(outcomes), dtype=object)
        outcome[:] = [packed for packed, _ in outcomes]
        return {"outcome": outcome, "trace": np.array([trace for _, trace in outcomes])}

    def _outcome(self, number: int) -> tuple[bytes, str]:
        import ray
        from ray import cloudpickle

        try:
            if ray.get(self._attempts.begin.remote(number)) > ATTEMPTS:
                raise WorkerLostError(_lost_message(self._stage, number))
            if self._perform is None:
                self._perform = self._make()
            return cloudpickle.dumps(self._perform(self._stage, number)), ""
        except Exception as error:  # noqa: BLE001  the driver raises it again
            return cloudpickle.dumps(_portable(error)), traceback.format_exc()


class _Attempts:
    """Counts how often each task was started. It is an actor because its counts must survive the workers' deaths."""

    def __init__(self) -> None:
        self._started: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self._started[number] += 1
        return self._started[number]


@contextmanager
def _counting(ray: Any) -> Iterator[Any]:
    """Start the actor that counts the attempts of one run, on the driver's node, which the run needs anyway."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    attempts = ray.remote(num_cpus=0, scheduling_strategy=here)(_Attempts).remote()
    try:
        yield attempts
    finally:
        ray.kill(attempts)


class _WorkerTraceback(Exception):  # noqa: N818  only used as the cause of another exception
    """The traceback of an exception in its worker, used as the cause of the exception in the driver."""


def _portable(error: Exception) -> Exception:
    """Return ``error`` if its class is available on every machine, otherwise a :class:`RuntimeError` with its name."""
    home = type(error).__module__
    if isinstance(error, RagembedError) or home == "builtins":
        return error
    return RuntimeError(f"{home}.{type(error).__qualname__}: {error}")


def _outcomes(dataset: Any) -> Iterator[TaskReport]:
    """Yield the reports of a pipeline as tasks finish. Raises the exception of a failed task."""
    from ray import cloudpickle

    for batch in dataset.iter_batches(batch_size=1, prefetch_batches=0, batch_format="numpy"):
        for packed, trace in zip(batch["outcome"], batch["trace"], strict=True):
            outcome = cloudpickle.loads(packed)
            if isinstance(outcome, Exception):
                raise outcome from _WorkerTraceback(f"\n{trace}")
            yield outcome


def _fits(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """Return the number of workers that fit on a node with these resources, tolerating rounding errors of fractions."""
    room = resources.get("CPU", 0.0) / cpus
    if gpus:
        room = min(room, resources.get("GPU", 0.0) / gpus)
    return int(room + 1e-9)


def _lost_message(stage: str, number: int) -> str:
    return (
        f"the worker of task {number} of stage {stage!r} died {ATTEMPTS} times, probably for lack of memory: give each"
        " worker more CPUs, or each node fewer workers, and see Ray's logs for details. Then run the same command"
        " again; it continues from the finished tasks"
    )


@contextmanager
def _silent() -> Iterator[None]:
    """Hide the log messages of Ray Data from the terminal. Its log files contain all of them."""
    import ray.data  # noqa: F401  the import installs its log handlers

    handlers = logging.getLogger("ray.data").handlers
    consoles = [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
    levels = [console.level for console in consoles]
    for console in consoles:
        console.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for console, level in zip(consoles, levels, strict=True):
            console.setLevel(level)
