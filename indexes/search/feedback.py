"""Pseudo-relevance feedback: the best hits of a first search improve the query, by their vectors and their words.

No user feedback is involved. The first hits are assumed to be relevant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats, Integers

_K1, _B = 1.2, 0.75
_NOISE = 1e-6
_WORD = re.compile(r"\w+")
_CODE_SIGN = re.compile(r"[(\[_.](?<=\w.)(?=[\w)\"'\]])|[=;{}]|->")
"""What source code has often: calls, names of several words or parts, assignments, blocks."""
_SIGNS_PER_WORD, _BEGINNING = 0.2, 1000


def shares(scores: Doubles, best: int) -> Doubles:
    """Return the shares of the first ``best`` candidates in feedback, which sum to 1.

    ``scores`` are fused scores, best first. A score that is lower by one standard deviation has a share that is smaller
    by the factor e, as in the relevance model of Lavrenko & Croft 2001.
    """
    if not len(scores):
        return np.zeros(0)
    spread = max(float(scores.std()), _NOISE * float(np.abs(scores).max())) or 1.0
    weights = np.exp((scores[:best] - scores[0]) / spread)
    shared: Doubles = weights / weights.sum()
    return shared


def moved(query: Floats, best: Floats, weights: Doubles) -> Floats:
    """Return a query vector plus the weighted sum of the best vectors, as a unit vector, shape ``(d,)``.

    ``query`` has shape ``(d,)``, ``best`` shape ``(m, d)`` and ``weights`` shape ``(m,)``. This is the feedback of
    Rocchio 1971, section 14.4, with weight 1 for the query and no term for documents that are not relevant.
    """
    nearer: Floats = unit_rows((query + weights.astype(np.float32) @ best)[None, :])[0]
    return nearer


def words_of(text: str) -> Integers:
    """Return a number for each word of ``text``, int64, shape ``(n,)``: Python's hash of the word in lower case.

    The numbers of equal words are equal within a process.
    """
    return np.fromiter(map(hash, _WORD.findall(text.lower())), dtype=np.int64)


def is_code(text: str) -> bool:
    """Return whether a text is source code rather than prose, by its first thousand characters."""
    beginning = text[:_BEGINNING]
    return len(_CODE_SIGN.findall(beginning)) > _SIGNS_PER_WORD * len(beginning.split())


def likeness(texts: Sequence[Integers], best: int) -> Doubles:
    """Return how much each text has the words of the first ``best`` texts, float64, shape ``(n,)``, 0 or more.

    Texts are the results of :func:`words_of`. Words have the weights of BM25 (``k1`` 1.2, ``b`` 0.75), with frequencies
    in these texts only, as in the local feedback of Xu & Croft 1996, section 3.2.
    """
    if not texts:
        return np.zeros(0)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    together = np.concatenate(texts)
    sought, first = np.unique(together[: lengths[:best].sum()], return_index=True)
    size = max(len(sought), 1)
    at = np.minimum(np.searchsorted(sought, together), size - 1)
    adding = np.flatnonzero(sought[at] == together) if len(sought) else np.zeros(0, dtype=np.int64)
    # Number words in order of appearance, so that the sums do not depend on the values of the hashes.
    numbers = np.argsort(np.argsort(first))[at[adding]]
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
