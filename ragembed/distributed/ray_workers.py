"""Tasks of a stage on Ray: a pipeline of Ray Data over a pool of actors, each of which is one worker.

Ray Data sends an actor one number at a time and takes its record back. When the actor's process dies, it is made again,
on another node where its own is gone, and the task that it was at is begun again, as often as that takes: that a task
kills its workers is found by counting how often it was begun. What a task raises comes back as a record too, so that
only deaths are errors to Ray.
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

# How often a task is begun at most, each time after the death of the worker that was at it.
# More than a file that kills its readers is given.
ATTEMPTS = 6
# Ray Data may reserve memory for what each task can yield: with its own 128 MiB one task would run at a time.
BLOCK_BYTES = 1 << 20


class RayWorkers:
    """Runs tasks on the actors of a Ray cluster; an :class:`ragembed.distributed.workers.WorkerPool`.

    ``address`` is as in :func:`ragembed.ray_cluster.connected`. Each of the ``workers`` (as many as the live nodes have
    room for by default, and never more on a cluster that runs) has ``cpus`` CPUs and ``gpus`` GPUs to itself; both may
    be fractions. As a context manager it stays connected from its first run to its end, when it ends every worker; by
    itself it connects for each run. Raises :class:`ConfigError` for numbers that cannot be,
    and :class:`MissingExtraError` without the package.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        require("ray", "a Ray cluster")
        if workers is not None and workers < 1:
            raise ConfigError(f"{workers} workers: expected at least 1")
        if not cpus > 0 or not gpus >= 0:
            raise ConfigError(
                f"{cpus:g} CPUs and {gpus:g} GPUs a worker: expected more than 0 CPUs, and 0 GPUs or more"
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
        """Yield what the tasks did, as :meth:`ragembed.distributed.workers.WorkerPool.run` says."""
        if not numbers:
            return
        with self._connection() as ray, _silent():
            size = min(self._room(ray), len(numbers), self._workers or len(numbers))
            try:
                with _counting(ray) as attempts:
                    yield from _outcomes(self._pipeline(ray, (worker, stage, attempts), numbers, size))
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"Ray gave stage {stage!r} up ({error}): its logs say why; what is done is kept, and the same"
                    " command goes on from there"
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
        """How many workers the live nodes have room for."""
        room = sum(_fits(node["Resources"], self._cpus, self._gpus) for node in ray.nodes() if node["Alive"])
        if not room:
            raise WorkerLostError(
                f"no node of the Ray cluster has room for a worker of {self._cpus:g} CPUs and {self._gpus:g} GPUs: ask"
                " for less, or add a node ('ray start --address HOST:PORT')"
            )
        return room

    def _pipeline(self, ray: Any, arguments: tuple[Any, ...], numbers: Sequence[int], size: int) -> Any:
        """Give every number a block of its own, which is what one call of an actor is about.

        Ray Data's own default is what is wanted of deaths: actors are made again, and calls done again, without end.
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
                # One under way at each actor, so that a death is that task's and no other's.
                compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
                num_cpus=self._cpus,
                num_gpus=self._gpus or None,
            )


class _Actor:
    """An actor's state: the ``Perform`` that it makes when it is given its first task."""

    def __init__(self, worker: Callable[[], Perform], stage: str, attempts: Any) -> None:
        self._make = worker
        self._stage = stage
        self._attempts = attempts
        self._perform: Perform | None = None

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outcome of each number of ``item``: a record or an error, as bytes, and the error's traceback."""
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
        except Exception as error:  # noqa: BLE001  raised again where the results are read
            return cloudpickle.dumps(_portable(error)), traceback.format_exc()


class _Attempts:
    """How often each task was begun; an actor, because a worker that dies remembers nothing."""

    def __init__(self) -> None:
        self._begun: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self._begun[number] += 1
        return self._begun[number]


@contextmanager
def _counting(ray: Any) -> Iterator[Any]:
    """Have the actor that counts for one run, on the driver's own node, without which there is no run."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    attempts = ray.remote(num_cpus=0, scheduling_strategy=here)(_Attempts).remote()
    try:
        yield attempts
    finally:
        ray.kill(attempts)


class _WorkerTraceback(Exception):  # noqa: N818  the cause that shows where in its worker an error was raised
    """Where in its worker an error was raised."""


def _portable(error: Exception) -> Exception:
    """``error`` itself where every machine has its class, or one that names it."""
    home = type(error).__module__
    if isinstance(error, RagembedError) or home == "builtins":
        return error
    return RuntimeError(f"{home}.{type(error).__qualname__}: {error}")


def _outcomes(dataset: Any) -> Iterator[TaskReport]:
    """Yield the records of a pipeline as they come; raises what a task raised."""
    from ray import cloudpickle

    for batch in dataset.iter_batches(batch_size=1, prefetch_batches=0, batch_format="numpy"):
        for packed, trace in zip(batch["outcome"], batch["trace"], strict=True):
            outcome = cloudpickle.loads(packed)
            if isinstance(outcome, Exception):
                raise outcome from _WorkerTraceback(f"\n{trace}")
            yield outcome


def _fits(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many workers a node with these resources has room for; thirds and tenths add up to a whole."""
    room = resources.get("CPU", 0.0) / cpus
    if gpus:
        room = min(room, resources.get("GPU", 0.0) / gpus)
    return int(room + 1e-9)


def _lost_message(stage: str, number: int) -> str:
    return (
        f"the worker of task {number} of stage {stage!r} died {ATTEMPTS} times: most often its memory is too small, so"
        " give a worker more CPUs, or a node fewer workers; Ray's logs say more. What is done is kept, and the same"
        " command goes on from there"
    )


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what Ray Data says from the terminal; its log files have all of it."""
    import ray.data  # noqa: F401  it sets its handlers up when it is imported

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
