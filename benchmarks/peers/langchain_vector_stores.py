"""Tasks of a program that uses a LangChain vector store: ``RagVectorStore`` or langchain-community's ``FAISS``.

Documents, queries and their vectors are given, in a folder that the benchmark makes. This runs in the environment of
either side.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from worker import Report, Request, main

K, FILTERED = 10, 40
LATER = 100
"""The last documents, which are added one by one."""
FILTERS: Mapping[str, Callable[[int], dict[str, int]]] = {
    "1 in 1,000": lambda number: {"group": number % 1000},
    "half": lambda number: {"half": number % 2},
}
"""Filters by name; each query has its own value."""


class Corpus(Embeddings):
    """The documents and queries in a folder, as LangChain embeddings without a model."""

    def __init__(self, folder: str) -> None:
        self.texts: list[str] = json.loads(Path(folder, "texts.json").read_text(encoding="utf-8"))
        self.vectors = np.load(Path(folder, "vectors.npy"), mmap_mode="r")
        self.metadata: list[dict[str, int]] = json.loads(Path(folder, "metadata.json").read_text(encoding="utf-8"))
        self.queries = np.load(Path(folder, "queries.npy"))
        self.count = len(self.texts) - LATER

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query. An unknown text, with which a store tests the embeddings, gets any vector."""
        number = text.removeprefix("query ")
        vector: list[float] = self.queries[int(number) if number.isdecimal() else 0].tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of queries."""
        return [self.embed_query(text) for text in texts]

    def batch(self, numbers: range) -> dict[str, Any]:
        """Return documents as arguments of ``from_embeddings`` and ``add_embeddings``."""
        pairs = [(self.texts[number], self.vectors[number]) for number in numbers]
        metadata = [self.metadata[number] for number in numbers]
        return {"text_embeddings": pairs, "metadatas": metadata, "ids": [str(number) for number in numbers]}

    def right(self, query: int, where: Mapping[str, int], found: list[Any]) -> tuple[int, int]:
        """Return the number of correct results and the number of expected ones."""
        fields = self.metadata[: self.count]
        matching = [i for i, data in enumerate(fields) if all(data[key] == where[key] for key in where)]
        if not matching:
            return 0, 0
        cosines = self.vectors[matching] @ self.queries[query]
        least = np.sort(cosines)[-min(K, len(cosines)) :][0] - 1e-4  # a store may round vectors to float16
        numbers = {document.metadata["number"] for document in found} & set(matching)
        return sum(float(self.vectors[i] @ self.queries[query]) >= least for i in numbers), min(K, len(cosines))


def _class(request: Request) -> Any:
    """Import the class of a side; the import is not timed."""
    if request["side"] == "faiss":
        from langchain_community.vectorstores import FAISS

        return FAISS
    from ragembed.langchain import RagVectorStore

    return RagVectorStore


def _load(request: Request, corpus: Corpus) -> Any:
    if request["side"] == "faiss":
        return _class(request).load_local(request["store"], corpus, allow_dangerous_deserialization=True)
    return _class(request)(corpus, request["store"])


def _save(request: Request, store: Any) -> None:
    """Write a store to disk. The store of ragembed is on disk already."""
    if request["side"] == "faiss":
        store.save_local(request["store"])


def make(request: Request) -> Report:
    """Create a store of all documents except those that are added later."""
    corpus, kind = Corpus(request["corpus"]), _class(request)
    path = {} if request["side"] == "faiss" else {"path": request["store"]}
    batch = corpus.batch(range(corpus.count))
    started = time.perf_counter()
    store = kind.from_embeddings(embedding=corpus, **batch, **path)
    made = time.perf_counter()
    _save(request, store)
    return {"seconds": time.perf_counter() - started, "before": made - started}


def first(request: Request) -> Report:
    """Open the store and search for one query."""
    corpus = Corpus(request["corpus"])
    _class(request)
    started = time.perf_counter()
    found = _load(request, corpus).similarity_search("query 0", k=K)
    seconds = time.perf_counter() - started
    if len(found) != K:
        raise RuntimeError(f"{len(found)} documents came back, expected {K}")
    return {"seconds": seconds}


def search(request: Request) -> Report:
    """Search for every query twice; the first time is not measured."""
    corpus = Corpus(request["corpus"])
    store = _load(request, corpus)
    taken = []
    for _ in range(2):
        taken = [_asked(store, number)[0] for number in range(len(corpus.queries))]
    return {"median": statistics.median(taken), "p95": float(np.percentile(taken, 95))}


def filtered(request: Request) -> Report:
    """Search with a filter of each query."""
    corpus = Corpus(request["corpus"])
    store, report = _load(request, corpus), {}
    fetches = (
        {"fetch_k 20": {}, "fetch_k all": {"fetch_k": len(corpus.texts)}} if request["side"] == "faiss" else {"": {}}
    )
    for fetch, options in fetches.items():
        for name, of in FILTERS.items():
            _asked(store, 0, filter=of(FILTERED), **options)  # the form of the filter is new once
            taken, right, expected = [], 0, 0
            for number in range(FILTERED):
                milliseconds, found = _asked(store, number, filter=of(number), **options)
                taken.append(milliseconds)
                good, wanted = corpus.right(number, of(number), found)
                right, expected = right + good, expected + wanted
            report[f"{name}|{fetch}"] = {"median": statistics.median(taken), "right": right / expected}
    return report


def change(request: Request) -> Report:
    """Add documents one by one and delete others, each until it is on disk. The first one is not measured."""
    corpus = Corpus(request["corpus"])
    store, count = _load(request, corpus), corpus.count
    turns = range(request["changes"] + 1)

    def add(turn: int) -> None:
        store.add_embeddings(**corpus.batch(range(count + turn, count + turn + 1)))

    return {
        "add": _timed(request, store, [lambda turn=turn: add(turn) for turn in turns]),
        "delete": _timed(request, store, [lambda turn=turn: store.delete([str(7 * turn)]) for turn in turns]),
    }


def _timed(request: Request, store: Any, changes: list[Callable[[], object]]) -> dict[str, float]:
    before, on_disk = [], []
    for do in changes:
        started = time.perf_counter()
        do()
        before.append(1000 * (time.perf_counter() - started))
        _save(request, store)
        on_disk.append(1000 * (time.perf_counter() - started))
    return {"before": statistics.median(before[1:]), "median": statistics.median(on_disk[1:])}


def _asked(store: Any, number: int, **options: Any) -> tuple[float, list[Any]]:
    """Return the milliseconds and the results."""
    started = time.perf_counter()
    found = store.similarity_search(f"query {number}", k=K, **options)
    return 1000 * (time.perf_counter() - started), found


if __name__ == "__main__":
    tasks = {"make": make, "open": first, "search": search, "filtered": filtered, "change": change}
    main(tasks, {})
