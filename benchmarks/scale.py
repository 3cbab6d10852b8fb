"""Measure indexing with one process and with several workers, and extrapolate to larger sizes.

``run.py scale`` measures, and writes the runs to scale_runs.json and the tables to docs/explanation/scale.md. To write
the tables again from the recorded runs, change an assumption below and run this file as a program.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from data import Setting, queries_by_turn, write_files, write_tables
from processes import OWN, RAGEMBED, ROOT, folder_bytes, say
from report import machine, significant, table, write_section
from speed import Outcome, texts_folder

from ragembed.evaluation import read_beir

RUNS = Path(__file__).resolve().parent / "scale_runs.json"
PAGE = ROOT / "docs" / "explanation" / "scale.md"
ASSUMED = {
    "cores per machine, each as fast as a core of the measured machine": 32,
    "memory per machine, GiB": 128,
    "disk per machine, GB": 8_000,
    "tokens per second of a GPU, for a model of MiniLM's size in half precision": 500_000,
    "float32 operations per second of a core in matrix products": 3e10,
}
CORES, MEMORY, DISK, GPU, OPERATIONS = ASSUMED.values()
PLANNED = {10_000_000: 1, 1_000_000_000: 16, 10_000_000_000: 128}
"""Numbers of chunks, and the number of machines for each. Each machine has a GPU if one is used."""
STAGES = ("read", "fit", "embed", "write", "finish")
DIM = 384

Run = dict[str, Any]
"""Chunks, workers (0: the single process), stores, seconds, memory in MiB, bytes, stages, milliseconds of queries."""
Part = dict[str, Any]
"""The data that was indexed, the date, the machine, and the runs."""


def scale(setting: Setting) -> Outcome:
    """Index tables without a model and files with MiniLM, at two sizes, and once a large set of tables."""
    parts = {"rows": _rows(setting), "model": _files(setting)}
    if not setting.trial:
        write(parts)
    about = (
        "`ragembed index` into a new store as one process and with workers (`--workers N`), and into one store per "
        "worker (`--collection`), with documents, work folder and stores on one disk. Memory is the unshared memory of "
        "a process (`RssAnon`, sampled). [docs/explanation/scale.md](../docs/explanation/scale.md) extrapolates to "
        "other sizes."
    )
    shown = [[part["about"], _runs_table(part)] for part in parts.values()]
    return Outcome([about, *chain(*shown)])


def write(parts: Mapping[str, Part]) -> None:
    """Write the runs, one per line, and the tables in docs/explanation/scale.md."""
    lines = []
    for name, part in parts.items():
        runs = ",\n".join(f"  {json.dumps(run)}" for run in part["runs"])
        head = json.dumps({key: value for key, value in part.items() if key != "runs"})
        lines.append(f' "{name}": {head[:-1]}, "runs": [\n{runs}\n ]}}')
    RUNS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    write_section("scale", planned(parts["rows"], parts["model"]), PAGE)


# Measuring


def _rows(setting: Setting) -> Part:
    sizes = (200, 2_000, 4_000) if setting.trial else (10_000, 100_000, 300_000)
    texts = texts_folder(setting, "rows-120-words", 3 * sizes[-1], 120) / "texts.txt"
    drawn = queries_by_turn(setting)
    queries = [drawn[0][:10], list(chain(*drawn[1:]))[:80]]
    options = ("--extractor", f"re:dim={DIM}", "--index", "ivf-sq8")
    runs = []
    for size in sizes:
        files = write_tables(setting, size, texts, lines_each=3)
        cores = len(os.sched_getaffinity(0))
        counts = (0, 1, cores) if size < sizes[-1] else (0, cores)
        for workers in counts:
            own_queries = queries if size > sizes[0] and workers == cores else ()
            runs.append(_run(setting, files, options, workers, own_queries))
        runs += [_run(setting, files, options, workers, (), together=True) for workers in counts if workers]
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
        runs += [_run(setting, files, (), workers, ()) for workers in (0, 1, 2)]
        runs.append(_run(setting, files, (), 2, (), together=True))
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
    queries: Sequence[Sequence[str]],
    *,
    together: bool = False,
) -> Run:
    """Index ``files`` into a new store, or with ``together`` into one store per worker, search it, and remove it."""
    store, work = setting.folder / "store", setting.folder / "work"
    command = [*RAGEMBED, "index", files, "--store", store, "--json", *options]
    if together:
        work = setting.folder / ".store.unfinished" / "work"
        command += ["--workers", str(workers), "--collection", "benchmark"]
    elif workers:
        command += ["--workers", str(workers), "--work", work]
    seen = setting.runner.watch(command, work)
    if together:
        setting.runner.run([*RAGEMBED, "collection", "remove", "benchmark"])
    report = json.loads(seen.printed)
    endings = {"raw": ".f16", "index": ".faiss", "database": "store.db", "postings": "postings.safetensors"}
    sizes = {name: folder_bytes(store, ending) for name, ending in endings.items()}
    answers = {}
    if queries:
        request = {"store": str(store), "queries": queries}
        found = setting.runner.run_task(sys.executable, OWN, "ask_modes", request)
        answers = {mode: float(np.median(found[mode])) for mode in ("lexical", "dense", "hybrid")}
    database = sqlite3.connect(f"file:{next(store.rglob('store.db'))}?mode=ro", uri=True)
    [tokens] = database.execute("SELECT avg(tokens) FROM chunks").fetchone()
    database.close()
    stores = len(list(store.rglob("store.db")))
    say(
        f"  {report['chunks']:,} chunks, {workers or 'no'} workers, {stores} stores: {seen.seconds:.1f} s, driver "
        f"{seen.driver:.0f} MiB"
    )
    shutil.rmtree(store)
    shutil.rmtree(work, ignore_errors=True)
    return {
        "chunks": report["chunks"],
        "workers": workers,
        "stores": 0 if not together else stores,
        "seconds": round(seen.seconds, 2),
        "tokens": round(tokens, 1),
        "driver": round(seen.driver),
        "worker": round(max(seen.workers.values(), default=0.0)),
        "bytes": {"source": folder_bytes(files), "work": seen.work, **sizes},
        "stages": {stage["stage"]: [stage["seconds"], stage["busy"]] for stage in report.get("stages", ())},
        "answers": answers,
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
        cells = [f"{chunks:,}", str(run["workers"] or "single process"), str(run["stores"] or 1)]
        cells.append(significant(seconds, 3))
        cells += [significant(chunks / seconds, 3), faster, *stages]
        cells += [significant(_alone(run), 3) if run["workers"] else "", str(run["driver"])]
        cells += [str(run["worker"]) if run["workers"] else "", f"{_store_bytes(run):,.0f}"]
        rows.append(cells)
    when = f"{part['date']}; {part['machine']}; {part['runs'][-1]['tokens']:.0f} tokens per chunk."
    return f"{table(header, rows)}\n\n{when}"


# Extrapolation from the cost of a chunk


def _store_bytes(run: Run) -> float:
    return float(sum(run["bytes"][name] for name in ("raw", "index", "database", "postings")) / run["chunks"])


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return offset and slope, neither below 0, of the line through the points with the smallest and largest x."""
    (x0, y0), (x1, y1) = min(points), max(points)
    slope = (y1 - y0) / (x1 - x0)
    return (y0 - slope * x0, slope) if y0 >= slope * x0 else (0.0, y1 / x1)


