"""Which ratios have become worse than they were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from report import significant

from speed_paths.records import Record
from speed_paths.scores import TIMES, Score


@dataclass
class Comparison:
    """A sentence for each path that is worse, and for each that has to be known about and is no failure."""

    worse: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(scores: Sequence[Score], records: Mapping[str, Record], tolerance: float, processor: str) -> Comparison:
    """Compare the ratios of ``scores`` with those recorded; figures in other units are left out.

    A ratio is worse if the factor by which it is worse exceeds 1 + ``tolerance``: at 0.25, one of 10 × may fall to
    8 ×, and one of which less is better may rise from 10 % to 12.5 %.
    """
    found = Comparison()
    ratios = [score for score in scores if score.unit == TIMES]
    others = sorted({records[one.path].processor for one in ratios if one.path in records} - {processor})
    if others:
        found.notes.append(f"the ratios were recorded on {' and '.join(others)}, this is {processor}: compared anyway")
    for score in ratios:
        if score.path not in records:
            found.notes.append(f"{score.path}: {_shown(score.value)}, no ratio is recorded")
            continue
        record = records[score.path]
        before = record.score.value
        factor = before / score.value if score.more_is_better else score.value / before
        if factor > 1 + tolerance:
            found.worse.append(
                f"{score.path}: {_shown(score.value)}, recorded {_shown(before)} on {record.date}: worse by "
                f"{factor - 1:.0%}, allowed are {tolerance:.0%}"
            )
    return found


def _shown(value: float) -> str:
    return f"{significant(value, 3)} {TIMES}"
