"""Workers that fail in chosen ways. Other processes import them, so they have their own module."""

import os
import signal
import time
from pathlib import Path

from ragembed.distributed.workers import ProcessWorkers, TaskReport
from ragembed.errors import ConfigError


class Recorder:
    """Records each task in a file, and performs the action that ``fate`` has for its number."""

    def __init__(self, folder: Path, fate: dict[int, str]) -> None:
        self._folder = folder
        self._fate = fate

    def __call__(self, stage: str, number: int) -> TaskReport:
        with (self._folder / f"{stage}-{number}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        tries = len((self._folder / f"{stage}-{number}").read_text().splitlines())
        fate = self._fate.get(number)
        if (fate == "dies once" and tries == 1) or fate == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "fails":
            raise ConfigError("task 2 is not accepted")
        if fate == "sleeps":
            time.sleep(600)
        return TaskReport(number, 1, 0.0, 1.0, f"here:{os.getpid()}")


class MakeRecorder:
    def __init__(self, folder: Path, fate: dict[int, str]) -> None:
        self._made_of = folder, fate

    def __call__(self) -> Recorder:
        return Recorder(*self._made_of)


class DiesInFile:
    """A worker whose process is killed when it reads a file with the given name."""

    def __init__(self, worker, name: str) -> None:
        self._worker, self._name = worker, name

    def __call__(self):
        from ragembed.indexes.indexing import scan

        read = scan.read

        def deadly(name, data, options):
            if name == self._name:
                os.kill(os.getpid(), signal.SIGKILL)
            return read(name, data, options)

        scan.read = deadly
        return self._worker()


class DiesInBlock:
    """A worker whose process is killed the first time that it performs a given task."""

    def __init__(self, worker, stage: str, number: int, mark: Path) -> None:
        self._worker, self._task, self._mark = worker, (stage, number), mark

    def __call__(self):
        perform = self._worker()

        def deadly(stage, number):
            if (stage, number) == self._task and not self._mark.exists():
                self._mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return perform(stage, number)

        return deadly


class Sabotaged(ProcessWorkers):
    """A pool of processes with the workers ``wrap(worker, *arguments)``."""

    def __init__(self, workers: int, wrap, *arguments) -> None:
        super().__init__(workers)
        self._wrap, self._arguments = wrap, arguments
        self._wrapped = {}

    def run(self, worker, stage, numbers):
        return super().run(self._wrapped.setdefault(id(worker), self._wrap(worker, *self._arguments)), stage, numbers)