def _sorting(chunks: float) -> float:
    """Return a number proportional to the copies of chunks in repeated merges."""
    return chunks * math.log(max(chunks, 1.0))


def _index_operations(vectors: float) -> float:
    """Return the operations to train the centroids of an index of lists, and to find the list of each vector."""
    lists = max(1.0, min(4 * math.sqrt(vectors), vectors / 64))
    return 2 * DIM * lists * (5 * 64 * lists + vectors)


class _Costs:
    """The cost of a chunk on the measured machine with all cores busy; time and memory of the driver by chunks.

    With ``together``, each worker writes a store of its own.
    """

    def __init__(self, part: Part, *, together: bool = False) -> None:
        staged = [run for run in part["runs"] if run["workers"] and bool(run["stores"]) == together]
        self.cores: int = part["cores"]
        self.largest = max((run for run in staged if run["workers"] == self.cores), key=lambda run: run["chunks"])
        chunks = self.largest["chunks"]
        self.stages = {name: busy / chunks for name, (_, busy) in self.largest["stages"].items()}
        self.tokens: float = self.largest["tokens"]
        self.bytes = {name: size / chunks for name, size in self.largest["bytes"].items()}
        self.store = _store_bytes(self.largest)
        self.worker = max(run["worker"] for run in staged)
        self.driver = _line([(run["chunks"], run["driver"]) for run in staged])
        own = [run for run in staged if run["workers"] == self.cores]
        self._alone = _line([(_sorting(run["chunks"]), _alone(run)) for run in own])
        self.answers = {
            mode: _line([(run["chunks"], run["answers"][mode]) for run in staged if run["answers"]])
            for mode in self.largest["answers"]
        }

    def alone(self, chunks: float) -> float:
        """Return the seconds of the driver, extrapolated from the measurement.

        The driver that writes a store also needs the time to find lists.
        """
        measured = self.largest["chunks"]
        more = (
            0.0
            if self.largest["stores"]
            else _index_operations(chunks) - _index_operations(measured) * chunks / measured
        )
        seconds = self._alone[0] + self._alone[1] * _sorting(chunks)
        return seconds + max(0.0, more) / (OPERATIONS * self.cores)

    def memory(self, chunks: float) -> float:
        """Return the memory of the driver in MiB."""
        return self.driver[0] + self.driver[1] * chunks


