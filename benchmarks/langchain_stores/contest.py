"""Both sides do every task, each time in a process of its own, and take turns; what came of it, by side and task."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import LANGCHAIN
from measure import Runner

_BENCHMARKS = Path(__file__).resolve().parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
TASKS = ("make", "open", "search", "filtered", "threads", "change", "writer")
"""In this order: those before ``change`` leave the store as it is."""

_WARM_UP = ("make", "open")
_WARM_UP_TEXTS = 500
_MIB = 2**20


@dataclass
class Contestant:
    """A side: its name, the Python and the program that it runs, and by task what that told in each round.

    Beside what a program tells there are ``memory`` in MiB and ``wall`` in seconds, of its whole process; of ``make``,
    ``size`` in MiB on the disk. ``failures`` has a sentence for each process that ended with an error.
    """

    name: str
    python: str | Path
    program: Path
    told: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {task: [] for task in TASKS})
    failures: dict[str, list[str]] = field(default_factory=lambda: {task: [] for task in TASKS})

    def values(self, task: str, find: Callable[[Mapping[str, Any]], float]) -> list[float]:
        """Return a value of each round in which the task came to its end."""
        return [find(told) for told in self.told[task]]


def contestants() -> tuple[Contestant, Contestant]:
    """Return ragembed's side, in the environment of this process, and LangChain's."""
    return (
        Contestant("RagVectorStore", sys.executable, PROGRAMS / "rag_store.py"),
        Contestant("FAISS", LANGCHAIN.python, _BENCHMARKS / "peers" / "langchain_faiss.py"),
    )


def hold(sides: Sequence[Contestant], request: Mapping[str, Any], runner: Runner, rounds: int) -> None:
    """Let both do every task ``rounds`` times, each round with a new store, after a short warm-up."""
    for side in sides:
        _say(f"warming up: {side.name}")
        store = runner.folder / "warm-up"
        for task in _WARM_UP:
            _run(side, task, {**request, "store": str(store), "texts": _WARM_UP_TEXTS}, runner)
        shutil.rmtree(store)
    for turn in range(rounds):
        stores = {side.name: runner.folder / f"{side.name}-{turn}" for side in sides}
        for task in TASKS:
            for side in reversed(sides) if turn % 2 else sides:
                _say(f"round {turn + 1} of {rounds}, {task}: {side.name}")
                _keep(side, task, {**request, "store": str(stores[side.name])}, runner)
        for store in stores.values():
            if store.exists():  # unless making it failed
                shutil.rmtree(store)


def _keep(side: Contestant, task: str, request: Mapping[str, Any], runner: Runner) -> None:
    try:
        told = _run(side, task, request, runner)
    except RuntimeError as error:
        side.failures[task].append(_failure(str(error)))
        _say(str(error))
        return
    if task == "make":
        told["size"] = _size(Path(request["store"]))
    side.told[task].append(told)


def _run(side: Contestant, task: str, request: Mapping[str, Any], runner: Runner) -> dict[str, Any]:
    cost, printed = runner.run([side.python, side.program, task, json.dumps(request)])
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])  # libraries print before it
    return {**told, "memory": cost.memory, "wall": cost.wall}


def _failure(message: str) -> str:
    """Return the name of the signal, or the last line of the traceback, out of the error of :meth:`Runner.run`."""
    status = int(message.removeprefix("exit status ").split()[0])
    if status < 0:
        return signal.Signals(-status).name
    return message.splitlines()[-1]


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / _MIB


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
