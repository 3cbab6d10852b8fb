"""Pooling: which tokens of a window make up the vector of a text, and their weighted sum. Pure functions on arrays.

Sources: Stankevičius & Lukoševičius 2024, section 3.2 (all tokens, masks only, all but the masks); Reimers & Gurevych
2019 and the library sentence-transformers (first token, maximum, sum over the root of the length); Muennighoff 2022
(weights by position); Rücklé et al. 2018 (minimum, mean and maximum joined: the power means of the powers -∞, 1 and ∞).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.models.tokenizer import TokenKind
from ragembed.types import Bools, Doubles, Floats

_UPSCALE = np.float32(2.0**80)
"""Factor of weights during summation; a power of two, so that results keep all digits.

Without it, products of subnormal weights would lose digits, and the reciprocal of their sum would overflow.
"""


def pooled_tokens(kinds: NDArray[np.int8], pooling: str, special_tokens: bool, prompt_tokens: int = 0) -> Bools:
    """Return which of the tokens of ``kinds``, shape ``(batch, tokens)``, take part in a pooling of one part.

    ``special_tokens`` has no effect on ``masks``, ``text``, ``cls`` and ``after-prompt``; ``after-prompt`` leaves out
    the first ``prompt_tokens`` tokens.
    """
    window: Bools = kinds != TokenKind.PADDING
    present: Bools = window if special_tokens else window & (kinds != TokenKind.SPECIAL)
    chosen: Bools = np.zeros_like(present)
    rows = np.arange(len(kinds))
    if pooling in ("masks", "text"):
        return np.asarray(kinds == (TokenKind.MASK if pooling == "masks" else TokenKind.TEXT))
    if pooling == "no-mask":
        return np.asarray(present & (kinds != TokenKind.MASK))
    if pooling == "after-prompt":
        return np.asarray(window & (np.arange(kinds.shape[1]) >= prompt_tokens))
    if pooling == "cls":
        chosen[rows, np.argmax(window, axis=1)] = True
        return chosen
    if pooling == "last":
        chosen[rows, last_token(present)] = present.any(axis=1)
        return chosen
    return present


def base_weights(kinds: NDArray[np.int8], pooling: str, special_tokens: bool, prompt_tokens: int = 0) -> Floats:
    """Return the weights of tokens in the mean of a window: 0 or 1, or the position from 1 for ``weighted``."""
    base = pooled_tokens(kinds, pooling, special_tokens, prompt_tokens).astype(np.float32)
    return base * np.arange(1, kinds.shape[1] + 1, dtype=np.float32) if pooling == "weighted" else base


def last_token(mask: Bools) -> NDArray[np.int64]:
    """Return the position of the last token in each row of ``mask``, shape ``(batch, tokens)``.

    Padding may be on either side. A row without tokens gives the last position.
    """
    return np.asarray(mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1))


class WeightedMean:
    """Weighted means, shape ``(texts, dim)``, of token vectors that arrive in pieces.

    Each token has a base weight (0 if it takes no part) and a weight. The result is ``share`` parts of the mean by
    weights and ``1 - share`` parts of the mean by base weights. The weights of a text are scaled to sum to 1, or are
    divided by the sum of its base weights if ``by_length``. If all weights of a text are 0, the result is the mean by
    base weights; if no token takes part, it is 0.
    """

    def __init__(self, texts: int, dim: int, share: float, by_length: bool = False) -> None:
        self._share = share
        self._by_length = by_length
        self._base = _Sums(texts, dim)
        self._weighted = _Sums(texts, dim) if share else None

    def add(self, texts: NDArray[np.int64], hidden: Floats, base: Floats, weights: Floats) -> None:
        """Add windows: the text of each, hidden states, and base weights and weights, ``(batch, tokens)``."""
        base = base * _UPSCALE
        if self._weighted is None:
            self._base.add(texts, np.matmul(base[:, None], hidden)[:, 0], base)
            return
        weights = weights * _UPSCALE
        sums = np.matmul(np.stack([base, weights], axis=1), hidden)
        self._base.add(texts, sums[:, 0], base)
        self._weighted.add(texts, sums[:, 1], weights)

    def result(self) -> Floats:
        """Return the means, float32, shape ``(texts, d)``; call this once, after the last :meth:`add`."""
        base = self._base.divided(self._base.total)
        if self._weighted is None:
            return base
        weighed = self._weighted.total > 0.0
        total = np.where(weighed, self._base.total, 0.0) if self._by_length else self._weighted.total
        mixed = self._weighted.divided(total)
        mixed *= np.float32(self._share)
        base *= np.where(weighed, np.float32(1.0 - self._share), np.float32(1.0))[:, None]
        mixed += base
        return mixed


def mean_shares(
    base: Floats, weights: Floats, share: float, lengths: Sequence[int], by_length: bool = False
) -> NDArray[np.float64]:
    """Return the factor of each token in :class:`WeightedMean`, for the tokens of texts of ``lengths`` tokens each."""
    texts = np.repeat(np.arange(len(lengths)), lengths)
    uniform, number = _scaled_to_one(base, texts, len(lengths))
    if share == 0.0:
        return uniform
    weighted, total = _scaled_to_one(weights, texts, len(lengths))
    if by_length:
        weighted = np.divide(weights, number, out=np.zeros(len(weights)), where=number > 0.0)
    shares: NDArray[np.float64] = np.where(total > 0.0, share * weighted + (1.0 - share) * uniform, uniform)
    return shares


def _scaled_to_one(
    weights: Floats, texts: NDArray[np.int64], number: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each token, its weight divided by the sum of its text, and that sum."""
    total = np.asarray(np.bincount(texts, weights=weights, minlength=number), dtype=np.float64)[texts]
    return np.divide(weights, total, out=np.zeros(len(weights)), where=total > 0.0), total