def planned(rows: Part, model: Part) -> str:
    """Return the tables for docs/explanation/scale.md."""
    costs, together, with_model = _Costs(rows), _Costs(rows, together=True), _Costs(model)
    each = with_model.stages["embed"] * costs.tokens / with_model.tokens
    shown = {"embed": "`embed`, random vectors"}
    measured = [[shown.get(name, f"`{name}`"), significant(1e6 * busy, 3)] for name, busy in costs.stages.items()]
    measured.append(["`embed`, MiniLM", significant(1e6 * each, 3)])
    largest = costs.largest["chunks"]
    measured.append([f"driver, one store of {largest:,} chunks", significant(1e6 * costs.alone(largest) / largest, 3)])
    measured += [
        [f"several stores: `{name}`", significant(1e6 * busy, 3)]
        for name, busy in together.stages.items()
        if name not in costs.stages
    ]
    measured.append(["several stores: driver", significant(1e6 * together.alone(largest) / largest, 3)])
    parts = {"source": "documents", "work": "work folder", "raw": "raw vectors"}
    sizes = ", ".join(f"{parts.get(name, name)} {value:,.0f}" for name, value in costs.bytes.items())
    about = (
        f"A chunk has {costs.tokens:.0f} tokens on average. The machine ({rows['machine']}) was measured on "
        f"{rows['date']} with all cores busy. Bytes per chunk: {sizes}. The driver needs "
        f"{costs.driver[0]:.0f} MiB of memory, plus {2**20 * costs.driver[1]:,.0f} bytes per chunk, and "
        f"{2**20 * together.driver[1]:,.0f} bytes if workers write the stores. "
        f"A worker needs at most {costs.worker} MiB, at every size; one that writes a store of "
        f"{together.largest['chunks'] // together.largest['stores']:,} chunks needs {together.largest['worker']} MiB."
    )
    assumed = [[what, f"{value:,.10g}"] for what, value in ASSUMED.items()]
    heads = ["", *(f"{size:,} chunks" for size in PLANNED)]
    limit_heads = ["limit", "reached at chunks", "time of the driver until then"]
    return "\n\n".join(
        [
            f"### Measured\n\n{about}\n\n{table(['stage', 'µs of one core per chunk'], measured)}",
            f"### Assumed\n\n{table(['assumption', 'value'], assumed)}",
            f"### Planned\n\n{table(heads, _plan(costs, together, each))}",
            f"### Limits, the first one first\n\n{table(limit_heads, _limits(costs, together))}",
        ]
    )


