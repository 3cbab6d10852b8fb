"""Questions to an open store of 100,000 chunks, beside LangChain's FAISS store, with MiniLM and without."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from environments import LANGCHAIN
from report import significant, table

from ragembed.config import DEFAULT_MODEL
from ragembed.models import find_model
from speed_paths.made import made_folder, questions_by_turn, write_texts
from speed_paths.scores import Outcome, Score
from speed_paths.setting import PROGRAMS, Setting, say
from speed_paths.shown import times
from speed_paths.turns import Contestant, Turns, take_turns

_CHUNKS, _TRIAL_CHUNKS = 100_000, 2_000
_WORDS, _SOURCES, _TRIAL_SOURCES = 60, 10_000, 200
_OURS, _PEER = "ragembed", "LangChain"
_BESIDE = {
    "hybrid": "dense",
    "dense": "dense",
    "hybrid, vector given": "dense, vector given",
    "dense, vector given": "dense, vector given",
}
"""Ways of ragembed's, each with the peer's that it stands beside."""
_WEIGHTS = 43e6
"""Bytes of MiniLM's blocks in float32."""


def measure(setting: Setting) -> Outcome:
    """Make both stores, unless the cache has them, and ask both in turns."""
    LANGCHAIN.ensure()
    model = find_model(DEFAULT_MODEL).folder
    count = setting.choose(_CHUNKS, _TRIAL_CHUNKS)
    folder = made_folder(setting, "warm", count)
    write_texts(setting, folder, count, _WORDS, setting.choose(_SOURCES, _TRIAL_SOURCES))
    _make_stores(setting, folder, model)
    questions = questions_by_turn(setting)
    request = {"questions": questions, "model": str(model)}
    contestants = [
        Contestant(
            _OURS, sys.executable, PROGRAMS / "warm_ragembed.py", {**request, "store": str(folder / "ragembed")}
        ),
        Contestant(
            _PEER, LANGCHAIN.python, PROGRAMS / "warm_langchain.py", {**request, "store": str(folder / "langchain")}
        ),
    ]
    found = take_turns(contestants, setting.turns, setting.runner)
    least = _WEIGHTS / setting.bandwidth()
    rows, scores = [], []
    for way, beside in _BESIDE.items():
        ours, theirs = (_percentiles(found[side], name) for side, name in ((_OURS, way), (_PEER, beside)))
        rows.append([way, *(significant(one, 3) for one in (*ours, *theirs)), times(theirs[0] / ours[0])])
        rows[-1].append(times(theirs[1] / ours[1]))
        floor = None if "given" in way else min(1.0, 1000 * least / ours[0])
        scores.append(Score(f"warm query, {way}: median beside LangChain's {beside}", theirs[0] / ours[0], floor=floor))
    asked = len(questions[0]) * setting.turns
    about = (
        f"{asked} different questions of people, one after the other, to stores of {count:,} chunks of up to {_WORDS} "
        "words, made of pieces of the test data with vectors near to theirs, in warm processes. Index of ragembed: "
        f"{', '.join(found[_OURS].ready['kinds'])}, of LangChain: flat; k is 10. With a vector given, ragembed's "
        "hybrid search asks for the words alone. Peak memory: "
        + ", ".join(f"{side} {max(one['memory'] for one in found[side].told):.0f} MiB" for side in (_OURS, _PEER))
        + "."
    )
    floor = (
        f"Floor: MiniLM's weights are read once for a question, 43 MB in float32, {significant(1000 * least)} ms at "
        "the speed of a copy, with 0.4 Gflop for 20 tokens; a graph compares with some hundred vectors of 1.5 kB, BM25 "
        "reads some bytes for each chunk that has a word of the question. Exact search reads 1.5 kB for each chunk."
    )
    header = ["", "median, ms", "p95, ms", "LangChain's median, ms", "p95, ms", "ratio of medians", "of p95"]
    return Outcome(scores, [about, table(header, rows), floor])


def _make_stores(setting: Setting, folder: Path, model: Path) -> None:
    if not (folder / "ragembed").is_dir():
        say("making ragembed's store")
        setting.tell("warm_store.py", {"folder": str(folder), "seed": setting.seed})
    if not (folder / "langchain").is_dir():
        say("making LangChain's store")
        request = json.dumps({"folder": str(folder), "model": str(model)})
        setting.runner.run([LANGCHAIN.python, PROGRAMS / "warm_langchain.py", "build", request])


def _percentiles(turns: Turns, way: str) -> tuple[float, float]:
    """Return median and 95th percentile of the milliseconds of all turns."""
    taken = [value for told in turns.told for value in told[way]]
    return float(np.median(taken)), float(np.percentile(taken, 95))
