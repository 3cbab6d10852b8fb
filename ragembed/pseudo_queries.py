"""Pseudo-queries: short spans drawn from the corpus that stand in for queries.

Queries are short and documents long, and their pooled vectors have different means and scales; fitting the
query side of a post-processor on short spans of the same corpus needs no labels and no query log.
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
    """Pseudo-queries with the raw vector of each, float32, shape ``(n, d)``."""

    texts: tuple[str, ...]
    raw: Floats

    @classmethod
    def of(
        cls, texts: Sequence[str], encode: Callable[[Sequence[str]], Floats], known: PseudoQueries | None = None
    ) -> PseudoQueries:
        """Return those with these ``texts``; only what is not among the ``known`` is encoded, nothing if all are."""
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
    """Draw up to ``count`` spans of 4 to 14 words, one a text, from the texts given.

    Which texts, and where in them, depends on the seed and each text alone, so that neither the order of the
    corpus nor its way through the program changes the draw. Equal texts count once; a text shorter than 4 words is
    taken whole, a text without words not at all.
    """
    best: dict[int, str] = {}
    for text in texts:
        best[_hash(text, seed)] = text
        if len(best) > _SLACK * count:
            best = _smallest(best, count)
    drawn = (_span(text.split(), key) for key, text in _smallest(best, count).items())
    return [span for span in drawn if span]


def _smallest(texts: Mapping[int, str], count: int) -> dict[int, str]:
    return {key: texts[key] for key in nsmallest(count, texts)}


def _hash(text: str, seed: int) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, salt=seed.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def _span(words: list[str], key: int) -> str:
    length = _MIN_WORDS + key % (_MAX_WORDS - _MIN_WORDS + 1)
    start = (key >> 8) % max(len(words) - length + 1, 1)
    return " ".join(words[start : start + length])
