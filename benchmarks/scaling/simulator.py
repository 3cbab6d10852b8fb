"""A stage as events in simulated time: workers start, fetch, compute, fail, and begin the lost task again.

Tasks are handed out in order, at most ``in_flight`` to a worker at once, each after the driver's ``dispatch`` seconds,
in which it does nothing else. A task moves its bytes through the network that all share, then computes on cores that
the workers of a machine share; busy workers are taken as spread evenly over the machines. A worker that fails loses
what it has done of its task, which goes back to the front, and is back after ``restart`` seconds and another start. A
stage ends with its last task: the next one begins then.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from scaling.constants import Together
from scaling.sharing import Shared

NEVER = float("inf")

NextFailure = Callable[[int, float], float]
"""When the worker of this number, up since then, fails next."""


@dataclass(frozen=True, slots=True)
class Task:
    """Seconds of a worker that is alone on its machine, and bytes over the network."""

    seconds: float
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers, spread over machines of so many ``cores``, which they have divided among them.

    ``startup`` are seconds that a worker computes before its first task; ``restart`` pass between its failure and its
    next start. ``network`` is in bytes a second, of all together, and ``link`` of one worker.
    """

    workers: int
    machines: int = 1
    cores: int = 1
    together: Together = field(default_factory=lambda: Together(((1, 1.0), (1_000_000, 1_000_000.0))))
    startup: float = 0.0
    restart: float = 0.0
    in_flight: int = 1
    dispatch: float = 0.0
    network: float = NEVER
    link: float = NEVER

    def __post_init__(self) -> None:
        for name in ("workers", "machines", "cores", "in_flight"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected 1 or more")

    def speed(self, busy: int) -> float:
        """Return how fast so many busy workers are, one alone on its machine being 1.

        One of several has its share of the cores, and no more where the others are idle.
        """
        each = busy / self.machines
        sharing = max(each, min(self.workers / self.machines, self.cores))
        return busy * self.together.at(sharing) / sharing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage took: seconds, the seconds that workers spent on tasks that they finished, and on lost ones."""

    seconds: float
    busy: float
    lost: float
    failures: int


def never(_worker: int, _now: float) -> float:
    """Fail never."""
    return NEVER


def at_random(mean: float, seed: int) -> NextFailure:
    """Fail once in ``mean`` seconds of a worker, independent of all before."""
    drawn = random.Random(seed)
    return lambda _worker, now: now + drawn.expovariate(1 / mean)


def uneven(tasks: Sequence[Task], variation: float, slow_share: float, slow_factor: float, seed: int) -> list[Task]:
    """Return the tasks with other seconds: log-normal around the same mean, and some, drawn at random, slower.

    ``variation`` is the standard deviation of the logarithm; ``slow_share`` of the tasks take ``slow_factor`` times as
    long, as on a machine that others use.
    """
    drawn = random.Random(seed)

    def factor() -> float:
        usual = drawn.lognormvariate(-(variation**2) / 2, variation)
        return usual * (slow_factor if drawn.random() < slow_share else 1.0)

    return [Task(task.seconds * factor(), task.bytes) for task in tasks]


def simulate(tasks: Sequence[Task], cluster: Cluster, fails: NextFailure = never) -> Outcome:
    """Return what the tasks take; nothing, where there are none."""
    return _Stage(tasks, cluster, fails).run() if tasks else Outcome(0.0, 0.0, 0.0, 0)


class _Timer(IntEnum):
    FAILED, BACK, HANDED = range(3)


class _Worker:
    """What a worker has at hand: tasks, the first of which is under way since ``since``; ``life`` counts its lives."""

    __slots__ = ("life", "ready", "since", "tasks")

    def __init__(self) -> None:
        self.tasks: deque[int] = deque()
        self.ready = False
        self.since = 0.0
        self.life = 0


class _Stage:
    """The events of one stage."""

    def __init__(self, tasks: Sequence[Task], cluster: Cluster, fails: NextFailure) -> None:
        self._tasks, self._cluster, self._fails = tasks, cluster, fails
        self._waiting = deque(range(len(tasks)))
        self._left = len(tasks)
        self._workers = [_Worker() for _ in range(cluster.workers)]
        self._free: deque[tuple[int, int]] = deque()
        self._cores = Shared(cluster.speed)
        self._network = Shared(lambda users: min(cluster.network, users * cluster.link))
        self._timers: list[tuple[float, int, _Timer, int, int, int]] = []
        self._timed = 0
        self._driver_free = 0.0
        self._busy = self._lost = 0.0
        self._failures = 0

    def run(self) -> Outcome:
        """Go from event to event until no task is left."""
        for number in range(len(self._workers)):
            self._start(number, 0.0)
        now = 0.0
        while self._left:
            next_timer = self._timers[0][0] if self._timers else NEVER
            next_cores, next_network = self._cores.next(), self._network.next()
            if next_cores <= min(next_network, next_timer):
                now, number = self._cores.finish()
                self._computed(number, now)
            elif next_network <= next_timer:
                now, number = self._network.finish()
                self._cores.begin(number, self._tasks[self._workers[number].tasks[0]].seconds, now)
            else:
                now, _, what, number, life, task = heapq.heappop(self._timers)
                self._ring(what, number, life, task, now)
        return Outcome(now, self._busy, self._lost, self._failures)

    def _start(self, number: int, now: float) -> None:
        self._cores.begin(number, self._cluster.startup, now)
        if (when := self._fails(number, now)) < NEVER:
            self._set(when, _Timer.FAILED, number)

    def _computed(self, number: int, now: float) -> None:
        """Go on after a start, or after a task."""
        worker = self._workers[number]
        if worker.ready:
            worker.tasks.popleft()
            self._left -= 1
            self._busy += now - worker.since
            self._free.append((number, worker.life))
            if worker.tasks:
                self._begin(number, now)
        else:
            worker.ready = True
            self._free.extend([(number, worker.life)] * self._cluster.in_flight)
        self._hand_out(now)

    def _ring(self, what: _Timer, number: int, life: int, task: int, now: float) -> None:
        worker = self._workers[number]
        if what is _Timer.BACK:
            self._start(number, now)
        elif life != worker.life:  # it died while the driver was sending it the task
            if what is _Timer.HANDED:
                self._waiting.appendleft(task)
                self._hand_out(now)
        elif what is _Timer.FAILED:
            self._fail(number, now)
        else:
            self._give(number, task, now)

    def _fail(self, number: int, now: float) -> None:
        worker = self._workers[number]
        self._failures += 1
        if worker.tasks:
            self._lost += now - worker.since
        self._cores.leave(number, now)
        self._network.leave(number, now)
        self._waiting.extendleft(reversed(worker.tasks))
        worker.tasks.clear()
        worker.ready = False
        worker.life += 1
        self._set(now + self._cluster.restart, _Timer.BACK, number)
        self._hand_out(now)

    def _hand_out(self, now: float) -> None:
        """Let the driver hand a task to each worker that may have one more."""
        while self._waiting and self._free:
            number, life = self._free.popleft()
            if self._workers[number].life != life:
                continue
            task = self._waiting.popleft()
            if not self._cluster.dispatch:
                self._give(number, task, now)
                continue
            self._driver_free = max(self._driver_free, now) + self._cluster.dispatch
            self._set(self._driver_free, _Timer.HANDED, number, task)

    def _give(self, number: int, task: int, now: float) -> None:
        worker = self._workers[number]
        worker.tasks.append(task)
        if len(worker.tasks) == 1:
            self._begin(number, now)

    def _begin(self, number: int, now: float) -> None:
        worker = self._workers[number]
        worker.since = now
        task = self._tasks[worker.tasks[0]]
        if task.bytes and min(self._cluster.network, self._cluster.link) < NEVER:
            self._network.begin(number, task.bytes, now)
        else:
            self._cores.begin(number, task.seconds, now)

    def _set(self, when: float, what: _Timer, number: int, task: int = -1) -> None:
        self._timed += 1
        life = self._workers[number].life
        heapq.heappush(self._timers, (when, self._timed, what, number, life, task))
