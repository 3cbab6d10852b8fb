"""What was measured with one number of vectors, in a file, so that a run that breaks off can be gone on with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from measure import Cost

from indexing.contest import Entry, Point, Recall
from indexing.contestants import READER, Contestant


@dataclass(frozen=True, slots=True)
class Measured:
    """The entries with one number of vectors; the day, the minutes they took, and the load average before."""

    entries: list[Entry]
    day: str
    minutes: float
    load: float


def place(folder: Path, size: int, options: Mapping[str, Any]) -> Path:
    """Return the file below ``folder`` for ``size`` vectors measured with ``options``."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"measured-{size}-{digest}.json"


def write(file: Path, entries: Sequence[Entry], minutes: float, load: float) -> Measured:
    """Write what was measured today to ``file``, and return it."""
    measured = Measured(list(entries), date.today().isoformat(), minutes, load)
    rows = [{**asdict(entry), "contestant": entry.contestant.name} for entry in measured.entries]
    kept = {"day": measured.day, "minutes": minutes, "load": load, "entries": rows}
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    partial.rename(file)
    return measured


def read(file: Path, contestants: Sequence[Contestant]) -> Measured:
    """Return what ``write`` wrote to ``file`` about ``contestants``."""
    found = json.loads(file.read_text(encoding="utf-8"))
    by_name = {contestant.name: contestant for contestant in (READER, *contestants)}
    entries = [_entry(row, by_name[row["contestant"]]) for row in found["entries"]]
    return Measured(entries, found["day"], found["minutes"], found["load"])


def _entry(row: Mapping[str, Any], contestant: Contestant) -> Entry:
    own = {**row, "contestant": contestant, "cost": Cost(**row["cost"])}
    return Entry(**{**own, "points": [_point(point) for point in row["points"]]})


def _point(row: Mapping[str, Any]) -> Point:
    return Point(**{**row, **{name: Recall(**row[name]) for name in ("recall", "real", "held_out")}})
