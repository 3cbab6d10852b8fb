"""Static vectors beside model2vec with the same table and tokenizer."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from environments import SPEED, packages
from indexing.texts import read_texts
from report import significant, table

from ragembed.config import DEFAULT_MODEL
from ragembed.models import find_model
from ragembed.tokenizer import TextTokenizer
from speed_paths.scores import Outcome, Score
from speed_paths.setting import PROGRAMS, Setting, say
from speed_paths.shown import of_medians, spread, times
from speed_paths.turns import Contestant, take_turns

_GOAL = 2.0
_DIM = 384
_TEXTS, _TRIAL_TEXTS = 12_000, 300
"""Of one turn."""
_FITTED, _COMPARED = 500, 200
_PRESETS = {"RE": ("re", {"extractor": f"re:dim={_DIM}"}), "Avg.": ("avg", {})}
_OURS, _PEER = "ragembed", "model2vec"


def measure(setting: Setting) -> Outcome:
    """Let both encode other texts in each turn, with random vectors and with those of Avg."""
    SPEED.ensure()
    texts, tokens = _texts(setting)
    speed = setting.bandwidth()
    rows, scores = [], []
    for name, (preset, changes) in _PRESETS.items():
        say(f"static vectors: {name}")
        request = {
            "texts": str(texts),
            "preset": preset,
            "changes": changes,
            "fitted": _FITTED,
            "compared": _COMPARED,
            "table": str(setting.folder / f"{preset}-table.npy"),
            "vectors": str(setting.folder / f"{preset}-vectors.npy"),
            "tokenizer": str(find_model(DEFAULT_MODEL).folder / "tokenizer.json"),
        }
        found = take_turns(_contestants(request), setting.turns, setting.runner)
        ours, theirs = found[_OURS].seconds, found[_PEER].seconds
        ratio = of_medians(theirs, ours)
        count = setting.choose(_TEXTS, _TRIAL_TEXTS)
        floor = tokens * _DIM * 4 / speed / statistics.median(ours)
        scores.append(Score(f"static: {name} beside model2vec", ratio, _GOAL, floor=floor))
        speeds = [spread([count / seconds for seconds in side]) for side in (ours, theirs)]
        told = found[_PEER].ready
        rows.append([name, *speeds, times(ratio), f"{told['median_cosine']:.6f}", f"{100 * told['same']:.1f} %"])
    header = ["", "ragembed, texts/s", "model2vec, texts/s", "ratio", "cosine, median", "the same vector"]
    about = (
        f"Plain means of static vectors of dimension {_DIM}, the same table and tokenizer on both sides, each in one "
        f"process, warm: {setting.choose(_TEXTS, _TRIAL_TEXTS):,} texts of the test data in a turn, others in each "
        f"turn, {tokens:,.0f} tokens. model2vec {packages(SPEED.python)['model2vec']}, without its limit of tokens and "
        "without further processes; it leaves out unknown tokens. Its vectors are compared with ragembed's, a cosine "
        "over 0.9999 being the same."
    )
    floor = (
        f"Floor: one row of the table for each token, {_DIM} × 4 bytes read and as many additions, "
        f"{significant(tokens * _DIM * 4 / speed)} s a turn at the speed of a copy; splitting texts into tokens comes "
        "on top, and is most of it."
    )
    return Outcome(scores, [about, table(header, rows), floor])


def _contestants(request: dict[str, Any]) -> list[Contestant]:
    return [
        Contestant(_OURS, sys.executable, PROGRAMS / "static_ragembed.py", request),
        Contestant(_PEER, SPEED.python, PROGRAMS / "static_model2vec.py", request),
    ]


def _texts(setting: Setting) -> tuple[Path, float]:
    """Write the texts of each turn, and return where, and the median number of tokens of a turn."""
    count = setting.choose(_TEXTS, _TRIAL_TEXTS)
    every = read_texts(setting.data)
    wanted = count * (setting.turns + 1)
    if len(every) < wanted:
        raise ValueError(f"{len(every):,} texts are too few for {setting.turns} turns: expected {wanted:,}")
    drawn = np.random.default_rng(setting.seed).permutation(len(every))[:wanted]
    turns = [[every[i] for i in part] for part in drawn.reshape(-1, count)]
    tokenizer = TextTokenizer(find_model(DEFAULT_MODEL).folder)
    tokens = statistics.median(len(tokenizer.ids(texts).flat) for texts in turns[1:])
    file = setting.folder / "static-texts.json"
    file.write_text(json.dumps(turns), encoding="utf-8")
    return file, tokens
