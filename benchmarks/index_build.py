"""ragembed's pick of an index for several budgets, beside other libraries: what building costs, and what is found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from data import Setting, read_queries, read_texts
from numpy.typing import NDArray
from processes import INDEXES, PEERS, Runner, apart, check_memory, say, versions
from report import significant, table
from speed import Outcome

from ragembed import Embedder
from ragembed.postprocess import unit_rows
from ragembed.pseudo_queries import draw_pseudo_queries

K, BATCH = 10, 20_000
_PROGRAM = PEERS / "ann_libraries.py"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FASTER, _LEAST_RECALL = 0.9, 0.95
_LARGEST = {"USearch f32": 30_000, "USearch i8": 100_000, "recall 0.99": 100_000, "2/3 memory": 300_000}
"""Vectors beyond which a library or a budget is left out, for the time it takes."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of searching: its name, recall of queries of people and of pseudo-queries, milliseconds of one query."""

    name: str
    real: float
    pseudo: float
    median: float
    p95: float

    @property
    def recall(self) -> float:
        """The mean of both."""
        return (self.real + self.pseudo) / 2


@dataclass(slots=True)
class Entry:
    """What a library did with so many vectors; ``told`` is what its program says of the build, ``limit`` its bytes."""

    name: str
    told: Mapping[str, Any]
    limit: int | None = None
    size: int = 0
    ways: list[Way] = field(default_factory=list)

    def shown(self) -> Way:
        """Return the fastest way with enough recall, or the one with the highest."""
        good = [way for way in self.ways if way.recall >= _LEAST_RECALL]
        return min(good, key=lambda way: way.median) if good else max(self.ways, key=lambda way: way.recall)


def index_build(setting: Setting) -> Outcome:
    """Let all build an index of the same vectors and answer the same queries, at each size."""
    sizes = (10_000,) if setting.trial else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    texts, requests = apart(_prepared, setting, sizes)
    picks, parts = [], []
    for size, request in zip(sizes, requests, strict=True):
        entries = [_entry(setting, name, {**request, **own}, size) for name, own in _libraries(size, request["dim"])]
        check_memory([entry.told["memory"] for entry in entries])
        picks += [_pick(size, entry, entries) for entry in entries if entry.name.startswith("ragembed")]
        parts += [f"{size:,} vectors:", _table(entries)]
        Path(request["vectors"]).unlink()
    heads = ["vectors, budget", "picked", "recall: queries", "pseudo-queries", "ms"]
    heads += ["fastest peer with no less", "its ms", "ragembed ÷ peer", "on the front"]
    about = (
        f"Vectors: MiniLM's of {texts:,} texts, of dimension {requests[0]['dim']}; more are copies with noise. "
        "All are rounded to float16 first. Queries: those of people, and as many pseudo-queries of other texts than "
        f"those that ragembed tunes with. Recall@{K} beside exact search. ms is the median of one query at a time in "
        "one thread, after all were asked once. Build: seconds from opening the vectors to an index on the disk, in "
        "all threads, the tuning of ragembed and autofaiss included; the settings of the others are chosen "
        "afterwards, by the recall that is shown. On the front: no peer with an index that fits into the same memory "
        f"finds as much in less than {_FASTER:.0%} of the time. {versions(sys.executable, 'faiss-cpu')}; "
        f"{versions(INDEXES.python, 'autofaiss', 'hnswlib', 'usearch')}."
    )
    return Outcome([about, table(heads, picks), *parts])


def _prepared(setting: Setting, sizes: Sequence[int]) -> tuple[int, list[dict[str, Any]]]:
    """Write vectors, queries and exact answers for each size; return how many texts there are, and the files."""
    corpus = _Corpus.made(setting, max(sizes))
    return len(corpus.texts), [corpus.prepare(setting.folder, size) for size in sizes]


@dataclass(frozen=True, slots=True)
class _Corpus:
    """Texts in a random order, their unit vectors, queries of people, and the embedder."""

    texts: Sequence[str]
    vectors: NDArray[np.float32]
    queries: Sequence[str]
    embedder: Embedder
    seed: int

    @classmethod
    def made(cls, setting: Setting, most: int) -> _Corpus:
        every = read_texts(setting.data)
        order = np.random.default_rng(setting.seed).permutation(len(every))[:most]
        texts = [every[i] for i in order]
        say(f"encoding {len(texts):,} texts")
        embedder = Embedder().fit(texts)
        queries = read_queries(setting.data)[: setting.choose(1000, 50)]
        return cls(texts, unit_rows(embedder.encode_documents(texts)), queries, embedder, setting.seed)

    def prepare(self, folder: Path, size: int) -> dict[str, Any]:
        """Write vectors, queries and exact answers for one size, and return where they are."""
        dim, place = self.vectors.shape[1], folder / f"vectors-{size}"
        place.mkdir()
        vectors = np.lib.format.open_memmap(place / "vectors.npy", mode="w+", dtype=np.float32, shape=(size, dim))
        noise = self._noise() if size > len(self.vectors) else None
        for start in range(0, size, len(self.vectors)):
            rows = self.vectors[: size - start]
            if start and noise is not None:
                drawn = np.random.default_rng([self.seed, start]).standard_normal((len(rows), len(noise)))
                rows = unit_rows(rows + drawn.astype(np.float32) @ noise)
            vectors[start : start + len(rows)] = unit_rows(rows.astype(np.float16).astype(np.float32))
        indexed = self.texts[:size]
        tuning = draw_pseudo_queries(indexed[0::2], 600, self.seed + 1)
        held_out = draw_pseudo_queries(indexed[1::2], len(self.queries), self.seed + 2)
        paths = {name: folder / f"{name}-{size}.npy" for name in ("tuning", "queries", "truth", "found")}
        np.save(paths["tuning"], unit_rows(self.embedder.encode_queries(tuning)))
        queries = unit_rows(self.embedder.encode_queries([*self.queries, *held_out]))
        np.save(paths["queries"], queries)
        np.save(paths["truth"], _tenth(vectors, queries))
        told = {name: str(path) for name, path in paths.items()}
        return {**told, "vectors": str(place / "vectors.npy"), "dim": dim, "size": size, "real": len(self.queries)}

    def _noise(self) -> NDArray[np.float32]:
        """Return the largest 64 principal components, each 0.7 times as long as the vectors spread there."""
        variances, components = np.linalg.eigh(np.cov(self.vectors, rowvar=False))
        lengths = 0.7 * np.sqrt(np.maximum(variances[-64:], 0.0))
        return np.asarray((components[:, -64:] * lengths).T, dtype=np.float32)


