"""The command line of all peers: ``PROGRAM TASK REQUEST``. The request is JSON.

A task runs once and prints a line of JSON. A worker prints a line of JSON when it is ready. It then reads turn numbers,
one per line, and prints a line of JSON after each turn. Only the standard library is used, because this module runs in
the environments of all peers.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Request = Mapping[str, Any]
Report = Mapping[str, Any]
Turn = Callable[[int], "Report | None"]
"""Runs the turn with a number and may return a report. Turn 0 is not measured."""
Task = Callable[[Request], "Report | None"]
Worker = Callable[[Request], tuple[Turn, Report]]


def main(tasks: Mapping[str, Task], workers: Mapping[str, Worker]) -> None:
    """Run the task or worker that the command line names."""
    name, request = sys.argv[1], json.loads(sys.argv[2])
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the output of libraries apart from the reports
    if name in tasks:
        print(json.dumps(tasks[name](request) or {}), file=output, flush=True)
        return
    turn, ready = workers[name](request)
    print(json.dumps(ready), file=output, flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        report = turn(int(line)) or {}
        seconds = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        print(
            json.dumps({"seconds": seconds, "memory": memory, "unshared": unshared_memory(), **report}),
            file=output,
            flush=True,
        )


def unshared_memory() -> float:
    """Return the memory of this process without mapped files (``RssAnon``) in MiB, 0 if the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)


def milliseconds(queries: list[Any], search: Callable[[Any], object]) -> list[float]:
    """Return the milliseconds of each query; raise an error if a query has no results."""
    measured = []
    for query in queries:
        started = time.perf_counter()
        found = search(query)
        measured.append(1000 * (time.perf_counter() - started))
        if not found:
            raise RuntimeError(f"nothing was found for {query!r}")
    return measured


def alternate(calls: Mapping[str, Callable[[], object]], turns: int) -> Iterator[tuple[str, list[float]]]:
    """Yield the seconds of each call. All calls run once unmeasured, then in turns in alternating order."""
    measured: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, turns):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            started = time.perf_counter()
            calls[name]()
            if turn >= 0:
                measured[name].append(time.perf_counter() - started)
    yield from measured.items()
