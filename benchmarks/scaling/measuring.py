"""One run of ``ragembed index``: its time, its stages, the memory of its processes, and its bytes."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from contestants import RAGEMBED
from speed_paths.setting import Setting, say

from ragembed.indexes.backend import StageReport
from scaling.records import Run
from scaling.watching import folder_bytes, watch

_ENDINGS = {"raw": ".f16", "index": ".faiss", "database": "store.db", "postings": "postings.safetensors"}


def measure_run(
    setting: Setting, files: Path, options: Sequence[str], workers: int, questions: Sequence[Sequence[str]] = ()
) -> Run:
    """Index ``files`` from nothing, with so many workers, 0 for the single process; ask the store, and remove it."""
    store, work = setting.folder / "store", setting.folder / "work"
    command: list[str | Path] = [RAGEMBED, "index", files, "--store", store, "--json", *options]
    if workers:
        command += ["--workers", str(workers), "--work", work]
    seen = watch(command, setting.runner, work)
    report = json.loads(seen.printed)
    answers = setting.tell("growth_ragembed.py", {"store": str(store), "questions": questions}) if questions else {}
    sizes = {name: folder_bytes(store, ending) for name, ending in _ENDINGS.items()}
    run = Run(
        workers,
        len(report["added"]),
        report["chunks"],
        _tokens(store),
        seen.seconds,
        seen.driver,
        seen.workers,
        seen.resident,
        {"source": folder_bytes(files), "work": seen.files, **sizes},
        tuple(StageReport(**stage) for stage in report.get("stages", ())),
        {mode: float(np.median(values)) for mode, values in answers.items()},
    )
    most = ", ".join(f"{memory:.0f}" for memory in run.workers_memory)
    say(f"  {workers or 'no'} workers: {run.seconds:.1f} s, driver {run.driver:.0f} MiB, workers {most or 'none'} MiB")
    shutil.rmtree(store)
    shutil.rmtree(work, ignore_errors=True)
    return run


def _tokens(store: Path) -> float:
    """Return the mean number of tokens of a chunk."""
    database = sqlite3.connect(f"file:{store / 'store.db'}?mode=ro", uri=True)
    try:
        return float(database.execute("SELECT avg(tokens) FROM chunks").fetchone()[0])
    finally:
        database.close()