class RootMean:
    """Sums of token vectors that arrive in pieces, divided by the root of the number of tokens.

    The parameters are those of :class:`WeightedMean`.
    """

    def __init__(self, texts: int, dim: int) -> None:
        self._sums = _Sums(texts, dim)

    def add(self, texts: NDArray[np.int64], hidden: Floats, base: Floats) -> None:
        """Add windows, as :meth:`WeightedMean.add` does."""
        self._sums.add(texts, np.matmul(base[:, None], hidden)[:, 0], base)

    def result(self) -> Floats:
        """Return the vectors, float32, shape ``(texts, d)``; call this once, after the last :meth:`add`."""
        roots = np.sqrt(self._sums.total).astype(np.float32)
        return self._sums.divided(self._sums.total) * roots[:, None]


class Extremum:
    """The largest value of each dimension over token vectors that arrive in pieces; 0 if no token takes part.

    The parameters are those of :class:`WeightedMean`. With ``smallest``, it is the smallest value.
    """

    def __init__(self, texts: int, dim: int, smallest: bool = False) -> None:
        self._sign = np.float32(-1.0 if smallest else 1.0)
        self._largest = np.full((texts, dim), -np.inf, dtype=np.float32)

    def add(self, texts: NDArray[np.int64], hidden: Floats, base: Floats) -> None:
        """Add windows, as :meth:`WeightedMean.add` does."""
        values = np.where(base[:, :, None] > 0.0, self._sign * hidden, np.float32(-np.inf))
        np.maximum.at(self._largest, texts, values.max(axis=1))

    def result(self) -> Floats:
        """Return the vectors, float32, shape ``(texts, d)``."""
        return np.where(np.isneginf(self._largest), np.float32(0.0), self._sign * self._largest)


def extremum_shares(vectors: Floats, base: Floats, smallest: bool) -> NDArray[np.float64]:
    """Return 1 for the token, of those with a base weight, that has the extremum of a dimension, else 0."""
    chosen = np.zeros(vectors.shape)
    if base.any():
        values = np.where(base[:, None] > 0.0, -vectors if smallest else vectors, -np.inf)
        chosen[values.argmax(axis=0), np.arange(vectors.shape[1])] = 1.0
    return chosen


class _Sums:
    """Running sums of vectors and weights per text."""

    def __init__(self, texts: int, dim: int) -> None:
        self.vectors = np.zeros((texts, dim), dtype=np.float32)
        self.total = np.zeros(texts, dtype=np.float64)

    def add(self, texts: NDArray[np.int64], vectors: Floats, weights: Floats) -> None:
        np.add.at(self.vectors, texts, vectors)
        np.add.at(self.total, texts, weights.sum(axis=1, dtype=np.float64))

    def divided(self, total: Doubles) -> Floats:
        """Return the sums divided by ``total``, shape ``(texts,)``, or 0 where it is 0; this overwrites the sums."""
        scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
        self.vectors *= scale[:, None].astype(np.float32)
        return self.vectors
