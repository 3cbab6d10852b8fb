"""Eight threads that ask one store at once, alone and while documents are added: errors, and answers that are wrong."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from corpus import Corpus
from known_embeddings import KnownEmbeddings
from layout import EXTRA, PAUSE, QUESTIONS, THREADS, K
from side import Request, Side, Told, add, batch_of


@dataclass(frozen=True, slots=True)
class Answer:
    """The documents that a question found between two moments."""

    question: int
    started: float
    ended: float
    numbers: list[int]


@dataclass(frozen=True, slots=True)
class Addition:
    """A document that was added between two moments."""

    number: int
    started: float
    ended: float


def read(side: Side, request: Request) -> Told:
    """Ask from all threads; an answer is wrong that is not the one that a single thread is given before."""
    corpus = Corpus(request["corpus"])
    store = side.load(KnownEmbeddings(corpus), request["store"])
    alone = [_ask(corpus, store, number).numbers for number in range(QUESTIONS)]
    asked, seconds = _ask_at_once(corpus, store, request["seconds"])
    answers, errors = _sorted_out(asked)
    wrong = sum(answer.numbers != alone[answer.question] for answer in answers)
    return {"per_second": len(answers) / seconds, "answers": len(answers), "wrong": wrong, "errors": errors}


def read_and_write(side: Side, request: Request) -> Told:
    """Ask from all threads, while documents are added that the questions have to find from then on.

    An answer is right if it is that of a moment between the question and the answer.
    """
    corpus = Corpus(request["corpus"])
    store = side.load(KnownEmbeddings(corpus), request["store"])
    for number in range(QUESTIONS):
        _ask(corpus, store, number)
    first = corpus.count + request["changes"] + 1  # those before are in the store by now
    with ThreadPoolExecutor(1) as writer:
        changes = [writer.submit(_add, corpus, store, number) for number in range(first, corpus.count + EXTRA)]
        asked, seconds = _ask_at_once(corpus, store, request["seconds"])
        writer.shutdown(cancel_futures=True)
    answers, errors = _sorted_out(asked)
    additions, write_errors = _sorted_out(changes)
    with ThreadPoolExecutor(1) as executor:
        afterwards = [executor.submit(_ask, corpus, store, number, K + EXTRA) for number in range(QUESTIONS)]
    final, errors_afterwards = _sorted_out(afterwards)
    orders = {answer.question: answer.numbers for answer in final}
    return {
        "per_second": len(answers) / seconds,
        "answers": len(answers),
        "wrong": sum(_is_wrong(answer, orders, additions) for answer in answers),
        "errors": errors,
        "added": len(additions),
        "write_errors": write_errors,
        "errors_afterwards": errors_afterwards,
    }


def _ask_at_once(corpus: Corpus, store: Any, seconds: float) -> tuple[list[Future[Answer]], float]:
    """Keep all threads busy with random questions for so long; return them, and the seconds until all are answered."""
    rng, free = np.random.default_rng(0), threading.Semaphore(2 * THREADS)
    asked: list[Future[Answer]] = []
    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as executor:
        while time.perf_counter() - started < seconds:
            free.acquire()
            asked.append(executor.submit(_ask, corpus, store, int(rng.integers(QUESTIONS))))
            asked[-1].add_done_callback(lambda _: free.release())
    return asked, time.perf_counter() - started


def _ask(corpus: Corpus, store: Any, number: int, k: int = K) -> Answer:
    started = time.perf_counter()
    found = store.similarity_search(corpus.question(number), k=k)
    return Answer(number, started, time.perf_counter(), corpus.numbers(found))


def _add(corpus: Corpus, store: Any, number: int) -> Addition:
    time.sleep(PAUSE)
    batch = batch_of(corpus, number, number + 1)
    started = time.perf_counter()
    add(store, batch)
    return Addition(number, started, time.perf_counter())


def _sorted_out(futures: Sequence[Future[Any]]) -> tuple[list[Any], dict[str, int]]:
    """Return what was returned, and how often each exception was raised, by its name."""
    done = [future for future in futures if not future.cancelled()]
    raised = Counter(type(error).__name__ for error in (future.exception() for future in done) if error is not None)
    return [future.result() for future in done if future.exception() is None], dict(raised)


def _is_wrong(answer: Answer, orders: dict[int, list[int]], additions: Sequence[Addition]) -> bool:
    """Return whether an answer is of no moment; ``orders`` has all documents from the nearest on, by question."""
    if answer.question not in orders:
        return True
    added = [one.number for one in additions]
    surely = sum(one.ended <= answer.started for one in additions)
    perhaps = sum(one.started < answer.ended for one in additions)
    for there in range(surely, perhaps + 1):
        absent = set(added[there:])
        if answer.numbers == [number for number in orders[answer.question] if number not in absent][:K]:
            return False
    return True
