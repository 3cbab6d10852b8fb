"""What the programs of both sides share: get ready, wait for a turn, do it, and say what it took.

A program is started with its request, a JSON object, as its one argument. When it is ready it prints a line of JSON;
then, for each line with the number of a turn that it reads, another. Only the standard library is used here, as this
runs in the environments of all peers.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Told = Mapping[str, Any]
Turn = Callable[[int], "Told | None"]
"""Does the turn of a number, 0 being unmeasured, and may tell of it."""


def main(make: Callable[[Any], tuple[Turn, Told]]) -> None:
    """Answer turn after turn until there are no more.

    ``make`` gets ready, and returns the turn and what is to be told of being ready.
    """
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    turn, ready = make(json.loads(sys.argv[1]))
    print(json.dumps(ready), file=said, flush=True)
    for line in sys.stdin:
        number = int(line)
        started = time.perf_counter()
        told = turn(number) or {}
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "memory": _peak(), **told}), file=said, flush=True)


def milliseconds(questions: list[Any], ask: Callable[[Any], object]) -> list[float]:
    """Return the milliseconds that each question takes; each has to have an answer."""
    taken = []
    for question in questions:
        started = time.perf_counter()
        found = ask(question)
        taken.append(1000 * (time.perf_counter() - started))
        if not found:
            raise RuntimeError(f"nothing was found for {question!r}")
    return taken


def _peak() -> float:
    """Return the peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
