"""``robust``: standardise each dimension by median and quartiles, which are insensitive to outliers."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.column_quantiles import column_quantiles
from ragembed.postprocess.protocol import ROUNDING, PostProcessor, Saved
from ragembed.types import Floats


class Robust(PostProcessor):
    """``(x - median) / (q75 - q25)`` per dimension; ``x - median`` if the quartiles are equal.

    Equal to scikit-learn's ``RobustScaler``. Quartiles count as equal if they differ by less than 1e-6 of their size,
    which is rounding noise in float32.
    """

    saved = (Saved("median", np.float32, "d"), Saved("scale", np.float32, "d"))
    median_: Floats
    scale_: Floats

    def _learn(self, vectors: Floats) -> None:
        low, median, high = column_quantiles(vectors, np.array([0.25, 0.5, 0.75])).T
        constant = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
        self.median_ = median.astype(np.float32)
        self.scale_ = np.where(constant, 1.0, high - low).astype(np.float32)

    def _map(self, vectors: Floats) -> Floats:
        centred: Floats = vectors - self.median_
        centred /= self.scale_
        return centred
