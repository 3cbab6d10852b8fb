"""Indexing again after an edit, beside the same command from nothing."""

from __future__ import annotations

import statistics
from pathlib import Path

from contestants import RAGEMBED
from report import table

from speed_paths.folders import collection_folder
from speed_paths.limits import STARTING
from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.shown import of_medians, share, spread
from speed_paths.whole import Command, in_turns

_FILES, _TRIAL_FILES = 1000, 40
_GOAL = 0.03
_MOST_TURNS = 3
_NOTHING, _EDITED, _SAME, _STARTING = "from nothing", "1 file edited", "none edited", "starting Python and NumPy"


def measure(setting: Setting) -> Outcome:
    """Index from nothing, then after an edit, then after none, and again."""
    files = collection_folder(setting, "cran", setting.choose(_FILES, _TRIAL_FILES))
    documents = sorted(files.iterdir())
    say(f"indexing {len(documents):,} files, and again")
    setting.runner.run(_index(files, setting.folder / "warm-up"))
    store = setting.folder / "store"

    def from_nothing(turn: int) -> Command:
        return _index(files, setting.folder / f"store-{turn}")

    def edited(turn: int) -> Command:
        document = documents[(turn * 7) % len(documents)]
        document.write_text(f"{document.read_text(encoding='utf-8')}\nEdited in turn {turn}.\n", encoding="utf-8")
        return _index(files, store)

    setting.runner.run(_index(files, store))
    turns = min(setting.turns, _MOST_TURNS)
    commands = {
        _NOTHING: from_nothing,
        _EDITED: edited,
        _STARTING: lambda _: STARTING,
    }
    costs = in_turns(commands, turns, setting.runner)
    setting.runner.run(_index(files, store))
    costs |= in_turns({_SAME: lambda _: _index(files, store)}, turns, setting.runner)
    walls = {name: [cost.wall for cost in own] for name, own in costs.items()}
    rows = [
        [name, spread(walls[name]), share(of_medians(walls[name], walls[_NOTHING]))]
        for name in (_NOTHING, _EDITED, _SAME, _STARTING)
    ]
    start = statistics.median(walls[_STARTING])
    scores = [
        Score(
            f"re-index: {name}, beside from nothing",
            of_medians(walls[name], walls[_NOTHING]),
            _GOAL if name == _EDITED else None,
            more_is_better=False,
            unit="share",
            floor=start / statistics.median(walls[name]),
        )
        for name in (_EDITED, _SAME)
    ]
    about = (
        f"`ragembed index` on {len(documents):,} files, Cranfield's first documents, with all defaults: from nothing, "
        "after a sentence was added to one of them, and after nothing."
    )
    floor = (
        "Floor: the start of Python with NumPy; beside it, size and time of each file are asked for, a system call of "
        "about 1 µs each, and one text of at most 256 tokens is encoded, 6 Gflop."
    )
    return Outcome(scores, [about, table(["", "s", "of from nothing"], rows), floor])


def _index(files: Path, store: Path) -> Command:
    return [RAGEMBED, "index", files, "--store", store]
