"""The index that ragembed chooses for several budgets, compared with other libraries: build cost and recall."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from data import Setting, read_queries, read_texts
from numpy.typing import NDArray
from processes import INDEXES, PEERS, Runner, check_memory, in_new_process, say, versions
from report import significant, table
from speed import Outcome

from ragembed import Embedder
from ragembed.corpus import draw_pseudo_queries
from ragembed.evaluation import read_beir
from ragembed.indexes.faiss_index.choose import LEAST_APPROXIMATE
from ragembed.indexes.faiss_index.records import codes_for
from ragembed.postprocess import unit_rows

K, BATCH = 10, 20_000
_PROGRAM = PEERS / "ann_libraries.py"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_FASTER = 0.9
_EFFORTS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
_LARGEST = {"FAISS flat": 300_000, "USearch f32": 10_000, "USearch i8": 100_000, "recall 0.99": 100_000}
"""Maximum number of vectors for slow libraries and budgets."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A search setting: its name, recall for human queries and for pseudo-queries, and milliseconds per query."""

    name: str
    real: float
    pseudo: float
    median: float

    @property
    def recall(self) -> float:
        """The mean of both recalls."""
        return (self.real + self.pseudo) / 2


@dataclass(slots=True)
class Entry:
    """The results of a library: the report of the ``build``, and the ``limit`` and size of the index in bytes."""

    name: str
    build: Mapping[str, Any]
    limit: int | None = None
    size: int = 0
    variants: list[Variant] = field(default_factory=list)


def index_build(setting: Setting) -> Outcome:
    """Build and search indexes of the same vectors with all libraries, at each size."""
    sizes = (10_000,) if setting.trial else (10_000, 100_000, 300_000, 1_000_000)
    texts, requests = in_new_process(_prepared, setting, sizes)
    picks = []
    for size, request in zip(sizes, requests, strict=True):
        entries = [_entry(setting, name, {**request, **own}, size) for name, own in _libraries(size, request["dim"])]
        check_memory([entry.build["memory"] for entry in entries])
        picks += [_pick(size, entry, entries) for entry in entries if entry.name.startswith("ragembed")]
        Path(request["vectors"]).unlink()
    heads = ["vectors, budget", "chosen", "recall: queries", "pseudo-queries", "ms", "build, s"]
    heads += ["fastest peer with at least this recall", "its ms", "its build, s", "on the front"]
    about = (
        f"The vectors are MiniLM embeddings of {texts:,} texts, dimension {requests[0]['dim']}; larger sizes add noisy "
        "copies. All vectors are rounded to float16 first. The queries are human queries and as many pseudo-queries, "
        f"from other texts than the pseudo-queries that ragembed tunes with. Recall@{K} is relative to exact search. "
        "ms is the median for one query at a time in one thread, after every query ran once. Build is the seconds from "
        "opening the vectors to an index on disk, in all threads, including the tuning of ragembed and autofaiss. The "
        "settings of the other libraries are chosen afterwards, by their recall. The peer in a row has an "
        "index that fits into the same memory. On the front means that no such peer that also builds its index in the "
        f"same time has as much recall in less than {_FASTER:.0%} of the time per query. "
        f"{versions(sys.executable, 'faiss-cpu')}; {versions(INDEXES.python, 'autofaiss', 'hnswlib', 'usearch')}."
    )
    return Outcome([about, table(heads, picks)])


def _prepared(setting: Setting, sizes: Sequence[int]) -> tuple[int, list[dict[str, Any]]]:
    """Write vectors, queries and exact results for each size; return the number of texts, and the files."""
    corpus = _Corpus.made(setting, max(sizes))
    return len(corpus.texts), [corpus.prepare(setting.folder, size) for size in sizes]


@dataclass(frozen=True, slots=True)
class _Corpus:
    """Texts in random order, their unit vectors, human queries, and the embedder."""

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
        """Write vectors, queries and exact results for one size, and return their paths."""
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
        files = {name: str(path) for name, path in paths.items()}
        return {**files, "vectors": str(place / "vectors.npy"), "dim": dim, "size": size, "real": len(self.queries)}

    def _noise(self) -> NDArray[np.float32]:
        """Return the 64 largest principal components, each scaled to 0.7 standard deviations of the vectors."""
        variances, components = np.linalg.eigh(np.cov(self.vectors, rowvar=False))
        lengths = 0.7 * np.sqrt(np.maximum(variances[-64:], 0.0))
        return np.asarray((components[:, -64:] * lengths).T, dtype=np.float32)


