"""The tables of the section, and the sentences that are made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from report import significant, table

from indexing.contest import Entry, Point
from indexing.verdicts import FASTER, Verdict, shown

LEAST_RECALL = 0.95
"""Of the way of searching that a peer is shown with, where it reaches it."""

_MIB = 2**20
_NONE = "–"


def picks(verdicts: Sequence[Verdict], entries: Sequence[Entry]) -> str:
    """Return what ragembed picked for each budget, beside the fastest peer that finds no less in the same memory."""
    header = ["vectors, budget", "asked", "picked", "recall: questions", "pseudo-queries", "kept", "ms"]
    header += ["fastest peer with no less", "its ms", "ragembed ÷ peer", "on the front"]
    rows = [_pick(verdict) for verdict in verdicts]
    rows += [
        [_label(entry), _asked(entry), f"none: {entry.refused}", *[_NONE] * (len(header) - 3)]
        for entry in entries
        if entry.contestant.budget is not None and entry.refused is not None
    ]
    return table(header, rows)


def sentences(verdicts: Sequence[Verdict]) -> str:
    """Return what the verdicts come to."""
    behind = [_label(verdict.entry) for verdict in verdicts if not verdict.on_the_front]
    below = [_label(verdict.entry) for verdict in verdicts if verdict.recall_kept == "no"]
    near = [_label(verdict.entry) for verdict in verdicts if verdict.recall_kept == "within noise"]
    broken = [f"{_label(verdict.entry)} ({', '.join(verdict.broken)})" for verdict in verdicts if verdict.broken]
    count = len(verdicts)
    return f"""\
- ragembed's pick is on the front of recall and latency for {count - len(behind)} of {count} budgets: of no peer has an
  index that fits into the same memory a setting that finds as much on the same questions and takes less than
  {FASTER:.0%} of the time. Not on it: {_listed(behind)}.
- Below the recall asked for: {_listed(below)}. Lower, but not by more than chance: {_listed(near)}.
- Above the latency or the memory asked for: {_listed(broken)}."""


def by_size(entries: Sequence[Entry], reading: Entry) -> str:
    """Return the costs and one way of searching of all that took part with one number of vectors."""
    reference = next((entry for entry in entries if _is_default(entry)), None)
    header = ["", "build, s", "÷ ragembed", "peak, MiB", "index, MiB", "answering, MiB", "setting", "recall"]
    header += ["ms", "95th percentile", "questions/s"]
    rows = [["reading the vectors", _short(reading.seconds), _NONE, f"{reading.cost.memory:,.0f}", *[_NONE] * 7]]
    for entry in entries:
        if not entry.points:
            why = "no index for this budget" if "asked" in entry.told else str(entry.refused)
            rows.append([entry.contestant.name, _short(entry.seconds), *[_NONE] * 4, why, *[_NONE] * 4])
            continue
        point = shown(entry, LEAST_RECALL)
        ratio = _NONE if reference is None else significant(entry.seconds / reference.seconds)
        costs = [_short(entry.seconds), ratio, f"{entry.cost.memory:,.0f}", _disk(entry), f"{entry.asking:,.0f}"]
        rows.append([entry.contestant.name, *costs, _setting(entry, point), *_answers(point)])
    return table(header, rows)


def growth(entries: Sequence[Entry]) -> str:
    """Return what each contestant takes by number of vectors: to build, and to answer."""
    sizes = sorted({entry.size for entry in entries})
    measures: Mapping[str, Callable[[Entry], float]] = {
        "build, s": lambda entry: entry.seconds,
        "a question, ms": lambda entry: shown(entry, LEAST_RECALL).median_ms,
    }
    found = {(entry.contestant.name, entry.size): entry for entry in entries if entry.points}
    names = dict.fromkeys(entry.contestant.name for entry in entries)
    rows = [
        [
            f"{name}: {measure}",
            *(_short(of(found[name, size])) if (name, size) in found else _NONE for size in sizes),
        ]
        for measure, of in measures.items()
        for name in names
    ]
    return table(["vectors", *(f"{size:,}" for size in sizes)], rows)


def _pick(verdict: Verdict) -> list[str]:
    entry, point, rival = verdict.entry, verdict.point, verdict.rival
    beside = [_NONE] * 3
    if rival is not None:
        peer, other = rival
        ratio = significant(point.median_ms / other.median_ms)
        beside = [f"{peer.contestant.name}, {other.setting}".rstrip(", "), _short(other.median_ms), ratio]
    recalls = f"{point.real.mean:.4f}", f"{point.held_out.mean:.4f}"
    kept = ", ".join([verdict.recall_kept, *(f"{name}: no" for name in verdict.broken)])
    front = "yes" if verdict.on_the_front else "no"
    picked = f"{entry.told['kind']} {point.setting}".strip()
    return [_label(entry), _asked(entry), picked, *recalls, kept, _short(point.median_ms), *beside, front]


def _label(entry: Entry) -> str:
    budget = entry.contestant.budget
    return f"{entry.size:,}, {'' if budget is None else budget.name}"


def _asked(entry: Entry) -> str:
    asked = entry.told.get("asked", {})
    limits = [f"recall {asked['min_recall']:g}"] if "min_recall" in asked else []
    if asked.get("max_memory") is not None:
        limits.append(f"{asked['max_memory'] / _MIB:,.0f} MiB")
    if asked.get("max_latency_ms") is not None:
        limits.append(f"{asked['max_latency_ms']:g} ms")
    return ", ".join(limits)


def _is_default(entry: Entry) -> bool:
    budget = entry.contestant.budget
    return budget is not None and not budget.given()


def _disk(entry: Entry) -> str:
    size = significant(entry.size_on_disk / _MIB, 3)
    return f"{size} + raw" if entry.told.get("ranked_anew") else size


def _setting(entry: Entry, point: Point) -> str:
    return " ".join(part for part in (entry.told.get("kind", ""), point.setting) if part) or _NONE


def _answers(point: Point) -> list[str]:
    times = [_short(point.median_ms), _short(point.p95_ms)]
    return [f"{point.recall.mean:.4f}", *times, f"{float(significant(point.per_second)):,.0f}"]


def _short(value: float) -> str:
    return significant(value)


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"
