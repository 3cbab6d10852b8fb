"""Pseudo-queries: short spans of the corpus that stand in for queries.

Queries are short and documents are long, so their raw vectors have different means and scales. Fitting the query side
of a post-processor on short spans of the same corpus needs no labels and no query log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from ragembed.types import Floats

_MIN_WORDS, _MAX_WORDS = 4, 14
_SLACK = 8


@dataclass(frozen=True, slots=True)
class PseudoQueries:
    """Pseudo-queries and their raw vectors, shape ``(n, d)``."""

    texts: tuple[str, ...]
    raw: Floats

    @classmethod
    def of(
        cls, texts: Sequence[str], encode: Callable[[Sequence[str]], Floats], known: PseudoQueries | None = None
    ) -> PseudoQueries:
        """Return ``texts`` with their raw vectors; only texts that are not in ``known`` are encoded."""
        places = {} if known is None else {text: place for place, text in enumerate(known.texts)}
        new = [text for text in texts if text not in places]
        if known is None or len(new) == len(texts):
            return cls(tuple(texts), encode(texts))
        raw = np.empty((len(texts), known.raw.shape[1]), dtype=np.float32)
        is_new = np.array([text not in places for text in texts], dtype=bool)
        if new:
            raw[is_new] = encode(new)
        raw[~is_new] = known.raw[[places[text] for text in texts if text in places]]
        return cls(tuple(texts), raw)


def draw_pseudo_queries(texts: Iterable[str], count: int, seed: int) -> list[str]:
    """Draw up to ``count`` spans of 4 to 14 words from ``texts``, at most one per text.

    The choice of texts and the position of a span depend only on the seed and on each text, not on the order of the
    corpus. Equal texts count once. A text of fewer than 4 words is used whole; a text without words is skipped.
    """
    return [span for span, _ in draw_spans(texts, count, seed)]


def draw_spans(texts: Iterable[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Draw spans as :func:`draw_pseudo_queries` does; return each with the text that it comes from."""
    best: dict[int, str] = {}
    for text in texts:
        best[_hash(text, seed)] = text
        if len(best) > _SLACK * count:
            best = _smallest(best, count)
    drawn = ((_span(text.split(), key), text) for key, text in _smallest(best, count).items())
    return [(span, text) for span, text in drawn if span]


def _smallest(texts: Mapping[int, str], count: int) -> dict[int, str]:
    """Return the ``count`` entries with the smallest keys."""
    return {key: texts[key] for key in nsmallest(count, texts)}


def _hash(text: str, seed: int) -> int:
    """Return a seeded 128-bit hash of ``text``."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def _span(words: list[str], key: int) -> str:
    """Return a span of ``words`` whose length and position follow from ``key``."""
    length = _MIN_WORDS + key % (_MAX_WORDS - _MIN_WORDS + 1)
    start = (key >> 8) % max(len(words) - length + 1, 1)
    return " ".join(words[start : start + length])
