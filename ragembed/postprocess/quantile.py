"""``quantile-u`` and ``quantile-n``: give every dimension the same distribution, uniform or normal; and quantiles."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.postprocess.protocol import Parts, PostProcessor, Saved
from ragembed.resources import processors
from ragembed.types import Doubles, Floats

Output = Literal["uniform", "normal"]

_MOST_QUANTILES = 1000
_BOUND = 1e-7
_CLIP = _BOUND - np.spacing(1.0)
_ROWS, _VALUES = 2048, 1 << 15
_NEAR = 1e-3
_SORTED_VALUES, _MOST_THREADS = 1 << 21, 8

# Coefficients of AS 241, highest power first.
_CENTRE: Final = (
    (
        2509.0809287301226727,
        33430.575583588128105,
        67265.770927008700853,
        45921.953931549871457,
        13731.693765509461125,
        1971.5909503065514427,
        133.14166789178437745,
        3.3871328727963666080,
    ),
    (
        5226.4952788528545610,
        28729.085735721942674,
        39307.895800092710610,
        21213.794301586595867,
        5394.1960214247511077,
        687.18700749205790830,
        42.313330701600911252,
        1.0,
    ),
)
_TAIL: Final = (
    (
        7.74545014278341407640e-4,
        0.0227238449892691845833,
        0.241780725177450611770,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        0.0151986665636164571966,
        0.148103976427480074590,
        0.689767334985100004550,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ),
)


class Quantile(PostProcessor):
    """Replace each value by the share of fitted values below it, or by the normal variable with that share.

    Equal to scikit-learn's ``QuantileTransformer(n_quantiles=min(1000, n), subsample=None)``: shares are interpolated,
    equal quantiles have the mean of their shares, and normal variables are limited to ±5.2.
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

        This is the rescale rule of DeepLIFT (Shrikumar et al. 2017). The image of the median, and dimensions near it,
        whose slope is meaningless, go to the last row.
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


def column_quantiles(vectors: NDArray[Any], shares: Doubles) -> Doubles:
    """Return the quantiles, ``(d, q)``, at ``q`` shares of each dimension: ``np.quantile(vectors, shares, axis=0).T``.

    The arithmetic equals NumPy's to the last bit, because equal values must stay equal; for hundreds of quantiles,
    sorting is faster than NumPy's selection.
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

    over_columns(work, d, max(1, _SORTED_VALUES // n))
    return out


def over_columns(work: Callable[[slice], None], columns: int, width: int) -> None:
    """Call ``work`` on slices of ``width`` columns that cover ``columns``, in threads if there are several slices.

    NumPy releases the GIL while it works on a large array.
    """
    slices = [slice(start, min(start + width, columns)) for start in range(0, columns, width)]
    threads = min(len(slices), processors(), _MOST_THREADS)
    if threads <= 1:
        for block in slices:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, block) for block in slices]:
            future.result()


def normal_quantile(shares: Doubles) -> Doubles:
    """Return the quantiles of the standard normal distribution at probabilities ``shares``, of any shape.

    Valid for probabilities from 1.4e-11 to 1 - 1.4e-11, with a relative error of about 1e-15. Source: Wichura 1988,
    algorithm AS 241 (PPND16), without its outermost range. SciPy, which has it too, would delay queries.
    """
    offset = shares - 0.5
    square = 0.180625 - offset * offset
    values: Doubles = offset * np.polyval(_CENTRE[0], square) / np.polyval(_CENTRE[1], square)
    outer = np.abs(offset) > 0.425
    lower = np.minimum(shares[outer], 1.0 - shares[outer])
    distance = np.sqrt(-np.log(lower)) - 1.6
    values[outer] = np.copysign(np.polyval(_TAIL[0], distance) / np.polyval(_TAIL[1], distance), offset[outer])
    return values
