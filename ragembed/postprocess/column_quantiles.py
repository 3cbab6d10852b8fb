"""Quantiles of each dimension, computed by sorting blocks of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess.blocks import over_columns
from ragembed.types import Doubles

_VALUES = 1 << 21


def column_quantiles(vectors: NDArray[Any], shares: Doubles) -> Doubles:
    """Return the quantiles, ``(d, q)``, at ``q`` shares of each dimension: ``np.quantile(vectors, shares, axis=0).T``.

    The arithmetic equals NumPy's to the last bit (differences in the type of the vectors, then interpolation from the
    nearer neighbour), because equal values must stay equal. For hundreds of quantiles, sorting whole dimensions is
    faster than NumPy's selection. There must be a vector, and all values must be finite.
    """
    n, d = vectors.shape
    places = (n - 1) * shares
    below = np.minimum(np.floor(places).astype(np.intp), n - 1)
    above = np.minimum(below + 1, n - 1)
    way = places - below
    out = np.empty((d, len(shares)))

    def work(columns: slice) -> None:
        ordered = np.sort(vectors[:, columns].T, axis=1)
        low, high = ordered[:, below], ordered[:, above]
        difference = high - low
        out[columns] = np.where(way < 0.5, low + difference * way, high - difference * (1 - way))

    over_columns(work, d, max(1, _VALUES // n))
    return out
