"""Late interaction: compare each token of a query with the most similar token of a text.

The score is that of ColBERT (Khattab & Zaharia 2020, "ColBERT: Efficient and effective passage search via
contextualized late interaction over BERT"), with weighted query tokens. Of a text's token vectors only the signs are
kept, one bit a dimension, so nothing has to be fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.types import Doubles, Floats

_SIGNS: Floats = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32) * 2 - 1
"""The eight signs, -1 or 1, that each byte stands for; shape ``(256, 8)``."""

_TOKENS_AT_ONCE = 4096


def sign_bits(vectors: Floats) -> NDArray[np.uint8]:
    """Return the signs of vectors, shape ``(n, d)``, as bits: uint8, shape ``(n, ceil(d / 8))``; 1 is positive."""
    return np.packbits(vectors > 0.0, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class TokenBits:
    """The token vectors of some texts: ``counts``, int64, shape ``(n,)``, and ``bits`` of all tokens in order."""

    counts: NDArray[np.int64]
    bits: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class QueryTokens:
    """The tokens of a query: ``weights``, float32, shape ``(m,)``, and unit ``vectors``, float32, shape ``(m, d)``."""

    weights: Floats
    vectors: Floats

    def scores(self, texts: Sequence[NDArray[np.uint8]]) -> Doubles | None:
        """Return the score of each text, float64, shape ``(n,)``; None if the query has no weighted token.

        Each text is the sign bits of its tokens, uint8, shape ``(t, ceil(d / 8))``. The score is the weighted mean of
        the highest similarity of each query token with a token of the text. The similarity is the inner product of the
        query token's vector and the signs, divided by the square root of ``d``. A text without tokens gets NaN.
        """
        total = float(self.weights.sum())
        if total <= 0.0:
            return None
        found = np.full(len(texts), np.nan)
        dim = self.vectors.shape[1]
        queries = np.pad(self.vectors / np.sqrt(dim), ((0, 0), (0, -dim % 8))).astype(np.float32)
        shares = self.weights.astype(np.float64) / total
        for group in _groups([len(text) for text in texts]):
            signs = _SIGNS[np.concatenate([texts[i] for i in group])]
            similarities = queries @ signs.reshape(len(signs), -1).T
            starts = np.cumsum([0, *(len(texts[i]) for i in group[:-1])])
            found[group] = shares @ np.maximum.reduceat(similarities, starts, axis=1)
        return found


def _groups(sizes: Sequence[int]) -> list[list[int]]:
    """Return the positions of the sizes above 0, in groups whose sum is small enough for the processor's cache."""
    groups: list[list[int]] = []
    room = 0
    for at, size in enumerate(sizes):
        if not size:
            continue
        if not groups or size > room:
            groups.append([])
            room = _TOKENS_AT_ONCE
        groups[-1].append(at)
        room -= size
    return groups
