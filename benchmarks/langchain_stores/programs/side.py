"""What tells the two sides apart: how a store is made, saved and opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus import Corpus, Floats
from langchain_core.embeddings import Embeddings

Request = Mapping[str, Any]
Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents with given vectors, shape ``(n, d)``."""

    texts: Sequence[str]
    vectors: Floats
    metadatas: list[dict[str, int]]
    ids: list[str]

    def pairs(self) -> Iterator[tuple[str, Floats]]:
        """Return each text with its vector, a row of an array."""
        return zip(self.texts, self.vectors, strict=True)


@dataclass(frozen=True, slots=True)
class Side:
    """A class of vector stores.

    ``make`` puts documents into a new store, meant for a folder, ``load`` opens the one in a folder. ``save`` writes a
    store into its folder, where each change is not there already. ``fetches`` are the settings of filtered search, by
    name, for a number of documents.
    """

    make: Callable[[Batch, Embeddings, str], Any]
    load: Callable[[Embeddings, str], Any]
    save: Callable[[Any, str], None] | None
    fetches: Callable[[int], Mapping[str, Mapping[str, Any]]]


def batch_of(corpus: Corpus, first: int, end: int) -> Batch:
    """Return documents ``first`` to ``end`` of the corpus, without the last."""
    numbers = range(first, end)
    metadatas = [corpus.metadata(number) for number in numbers]
    return Batch(corpus.texts[first:end], corpus.vectors[first:end], metadatas, [str(number) for number in numbers])


def add(store: Any, batch: Batch) -> None:
    """Add documents to a store of either side."""
    store.add_embeddings(batch.pairs(), metadatas=batch.metadatas, ids=batch.ids)