def _tenth(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner product of the K-th nearest vector of each query; what is as near is a right answer."""
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    for start in range(0, len(vectors), BATCH):
        scores = np.hstack([best, queries @ np.asarray(vectors[start : start + BATCH]).T])
        best = np.partition(scores, -K, axis=1)[:, -K:]
    return best.min(axis=1)


def _libraries(size: int, dim: int) -> list[tuple[str, dict[str, Any]]]:
    """Return who takes part, with what each program is told."""
    budgets: dict[str, dict[str, float]] = {
        "default": {},
        "2/3 memory": {"max_memory": size * dim * 4 * 2 // 3},
        "1 ms": {"max_latency_ms": 1.0, "min_recall": 0.95},
        "recall 0.99": {"min_recall": 0.99},
    }
    found: list[tuple[str, dict[str, Any]]] = [
        ("FAISS flat", {"library": "flat"}),
        ("hnswlib", {"library": "hnswlib"}),
        *((f"USearch {dtype}", {"library": "usearch", "dtype": dtype}) for dtype in ("f32", "f16", "i8")),
        ("autofaiss", {"library": "autofaiss"}),
        *((f"ragembed, {name}", {"library": "ragembed", "budget": limits}) for name, limits in budgets.items()),
    ]
    return [one for one in found if size <= _LARGEST.get(one[0].removeprefix("ragembed, "), size)]


def _entry(setting: Setting, name: str, request: dict[str, Any], size: int) -> Entry:
    say(f"{size:,} vectors: {name}")
    folder = setting.folder / f"{size}-{name.replace('/', ' of ')}"
    folder.mkdir()
    python = INDEXES.python if request["library"] in ("hnswlib", "usearch", "autofaiss") else sys.executable
    cores, file = len(os.sched_getaffinity(0)), folder / "index"
    request = {**request, "file": str(file), "k": K}
    told = Runner(setting.folder, dict.fromkeys(_THREADS, str(cores))).tell(
        python, _PROGRAM, "build", {**request, "threads": cores}
    )
    entry = Entry(name, told, request.get("budget", {}).get("max_memory"))
    if "refused" not in told:
        entry.size = file.stat().st_size
        one = Runner(setting.folder, dict.fromkeys(_THREADS, "1"))
        asked = one.tell(python, _PROGRAM, "ask", {**request, "threads": 1})["ways"]
        for way, rows in zip(asked, np.load(request["found"]), strict=True):
            shares = apart(_shares, request, rows)
            real = request["real"]
            recalls = float(shares[:real].mean()), float(shares[real:].mean())
            entry.ways.append(Way(way["name"], *recalls, way["median"], way["p95"]))
        file.unlink()
    return entry


def _shares(request: Mapping[str, Any], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return which share of the K nearest was found, for each query."""
    vectors, queries = np.load(request["vectors"], mmap_mode="r"), np.load(request["queries"])
    least = np.load(request["truth"]) - 1e-6
    right = [
        sum(float(vectors[row] @ query) >= limit for row in set(found.tolist()) - {-1})
        for query, found, limit in zip(queries, rows, least, strict=True)
    ]
    return np.array(right) / K


def _pick(size: int, entry: Entry, entries: Sequence[Entry]) -> list[str]:
    """Return ragembed's pick beside the fastest peer that finds no less with an index of the same memory."""
    label = f"{size:,}, {entry.name.removeprefix('ragembed, ')}"
    if not entry.ways:
        return [label, f"none: {entry.told['refused']}", *["–"] * 7]
    [way] = entry.ways
    rivals = [
        (peer, other)
        for peer in entries
        if not peer.name.startswith("ragembed") and (entry.limit is None or peer.size <= entry.limit)
        for other in peer.ways
        if other.recall >= way.recall
    ]
    cells = [label, way.name, f"{way.real:.4f}", f"{way.pseudo:.4f}", significant(way.median)]
    if not rivals:
        return [*cells, "–", "–", "–", "yes"]
    peer, other = min(rivals, key=lambda one: one[1].median)
    front = "yes" if other.median >= _FASTER * way.median else "no"
    name = f"{peer.name}, {other.name}".removesuffix(", ")
    return [*cells, name, significant(other.median), significant(way.median / other.median), front]


def _table(entries: Sequence[Entry]) -> str:
    header = ["", "build, s", "peak, MiB", "index, MiB", "setting", "recall", "ms", "95th percentile"]
    rows = []
    for entry in entries:
        costs = [significant(entry.told["seconds"]), f"{entry.told['memory']:,.0f}"]
        if not entry.ways:
            rows.append([entry.name, *costs, "–", "no index for this budget", "–", "–", "–"])
            continue
        way = entry.shown()
        size, speed = significant(entry.size / 2**20, 3), [significant(way.median), significant(way.p95)]
        rows.append([entry.name, *costs, size, way.name or "–", f"{way.recall:.4f}", *speed])
    return table(header, rows)
