"""Pools of workers that perform the tasks of a stage. :class:`ProcessWorkers` uses processes on the local machine.

A stage and a number identify a task. Its input and output are files in the work folder, so a pool transfers only
numbers. A task can be repeated at any time with the same result.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from typing_extensions import Self, override

from ragembed.errors import ConfigError, WorkerLostError
from ragembed.resources import processors

MOST_LOSSES = 12
"""Number of times that the worker of a task may die before the run is aborted.

It must be several times ``MOST_DEATHS``, after which a file that kills its readers is skipped.
"""

_WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a finished task.

    ``items`` is the number of files or chunks that the task processed. ``seconds`` is its duration, or 0 if the output
    already existed. ``memory`` is the peak memory of the worker so far, in MiB. ``worker`` is the host name and the
    process id.
    """

    number: int
    items: int
    seconds: float
    memory: float
    worker: str


Perform: TypeAlias = Callable[[str, int], TaskReport]
"""Performs the task with the given stage and number. The same task may be repeated."""


class WorkerLost(Exception):  # noqa: N818  a signal between a worker and its pool
    """The worker of a task died, and another can repeat the task."""


class TaskWorker(ABC):
    """A worker, which performs one task at a time. ``started`` is done when it can begin: it may wait for room."""

    started: Future[None]

    @abstractmethod
    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        """Begin a task."""

    @abstractmethod
    def report(self, task: Future[TaskReport]) -> TaskReport:
        """Return the report of a finished task, or raise its exception; raise :class:`WorkerLost` if it died."""

    @abstractmethod
    def renew(self) -> None:
        """Replace the dead worker."""

    @abstractmethod
    def stop(self) -> None:
        """End the worker immediately. The next run repeats its task."""


class WorkerPool:
    """Performs the tasks of stages in a ``with`` block: this class in this process, one after the other."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """End all workers."""

    def run(self, make: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run each task of ``numbers`` with what ``make`` returns, and yield the reports in any order."""
        perform = make()
        for number in numbers:
            yield perform(stage, number)


class RenewedWorkers(WorkerPool, ABC):
    """A pool of workers that may die: another worker then repeats the task. They keep the model between stages."""

    def __init__(self) -> None:
        self._make: Callable[[], Perform] | None = None
        self._workers: list[TaskWorker] = []

    @override
    def __exit__(self, *_error: object) -> None:
        self._end()

    @abstractmethod
    def size(self, tasks: int) -> int:
        """Return the number of workers for a number of tasks, 1 or more."""

    @abstractmethod
    def worker(self, make: Callable[[], Perform]) -> TaskWorker:
        """Start a worker."""

    @override
    def run(self, make: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Call ``make``, which must be picklable, once in each worker process, and yield the reports as tasks finish.

        Raises the exception of a failed task, and :class:`ragembed.errors.WorkerLostError` if workers of the same
        task die repeatedly.
        """
        waiting, losses = deque(numbers), Counter[int]()
        busy: dict[Future[TaskReport], tuple[TaskWorker, int]] = {}
        if make is not self._make:
            self._end()
            self._make = make
        self._workers += [self.worker(make) for _ in range(self.size(len(numbers)) - len(self._workers))]
        try:
            while waiting or busy:
                active = [worker for worker, _ in busy.values()]
                idle = [worker for worker in self._workers if worker not in active and worker.started.done()]
                for worker in idle[: len(waiting)]:
                    number = waiting.popleft()
                    busy[worker.submit(stage, number)] = worker, number
                pending: list[Future[Any]] = list(busy)
                if waiting:
                    pending += [worker.started for worker in self._workers if not worker.started.done()]
                wait(pending, return_when=FIRST_COMPLETED)
                for task in [task for task in busy if task.done()]:
                    worker, number = busy.pop(task)
                    try:
                        done = worker.report(task)
                    except WorkerLost as error:
                        losses[number] += 1
                        if losses[number] == MOST_LOSSES:
                            raise WorkerLostError(
                                f"{MOST_LOSSES} workers died on task {number} of stage {stage!r}, probably for lack of "
                                "memory: use fewer workers, then run the same command again; it continues from the "
                                "finished tasks"
                            ) from error
                        worker.renew()
                        waiting.appendleft(number)
                    else:
                        yield done
        finally:
            if waiting or busy:  # the run was aborted or failed
                self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers, self._make = [], None


class ProcessWorkers(RenewedWorkers):
    """Runs tasks in ``workers`` processes, each limited to its share of the cores."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        if workers < 1:
            raise ConfigError(f"workers is {workers}: expected 1 or more processes")
        self._most = workers

    @override
    def size(self, tasks: int) -> int:
        return min(self._most, tasks)

    @override
    def worker(self, make: Callable[[], Perform]) -> TaskWorker:
        return _Process(make, max(1, processors() // self._most))


class _Process(TaskWorker):
    """A process that performs one task at a time."""

    def __init__(self, make: Callable[[], Perform], threads: int) -> None:
        self._make = make, threads
        self.started = Future()
        self.started.set_result(None)  # the executor starts the process with its first task
        self.renew()

    @override
    def renew(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process with threads may deadlock
        self._pool = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(*self._make, os.getpid()))

    @override
    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        # The first task starts the process, and _begin ignores Ctrl-C only after the imports.
        with _interrupts_blocked():
            return self._pool.submit(_perform, stage, number)

    @override
    def report(self, task: Future[TaskReport]) -> TaskReport:
        try:
            return task.result()
        except BrokenProcessPool as error:
            raise WorkerLost from error

    @override
    def stop(self) -> None:
        for process in list((getattr(self._pool, "_processes", None) or {}).values()):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C. A process started inside this context inherits the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TaskPerformer:
    """Performs tasks in a worker, with what ``make`` returns when the first task arrives."""

    def __init__(self, make: Callable[[], Perform]) -> None:
        self._make = make
        self._perform: Perform | None = None

    def perform(self, stage: str, number: int) -> TaskReport:
        """Perform a task."""
        if self._perform is None:
            self._perform = self._make()
        return self._perform(stage, number)


_performers: list[TaskPerformer] = []
"""The performer of this process, if it is a worker."""


def _begin(make: Callable[[], Perform], threads: int, parent: int) -> None:
    """Prepare a new process: limit its threads, ignore Ctrl-C, and exit soon after the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and terminates this process
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _performers.append(TaskPerformer(make))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _perform(stage: str, number: int) -> TaskReport:
    return _performers[0].perform(stage, number)
