"""Measure indexing with one process and with workers, which each write a store of a collection."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from data import Setting, write_files, write_tables
from processes import RAGEMBED, folder_bytes, say
from report import machine, significant, table
from speed import Outcome, texts_folder

from ragembed.evaluation import read_beir

STAGES = ("read", "fit", "write", "finish")
DIM = 384

Run = dict[str, Any]
"""Chunks, workers (0: the single process), stores, seconds, memory in MiB, bytes of the stores, and stages."""
Part = dict[str, Any]
"""The data that was indexed, the date, the machine, and the runs."""


def scale(setting: Setting) -> Outcome:
    """Index tables without a model and files with MiniLM, at two sizes, and once a large set of tables."""
    parts = [_rows(setting), _files(setting)]
    about = (
        "`ragembed index` into a new store as one process, and into one store per worker (`--workers N`), with "
        "documents and stores on one disk. Memory is the unshared memory of a process (`RssAnon`, sampled)."
    )
    return Outcome([about, *chain.from_iterable((part["about"], _runs_table(part)) for part in parts)])


def _rows(setting: Setting) -> Part:
    sizes = (200, 2_000, 4_000) if setting.trial else (10_000, 100_000, 300_000)
    texts = texts_folder(setting, "rows-120-words", 3 * sizes[-1], 120) / "texts.txt"
    options = ("--extractor", f"re:dim={DIM}", "--index", "ivf-sq8")
    cores, runs = len(os.sched_getaffinity(0)), []
    for size in sizes:
        files = write_tables(setting, size, texts, lines_each=3)
        runs += [_run(setting, files, options, workers) for workers in (0, cores)]
        shutil.rmtree(files)
    about = (
        "Tables of 100 rows, generated from pieces of the test data, about one chunk per row, with random embeddings "
        f"of dimension {DIM} (`{' '.join(options)}`), which need no model."
    )
    return _part(about, runs)


def _files(setting: Setting) -> Part:
    collection, runs = read_beir(setting.data / "retrieval" / "npl"), []
    for size in (20, 100) if setting.trial else (1_142, 11_420):
        files = write_files(collection, setting.folder / f"npl-{size}", size)
        runs += [_run(setting, files, (), workers) for workers in (0, 2)]
    return _part(
        "Abstracts of the collection NPL, a file each, with all defaults: MiniLM takes most of the time.", runs
    )


def _part(about: str, runs: Sequence[Run]) -> Part:
    cores = len(os.sched_getaffinity(0))
    return {"about": about, "date": date.today().isoformat(), "machine": machine(), "cores": cores, "runs": runs}


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


def _runs_table(part: Part) -> str:
    header = ["chunks", "workers", "stores", "s", "chunks/s", "÷ single process", *(f"`{name}`, s" for name in STAGES)]
    header += ["driver alone, s", "driver, MiB", "largest worker, MiB", "stores, bytes per chunk"]
    single = {run["chunks"]: run["seconds"] for run in part["runs"] if not run["workers"]}
    rows = []
    for run in part["runs"]:
        chunks, seconds = run["chunks"], run["seconds"]
        faster = f"{significant(single[chunks] / seconds, 3)} ×" if run["workers"] and chunks in single else ""
        stages = [significant(run["stages"][name][0], 3) if name in run["stages"] else "" for name in STAGES]
        cells = [f"{chunks:,}", str(run["workers"] or "single process"), str(run["stores"])]
        cells.append(significant(seconds, 3))
        cells += [significant(chunks / seconds, 3), faster, *stages]
        cells += [significant(_alone(run), 3) if run["workers"] else "", str(run["driver"])]
        cells += [str(run["worker"]) if run["workers"] else "", f"{run['bytes'] / chunks:,.0f}"]
        rows.append(cells)
    when = f"{part['date']}; {part['machine']}; {part['runs'][-1]['tokens']:.0f} tokens per chunk."
    return f"{table(header, rows)}\n\n{when}"
