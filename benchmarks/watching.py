"""``ragembed index --watch``: the time until a search finds a saved file, and the processor time without changes."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from data import Setting, write_files
from processes import RAGEMBED, say
from report import significant, table
from speed import Outcome

from ragembed.evaluation import read_beir
from ragembed.indexes import Store

LONGEST = 60.0
"""Seconds after which a save counts as lost."""


def watch(setting: Setting) -> Outcome:
    """Save files of a watched folder, and measure the process while nothing changes."""
    collection = read_beir(setting.data / "retrieval" / "cran")
    files = write_files(collection, setting.folder / "files", setting.choose(1000, 40))
    documents, store = sorted(files.iterdir()), setting.folder / "store"
    setting.runner.run([*RAGEMBED, "index", files, "--store", store])
    rows = []
    for name, saves, options in (("notifications", 100, ()), ("`--poll`", 20, ("--poll",))):
        with _watching(setting, files, store, *options) as process:
            waits = _saves(store, documents, name, setting.choose(saves, 5))
            time.sleep(2)
            idle = _idle(process, float(setting.choose(60, 5)))
        middle, high, highest = statistics.median(waits), float(np.percentile(waits, 95)), max(waits)
        rows.append(
            [
                name,
                str(len(waits)),
                *(significant(value, 3) for value in (middle, high, highest)),
                f"{100 * idle:.3f} %",
            ]
        )
    header = ("", "saves", "median, s", "95th percentile, s", "longest, s", "processor while idle")
    about = (
        f"`ragembed index --watch` on {len(documents):,} files, the first documents of Cranfield, with all defaults. "
        "Each save adds a sentence with a new word to one file; every second file is written beside the old one and "
        "renamed. The time ends when a lexical search of another process finds the new word. The share of "
        f"one core is measured over {setting.choose(60, 5)} s without changes."
    )
    return Outcome([about, table(header, rows)])


@contextmanager
def _watching(setting: Setting, files: Path, store: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command; the block begins when it has caught up."""
    process = subprocess.Popen(
        [*map(str, RAGEMBED), "index", str(files), "--watch", "--store", str(store), *options],
        cwd=setting.folder,
        env=setting.runner.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "watching" in line:
                break
        yield process
    finally:
        process.terminate()
        process.communicate()


def _saves(store: Path, documents: list[Path], name: str, count: int) -> list[float]:
    """Save files one by one; return the seconds until each is found."""
    waits = []
    with Store.open(store) as opened:
        for i in range(count):
            file, word = documents[i * 7 % len(documents)], f"zyx{name.strip('`-')}{i}"
            text = f"{file.read_text(encoding='utf-8')}\nThe word {word} is new.\n"
            if i % 2:
                beside = file.with_suffix(".tmp")
                beside.write_text(text, encoding="utf-8")
                beside.replace(file)
            else:
                file.write_text(text, encoding="utf-8")
            saved = time.perf_counter()
            while not opened.search(word, 1, "lexical"):
                if time.perf_counter() - saved > LONGEST:
                    raise RuntimeError(f"{file} was not found within {LONGEST:g} s after it was saved")
                time.sleep(0.02)
            waits.append(time.perf_counter() - saved)
            time.sleep(0.05 * (i % 7))  # saves come at any time of the watcher's own rhythm
    say(f"  {name}: median {statistics.median(waits):.3g} s")
    return waits


def _idle(process: subprocess.Popen[str], seconds: float) -> float:
    """Return the share of one core that the process uses."""
    before, started = _processor_time(process.pid), time.perf_counter()
    time.sleep(seconds)
    return (_processor_time(process.pid) - before) / (time.perf_counter() - started)


def _processor_time(pid: int) -> float:
    """Return the processor time of all threads of a process in seconds, from Linux's scheduler."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
