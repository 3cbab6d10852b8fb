"""What it takes to make a store, to add one document to it, and to delete one, until that is on the disk."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from corpus import Corpus
from known_embeddings import KnownEmbeddings
from side import Request, Side, Told, add, batch_of


def make(side: Side, request: Request) -> Told:
    """Make a store of all documents, or of the first ``texts``; seconds to the end, and those before it is saved."""
    corpus = Corpus(request["corpus"])
    batch, embeddings = batch_of(corpus, 0, request["texts"] or corpus.count), KnownEmbeddings(corpus)
    started = time.perf_counter()
    store = side.make(batch, embeddings, request["store"])
    made = time.perf_counter()
    if side.save is not None:
        side.save(store, request["store"])
    ended = time.perf_counter()
    return {"seconds": ended - started, "before": made - started}


def change(side: Side, request: Request) -> Told:
    """Add documents one by one, and delete others one by one; milliseconds of one, after a first one unmeasured."""
    corpus = Corpus(request["corpus"])
    store = side.load(KnownEmbeddings(corpus), request["store"])
    store.similarity_search(corpus.question(0))
    turns = request["changes"] + 1
    gone = np.random.default_rng(0).choice(corpus.count, turns, replace=False).tolist()
    extra = [batch_of(corpus, corpus.count + turn, corpus.count + turn + 1) for turn in range(turns)]
    return {
        "add": _timed(side, store, request, [lambda one=one: add(store, one) for one in extra]),
        "delete": _timed(side, store, request, [lambda number=number: store.delete([str(number)]) for number in gone]),
    }


def _timed(side: Side, store: Any, request: Request, changes: list[Callable[[], object]]) -> dict[str, float]:
    before, on_disk = [], []
    for do in changes:
        started = time.perf_counter()
        do()
        before.append(1000 * (time.perf_counter() - started))
        if side.save is not None:
            side.save(store, request["store"])
        on_disk.append(1000 * (time.perf_counter() - started))
    return {
        "before": statistics.median(before[1:]),
        "median": statistics.median(on_disk[1:]),
        "slowest": max(on_disk[1:]),
    }
