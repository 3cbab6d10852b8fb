"""``quantile-u`` and ``quantile-n``: give every dimension the same distribution, uniform or normal."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.postprocess.blocks import over_columns
from ragembed.postprocess.column_quantiles import column_quantiles
from ragembed.postprocess.normal import normal_quantile
from ragembed.postprocess.parts import Parts
from ragembed.postprocess.protocol import PostProcessor, Saved
from ragembed.types import Doubles, Floats

Output = Literal["uniform", "normal"]

_MOST_QUANTILES = 1000
_BOUND = 1e-7
_CLIP = _BOUND - np.spacing(1.0)
_ROWS, _VALUES = 2048, 1 << 15
_NEAR = 1e-3


class Quantile(PostProcessor):
    """Replace each value by the share of fitted values below it, or by the normal variable with that share.

    Each dimension is treated on its own. Equal to scikit-learn's ``QuantileTransformer(n_quantiles=min(1000, n),
    subsample=None)``. Between two quantiles the share is interpolated. For a run of equal quantiles it is the mean of
    the first and last share. Beyond the fitted values it is 0 or 1. The normal variable is limited to ±5.2, where the
    share is 1e-7 away from 0 or 1.
    """

    saved = (Saved("quantiles", np.float64, "dq"),)
    additive = False
    quantiles_: Doubles

    def __init__(self, output: Output = "uniform") -> None:
        if output not in ("uniform", "normal"):
            raise ConfigError(f"output is {output!r}: expected 'uniform' or 'normal'")
        self.output = output

    def _learn(self, vectors: Floats) -> None:
        # scikit-learn computes in per cent; its rounding determines which quantiles are equal.
        shares = np.linspace(0.0, 1.0, min(_MOST_QUANTILES, len(vectors))) * 100 / 100
        self.quantiles_ = column_quantiles(vectors, shares)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map parts along straight lines from the fitted median to the vector, one line per dimension.

        This is the rescale rule of DeepLIFT (Shrikumar et al. 2017) with the median as the reference. The image of the
        median belongs to no part and goes to the last row. The same applies to a dimension whose value is closer to the
        median than 1e-3 of the fitted range, because the slope of a line is meaningless there.
        """
        self._fitted_dims()
        median = np.median(self.quantiles_, axis=1)
        moved = parts.whole - median
        mapped, reference = self._map(np.stack([parts.whole, median]).astype(np.float32)).astype(np.float64)
        far = np.abs(moved) > _NEAR * (self.quantiles_[:, -1] - self.quantiles_[:, 0])
        slopes = np.divide(mapped - reference, moved, out=np.zeros_like(moved), where=far)
        rows = slopes * (parts.rows - parts.shares[:, None] * median)
        rows[-1] += mapped - rows.sum(axis=0)
        shares = np.zeros_like(parts.shares)
        shares[-1] = 1.0  # the parts are differences now: later constants, such as a mean, belong to the last row
        return Parts(rows, shares)

    def _map(self, vectors: Floats) -> Floats:
        out = np.empty(vectors.shape, dtype=np.float32)
        function = uniform if self.output == "uniform" else normal

        def work(columns: slice) -> None:
            quantiles = self.quantiles_[columns]
            for start in range(0, len(vectors), _ROWS):
                rows = slice(start, start + _ROWS)
                out[rows, columns] = function(vectors[rows, columns].T.copy(), quantiles).T

        over_columns(work, vectors.shape[1], _VALUES // max(1, min(len(vectors), _ROWS)))
        return out


def uniform(values: NDArray[Any], quantiles: Doubles) -> Doubles:
    """Return the share, from 0 to 1, of a distribution below each of ``values``, shape ``(d, n)``.

    ``quantiles``, shape ``(d, q)``, are those of each dimension at equal steps from 0 to 1, ascending.
    """
    shares = _interpolated(values, quantiles)
    shares[values == quantiles[:, -1:]] = 1.0
    shares[values == quantiles[:, :1]] = 0.0
    return shares


def normal(values: NDArray[Any], quantiles: Doubles) -> Doubles:
    """Return the normal variable with the same share of its distribution below it; see :func:`uniform`."""
    # Round like scikit-learn. In the tails, the normal quantile function magnifies any difference in rounding.
    shares = _interpolated(values, quantiles).astype(values.dtype)
    shares[values + _BOUND > quantiles[:, -1:]] = 1.0
    shares[values - _BOUND < quantiles[:, :1]] = 0.0
    return normal_quantile(np.clip(shares.astype(np.float64), _CLIP, 1.0 - _CLIP))


def _interpolated(values: NDArray[Any], quantiles: Doubles) -> Doubles:
    """Return the share below each value, interpolated between quantiles."""
    q = quantiles.shape[1]
    steps = np.linspace(0.0, 1.0, q)
    wide = values.astype(np.float64)
    after = _count_below(wide, quantiles, np.less)
    low, high = np.maximum(after - 1, 0), np.minimum(after, q - 1)
    start, rise = steps.take(low), steps.take(high)
    rise -= start
    first = np.arange(len(quantiles))[:, None] * q
    low += first
    high += first
    left, width = quantiles.take(low), quantiles.take(high)
    width -= left
    width[width == 0.0] = 1.0  # beyond the outermost quantiles, where the rise is 0 too
    shares: Doubles = wide - left
    shares /= width
    shares *= rise
    shares += start
    if (quantiles[:, 1:] == quantiles[:, :-1]).any():
        last = _count_below(wide, quantiles, np.less_equal) - 1
        hit = last >= after
        shares[hit] = 0.5 * (steps[after[hit]] + steps[last[hit]])
    return shares


def _count_below(values: Doubles, quantiles: Doubles, below: np.ufunc) -> NDArray[np.intp]:
    """Count, for each value, the quantiles of its dimension ``below`` it, by a bisection of all values at once."""
    count = quantiles.shape[1]
    first = np.arange(len(quantiles))[:, None] * count
    place = np.broadcast_to(first, values.shape).copy()
    while count > 1:
        half = count // 2
        place += below(quantiles.take(place + (half - 1)), values) * half
        count -= half
    place += below(quantiles.take(place), values)
    place -= first
    return place
