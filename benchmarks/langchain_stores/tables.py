"""What is shown of both sides: costs, filtered search, and many threads."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from report import significant, table

from langchain_stores.contest import Contestant

Find = Callable[[Mapping[str, Any]], float]
Row = tuple[str, str, Find, Find]
"""A label, a task, and what is looked up of ragembed and of FAISS."""

_ABSENT = "–"


def costs(ours: Contestant, theirs: Contestant, texts: int, changes: int) -> str:
    """Return the table of writing, opening and searching, with the ratio of medians."""
    rows = []
    for label, task, of_ours, of_theirs in _cost_rows(texts, changes):
        mine, others = ours.values(task, of_ours), theirs.values(task, of_theirs)
        rows.append([label, _shown(mine), _shown(others), _ratio(mine, others)])
    shares = [_share(side.values("search", _of("right"))) for side in (ours, theirs)]
    rows.append(["search: share of the right answers", *shares, ""])
    return table(["", ours.name, theirs.name, "ratio"], rows)


def _cost_rows(texts: int, changes: int) -> list[Row]:
    make = f"add {texts:,} documents"
    rows = [
        _row(f"{make}, until they are on the disk, s", "make", "seconds"),
        (f"{make}, FAISS in memory alone, s", "make", _of("seconds"), _of("before")),
        _row(f"{make}: peak memory, MiB", "make", "memory"),
        _row(f"{make}: size on the disk, MiB", "make", "size"),
    ]
    for change in ("add", "delete"):
        rows += [
            _row(f"{change} one, until that is on the disk, ms", "change", change, "median"),
            _row(f"{change} one: slowest of {changes}, ms", "change", change, "slowest"),
            (f"{change} one, FAISS in memory alone, ms", "change", _of(change, "median"), _of(change, "before")),
        ]
    return [
        *rows,
        _row("open and answer once, imports left out, s", "open", "seconds"),
        _row("open and answer once: the whole process, s", "open", "wall"),
        _row("open and answer once: peak memory, MiB", "open", "memory"),
        _row("search: median, ms", "search", "median"),
        _row("search: 95th percentile, ms", "search", "p95"),
    ]


def filtered(ours: Contestant, theirs: Contestant, filters: Sequence[str]) -> str:
    """Return the table of filtered search, a row for each filter and setting."""
    base = {name: ours.values("filtered", _of("", name, "new")) for name in filters}
    settings = [(side, fetch) for side in (ours, theirs) for fetch in _fetches(side)]
    rows = []
    for name in filters:
        for side, fetch in settings:
            new = side.values("filtered", _of(fetch, name, "new"))
            again, returned, right = (
                side.values("filtered", _of(fetch, name, key)) for key in ("again", "returned", "right")
            )
            label = f"{name}: {side.name} {fetch}".rstrip()
            ratio = "" if side is ours else _ratio(base[name], new)
            rows.append([label, _shown(new), _shown(again), ratio, _share(returned), _share(right)])
    header = ["", "first time, ms", "again, ms", "ratio, first time", "returned", "right"]
    return table(header, rows)


def crowds(ours: Contestant, theirs: Contestant) -> str:
    """Return the table of eight threads, alone and beside a writer."""
    rows = []
    for task, words in (("threads", "eight threads"), ("writer", "eight threads and a writer")):
        base = ours.values(task, _of("per_second"))
        for side in (ours, theirs):
            speed = side.values(task, _of("per_second"))
            rows.append(
                [
                    f"{words}: {side.name}",
                    _shown(speed),
                    "" if side is ours else _ratio(base, speed),
                    _total(side, task, "answers"),
                    _total(side, task, "wrong"),
                    _total(side, task, "added") if task == "writer" else "",
                    _errors(side, task),
                ]
            )
    return table(["", "answers a second", "ratio", "answers", "wrong", "added", "errors"], rows)


def failures(sides: Sequence[Contestant], rounds: int) -> str:
    """Return a sentence for each task in which processes failed."""
    lines = [
        f"{side.name} failed in the task `{task}`, in {len(found)} of {rounds} rounds: {_counted(Counter(found))}."
        for side in sides
        for task, found in side.failures.items()
        if found
    ]
    return "\n".join(f"- {line}" for line in lines)


def _of(*keys: str) -> Find:
    def find(told: Mapping[str, Any]) -> float:
        value: Any = told
        for key in keys:
            value = value[key]
        return float(value)

    return find


def _row(label: str, task: str, *keys: str) -> Row:
    return label, task, _of(*keys), _of(*keys)


def _fetches(side: Contestant) -> list[str]:
    rounds = side.told["filtered"]
    return [key for key in rounds[0] if key not in ("memory", "wall")] if rounds else []


def _shown(values: Sequence[float]) -> str:
    if not values:
        return _ABSENT
    middle = significant(statistics.median(values), 3)
    return middle if len(values) == 1 else f"{middle} ({significant(min(values), 3)}–{significant(max(values), 3)})"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return significant(statistics.median(ours) / statistics.median(theirs)) if ours and theirs else _ABSENT


def _share(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1%}" if values else _ABSENT


def _total(side: Contestant, task: str, key: str) -> str:
    return f"{sum(told[key] for told in side.told[task]):,}" if side.told[task] else _ABSENT


def _errors(side: Contestant, task: str) -> str:
    """Return what was raised in all rounds, and what ended a process."""
    raised: Counter[str] = Counter()
    kinds = {"errors": "", "write_errors": "adding: ", "errors_afterwards": "afterwards: "}
    for told in side.told[task]:
        for kind, words in kinds.items():
            raised.update({f"{words}{name}": count for name, count in told.get(kind, {}).items()})
    raised.update(f"process ended: {failure}" for failure in side.failures[task])
    return _counted(raised) or "none"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} × {count:,}" for name, count in counts.items())
