"""Tasks of a stage on Ray: a pipeline of Ray Data over a pool of actors, each of which is one worker.

Ray sends an actor one number at a time, takes its record back, and makes the actor anew, on another node where its own
is gone, when its process dies; the task that it was at is then done again. What a task raises comes back as a record
too, so that only deaths are errors to Ray.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from ragembed.errors import ConfigError, RagembedError, WorkerLostError
from ragembed.ray_cluster import connected
from ragembed.scaling.engine import Done, Perform

# How often a task is begun at most, each time after the death of the worker that was at it.
ATTEMPTS = 3
# So many tasks may lose their workers that often before the rest of the stage is not tried any more.
LOST_TASKS = 8
# Ray Data reserves memory for what each task may yield: with its own 128 MiB one task would run at a time.
BLOCK_BYTES = 1 << 20


class RayEngine:
    """Runs tasks on the actors of a Ray cluster; an :class:`ragembed.scaling.engine.Engine`.

    ``address`` is as in :func:`ragembed.ray_cluster.connected`. Each of the ``workers`` (as many as the live nodes have
    room for by default, and never more on a cluster that runs) has ``cpus`` CPUs and ``gpus`` GPUs to itself; both may
    be fractions. As a context manager it stays connected from one stage to the next, and ends every worker at its end;
    by itself it connects for each run. Raises :class:`ConfigError` for numbers that cannot be.
    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
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

    def __enter__(self) -> RayEngine:
        with ExitStack() as stack:
            stack.enter_context(self._connection())
            self._held = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[Done]:
        """Yield what the tasks did, as :meth:`ragembed.scaling.engine.Engine.run` says."""
        if not numbers:
            return
        with self._connection() as ray, _silent():
            size = min(self._room(ray), len(numbers), self._workers or len(numbers))
            lost = set(numbers)
            try:
                for done in _outcomes(self._pipeline(ray, worker, stage, numbers, size)):
                    lost.discard(done.number)
                    yield done
            except ray.exceptions.RayError as error:
                raise WorkerLostError(
                    f"Ray gave up stage {stage!r} with {len(lost):,} of {len(numbers):,} tasks left ({error}): its logs"
                    " say why; what is done is kept, and the same command goes on from there"
                ) from error
        if lost:
            raise WorkerLostError(_lost_message(stage, sorted(lost)))

    def _connection(self) -> Any:
        wanted = None if self._workers is None else self._workers * self._cpus
        return connected(None if self._held is not None else self._address, cpus=wanted)

    def _room(self, ray: Any) -> int:
        """How many workers the live nodes have room for."""
        room = sum(_fits(node["Resources"], self._cpus, self._gpus) for node in ray.nodes() if node["Alive"])
        if not room:
            raise WorkerLostError(
                f"no node of the Ray cluster has room for a worker of {self._cpus:g} CPUs and {self._gpus:g} GPUs: ask"
                " for less, or add a node ('ray start --address HOST:PORT')"
            )
        return room

    def _pipeline(self, ray: Any, worker: Callable[[], Perform], stage: str, numbers: Sequence[int], size: int) -> Any:
        """Give every number a block of its own, which is what one call of an actor is about."""
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.max_errored_blocks = LOST_TASKS
        context.target_max_block_size = BLOCK_BYTES
        with ray.data.DataContext.current(context):
            return ray.data.from_items(list(numbers), override_num_blocks=len(numbers)).map_batches(
                _Worker,
                fn_constructor_args=(worker, stage),
                batch_size=1,
                batch_format="numpy",
                # One under way at each actor, so that a death is that task's and no other's.
                compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=1),
                num_cpus=self._cpus,
                num_gpus=self._gpus or None,
                max_restarts=-1,
                max_task_retries=ATTEMPTS - 1,
            )


class _Worker:
    """An actor's state: the ``Perform`` that it makes when it is given its first task."""

    def __init__(self, worker: Callable[[], Perform], stage: str) -> None:
        self._make = worker
        self._stage = stage
        self._perform: Perform | None = None

    def __call__(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outcome of each number of ``item``: a record or an error, as bytes, and the error's traceback."""
        outcomes = [self._outcome(int(number)) for number in batch["item"]]
        outcome = np.empty(len(outcomes), dtype=object)
        outcome[:] = [packed for packed, _ in outcomes]
        return {"outcome": outcome, "trace": np.array([trace for _, trace in outcomes])}

    def _outcome(self, number: int) -> tuple[bytes, str]:
        from ray import cloudpickle

        try:
            if self._perform is None:
                self._perform = self._make()
            return cloudpickle.dumps(self._perform(self._stage, number)), ""
        except Exception as error:  # noqa: BLE001  raised again where the results are read
            return cloudpickle.dumps(_portable(error)), traceback.format_exc()


class _WorkerTraceback(Exception):  # noqa: N818  the cause that shows where in its worker an error was raised
    """Where in its worker an error was raised."""


def _portable(error: Exception) -> Exception:
    """``error`` itself where every machine has its class, or one that names it."""
    home = type(error).__module__
    if isinstance(error, RagembedError) or home == "builtins":
        return error
    return RuntimeError(f"{home}.{type(error).__qualname__}: {error}")


def _outcomes(dataset: Any) -> Iterator[Done]:
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


def _lost_message(stage: str, lost: Sequence[int]) -> str:
    named = ", ".join(map(str, lost[:LOST_TASKS])) + (", …" if len(lost) > LOST_TASKS else "")
    return (
        f"the worker of task {named} of stage {stage!r} died {ATTEMPTS} times: most often its memory is too small, so"
        " give a worker more CPUs, or a node fewer workers; Ray's logs say more. What is done is kept, and the same"
        " command goes on from there"
    )


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what Ray Data says from the terminal; its log files have all of it."""
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
