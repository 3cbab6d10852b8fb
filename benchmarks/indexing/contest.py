"""All contestants with the same vectors: each builds, then all are asked in turns, and found answers are counted.

Every build and every asking is a process of its own.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measure import Cost, Runner
from numpy.typing import NDArray

from indexing.contestants import READER, Contestant
from indexing.layout import K, Prepared

_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Runners:
    """What runs a process that may use all of ``threads``, and what runs one that may use a single one.

    A build that takes more than ``patience`` seconds is given up.
    """

    threads: int
    patience: float
    all: Runner
    one: Runner


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of the right answers that was found, the mean over questions with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """A way of searching: its name; recall of all questions, of people's, and of pseudo-queries.

    Milliseconds are those of one question in one thread; ``per_second`` is with all questions at once in all threads.
    """

    setting: str
    recall: Recall
    real: Recall
    held_out: Recall
    median_ms: float
    p95_ms: float
    per_second: float


@dataclass
class Entry:
    """What a contestant did with ``size`` vectors; ``told`` is what its program says of its index.

    ``size_on_disk`` is that of the index, in bytes, ``asking`` the peak memory in MiB of answering one by one.
    """

    contestant: Contestant
    size: int
    cost: Cost
    told: Mapping[str, Any]
    size_on_disk: int = 0
    asking: float = 0.0
    points: list[Point] = field(default_factory=list)

    @property
    def refused(self) -> str | None:
        """Why there is no index, where there is none."""
        return self.told.get("refused")

    @property
    def seconds(self) -> float:
        """Seconds that building took."""
        return float(self.told["seconds"])


def hold(contestants: Sequence[Contestant], prepared: Prepared, dim: int, runners: Runners, rounds: int) -> list[Entry]:
    """Return the entry of the one that only reads the vectors, and those of the contestants."""
    request = {
        "vectors": str(prepared.vectors),
        "raw": str(prepared.raw),
        "tuning": str(prepared.tuning),
        "questions": str(prepared.questions),
        "dim": dim,
        "k": K,
        "patience": runners.patience,
    }
    reading = _build(READER, prepared.size, {**request, "file": ""}, runners)
    entries: list[Entry] = []
    requests: dict[int, Mapping[str, Any]] = {}  # of those that have an index
    for number, contestant in enumerate(contestants):
        folder = runners.all.folder / f"{prepared.size}-{number}"
        folder.mkdir()
        own = {**request, **contestant.options, "file": str(folder / "index"), "found": str(folder / "found.npy")}
        entries.append(_build(contestant, prepared.size, own, runners))
        if entries[number].refused is None:
            entries[number].size_on_disk = (folder / "index").stat().st_size
            requests[number] = own
    turns = [_in_turns(entries, requests, runners, turn) for turn in range(rounds)]
    with np.load(prepared.truth) as truth:
        right, real = truth["rows"], truth["real"]
    for number, asked in requests.items():
        at_once = _ask(entries[number], asked, runners.all, runners.threads)
        for place, (setting, found) in enumerate(zip(at_once, np.load(asked["found"]), strict=True)):
            times = [turn[number][place] for turn in turns]
            entries[number].points.append(_point(setting, times, shares_of(found, right), real))
    for number in range(len(entries)):
        shutil.rmtree(runners.all.folder / f"{prepared.size}-{number}")
    return [reading, *entries]


def shares_of(found: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return of each question the share of its K best that is in ``found``, shape ``(n, K)``.

    Rows in ``right``, shape ``(n, m)``, are right: more than K where the last of them are equally near; -1 fills up.
    """
    return np.array(
        [min(K, len(set(rows) & set(answers) - {-1})) / K for rows, answers in zip(found, right, strict=True)]
    )


def recall_of(shares: NDArray[np.float64]) -> Recall:
    """Return the mean of ``shares`` and the interval that the normal distribution gives for it."""
    mean, error = float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares)))
    return Recall(mean, max(0.0, mean - _NORMAL_95 * error), min(1.0, mean + _NORMAL_95 * error))


def _point(
    at_once: Mapping[str, Any], times: Sequence[Mapping[str, Any]], shares: NDArray[np.float64], real: NDArray[np.bool_]
) -> Point:
    """Return a way of searching: what it told when all was asked at once, and by turn, and the shares that it found."""
    best = min(times, key=lambda one: float(one["median_ms"]))
    recalls = recall_of(shares), recall_of(shares[real]), recall_of(shares[~real])
    return Point(at_once["name"], *recalls, best["median_ms"], best["p95_ms"], at_once["per_second"])


def _build(contestant: Contestant, size: int, request: Mapping[str, Any], runners: Runners) -> Entry:
    _say(f"{size:,} vectors: {contestant.name} builds")
    cost, printed = runners.all.run(_command(contestant, "build", {**request, "threads": runners.threads}))
    entry = Entry(contestant, size, cost, _told(printed))
    _say(f"  {entry.seconds:.1f} s, {cost.memory:.0f} MiB {entry.told.get('kind', '')}{entry.refused or ''}")
    return entry


def _in_turns(
    entries: Sequence[Entry], requests: Mapping[int, Mapping[str, Any]], runners: Runners, turn: int
) -> dict[int, list[dict[str, Any]]]:
    """Ask everybody one question after the other; the order alternates."""
    order = sorted(requests, reverse=turn % 2 == 1)
    return {number: _ask(entries[number], requests[number], runners.one, 1) for number in order}


def _ask(entry: Entry, request: Mapping[str, Any], runner: Runner, threads: int) -> list[dict[str, Any]]:
    _say(f"{entry.size:,} vectors: {entry.contestant.name} answers, {threads} threads")
    cost, printed = runner.run(_command(entry.contestant, "ask", {**request, "threads": threads}))
    if threads == 1:
        entry.asking = max(entry.asking, cost.memory)
    settings: list[dict[str, Any]] = _told(printed)["settings"]
    return settings


def _command(contestant: Contestant, task: str, request: Mapping[str, Any]) -> list[str | Path]:
    return [contestant.python, contestant.program, task, json.dumps(request)]


def _told(printed: str) -> dict[str, Any]:
    """Return what a program tells, which is its last line; libraries print before it."""
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
