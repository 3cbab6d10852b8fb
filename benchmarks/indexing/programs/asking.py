"""What the programs of all contestants share: their requests, vectors in blocks, questions and clocks.

Each is called as ``program.py build REQUEST`` or ``program.py ask REQUEST``, the request being JSON, and prints JSON.
It runs in the environment of its contestant, so nothing but NumPy is imported here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Request = Mapping[str, Any]
Search = Callable[[Floats], Rows]
"""From questions, float32, shape ``(n, d)``, to rows, integers, shape ``(n, k)``, best first, -1 for none."""

EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Of graphs: neighbours that are kept in sight, from few to many."""

_BLOCK = 20_000
_WARM_UP_SECONDS, _BATCH_SECONDS = 2.0, 0.5


def main(
    build: Callable[[Request], Mapping[str, Any] | None],
    settings: Callable[[Request], Iterator[tuple[str, Search]]],
    tune: Callable[[Request], Mapping[str, Any]] | None = None,
) -> None:
    """Do what the command line asks for, and print what came of it.

    ``build`` is timed: from opening the vectors to an index on the disk, imports left out. ``tune`` follows, untimed.
    ``settings`` opens the index and yields each way of searching it by its name. A build that takes longer than the
    request's ``patience``, in seconds, is given up, and ``refused`` says so.
    """
    task, request = sys.argv[1], json.loads(sys.argv[2])
    if task == "build":
        _give_up_after(request["patience"])
        started = time.perf_counter()
        told = dict(build(request) or {})
        told["seconds"] = time.perf_counter() - started
        told.update(tune(request) if tune is not None else {})
        print(json.dumps(told))
    else:
        print(json.dumps({"settings": _ask(request, settings(request))}))


def mapped(request: Request) -> Floats:
    """Return the vectors, float32, shape ``(n, d)``, mapped into memory."""
    vectors: Floats = np.load(request["vectors"], mmap_mode="r")
    return vectors


def blocks(vectors: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield the row of the first, and the vectors of one block after the other."""
    for start in range(0, len(vectors), _BLOCK):
        yield start, np.asarray(vectors[start : start + _BLOCK])


def _give_up_after(seconds: float) -> None:
    def give_up() -> None:
        print(json.dumps({"seconds": seconds, "refused": f"given up after {seconds:g} s"}), flush=True)
        os._exit(0)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def _ask(request: Request, settings: Iterator[tuple[str, Search]]) -> list[dict[str, Any]]:
    """Ask all questions of each setting: in one thread one by one, in several all at once."""
    questions: Floats = np.load(request["questions"])
    found, told = [], []
    for name, search in settings:
        if request["threads"] == 1:
            told.append({"name": name, **_one_by_one(search, questions)})
        else:
            found.append(search(questions))
            told.append({"name": name, "per_second": _per_second(search, questions)})
    if found:
        np.save(request["found"], np.stack(found).astype(np.int64))
    return told


def _per_second(search: Search, questions: Floats) -> float:
    """Return how many questions are answered in a second where all are asked at once, over half a second or more."""
    started, batches, taken = time.perf_counter(), 0, 0.0
    while taken < _BATCH_SECONDS:
        search(questions)
        batches += 1
        taken = time.perf_counter() - started
    return batches * len(questions) / taken


def _one_by_one(search: Search, questions: Floats) -> dict[str, float]:
    """Return median and 95th percentile of milliseconds, after as many questions as can be asked in two seconds."""
    started = time.perf_counter()
    for number in range(len(questions)):
        search(questions[number : number + 1])
        if time.perf_counter() - started > _WARM_UP_SECONDS:
            break
    taken = np.empty(len(questions))
    for number in range(len(questions)):
        started = time.perf_counter()
        search(questions[number : number + 1])
        taken[number] = time.perf_counter() - started
    return {"median_ms": 1000 * float(np.median(taken)), "p95_ms": 1000 * float(np.percentile(taken, 95))}