def _plan(costs: _Costs, together: _Costs, model_seconds: float) -> list[list[str]]:
    """Return the rows of the table of extrapolated sizes."""
    stores = {size: machines * CORES for size, machines in PLANNED.items()}

    def row(name: str, show: Callable[[int], str]) -> list[str]:
        return [name, *(show(size) for size in PLANNED)]

    def workers(size: int, kind: str) -> float:
        """Return the seconds of the stages, distributed over all cores of all machines."""
        cores = PLANNED[size] * CORES
        before = (costs.stages["read"] + costs.stages["fit"]) * size / cores
        if kind == "MiniLM on GPUs":
            return before + costs.tokens * size / (PLANNED[size] * GPU)
        return before + (model_seconds if kind == "MiniLM on cores" else costs.stages["embed"]) * size / cores

    def writing(size: int) -> float:
        """Return the seconds to write and finish the stores, one per core, without encoding."""
        own = size / stores[size]
        measured = together.largest["chunks"] / together.largest["workers"]
        more = _index_operations(own) - _index_operations(measured) * own / measured
        busy = together.stages["write"] + together.stages["finish"] - costs.stages["embed"]
        return busy * own + max(0.0, more) / OPERATIONS

    def shard(size: int) -> float:
        """Return the size of the index and the postings of one store in MiB."""
        return size / stores[size] * (costs.bytes["index"] + costs.bytes["postings"]) / 2**20

    kinds = ("static vectors", "MiniLM on cores", "MiniLM on GPUs")
    rows = [
        row("machines × cores", lambda size: f"{PLANNED[size]} × {CORES}"),
        row("documents", lambda size: _bytes(costs.bytes["source"] * size)),
        row("work folder", lambda size: _bytes(costs.bytes["work"] * size)),
        row("store", lambda size: _bytes(costs.store * size)),
        row("**one store**: memory of the driver", lambda size: _mib(costs.memory(size))),
        row("time of the driver", lambda size: _hours(costs.alone(size))),
        *(
            row(f"total time, {kind}", lambda size, k=kind: _hours(workers(size, k) + costs.alone(size)))
            for kind in kinds
        ),
        row("**one store per core**: stores", lambda size: f"{stores[size]:,}"),
        row("chunks per store", lambda size: f"{size // stores[size]:,}"),
        row("memory of the driver", lambda size: _mib(together.memory(size))),
        row("time of the driver", lambda size: _hours(together.alone(size))),
        row("time to write and finish the stores", lambda size: _hours(writing(size))),
        *(
            row(
                f"total time, {kind}",
                lambda size, k=kind: _hours(workers(size, k) + writing(size) + together.alone(size)),
            )
            for kind in kinds
        ),
        row("**searching**: memory for index and postings of one store", lambda size: _mib(shard(size))),
        row(
            "machines to hold all stores in memory",
            lambda size: f"{math.ceil(stores[size] * shard(size) / (MEMORY * 1024)):,}",
        ),
    ]
    for mode, (fixed, slope) in costs.answers.items():
        rows.append(
            row(f"time of a {mode} query, ms", lambda n, f=fixed, s=slope: significant(f + s * n / stores[n], 3))
        )
    return rows


def _limits(costs: _Costs, together: _Costs) -> list[list[str]]:
    """Return the limits of one store written by one process, and of the driver of several, the lowest first."""

    def within_a_day(alone: Callable[[float], float]) -> float:
        low, high = 1.0, 1e12
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if alone(middle) < 24 * 3600 else (low, middle)
        return low

    disk = DISK * 1e9 / (costs.store + costs.bytes["work"])
    found = {
        "time: one process writes the store within a day": within_a_day(costs.alone),
        f"memory of the driver, {MEMORY} GiB": (MEMORY * 1024 - costs.driver[0]) / costs.driver[1],
        "several stores: time of the driver, a day": within_a_day(together.alone),
        f"several stores: memory of the driver, {MEMORY} GiB": (MEMORY * 1024 - together.driver[0])
        / together.driver[1],
        f"disk of the driver, {DISK / 1000:.0f} TB, with store and work folder": disk,
        "32-bit positions in a graph (`hnsw`); lists have 64 bits": 2**31,
        f"memory of one machine that searches, {MEMORY} GiB, with the index": MEMORY * 2**30 / costs.bytes["index"],
        "size of one SQLite file with pages of 4 KiB": 4096 * (2**32 - 2) / costs.bytes["database"],
    }
    ordered = sorted(found.items(), key=lambda one: one[1])
    return [[what, _count(chunks), _hours(costs.alone(chunks))] for what, chunks in ordered]


def _count(chunks: float) -> str:
    return f"{significant(chunks / 1e9)} B" if chunks >= 1e9 else f"{significant(chunks / 1e6)} M"


def _bytes(size: float) -> str:
    return f"{significant(size / 1e12, 3)} TB" if size >= 1e12 else f"{significant(size / 1e9, 3)} GB"


def _mib(size: float) -> str:
    return f"{size:.0f} MiB" if size < 10_000 else f"{significant(size / 1024, 3)} GiB"


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{significant(hours)} h" if hours < 1000 else f"{significant(hours / 24)} days"


if __name__ == "__main__":
    write(json.loads(RUNS.read_text(encoding="utf-8")))
