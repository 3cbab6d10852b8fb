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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeAlias

from ragembed.errors import ConfigError, WorkerLostError
from ragembed.resources import processors

MOST_LOSSES = 6
"""Number of times that the worker of a task may die before the run is aborted.

It must be larger than ``MOST_DEATHS``, after which a file that kills its readers is skipped.
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


class WorkerPool(Protocol):
    """Runs tasks on workers. Each worker is created once and keeps its model between tasks.

    As a context manager, a pool may keep its workers for the next stage.
    """

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run each task of ``numbers``, and yield the reports as tasks finish, in any order.

        ``worker`` is called once in the process of each worker, so it must be picklable. If a worker or its machine
        dies, another worker repeats the task. Raises the exception of a failed task, and
        :class:`ragembed.errors.WorkerLostError` if workers that perform the same task die repeatedly.
        """
        ...

    def __enter__(self) -> WorkerPool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ThisProcess:
    """Runs the tasks one after the other in this process."""

    def __init__(self) -> None:
        self._made: tuple[Callable[[], Perform], Perform] | None = None

    def __enter__(self) -> ThisProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._made = None

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run each task; see :meth:`WorkerPool.run`."""
        if self._made is None or self._made[0] is not worker:
            self._made = worker, worker()
        for number in numbers:
            yield self._made[1](stage, number)


class ProcessWorkers:
    """Runs tasks in ``workers`` processes, each limited to its share of the cores.

    If a process dies, a new process repeats its task. The other processes continue.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}: expected 1 or more processes")
        self._workers = workers
        self._threads = max(1, processors() // workers)
        self._worker: Callable[[], Perform] | None = None
        self._processes: list[_Process] = []

    def __enter__(self) -> ProcessWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run each task; see :meth:`WorkerPool.run`."""
        waiting = deque(numbers)
        losses: dict[int, int] = {}
        busy: dict[Future[TaskReport], tuple[_Process, int]] = {}
        processes = self._processes_of(worker, min(self._workers, len(numbers)))
        try:
            while waiting or busy:
                active = [process for process, _ in busy.values()]
                for process in [process for process in processes if process not in active][: len(waiting)]:
                    number = waiting.popleft()
                    busy[process.submit(stage, number)] = process, number
                finished, _ = wait(busy, return_when=FIRST_COMPLETED)
                for future in finished:
                    process, number = busy.pop(future)
                    try:
                        done = future.result()
                    except BrokenProcessPool as error:
                        losses[number] = losses.get(number, 0) + 1
                        if losses[number] == MOST_LOSSES:
                            raise WorkerLostError(_lost(stage, number)) from error
                        process.renew()
                        waiting.appendleft(number)
                    else:
                        yield done
        finally:
            if waiting or busy:  # the run was aborted or failed
                self._end()

    def _processes_of(self, worker: Callable[[], Perform], size: int) -> list[_Process]:
        if worker is not self._worker:
            self._end()
            self._worker = worker
        self._processes += [_Process(worker, self._threads) for _ in range(size - len(self._processes))]
        return self._processes[:size]

    def _end(self) -> None:
        for process in self._processes:
            process.stop()
        self._processes, self._worker = [], None


class _Process:
    """A process that performs one task at a time."""

    def __init__(self, worker: Callable[[], Perform], threads: int) -> None:
        self._make = worker, threads
        self.renew()

    def renew(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process with threads may deadlock
        self._pool = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(*self._make, os.getpid()))

    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        # The first task starts the process, and _begin ignores Ctrl-C only after the imports.
        with _interrupts_blocked():
            return self._pool.submit(_perform, stage, number)

    def stop(self) -> None:
        """Terminate the process immediately. The next run repeats its task."""
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


_worker: Callable[[], Perform] | None = None
_made: list[Perform] = []


def _begin(worker: Callable[[], Perform], threads: int, parent: int) -> None:
    """Prepare a new process: limit its threads, ignore Ctrl-C, and exit soon after the parent dies."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and terminates this process
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _worker = worker


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _perform(stage: str, number: int) -> TaskReport:
    if not _made:
        assert _worker is not None, "_begin must run before _perform"  # noqa: S101  the executor ensures it
        _made.append(_worker())
    return _made[0](stage, number)


def _lost(stage: str, number: int) -> str:
    return (
        f"{MOST_LOSSES} processes died on task {number} of stage {stage!r}, probably for lack of memory: use fewer "
        "workers, then run the same command again; it continues from the finished tasks"
    )
