"""The section of the page of results: all paths in one table, and below it what each part measured last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from report import RESULTS, read_section, significant, table, write_section

from speed_paths.parts import PARTS
from speed_paths.records import Record
from speed_paths.scores import TIMES, Score

_ABOUT = """\
Each part was measured in one run, its sides taking turns; parts of different days stand beside each other. A ratio is
one of medians; in brackets the least and the most. "Of the floor" is the time that the machine needs at the least,
as a share of the time that was measured: the gap is the rest."""


def write_page(part: str, body: str, records: Sequence[Record], path: Path = RESULTS) -> None:
    """Put ``body`` in the place of what ``part`` had in the section, and leave the other parts as they are."""
    bodies = {name: read_section(_section(name), path) for name in PARTS} | {part: body}
    parts = [
        f"<!-- {_section(name)} begin -->\n{text}\n<!-- {_section(name)} end -->"
        for name, text in bodies.items()
        if text
    ]
    write_section("speed", "\n\n".join(["## Speed", _ABOUT, summary(records), *parts]), path)


def summary(records: Sequence[Record]) -> str:
    """Return the table of all paths, in the order of the parts."""
    places = {name: place for place, name in enumerate(PARTS)}
    rows = [_row(record) for record in sorted(records, key=lambda one: places[one.part])]
    return table(["path", "measured", "goal", "met", "of the floor", "day", "processor"], rows)


def _row(record: Record) -> list[str]:
    score = record.score
    sign = "≥" if score.more_is_better else "≤"
    goal = "" if score.goal is None else f"{sign} {_value(score, score.goal)}"
    met = {True: "yes", False: "**no**", None: ""}[score.met]
    floor = "" if score.floor is None else f"{significant(100 * score.floor)} %"
    return [score.path, _value(score, score.value), goal, met, floor, record.date, record.processor]


def _value(score: Score, value: float) -> str:
    if score.unit == "share":
        return f"{significant(100 * value)} %"
    if score.unit == "cosine":
        return f"{value:.5f}"
    return f"{significant(value, 3)} {score.unit if score.unit != TIMES else TIMES}"


def _section(part: str) -> str:
    return f"speed:{part}"
