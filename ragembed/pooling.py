"""Pooling: token vectors of a text to one vector. Pure functions on arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def weighted_sum(hidden: Floats, weights: Floats) -> Floats:
    """Sum the token vectors of each text, weighted.

    Parameters
    ----------
    hidden
        Token vectors, float32, shape ``(batch, tokens, d)``.
    weights
        Token weights, float32, shape ``(batch, tokens)``; 0 at padding. Weights that sum to 1 over a text give
        its weighted mean.

    Returns
    -------
    float32, shape ``(batch, d)``.
    """
    pooled: Floats = np.matmul(weights[:, None, :], hidden)[:, 0, :]
    return pooled
