"""`ragembed serve`: latency beside the same search in process, throughput beside LangChain, and load while indexing."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
from data import Setting, queries_by_turn, read_queries, write_files
from processes import LANGCHAIN, OWN, PEERS, RAGEMBED, say, versions
from report import significant, table, times
from speed import Outcome, texts_folder

from ragembed import RankingOptions, Store
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation import read_beir
from ragembed.models.files import find_model

_LANGCHAIN_SIDE, _FASTAPI = PEERS / "langchain_faiss.py", PEERS / "langchain_fastapi.py"
_CLIENTS = 16
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(slots=True)
class _Load:
    """What clients saw: milliseconds of each answer, the problems, generations, and the CPU time of the server."""

    seconds: float = 0.0
    cpu: float = 0.0
    taken: list[float] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    generations: set[int] = field(default_factory=set)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.taken) / self.seconds

    def percentile(self, share: float) -> str:
        """Return a percentile of the milliseconds."""
        return significant(float(np.percentile(self.taken, share)), 3)


def serving(setting: Setting) -> Outcome:
    """Measure one client beside the same search in this process, then 16 clients, then 16 clients and an indexer."""
    count, model = setting.choose(100_000, 2_000), str(find_model(DEFAULT_MODEL).folder)
    folder = texts_folder(setting, "warm", count, 60, setting.choose(10_000, 200))
    tasks = {"ragembed": (sys.executable, OWN), "langchain": (LANGCHAIN.python, _LANGCHAIN_SIDE)}
    for name, (python, program) in tasks.items():
        if not (folder / name).is_dir():
            say(f"creating the store of {name}")
            setting.runner.run_task(
                python, program, "warm_store", {"folder": str(folder), "seed": setting.seed, "model": model}
            )
    store = folder / "ragembed"
    with _served(setting, [*RAGEMBED, "serve", f"docs={store}", *_OPTIONS]) as own:
        latency, ratios = _latency(setting, store, own.url)
        peer = [LANGCHAIN.python, _FASTAPI, "serve", json.dumps({"model": model, "store": str(folder / "langchain")})]
        with _served(setting, peer) as other:
            throughput, more = _throughput(setting, own, other)
    load = _while_indexing(setting)
    about = (
        f"Stores of {count:,} chunks of up to 60 words, as in *Warm queries*; k is 10. *In process* is `Store.search` "
        "with the same settings in a process that runs nothing else; each query goes to it and to the server in turn, "
        "in alternating order. An answer of the server has a snippet and the state of the file of each result, too."
    )
    peers = versions(LANGCHAIN.python, "langchain-community", "faiss-cpu", "fastapi", "uvicorn")
    beside = (
        f"{_CLIENTS} clients on the same machine, each with one connection, for {_seconds(setting, 20)} seconds per "
        f"turn; the servers take turns. The peer is an app of ten lines with {peers}, the same model and "
        "FAISS's flat index."
    )
    return Outcome([about, latency, beside, throughput, load], {**ratios, **more})


_OPTIONS = ("--port", "0", "--no-access-log", "--queue", "200")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that runs."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _seconds(setting: Setting, whole: int) -> int:
    return setting.choose(whole, 2)


def _latency(setting: Setting, store: Path, url: str) -> tuple[str, dict[str, tuple[float, bool]]]:
    warm, *measured = queries_by_turn(setting)
    ranking = RankingOptions(dedupe=True)
    rows, ratios = [], {}
    client = _Client(url)
    with Store.open(store) as opened:
        for mode in ("hybrid", "dense", "lexical"):
            found: dict[str, list[float]] = {"process": [], "server": []}
            ways: dict[str, Callable[[str], object]] = {
                "process": lambda query, mode=mode: opened.search(query, 10, mode, ranking=ranking),
                "server": lambda query, mode=mode: client.search(q=query, mode=mode),
            }
            for query in warm[:20]:
                for way in ways.values():
                    way(query)
            for number, query in enumerate(itertools.chain(*measured)):
                for name in list(ways)[:: 1 if number % 2 else -1]:
                    started = time.perf_counter()
                    ways[name](query)
                    found[name].append(1000 * (time.perf_counter() - started))
            medians = [float(np.median(found[name])) for name in found]
            tails = [float(np.percentile(found[name], 95)) for name in found]
            cells = [medians[0], tails[0], medians[1], tails[1], tails[1] - tails[0]]
            rows.append([mode, *(significant(cell, 3) for cell in cells)])
            ratios[f"serve, {mode}: p95 beside the same search in process"] = tails[1] / tails[0], False
    header = ["", "in process: median, ms", "p95, ms", "server: median, ms", "p95, ms", "difference of p95, ms"]
    return table(header, rows), ratios


def _throughput(setting: Setting, own: _Server, other: _Server) -> tuple[str, dict[str, tuple[float, bool]]]:
    queries = read_queries(setting.data)
    sides: dict[str, Callable[[_Client, str], object]] = {
        "ragembed, hybrid": lambda client, query: client.search(q=query, mode="hybrid"),
        "ragembed, dense": lambda client, query: client.search(q=query, mode="dense"),
        "LangChain and FastAPI": lambda client, query: client.get("/search", q=query),
    }
    servers = {name: other if "LangChain" in name else own for name in sides}
    loads = {name: _Load() for name in sides}
    for turn in range(-1, setting.turns):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            seconds = _seconds(setting, 20) if turn >= 0 else 2
            load = _load(servers[name], sides[name], queries, lambda seconds=seconds: time.sleep(seconds))
            if turn >= 0:
                loads[name].seconds += load.seconds
                loads[name].cpu += load.cpu
                loads[name].taken += load.taken
                loads[name].problems += load.problems
                say(f"  turn {turn + 1} of {setting.turns}: {name}, {load.rate:.0f} a second")
    theirs = loads["LangChain and FastAPI"].rate
    rows = [
        [
            name,
            significant(load.rate, 3),
            *(load.percentile(share) for share in (50, 95)),
            f"{sum(load.problems.values())}",
            times(load.rate / theirs),
            significant(1000 * load.cpu / len(load.taken), 3),
        ]
        for name, load in loads.items()
    ]
    header = ["", "answers per second", "median, ms", "p95, ms", "errors", "ratio of answers per second"]
    header += ["CPU ms per answer"]
    ratios = {
        f"serve, {name.partition(', ')[2]}: answers per second beside LangChain and FastAPI": (load.rate / theirs, True)
        for name, load in loads.items()
        if "ragembed" in name
    }
    return table(header, rows), ratios


def _while_indexing(setting: Setting) -> str:
    """Return what 16 clients see while `ragembed index` runs again and again."""
    files = write_files(
        read_beir(setting.data / "retrieval" / "cran"), setting.folder / "served", setting.choose(1000, 40)
    )
    store, seconds, runs = setting.folder / "served-store", _seconds(setting, 60), 0
    documents = sorted(files.iterdir())
    command = [*RAGEMBED, "index", files, "--store", store, "--quiet"]
    setting.runner.run(command)

    def index() -> None:
        nonlocal runs
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            runs += 1
            for document in documents[runs % 10 :: 10]:
                with document.open("a", encoding="utf-8") as file:
                    print(f"\nEdited in run {runs}.", file=file)
            setting.runner.run(command)

    def check(client: _Client, query: str) -> None:
        answer = client.search(q=query)
        load.generations.add(answer["generation"])
        ids = [result["id"] for result in answer["results"]]
        if not ids or len(set(ids)) != len(ids):
            raise ValueError("torn answer")

    load = _Load()
    with _served(setting, [*RAGEMBED, "serve", f"docs={store}", *_OPTIONS]) as own:
        found = _load(own, check, read_queries(setting.data), index)
    problems = ", ".join(f"{count} × {name}" for name, count in found.problems.items()) or "no error"
    return (
        f"{_CLIENTS} clients for {found.seconds:.0f} seconds, while `ragembed index` runs {runs} times, each time with "
        f"{len(documents) // 10} edited files: {len(found.taken):,} answers from {len(load.generations)} generations, "
        f"{problems}. Median {found.percentile(50)} ms, p95 {found.percentile(95)} ms."
    )


def _load(
    server: _Server, ask: Callable[[_Client, str], object], queries: Sequence[str], during: Callable[[], None]
) -> _Load:
    """Return what clients see that ask again and again until ``during`` returns."""
    load, lock, stop = _Load(), threading.Lock(), threading.Event()

    def work(number: int) -> None:
        client, taken, problems = _Client(server.url), [], Counter[str]()
        for query in itertools.cycle(queries[number::_CLIENTS]):
            if stop.is_set():
                break
            started = time.perf_counter()
            try:
                ask(client, query)
                taken.append(1000 * (time.perf_counter() - started))
            except (OSError, HTTPException, ValueError, KeyError) as error:
                problems[f"{type(error).__name__}: {error}"] += 1
        with lock:
            load.taken += taken
            load.problems += problems

    threads = [threading.Thread(target=work, args=[number]) for number in range(_CLIENTS)]
    started, before = time.perf_counter(), server.cpu_seconds()
    for thread in threads:
        thread.start()
    try:
        during()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    load.seconds, load.cpu = time.perf_counter() - started, server.cpu_seconds() - before
    return load


class _Client:
    """A client with one connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)

    def search(self, **arguments: object) -> dict[str, list[dict[str, str]]]:
        """Return the answer of ragembed."""
        return self.get("/v1/search", **arguments)

    def get(self, path: str, **arguments: object) -> dict[str, list[dict[str, str]]]:
        """Return the JSON of an answer."""
        self._connection.request("GET", f"{path}?{urlencode(arguments)}")
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ValueError(f"status {response.status}")
        answer: dict[str, list[dict[str, str]]] = json.loads(body)
        return answer


@contextmanager
def _served(setting: Setting, command: Sequence[str | Path]) -> Iterator[_Server]:
    """Run a server, which writes its address to stderr, during the ``with`` block."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=setting.folder,
        env=setting.runner.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    rest = threading.Thread(target=process.stderr.read) if process.stderr else threading.Thread()
    try:
        address = None
        while address is None:
            line = process.stderr.readline() if process.stderr else ""
            if not line:
                raise RuntimeError(f"{command} ended: see its error above")
            address = _ADDRESS.search(line)
        rest.start()
        yield _Server(address[0], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        if rest.ident is not None:
            rest.join()
