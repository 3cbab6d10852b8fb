"""Pseudo-relevance feedback: the best hits of a first search improve the query, by their vectors and their words.

No user feedback is involved. The first hits are assumed to be relevant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import repeat

import numpy as np

from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats, Integers

_K1, _B = 1.2, 0.75
_NOISE = 1e-6
_WORD = re.compile(r"\w+")


def shares(scores: Doubles, best: int) -> Doubles:
    """Return the shares of the first ``best`` candidates in feedback, which sum to 1.

    ``scores`` are the fused scores of all candidates, best first. A candidate whose score is lower by one standard
    deviation has a share that is smaller by the factor e. In the relevance model of Lavrenko & Croft 2001, documents
    count by their probability given the query in the same way.
    """
    if not len(scores):
        return np.zeros(0)
    spread = max(float(scores.std()), _NOISE * float(np.abs(scores).max())) or 1.0
    found = np.exp((scores[:best] - scores[0]) / spread)
    shared: Doubles = found / found.sum()
    return shared


def moved(query: Floats, best: Floats, weights: Doubles) -> Floats:
    """Return a query vector plus the weighted sum of the best vectors, as a unit vector, shape ``(d,)``.

    ``query`` has shape ``(d,)``, ``best`` shape ``(m, d)`` and ``weights`` shape ``(m,)``. This is the feedback of
    Rocchio 1971, section 14.4, with weight 1 for the query and no term for documents that are not relevant.
    """
    nearer: Floats = unit_rows((query + weights.astype(np.float32) @ best)[None, :])[0]
    return nearer


class _Numbering(dict[str, int]):
    """A dictionary that gives each new word the next number."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class WordNumbers:
    """Numbers for words, ignoring case."""

    def __init__(self) -> None:
        self._numbers = _Numbering()

    def of(self, text: str) -> Integers:
        """Return the number of each word of ``text``, int64, shape ``(n,)``."""
        return np.fromiter(map(self._numbers.__getitem__, _WORD.findall(text.lower())), dtype=np.int64)

    def known(self, text: str) -> Integers:
        """Return the same, with -1 for new words. They get no number, because there are many of them."""
        return np.fromiter(map(self._numbers.get, _WORD.findall(text.lower()), repeat(-1)), dtype=np.int64)


def likeness(texts: Sequence[Integers], best: int) -> Doubles:
    """Return how much each text has the words of the first ``best`` texts, float64, shape ``(n,)``, 0 or more.

    Texts are given as numbers of their words: :meth:`WordNumbers.of` for the first ``best``, at least
    :meth:`WordNumbers.known` for the others. Words have the weights of BM25 (``k1`` 1.2, ``b`` 0.75). Their frequencies
    are counted in these texts only, as in the local feedback of Xu & Croft 1996, section 3.2, so no statistics of the
    whole corpus are needed.
    """
    if not texts:
        return np.zeros(0)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    together = np.concatenate(texts)
    sought = np.zeros(int(together.max(initial=0)) + 2, dtype=np.bool_)  # Index -1 is the last element.
    sought[together[: lengths[:best].sum()]] = True
    adding = sought[together]
    present, numbers = np.unique(together[adding], return_inverse=True)
    size = max(len(present), 1)
    of_text = np.repeat(np.arange(len(texts)), lengths)[adding]
    distinct, counts = np.unique(of_text * size + numbers, return_counts=True)
    texts_of, words = distinct // size, distinct % size
    frequency = np.bincount(words, minlength=size)
    rarity = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    norm = _K1 * (1.0 - _B + _B * lengths / max(lengths.mean(), 1.0))
    weights = counts * (_K1 + 1.0) / (counts + norm[texts_of]) * rarity[words]
    of_best = texts_of < best
    wanted = np.bincount(words[of_best], weights[of_best], minlength=size)
    shared: Doubles = np.bincount(texts_of, weights * wanted[words], minlength=len(texts)).astype(np.float64)
    return shared
