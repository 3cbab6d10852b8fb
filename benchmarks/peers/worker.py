"""What the programs of all sides share: ``PROGRAM TASK REQUEST``, the request being JSON.

A task is done once and prints a line of JSON. A worker says with a line of JSON that it is ready; then it reads the
number of a turn from each line, does it, and prints another line. Only the standard library is used: this runs in the
environments of all peers.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Request = Mapping[str, Any]
Told = Mapping[str, Any]
Turn = Callable[[int], "Told | None"]
"""Does the turn of a number, 0 being unmeasured, and may tell something of it."""
Task = Callable[[Request], "Told | None"]
Worker = Callable[[Request], tuple[Turn, Told]]


def main(tasks: Mapping[str, Task], workers: Mapping[str, Worker]) -> None:
    """Do what the command line asks for."""
    name, request = sys.argv[1], json.loads(sys.argv[2])
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    if name in tasks:
        print(json.dumps(tasks[name](request) or {}), file=said, flush=True)
        return
    turn, ready = workers[name](request)
    print(json.dumps(ready), file=said, flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        told = turn(int(line)) or {}
        seconds = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        print(json.dumps({"seconds": seconds, "memory": memory, **told}), file=said, flush=True)


def milliseconds(queries: list[Any], ask: Callable[[Any], object]) -> list[float]:
    """Return the milliseconds that each query takes; each has to have an answer."""
    taken = []
    for query in queries:
        started = time.perf_counter()
        found = ask(query)
        taken.append(1000 * (time.perf_counter() - started))
        if not found:
            raise RuntimeError(f"nothing was found for {query!r}")
    return taken


def alternate(calls: Mapping[str, Callable[[], object]], turns: int) -> Iterator[tuple[str, list[float]]]:
    """Yield the seconds of each call: once unmeasured, then in turns, the first one alternating."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, turns):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            started = time.perf_counter()
            calls[name]()
            if turn >= 0:
                taken[name].append(time.perf_counter() - started)
    yield from taken.items()
