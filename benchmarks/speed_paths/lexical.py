"""Lexical search in 500,000 chunks, beside bm25s."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from environments import SPEED, packages
from report import significant, table

from speed_paths.made import made_folder, questions_by_turn, write_texts
from speed_paths.scores import Outcome, Score
from speed_paths.setting import PROGRAMS, Setting, say
from speed_paths.shown import times
from speed_paths.turns import Contestant, take_turns

_CHUNKS, _TRIAL_CHUNKS = 500_000, 3_000
_WORDS = 60
_GOAL_MS = 100.0
_POSTING = 8
"""Bytes of a posting: a chunk and a weight."""
_OURS, _PEER = "ragembed", "bm25s"
_FREQUENT = 0.2
"""Of the chunks: a word that is in more is taken for a stop word."""
_WORD = re.compile(r"\w\w+")


def measure(setting: Setting) -> Outcome:
    """Make both indexes, unless the cache has them, and ask both in turns."""
    SPEED.ensure()
    count = setting.choose(_CHUNKS, _TRIAL_CHUNKS)
    folder = made_folder(setting, "lexical", count)
    write_texts(setting, folder, count, _WORDS)
    _make_stores(setting, folder, count)
    questions = questions_by_turn(setting)
    contestants = [
        _contestant(_OURS, sys.executable, folder, questions),
        _contestant(_PEER, SPEED.python, folder, questions),
    ]
    found = take_turns(contestants, setting.turns, setting.runner)
    taken = {side: [value for told in found[side].told for value in told["taken"]] for side in found}
    medians, tails = ({side: float(np.percentile(taken[side], q)) for side in taken} for q in (50, 95))
    least = 1000 * _POSTING * _postings(folder, list(chain(*questions[1:]))) / setting.bandwidth()
    rows = [
        [
            side,
            significant(medians[side], 3),
            significant(tails[side], 3),
            significant(max(taken[side]), 3),
            f"{max(told['memory'] for told in found[side].told):.0f}",
        ]
        for side in taken
    ]
    scores = [
        Score("lexical query: p95", tails[_OURS], _GOAL_MS, more_is_better=False, unit="ms"),
        Score("lexical query: p95 beside bm25s", tails[_PEER] / tails[_OURS]),
        Score("lexical query: median beside bm25s", medians[_PEER] / medians[_OURS], floor=least / medians[_OURS]),
    ]
    about = (
        f"{len(taken[_OURS])} different questions of people, one after the other, to {count:,} chunks of up to "
        f"{_WORDS} words, made of pieces of the test data, in warm processes: "
        '`store.search(question, mode="lexical")` beside '
        f"bm25s {packages(SPEED.python)['bm25s']} with its tokenizer, its English stop words, and PyStemmer, its index "
        f"in memory; k is 10. Medians: ragembed {times(medians[_PEER] / medians[_OURS])} as fast, p95 "
        f"{times(tails[_PEER] / tails[_OURS])}."
    )
    floor = (
        f"Floor: {_POSTING} bytes for each chunk that has a word of the question, words that are in a fifth of the "
        f"chunks left out, {significant(least)} ms for the median question at the speed of a copy, and an addition for "
        "each."
    )
    header = ["", "median, ms", "p95, ms", "most, ms", "peak memory, MiB"]
    return Outcome(scores, [about, table(header, rows), floor])


def _contestant(name: str, python: str | Path, folder: Path, questions: Sequence[Sequence[str]]) -> Contestant:
    request = {"store": str(folder / name), "questions": questions}
    return Contestant(name, python, PROGRAMS / f"lexical_{name}.py", request)


def _make_stores(setting: Setting, folder: Path, count: int) -> None:
    request = {"folder": str(folder), "texts": count, "seed": setting.seed}
    if not (folder / _OURS).is_dir():
        say("making ragembed's store")
        setting.tell("lexical_store.py", request)
    if not (folder / _PEER).is_dir():
        say("making the index of bm25s")
        setting.runner.run([SPEED.python, PROGRAMS / "lexical_bm25s.py", "build", json.dumps(request)])


def _postings(folder: Path, questions: Sequence[str]) -> float:
    """Return how many pairs of a word and a chunk with it the median question has, its most frequent words left out."""
    asked = [set(_WORD.findall(question.lower())) for question in questions]
    wanted = set().union(*asked)
    found: Counter[str] = Counter()
    chunks = 0
    with (folder / "texts.txt").open(encoding="utf-8") as lines:
        for line in lines:
            found.update(wanted.intersection(_WORD.findall(line.lower())))
            chunks += 1
    frequent = {word for word, count in found.items() if count > _FREQUENT * chunks}
    return statistics.median(sum(found[word] for word in words - frequent) for words in asked)
