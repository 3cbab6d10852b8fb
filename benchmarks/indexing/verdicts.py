"""Whether ragembed's choice is on the front of recall and latency, and what it promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from indexing.contest import Entry, Point

FASTER = 0.9
"""A peer is faster where it takes less than this share of the time: what is nearer is noise."""

Kept = Literal["yes", "within noise", "no"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An entry of ragembed, its one way of searching, and the fastest peer that finds no less in the same memory."""

    entry: Entry
    point: Point
    rival: tuple[Entry, Point] | None

    @property
    def on_the_front(self) -> bool:
        """Whether no such peer is faster."""
        return self.rival is None or self.rival[1].median_ms >= FASTER * self.point.median_ms

    @property
    def recall_kept(self) -> Kept:
        """Whether the recall is what was asked for, of people's questions and of pseudo-queries each."""
        asked = float(self.entry.told["asked"]["min_recall"])
        groups = self.point.real, self.point.held_out
        if all(group.mean >= asked for group in groups):
            return "yes"
        return "no" if any(group.high < asked for group in groups) else "within noise"

    @property
    def broken(self) -> list[str]:
        """The limits of time and memory that are not kept."""
        asked = self.entry.told["asked"]
        latency, memory = asked["max_latency_ms"], asked["max_memory"]
        slow = latency is not None and self.point.p95_ms > latency
        large = memory is not None and self.entry.size_on_disk > memory
        return [name for name, broken in (("latency", slow), ("memory", large)) if broken]


def verdicts(entries: Sequence[Entry]) -> list[Verdict]:
    """Return a verdict on each entry of ragembed that has an index."""
    ours = [entry for entry in entries if entry.contestant.budget is not None and entry.points]
    return [Verdict(entry, entry.points[0], _rival(entry, entries)) for entry in ours]


def _rival(ours: Entry, entries: Iterable[Entry]) -> tuple[Entry, Point] | None:
    memory, least = ours.told["asked"]["max_memory"], ours.points[0].recall.mean
    found = [
        (entry, point)
        for entry in entries
        if entry.contestant.budget is None and entry.size == ours.size and (memory is None or _fits(entry, memory))
        for point in entry.points
        if point.recall.mean >= least
    ]
    return min(found, key=lambda one: one[1].median_ms, default=None)


def _fits(entry: Entry, memory: int) -> bool:
    return entry.size_on_disk <= memory


def shown(entry: Entry, least: float) -> Point:
    """Return the fastest way of searching with a recall of at least ``least``, or the one with the highest."""
    good = [point for point in entry.points if point.recall.mean >= least]
    if good:
        return min(good, key=lambda point: point.median_ms)
    return max(entry.points, key=lambda point: point.recall.mean)
