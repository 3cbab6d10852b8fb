"""Fusing dense and lexical scores of the same candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

DENSE_SHARE = 0.6
"""Weight of the dense score in the fusion; BM25 has the rest."""

_NOISE = 1e-6


def zscore_fusion(dense: Doubles, lexical: Doubles, dense_share: float = DENSE_SHARE) -> Doubles:
    """Return the weighted sum of the standardised scores, float64, shape ``(candidates,)``.

    Both inputs have shape ``(candidates,)`` and are higher for better; each is standardised over the candidates, and
    one that does not tell them apart counts nothing.
    """
    return dense_share * _standardised(dense) + (1.0 - dense_share) * _standardised(lexical)


def _standardised(scores: Doubles) -> Doubles:
    if len(scores) == 0 or scores.std() <= _NOISE * np.abs(scores).max():
        return np.zeros_like(scores)
    standardised: Doubles = (scores - scores.mean()) / scores.std()
    return standardised
