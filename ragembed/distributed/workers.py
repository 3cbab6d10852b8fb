"""Pools of workers that do the tasks of stages; :class:`ProcessWorkers` is the one on this machine.

A task is a stage and a number. Its input and output are files in the work folder, so that a pool carries only numbers,
and a task can be repeated at any time with the same result.
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
"""Times that a task's worker may die before the run is given up: more than a file that kills its readers is given."""

_WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A finished task: how many files or chunks it was about, and what it cost its worker.

    ``seconds`` is 0 if the output existed already, ``memory`` the peak memory of the worker so far, in MiB, and
    ``worker`` the host's name and the id of the process.
    """

    number: int
    items: int
    seconds: float
    memory: float
    worker: str


Perform: TypeAlias = Callable[[str, int], TaskReport]
"""Does one task: the stage and the number; the same task may be repeated."""


class WorkerPool(Protocol):
    """Runs tasks on workers, each of which is made once and keeps its model between tasks.

    A context manager: workers may stay for the next stage until its end.
    """

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[TaskReport]:
        """Run each task of ``numbers``, and yield the reports as tasks finish, in any order.

        ``worker`` is called once in the process of each worker, so it can be pickled. If a worker or its machine dies,
        another worker repeats the task. Raises what a task raised, and :class:`ragembed.errors.WorkerLostError` if
        workers of the same task die again and again.
        """
        ...

    def __enter__(self) -> WorkerPool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ProcessWorkers:
    """Runs tasks in ``workers`` processes, each limited to its share of the cores.

    If a process dies, a new one repeats its task; the others go on.
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
        """Have each task done; see :meth:`WorkerPool.run`."""
        waiting = deque(numbers)
        losses: dict[int, int] = {}
        busy: dict[Future[TaskReport], tuple[_Process, int]] = {}
        processes = self._processes_of(worker, min(self._workers, len(numbers)))
        try:
            while waiting or busy:
                at_work = [process for process, _ in busy.values()]
                for process in [process for process in processes if process not in at_work][: len(waiting)]:
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
            if waiting or busy:  # given up, or failed
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
    """A process that does one task at a time."""

    def __init__(self, worker: Callable[[], Perform], threads: int) -> None:
        self._make = worker, threads
        self.renew()

    def renew(self) -> None:
        context = multiprocessing.get_context("spawn")  # a copy of a process with threads may never answer
        self._pool = ProcessPoolExecutor(1, context, initializer=_begin, initargs=(*self._make, os.getpid()))

    def submit(self, stage: str, number: int) -> Future[TaskReport]:
        with _interrupts_held():  # the first task starts the process, which imports for a while before it is prepared
            return self._pool.submit(_perform, stage, number)

    def stop(self) -> None:
        """End the process now: what it does is done again by whoever carries on."""
        for process in list((getattr(self._pool, "_processes", None) or {}).values()):
            process.terminate()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C for a moment: a process that is started within never hears it."""
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
    """Prepare a new process: bounded, deaf to the keyboard, and gone soon after its parent."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this
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
        assert _worker is not None, "a process begins before it performs"  # noqa: S101  the executor's order
        _made.append(_worker())
    return _made[0](stage, number)


def _lost(stage: str, number: int) -> str:
    return (
        f"the task {number} of the stage {stage!r} has cost {MOST_LOSSES} processes their lives: look for want of "
        "memory (fewer workers need less), or for what killed them; run the same command again to carry on"
    )
