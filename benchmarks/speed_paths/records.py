"""The ratios of the last measurement of each path, kept in a file: what the next one is compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from speed_paths.scores import Score

FILE = Path(__file__).resolve().parent.parent / "speed_ratios.json"


@dataclass(frozen=True, slots=True)
class Record:
    """A score, the part that measured it, the day, and the processor."""

    score: Score
    part: str
    date: str
    processor: str


def read(file: Path = FILE) -> dict[str, Record]:
    """Return the records by path, none where there is no file."""
    if not file.is_file():
        return {}
    kept = json.loads(file.read_text(encoding="utf-8"))
    return {path: _record(path, fields) for path, fields in kept.items()}


def replace(
    records: Mapping[str, Record], part: str, scores: Sequence[Score], day: str, processor: str
) -> list[Record]:
    """Return all records, those of ``part`` replaced by what was measured of it now."""
    others = [record for record in records.values() if record.part != part]
    return [*others, *(Record(score, part, day, processor) for score in scores)]


def write(records: Sequence[Record], file: Path = FILE) -> None:
    """Write the records, ordered by path."""
    rows = {}
    for record in sorted(records, key=lambda one: one.score.path):
        score = {name: value for name, value in asdict(record.score).items() if name != "path"}
        rows[record.score.path] = {"part": record.part, "date": record.date, "processor": record.processor, **score}
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _record(path: str, fields: Mapping[str, object]) -> Record:
    own = {name: value for name, value in fields.items() if name not in ("part", "date", "processor")}
    score = Score(path, **own)  # type: ignore[arg-type]
    return Record(score, str(fields["part"]), str(fields["date"]), str(fields["processor"]))
