"""What one thread finds, and how long it waits: after opening a store, warm, and under filters."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from corpus import Corpus, filter_of
from known_embeddings import KnownEmbeddings
from layout import FILTERED, FILTERS, QUESTIONS, UNFILTERED, K
from side import Request, Side, Told


def first(side: Side, request: Request) -> Told:
    """Open the store and answer one question; the seconds of both."""
    corpus = Corpus(request["corpus"])
    embeddings = KnownEmbeddings(corpus)
    started = time.perf_counter()
    found = side.load(embeddings, request["store"]).similarity_search(corpus.question(0), k=K)
    seconds = time.perf_counter() - started
    if len(found) != K:
        raise RuntimeError(f"{len(found)} documents came back, expected {K}")
    return {"seconds": seconds}


def plain(side: Side, request: Request) -> Told:
    """Ask every question twice, the first time unmeasured."""
    corpus = Corpus(request["corpus"])
    store = side.load(KnownEmbeddings(corpus), request["store"])
    for number in range(QUESTIONS):
        store.similarity_search(corpus.question(number), k=K)
    taken, right = [], 0
    for number in range(QUESTIONS):
        milliseconds, found = _asked(corpus, store, number, {})
        taken.append(milliseconds)
        right += corpus.right(UNFILTERED, number, found)
    return {
        "median": statistics.median(taken),
        "p95": float(np.percentile(taken, 95)),
        "right": right / (K * QUESTIONS),
    }


def filtered(side: Side, request: Request) -> Told:
    """Ask questions, each under a filter of its own, twice; once before, under filters that do not come again."""
    corpus = Corpus(request["corpus"])
    store = side.load(KnownEmbeddings(corpus), request["store"])
    told: Told = {}
    for fetch, options in side.fetches(corpus.count).items():
        for name in FILTERS:
            _asked(corpus, store, 0, {**options, "filter": filter_of(name, FILTERED)})
        told[fetch] = {name: _under(corpus, store, name, options) for name in FILTERS}
    return told


def _under(corpus: Corpus, store: Any, name: str, options: Mapping[str, Any]) -> dict[str, float]:
    expected = returned = right = 0
    new = []
    for number in range(FILTERED):
        milliseconds, found = _asked(corpus, store, number, {**options, "filter": filter_of(name, number)})
        new.append(milliseconds)
        expected += corpus.expected(name, number)
        returned += len(found)
        right += corpus.right(name, number, found)
    again = [
        _asked(corpus, store, number, {**options, "filter": filter_of(name, number)})[0] for number in range(FILTERED)
    ]
    return {
        "new": statistics.median(new),
        "again": statistics.median(again),
        "returned": returned / expected,
        "right": right / expected,
    }


def _asked(corpus: Corpus, store: Any, question: int, options: Mapping[str, Any]) -> tuple[float, list[int]]:
    """Return milliseconds, and the numbers of the documents that came back."""
    text = corpus.question(question)
    started = time.perf_counter()
    found = store.similarity_search(text, k=K, **options)
    milliseconds = 1000 * (time.perf_counter() - started)
    return milliseconds, corpus.numbers(found)
