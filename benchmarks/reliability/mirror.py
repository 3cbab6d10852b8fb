"""A store's answers by brute force, over a dictionary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reliability.corpus import Floats, HashedEncoder

_K1, _B, _LEAST_IDF = 1.2, 0.75, 1e-6
"""Of SQLite's bm25()."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk: ``order`` grows with each that is added, ``bucket`` is in its metadata, ``path`` is its file or None."""

    order: int
    text: str
    bucket: int
    path: str | None


Predicate = Callable[[Entry], bool]
Ranking = list[tuple[str, float]]
"""Ids and scores, best first."""


@dataclass
class Mirror:
    """What a store should hold: chunks by id."""

    encoder: HashedEncoder
    entries: dict[str, Entry] = field(default_factory=dict)
    _added: int = 0
    _units: dict[str, Floats] = field(default_factory=dict)

    def put(self, chunk_id: str, text: str, bucket: int, path: str | None) -> None:
        """Add a chunk, in the place of one with that id."""
        self._added += 1
        self.entries[chunk_id] = Entry(self._added, text, bucket, path)

    def drop(self, condition: Callable[[str, Entry], bool]) -> None:
        """Delete chunks."""
        self.entries = {name: entry for name, entry in self.entries.items() if not condition(name, entry)}

    def dense(self, question: str, selected: Predicate) -> Ranking:
        """Return all selected chunks by cosine, with vectors as a store rounds them."""
        chosen = [(name, entry) for name, entry in self.entries.items() if selected(entry)]
        if not chosen:
            return []
        vectors = np.stack([self._unit(entry.text) for _, entry in chosen])
        query = self.encoder.encode_queries([question])[0]
        return _ranked(chosen, vectors @ (query / np.linalg.norm(query)))

    def lexical(self, question: str, selected: Predicate) -> Ranking:
        """Return the selected chunks that have a word of the question by BM25 over all chunks."""
        counts = {name: Counter(entry.text.split()) for name, entry in self.entries.items()}
        average = sum(map(Counter.total, counts.values())) / max(len(counts), 1)
        scores = dict.fromkeys(counts, 0.0)
        asked = set(question.split())
        for word in asked:
            holders = [name for name, count in counts.items() if count[word]]
            idf = max(math.log((len(counts) - len(holders) + 0.5) / (len(holders) + 0.5)), _LEAST_IDF)
            for name in holders:
                often, length = counts[name][word], counts[name].total() / average
                scores[name] += idf * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * length))
        found = [name for name in counts if selected(self.entries[name]) and asked & counts[name].keys()]
        chosen = [(name, self.entries[name]) for name in found]
        return _ranked(chosen, np.array([scores[name] for name in found]))

    def _unit(self, text: str) -> Floats:
        if text not in self._units:
            raw = self.encoder.raw_documents([text])[0].astype(np.float16).astype(np.float32)
            self._units[text] = raw / np.linalg.norm(raw)
        return self._units[text]


def _ranked(chosen: Sequence[tuple[str, Entry]], scores: NDArray[np.floating]) -> Ranking:
    pairs = [(name, score, entry.order) for (name, entry), score in zip(chosen, scores.tolist(), strict=True)]
    return [(name, score) for name, score, _ in sorted(pairs, key=lambda pair: (-pair[1], pair[2]))]
