"""Time and memory as a store grows to a million chunks: indexing, indexing again, and questions in each mode."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from contestants import RAGEMBED
from report import significant, table

from speed_paths.figure import check_figure, draw
from speed_paths.folders import tables_folder
from speed_paths.made import made_folder, questions_by_turn, write_texts
from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.watching import Watched, watch
from speed_paths.whole import Command

_SIZES, _TRIAL_SIZES = (1_000, 10_000, 100_000, 300_000, 1_000_000), (200, 1_000)
_WORDS, _ROWS = 24, 100
_BEFORE, _ASKED = 10, 80
"""Questions that are not measured, and that are."""
_LEAST_MEASURED = 100_000
"""Chunks from which memory is to be flat, and time is to grow no more than the number of chunks."""
_MOST_MEMORY, _MOST_GROWTH, _MOST_SLOPE = 1536.0, 1.5, 1.1
_OPTIONS = ("--extractor", "re:dim=384", "--index", "flat")
FIGURE = Path(__file__).resolve().parent.parent / "figures" / "speed_growth.png"


@dataclass(frozen=True, slots=True)
class Grown:
    """What was measured at one size: indexing from nothing, again, after one edit, and p95 of each mode in ms."""

    chunks: int
    index: Watched
    again: Watched
    edited: Watched
    p95: Mapping[str, float]

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each path."""
        whole = {"index": self.index.seconds, "re-index": self.again.seconds, "re-index, 1 file": self.edited.seconds}
        return {**whole, **{f"{mode} query, p95": value / 1000 for mode, value in self.p95.items()}}


def measure(setting: Setting) -> Outcome:
    """Index each size from nothing, and ask it."""
    if not setting.trial:
        check_figure()
    sizes = _TRIAL_SIZES if setting.trial else _SIZES
    texts = made_folder(setting, "rows", max(sizes))
    write_texts(setting, texts, max(sizes), _WORDS)
    drawn = questions_by_turn(setting)
    questions = [drawn[0][:_BEFORE], list(chain(*drawn[1:]))[:_ASKED]]
    grown = [_grow(setting, size, texts / "texts.txt", questions) for size in sizes]
    if not setting.trial:
        draw({one.chunks: one.seconds() for one in grown}, FIGURE)
    about = (
        f"`ragembed index` with random embeddings of dimension 384 (`{' '.join(_OPTIONS)}`), which need no model, on "
        f"tables of {_ROWS} rows of up to {_WORDS} words, made of pieces of the test data, a chunk a row; again with "
        f"nothing changed, and with one file changed; then {len(questions[1]):,} questions of people in a new process, "
        "after others. Exact search, whose time is that of reading all vectors: what an approximate index does at "
        "these sizes is in the section on index building. Memory is the process's own (`RssAnon`), sampled."
    )
    slopes = (
        "Slope of the logarithm of time over that of chunks, from each size to the next: 1 is linear, less is better. "
        "![time by chunks](figures/speed_growth.png)"
    )
    floor = (
        "Floor: linear for indexing, as each text is read, split, and written once, some 1 kB on the disk for each "
        "chunk with 768 bytes of vector; for exact dense search 1.5 kB a chunk; for words, the chunks that have them."
    )
    return Outcome(_scores(grown), [about, _costs(grown), slopes, _slopes(grown), floor])


def _grow(setting: Setting, size: int, texts: Path, questions: Sequence[Sequence[str]]) -> Grown:
    say(f"{size:,} chunks")
    files, store = tables_folder(setting, size, texts, _ROWS), setting.folder / f"store-{size}"
    index: Command = [RAGEMBED, "index", files, "--store", store, *_OPTIONS]
    made = watch(index, setting.runner)
    say(f"  {made.seconds:.1f} s, {made.own_memory:.0f} MiB")
    again = watch(index, setting.runner)
    with (files / "00000.csv").open("a", encoding="utf-8") as table_file:
        print("a row that was added later", file=table_file)
    edited = watch(index, setting.runner)
    taken = setting.tell("growth_ragembed.py", {"store": str(store), "questions": questions})
    p95 = {mode: float(np.percentile(values, 95)) for mode, values in taken.items()}
    say("  " + ", ".join(f"{mode} {value:.1f} ms" for mode, value in p95.items()))
    shutil.rmtree(store)
    shutil.rmtree(files)
    return Grown(size, made, again, edited, p95)


def _costs(grown: Sequence[Grown]) -> str:
    paths = list(grown[0].seconds())
    header = ["chunks", *(f"{path}, {'ms' if 'query' in path else 's'}" for path in paths)]
    header += ["index, µs a chunk", "index: own memory, MiB", "re-index: own memory, MiB"]
    rows = []
    for one in grown:
        seconds = one.seconds()
        shown = [significant(seconds[path] * (1000 if "query" in path else 1), 3) for path in paths]
        shown += [significant(1e6 * one.index.seconds / one.chunks, 3)]
        shown += [f"{one.index.own_memory:.0f}", f"{one.edited.own_memory:.0f}"]
        rows.append([f"{one.chunks:,}", *shown])
    return table(header, rows)


def _slopes(grown: Sequence[Grown]) -> str:
    paths = list(grown[0].seconds())
    rows = [
        [f"{one.chunks:,} to {other.chunks:,}", *(f"{_slope(one, other, path):.2f}" for path in paths)]
        for one, other in pairwise(grown)
    ]
    return table(["chunks", *paths], rows)


def _slope(one: Grown, other: Grown, path: str) -> float:
    grows = math.log(other.seconds()[path] / one.seconds()[path])
    return grows / math.log(other.chunks / one.chunks)


def _scores(grown: Sequence[Grown]) -> list[Score]:
    large = [one for one in grown if one.chunks >= _LEAST_MEASURED] or list(grown)
    first, last = large[0], large[-1]
    chunks = f"{first.chunks:,} to {last.chunks:,} chunks"
    memory = [one.index.own_memory for one in large]
    flat = Score(f"growth: memory of indexing, {chunks}", max(memory) / memory[0], _MOST_GROWTH, more_is_better=False)
    most = Score("growth: most memory of indexing", max(memory), _MOST_MEMORY, more_is_better=False, unit="MiB")
    slopes = [
        Score(f"growth: {path}, {chunks}", _slope(first, last, path), _MOST_SLOPE, more_is_better=False, unit="slope")
        for path in last.seconds()
    ]
    return [most, flat, *slopes]
