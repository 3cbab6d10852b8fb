"""Relevance feedback: what is best so far shows what else to look for, by vectors and by words.

Nobody says what is relevant: the first results are taken to be (pseudo-relevance feedback).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_K1, _B = 1.2, 0.75
_WORD = re.compile(r"\w+")


def moved(query: Floats, best: Floats, weight: float) -> Floats:
    """Return a query vector, shape ``(d,)``, moved towards the mean of the best vectors, shape ``(m, d)``, unit length.

    This is the feedback of Rocchio 1971, section 14.4, with the weight 1 for the question and none for what is not
    relevant.
    """
    if not len(best):
        return query
    return unit_rows((query + weight * best.mean(axis=0))[None, :])[0]


def likeness(texts: Sequence[str], best: int) -> Doubles:
    """Return how much each text shares the words of the first ``best`` of them, float64, shape ``(n,)``, 0 or more.

    Words weigh as in BM25, ``k1`` 1.2 and ``b`` 0.75, by their frequency in a text and their rarity among these texts
    alone, as in the local feedback of Xu & Croft 1996, section 3.2: so no statistics of the whole corpus are read.
    """
    if not texts:
        return np.zeros(0)
    texts_of, words, counts, lengths = _counted(texts)
    frequency = np.bincount(words)
    rarity = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    norm = _K1 * (1.0 - _B + _B * lengths / max(lengths.mean(), 1.0))
    weights = counts * (_K1 + 1.0) / (counts + norm[texts_of]) * rarity[words]
    of_best = texts_of < best
    wanted = np.bincount(words[of_best], weights[of_best], minlength=len(frequency))
    return np.bincount(texts_of, weights * wanted[words], minlength=len(texts))


def _counted(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return position of text, number of word, and count for every word of every text; and the texts' lengths."""
    numbers: dict[str, int] = {}
    numbered = [[numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.lower())] for text in texts]
    lengths = np.array([len(words) for words in numbered], dtype=np.int64)
    size = max(len(numbers), 1)
    places = np.repeat(np.arange(len(texts)), lengths) * size + np.array(
        [number for words in numbered for number in words], dtype=np.int64
    )
    distinct, counts = np.unique(places, return_counts=True)
    return distinct // size, distinct % size, counts, lengths
