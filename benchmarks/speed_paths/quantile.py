"""The quantile post-processors beside scikit-learn's."""

from __future__ import annotations

import statistics

from report import significant, table

from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.shown import of_medians, spread, times

_ROWS, _TRIAL_ROWS, _DIM = 100_000, 2_000, 384
_GOAL = 5.0
_BYTES = 8
"""Of a value in float32 that is read, and written."""


def measure(setting: Setting) -> Outcome:
    """Transform the same vectors in turns."""
    rows = setting.choose(_ROWS, _TRIAL_ROWS)
    say(f"quantiles of {rows:,} × {_DIM}")
    told = setting.tell("quantile.py", {"rows": rows, "dim": _DIM, "turns": setting.turns, "seed": setting.seed})
    least = rows * _DIM * _BYTES / setting.bandwidth()
    lines, scores = [], []
    for spec in ("quantile-u", "quantile-n"):
        seconds = told[spec]["seconds"]
        ratio = of_medians(seconds["theirs"], seconds["ours"])
        floor = least / statistics.median(seconds["ours"])
        goal = _GOAL if spec == "quantile-u" else None
        scores.append(Score(f"quantile: {spec} beside scikit-learn", ratio, goal, floor=floor))
        lines.append([spec, *(spread(seconds[side]) for side in ("ours", "theirs")), times(ratio)])
        lines[-1].append(f"{told[spec]['difference']:.1g}")
    about = f"Transform of {rows:,} × {_DIM} float32; scikit-learn {told['scikit-learn']}, both with 1,000 quantiles."
    floor = (
        f"Floor: each value is read and written once, {_BYTES} bytes, {significant(least, 2)} s at the speed of a "
        "copy; finding its place among 1,000 quantiles is 10 comparisons more."
    )
    header = ["", "ragembed, s", "scikit-learn, s", "ratio", "greatest difference"]
    return Outcome(scores, [about, table(header, lines), floor])
