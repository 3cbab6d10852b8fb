"""Measure indexing with one process and with workers, which each write a store of a collection."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data import Setting, write_files, write_tables
from processes import RAGEMBED, folder_bytes, say
from report import significant, table
from speed import Outcome, texts_folder

from ragembed.evaluation import read_beir

STAGES = ("read", "fit", "write", "finish")
DIM = 384
OPTIONS = ("--extractor", f"re:dim={DIM}", "--index", "ivf-sq8")
"""The options of tables."""
HEADER = ("documents", "chunks", "workers", "stores", "s", "chunks/s", "÷ single process")
HEADER += (*(f"`{name}`, s" for name in STAGES), "driver alone, s", "driver, MiB", "largest worker, MiB")
HEADER += ("stores, bytes per chunk",)

Run = dict[str, Any]
"""Chunks, workers (0: the single process), stores, seconds, memory in MiB, bytes of the stores, and stages."""


def scale(setting: Setting) -> Outcome:
    """Index tables without a model, at three sizes, and files with MiniLM."""
    tables, abstracts = _tables(setting), _abstracts(setting)
    about = (
        "`ragembed index` into a new store as one process, and into one store per worker (`--workers N`), with "
        "documents and stores on one disk. Memory is the unshared memory of a process (`RssAnon`, sampled). *Tables* "
        "have 100 rows, generated from pieces of the test data, about one chunk per row, with random embeddings of "
        f"dimension {DIM} (`{' '.join(OPTIONS)}`), which need no model; {tables[-1]['tokens']:.0f} tokens per chunk. "
        "*Abstracts* are those of the collection NPL, a file each, with all defaults: MiniLM takes most of the time; "
        f"{abstracts[-1]['tokens']:.0f} tokens per chunk."
    )
    return Outcome([about, table(HEADER, [*_shown("tables", tables), *_shown("abstracts", abstracts)])])


def _tables(setting: Setting) -> list[Run]:
    sizes = (200, 2_000, 4_000) if setting.trial else (10_000, 100_000, 300_000)
    texts = texts_folder(setting, "rows-120-words", 3 * sizes[-1], 120) / "texts.txt"
    cores, runs = len(os.sched_getaffinity(0)), []
    for size in sizes:
        files = write_tables(setting, size, texts, lines_each=3)
        runs += [_run(setting, files, OPTIONS, workers) for workers in (0, cores)]
        shutil.rmtree(files)
    return runs


def _abstracts(setting: Setting) -> list[Run]:
    collection, size = read_beir(setting.data / "retrieval" / "npl"), setting.choose(11_420, 100)
    files = write_files(collection, setting.folder / f"npl-{size}", size)
    return [_run(setting, files, (), workers) for workers in (0, 2)]


def _run(
    setting: Setting,
    files: Path,
    options: Sequence[str],
    workers: int,
) -> Run:
    """Index ``files`` into a new store, or with workers into one store per worker, and remove it."""
    store = setting.folder / "store"
    command = [*RAGEMBED, "index", files, "--store", store, "--json", *options]
    if workers:
        command += ["--workers", str(workers), "--collection", "benchmark"]
    seen = setting.runner.watch(command)
    if workers:
        setting.runner.run([*RAGEMBED, "collection", "remove", "benchmark"])
    report = json.loads(seen.printed)
    database = sqlite3.connect(f"file:{next(store.rglob('store.db'))}?mode=ro", uri=True)
    [tokens] = database.execute("SELECT avg(tokens) FROM chunks").fetchone()
    database.close()
    stores, size = len(list(store.rglob("store.db"))), folder_bytes(store)
    say(
        f"  {report['chunks']:,} chunks, {workers or 'no'} workers, {stores} stores: {seen.seconds:.1f} s, driver "
        f"{seen.driver:.0f} MiB"
    )
    shutil.rmtree(store)
    return {
        "chunks": report["chunks"],
        "workers": workers,
        "stores": stores,
        "seconds": round(seen.seconds, 2),
        "tokens": round(tokens, 1),
        "driver": round(seen.driver),
        "worker": round(max(seen.workers.values(), default=0.0)),
        "bytes": size,
        "stages": {stage["stage"]: [stage["seconds"], stage["busy"]] for stage in report.get("stages", ())},
    }


def _alone(run: Run) -> float:
    """Return the seconds outside the stages of workers."""
    return float(run["seconds"] - sum(seconds for seconds, _ in run["stages"].values()))


def _shown(documents: str, runs: Sequence[Run]) -> list[list[str]]:
    """Return a row for each run."""
    single = {run["chunks"]: run["seconds"] for run in runs if not run["workers"]}
    rows = []
    for run in runs:
        chunks, seconds = run["chunks"], run["seconds"]
        faster = f"{significant(single[chunks] / seconds, 3)} ×" if run["workers"] and chunks in single else ""
        stages = [significant(run["stages"][name][0], 3) if name in run["stages"] else "" for name in STAGES]
        cells = [documents, f"{chunks:,}", str(run["workers"] or "single process"), str(run["stores"])]
        cells += [significant(seconds, 3), significant(chunks / seconds, 3), faster, *stages]
        cells += [significant(_alone(run), 3) if run["workers"] else "", str(run["driver"])]
        cells += [str(run["worker"]) if run["workers"] else "", f"{run['bytes'] / chunks:,.0f}"]
        rows.append(cells)
    return rows