def _tenth(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner product of each query with its K-th nearest vector; a result that is as near is correct."""
    best = np.full((len(queries), K), -np.inf, dtype=np.float32)
    for start in range(0, len(vectors), BATCH):
        scores = np.hstack([best, queries @ np.asarray(vectors[start : start + BATCH]).T])
        best = np.partition(scores, -K, axis=1)[:, -K:]
    return best.min(axis=1)


def _libraries(size: int, dim: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the names of the libraries, each with the request for its program."""
    budgets: dict[str, dict[str, float]] = {
        "default": {},
        "2/3 memory": {"max_memory": size * dim * 4 * 2 // 3},
        "1 ms": {"max_latency_ms": 1.0, "min_recall": 0.95},
        "recall 0.99": {"min_recall": 0.99},
    }
    if size >= LEAST_APPROXIMATE:
        budgets["0.3 ms"] = {"max_latency_ms": 0.3, "min_recall": 0.95}
    lists = int(4 * math.sqrt(size))
    fast_scan = f"IVF{lists},PQ{dim // 2}x4fs,RFlat"
    graph = [f"efSearch={effort}" for effort in _EFFORTS]
    probes = [f"nprobe={effort},k_factor_rf=4" for effort in _EFFORTS]
    found: list[tuple[str, dict[str, Any]]] = [
        ("FAISS flat", {"library": "faiss", "factory": "Flat", "parameters": [""]}),
        ("FAISS HNSWSQ", {"library": "faiss", "factory": "HNSW32,SQ8", "training": 64_000, "parameters": graph}),
        (
            "FAISS IVFPQFastScan",
            {"library": "faiss", "factory": fast_scan, "training": 64 * lists, "parameters": probes},
        ),
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
    build = Runner(setting.folder, dict.fromkeys(_THREADS, str(cores))).run_task(
        python, _PROGRAM, "build", {**request, "threads": cores}
    )
    entry = Entry(name, build, request.get("budget", {}).get("max_memory"))
    if "refused" not in build:
        entry.size = file.stat().st_size
        one = Runner(setting.folder, dict.fromkeys(_THREADS, "1"))
        variants = one.run_task(python, _PROGRAM, "ask", {**request, "threads": 1})["ways"]
        for variant, rows in zip(variants, np.load(request["found"]), strict=True):
            shares = in_new_process(_shares, request, rows)
            real = request["real"]
            recalls = float(shares[:real].mean()), float(shares[real:].mean())
            entry.variants.append(Variant(variant["name"], *recalls, variant["median"]))
        file.unlink()
    return entry


def _shares(request: Mapping[str, Any], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of the K nearest vectors that was found, for each query."""
    vectors, queries = np.load(request["vectors"], mmap_mode="r"), np.load(request["queries"])
    least = np.load(request["truth"]) - 1e-6
    right = [
        sum(float(vectors[row] @ query) >= limit for row in set(found.tolist()) - {-1})
        for query, found, limit in zip(queries, rows, least, strict=True)
    ]
    return np.array(right) / K


def _pick(size: int, entry: Entry, entries: Sequence[Entry]) -> list[str]:
    """Compare ragembed's choice with the fastest peer that has no less recall and fits into the same memory."""
    label = f"{size:,}, {entry.name.removeprefix('ragembed, ')}"
    if not entry.variants:
        return [label, f"none: {entry.build['refused']}", *["–"] * 8]
    [chosen] = entry.variants
    rivals = [
        (peer, other)
        for peer in entries
        if not peer.name.startswith("ragembed") and (entry.limit is None or peer.size <= entry.limit)
        for other in peer.variants
        if other.recall >= chosen.recall
    ]
    own_build = entry.build["seconds"]
    recalls = [f"{chosen.real:.4f}", f"{chosen.pseudo:.4f}"]
    cells = [label, chosen.name, *recalls, significant(chosen.median), significant(own_build)]
    if not rivals:
        return [*cells, "–", "–", "–", "yes"]
    peer, other = min(rivals, key=lambda one: one[1].median)
    as_cheap = [each.median for rival, each in rivals if rival.build["seconds"] <= own_build]
    front = "yes" if min(as_cheap, default=math.inf) >= _FASTER * chosen.median else "no"
    name = f"{peer.name}, {other.name}".removesuffix(", ")
    return [*cells, name, significant(other.median), significant(peer.build["seconds"]), front]


def codes(setting: Setting) -> Outcome:
    """Measure what product quantisers lose with the numbers of codes that FAISS can search on a GPU."""
    import faiss

    collection = read_beir(setting.data / "retrieval" / "npl")
    texts, queries = list(collection.documents.values()), list(collection.queries.values())
    rows = []
    for dim in (512, 768, 1024)[: setting.choose(3, 1)]:
        say(f"codes: {dim} dimensions")
        embedder = Embedder.from_preset("re", extractor=f"re:dim={dim}").fit(texts)
        documents, asked = embedder.encode_documents(texts), embedder.encode_queries(queries)
        exact = np.argsort(-(asked @ documents.T), axis=1)[:, :K]
        for count in (dim // 4, codes_for(dim)):
            quantiser = faiss.IndexPQ(dim, count, 8, faiss.METRIC_INNER_PRODUCT)
            quantiser.train(documents)
            quantiser.add(documents)
            _, best = quantiser.search(asked, 5 * K)
            found = [
                sum(len(np.intersect1d(a[:depth], b)) for a, b in zip(best, exact, strict=True)) / exact.size
                for depth in (K, 5 * K)
            ]
            rows.append([f"{dim:,}", str(count), *(f"{100 * share:.1f}" for share in found)])
    about = (
        f"Per cent of the {K} nearest of {len(texts):,} vectors (random embeddings of NPL, {len(queries)} queries) "
        f"that are among the best {K} and {5 * K} by the codes alone. For each dimension: a quarter of it, and the "
        "number of codes of `ivf-pq`, which FAISS can also search on a GPU. `ivf-pq` ranks the best 80 by their raw "
        "vectors."
    )
    return Outcome([about, table(["dimensions", "codes", f"best {K}", f"best {5 * K}"], rows)])
