"""Compare ``RagVectorStore`` with langchain-community's ``FAISS`` in programs that use LangChain."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from data import Setting
from processes import LANGCHAIN, PEERS, check_memory, folder_bytes, in_new_process, say, versions
from report import of_medians, significant, spread, table
from speed import Outcome

_PROGRAM = PEERS / "langchain_vector_stores.py"
_DIM, _QUERIES, _LATER = 384, 200, 100
_FILTERS = ("1 in 1,000", "half")
_TASKS = ("make", "open", "search", "filtered", "change")
"""The tasks in order. Only the last one, ``change``, modifies the store."""
_SIDES = {"RagVectorStore": "rag", "FAISS": "faiss"}

Found = dict[str, list[dict[str, Any]]]
"""The reports of a side's program in each round, by task."""


def langchain(setting: Setting) -> Outcome:
    """Run every task on both sides in turns, each in a new process; each round starts with a new store."""
    count, rounds = setting.choose(50_000, 2_000), setting.choose(3, 1)
    in_new_process(_write_corpus, setting.folder / "corpus", count, setting.seed)
    request = {"corpus": str(setting.folder / "corpus"), "changes": setting.choose(20, 5)}
    python = {"RagVectorStore": sys.executable, "FAISS": LANGCHAIN.python}
    reports: dict[str, Found] = {name: {task: [] for task in _TASKS} for name in _SIDES}
    for turn in range(-1, rounds):  # the first round is a warm-up
        stores = {name: setting.folder / f"{side}-{turn}" for name, side in _SIDES.items()}
        for task in _TASKS if turn >= 0 else _TASKS[:2]:
            for name in list(_SIDES)[:: -1 if turn % 2 else 1]:
                say(f"round {turn + 1} of {rounds}, {task}: {name}")
                own = {**request, "side": _SIDES[name], "store": str(stores[name])}
                found = setting.runner.run_task(python[name], _PROGRAM, task, own)
                found["size"] = folder_bytes(stores[name]) / 2**20
                if turn >= 0:
                    reports[name][task].append(found)
        for store in stores.values():
            shutil.rmtree(store)
    check_memory([one["memory"] for side in reports.values() for rounds_of in side.values() for one in rounds_of])
    about = (
        f"{count:,} synthetic documents with precomputed vectors of {_DIM} dimensions, in `RagVectorStore` and in "
        "langchain-community's `FAISS`, both with their defaults; k is 10. The ratio is RagVectorStore ÷ FAISS, for "
        f"medians of {rounds} rounds; below 1, ragembed takes less. Minimum and maximum are in brackets. The two do "
        "different work. RagVectorStore writes each change to its folder, with fsync, before the call returns, and "
        "also indexes the words of the texts for BM25. FAISS keeps everything in memory. `save_local` writes all of it "
        "to disk again, with pickle and without fsync. Searches are by text, with a precomputed vector; every query "
        "ran once before. Filters select documents at random. FAISS retrieves the `fetch_k` nearest documents, by "
        "default 20, and then drops those that do not match. Correct is the share of min(k, matches) documents that "
        "are as near as the tenth result of exact search, up to rounding to float16. ragembed's side: "
        f"{versions(sys.executable, 'ragembed', 'langchain-core', 'faiss-cpu', 'numpy')}. LangChain's side: "
        f"{versions(LANGCHAIN.python, 'langchain-community', 'langchain-core', 'faiss-cpu', 'numpy')}."
    )
    return Outcome([about, _costs(reports, count), _filtered(reports)])


def _write_corpus(folder: Path, count: int, seed: int) -> None:
    """Write texts, clustered unit vectors, metadata for filters, and queries near the documents."""
    rng, every = np.random.default_rng(seed), count + _LATER
    centres = rng.standard_normal((max(1, count // 500), _DIM))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = _around(centres[rng.integers(len(centres), size=every)], 0.8, rng)
    folder.mkdir()
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "queries.npy", _around(vectors[rng.integers(count, size=_QUERIES)], 0.5, rng))
    words = [
        " ".join(f"w{rank}" for rank in np.minimum(rng.zipf(1.3, size), 30_000).tolist())
        for size in rng.integers(20, 60, size=every).tolist()
    ]
    (folder / "texts.json").write_text(json.dumps(words), encoding="utf-8")
    ranks = rng.permutation(every).tolist()
    fields = [{"number": i, "group": r % 1000, "half": r % 2} for i, r in enumerate(ranks)]
    (folder / "metadata.json").write_text(json.dumps(fields), encoding="utf-8")


def _around(centres: np.ndarray, spread_: float, rng: np.random.Generator) -> np.ndarray:
    vectors = centres + rng.standard_normal(centres.shape) * spread_ / np.sqrt(_DIM)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _costs(reports: dict[str, Found], count: int) -> str:
    rows = []
    lines: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
        (f"add {count:,} documents and save to disk, s", "make", ["seconds"], ["seconds"]),
        (f"add {count:,} documents, FAISS in memory only, s", "make", ["seconds"], ["before"]),
        (f"add {count:,} documents: peak memory, MiB", "make", ["memory"], ["memory"]),
        (f"add {count:,} documents: size on disk, MiB", "make", ["size"], ["size"]),
    ]
    for change in ("add", "delete"):
        on_disk = [change, "median"]
        lines += [
            (f"{change} one document and save to disk, ms", "change", on_disk, on_disk),
            (f"{change} one document, FAISS in memory only, ms", "change", on_disk, [change, "before"]),
        ]
    lines += [
        ("open and search once, without imports, s", "open", ["seconds"], ["seconds"]),
        ("open and search once: whole process, s", "open", ["wall"], ["wall"]),
        ("open and search once: peak memory, MiB", "open", ["memory"], ["memory"]),
        ("search: median, ms", "search", ["median"], ["median"]),
        ("search: 95th percentile, ms", "search", ["p95"], ["p95"]),
    ]
    for label, task, *keys in lines:
        ours, theirs = (_values(reports[name][task], key) for name, key in zip(_SIDES, keys, strict=True))
        rows.append([label, spread(ours), spread(theirs), significant(of_medians(ours, theirs))])
    return table(["", *_SIDES, "ratio"], rows)


def _filtered(reports: dict[str, Found]) -> str:
    rows = []
    for name in _FILTERS:
        ours = _values(reports["RagVectorStore"]["filtered"], [f"{name}|", "median"])
        rows.append([f"{name}: RagVectorStore", spread(ours), "", _right(reports, "RagVectorStore", f"{name}|")])
        for fetch in ("fetch_k 20", "fetch_k all"):
            theirs = _values(reports["FAISS"]["filtered"], [f"{name}|{fetch}", "median"])
            ratio = significant(of_medians(ours, theirs))
            rows.append([f"{name}: FAISS {fetch}", spread(theirs), ratio, _right(reports, "FAISS", f"{name}|{fetch}")])
    return table(["filtered search", "ms", "ratio", "correct"], rows)


def _right(reports: dict[str, Found], side: str, key: str) -> str:
    return f"{np.median(_values(reports[side]['filtered'], [key, 'right'])):.1%}"


def _values(found: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[float]:
    """Return the value at the path ``keys`` in each round."""

    def look(one: Any) -> float:
        for key in keys:
            one = one[key]
        return float(one)

    return [look(one) for one in found]
