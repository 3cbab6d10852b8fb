"""What runs the tasks of a stage: on this machine's processes (:mod:`processes`) or on Ray (:mod:`ray_engine`).

A task is a stage's name and a number; what it works on and what it makes are files in the work folder, so that an
engine carries nothing but numbers, and a task can be done again at any time with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Done:
    """A task that is done: how many files or chunks it was about, and what it cost the worker that did it.

    ``seconds`` are 0 where its files were there already; ``memory`` is the most that the worker has had in memory so
    far, in MiB, and ``worker`` tells one from another: the host's name and the process's id.
    """

    number: int
    items: int
    seconds: float
    memory: float
    worker: str


Perform: TypeAlias = Callable[[str, int], Done]
"""Does the task of a stage that has the number; the same task may be asked for again."""


class Engine(Protocol):
    """Runs tasks on workers, each of which is made once and keeps its model between tasks.

    Used as a context manager, at whose end the workers that are kept for the next stage go.
    """

    def run(self, worker: Callable[[], Perform], stage: str, numbers: Sequence[int]) -> Iterator[Done]:
        """Have each task of ``numbers`` done by a worker, and yield them as they are done, in any order.

        ``worker`` is called once in each worker's process; both it and what it raises can be sent to another. At most
        a few tasks for each worker are under way at once. A task whose worker, or its machine, dies is done again by
        another. Raises what a task raised, and :class:`ragembed.errors.WorkerLostError` where the worker of one task
        died again and again.
        """
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
