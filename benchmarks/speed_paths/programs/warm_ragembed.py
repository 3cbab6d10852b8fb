"""ragembed's side of warm questions: by text, and with the question's vector given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from waiting import Told, Turn, main, milliseconds

from ragembed.indexes import Store
from ragembed.indexes.records import VectorEncoder


class _Known:
    """The store's own embedder, for which questions were encoded before."""

    def __init__(self, embedder: VectorEncoder, questions: Sequence[str]) -> None:
        self._embedder = embedder
        self._known = {question: embedder.encode_queries([question]) for question in questions}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Look the vectors up."""
        return np.concatenate([self._known[text] for text in texts])


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that asks the turn's questions in each way, and tells the milliseconds of each."""
    turns: list[list[str]] = request["questions"]
    store = Store.open(request["store"])
    embedder = store.embedder
    given = Store.open(request["store"], _Known(embedder, list(chain(*turns))))
    vectors = {question: embedder.encode_queries([question])[0] for question in chain(*turns)}
    ways = {
        "hybrid": lambda question: store.search(question),
        "dense": lambda question: store.search(question, mode="dense"),
        "hybrid, vector given": lambda question: given.search(question),
        "dense, vector given": lambda question: store.search_vector(vectors[question]),
    }

    def turn(number: int) -> Told:
        return {way: milliseconds(turns[number], ask) for way, ask in ways.items()}

    index = store.status()["segments"]
    return turn, {"kinds": sorted({segment["kind"] for segment in index})}


if __name__ == "__main__":
    main(make)
