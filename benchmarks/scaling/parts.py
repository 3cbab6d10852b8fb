"""The corpora that are indexed, at two sizes and once at a large one, by one process and by several workers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path

from report import machine
from speed_paths.folders import collection_folder, tables_folder
from speed_paths.made import made_folder, questions_by_turn, write_texts
from speed_paths.setting import Setting, say

from scaling.measuring import measure_run
from scaling.records import Part, Run

_DIM = 384
_WORDS, _LINES, _ROWS = 120, 3, 100
"""Words of a made text at the most, made texts of a row, and rows of a table."""
_MADE = ("--extractor", f"re:dim={_DIM}", "--index", "ivf-sq8")
_WORKERS = (0, 1, 2, 4)
"""0 is the single process."""
_BEFORE, _ASKED = 10, 80
"""Questions that are not measured, and that are."""
_GROWS = 10
_TIMES = 3
"""Runs of the smaller size, of which the median is taken: seconds, in which chance counts for more."""
_CHUNKS, _TRIAL_CHUNKS = 100_000, 2_000
_FILES, _TRIAL_FILES = 11_420, 100
"""Of the collection NPL, at the larger size."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A title, minutes, and what measures it, given the number of chunks of the large run."""

    title: str
    minutes: float
    measure: Callable[[Setting, int], Part]


def rows(setting: Setting, large: int) -> Part:
    """Measure tables with random embeddings, which need no model: much text, and little to compute."""
    load, most = os.getloadavg()[0], setting.choose(_CHUNKS, _TRIAL_CHUNKS)
    large = setting.choose(large, 2 * most)
    if large <= most:
        raise ValueError(f"the large run has {large:,} chunks: expected more than {most:,}")
    texts = made_folder(setting, f"rows-{_WORDS}-words", _LINES * large)
    write_texts(setting, texts, _LINES * large, _WORDS)
    drawn = questions_by_turn(setting)
    questions = [drawn[0][:_BEFORE], list(chain(*drawn[1:]))[:_ASKED]]

    def measured(size: int, workers: Sequence[int], times: int, asked: Sequence[Sequence[str]]) -> list[Run]:
        files = tables_folder(setting, size, texts / "texts.txt", _ROWS, _LINES)
        say(f"{size:,} rows")
        found = [
            _median(setting, files, _MADE, count, times, asked if count == workers[-1] else ()) for count in workers
        ]
        shutil.rmtree(files)
        return found

    runs = measured(most // _GROWS, _WORKERS, setting.choose(_TIMES, 1), ())
    runs += measured(most, _WORKERS, 1, questions)
    runs += measured(large, [len(os.sched_getaffinity(0))], 1, questions)
    about = (
        f"Tables of {_ROWS} rows, made of pieces of the test data, about a chunk a row, with random "
        f"embeddings of dimension {_DIM}, which need no model (`{' '.join(_MADE)}`): what workers do beside a model."
    )
    return _part(about, _MADE, load, runs)


def model(setting: Setting, _large: int) -> Part:
    """Measure the abstracts of NPL with the default model: little text, and much to compute."""
    load, most = os.getloadavg()[0], setting.choose(_FILES, _TRIAL_FILES)
    runs: list[Run] = []
    for size, times in ((most // _GROWS, setting.choose(_TIMES, 1)), (most, 1)):
        files = collection_folder(setting, "npl", size)
        say(f"{size:,} files")
        runs += [_median(setting, files, (), count, times) for count in _WORKERS]
        shutil.rmtree(files)
    about = "Abstracts of the collection NPL, a file each, with all defaults: MiniLM takes most of the time."
    return _part(about, (), load, runs)


PARTS = {
    "rows": Corpus("Tables, without a model", 30, rows),
    "model": Corpus("Files, with MiniLM", 8, model),
}


def _median(
    setting: Setting,
    files: Path,
    options: Sequence[str],
    workers: int,
    times: int,
    questions: Sequence[Sequence[str]] = (),
) -> Run:
    """Measure a run several times, and return the one that took the median of the seconds."""
    runs = [measure_run(setting, files, options, workers, questions) for _ in range(times)]
    return sorted(runs, key=lambda run: run.seconds)[times // 2]


def _part(about: str, options: Sequence[str], load: float, runs: Sequence[Run]) -> Part:
    cores = len(os.sched_getaffinity(0))
    return Part(about, tuple(options), _DIM, date.today().isoformat(), machine(), cores, load, tuple(runs))
