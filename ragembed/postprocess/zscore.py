"""``zscore``: standardise each dimension by mean and standard deviation."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.moments import column_means, column_variances, largest
from ragembed.postprocess.protocol import ROUNDING, PostProcessor, Saved
from ragembed.types import Floats


class ZScore(PostProcessor):
    """``(x - μ) / σ`` per dimension, with the population σ; a constant dimension is only centred.

    Source: Stankevičius & Lukoševičius 2024, section 3.4. A dimension counts as constant if its σ is below 1e-6 of its
    largest absolute value, which is rounding noise in float32.
    """

    saved = (Saved("mean", np.float32, "d"), Saved("scale", np.float32, "d"))
    mean_: Floats
    scale_: Floats

    def _learn(self, vectors: Floats) -> None:
        mean = column_means(vectors)
        spread = np.sqrt(column_variances(vectors, mean))
        constant = spread <= ROUNDING * largest(vectors)
        self.mean_ = mean.astype(np.float32)
        self.scale_ = np.where(constant, 1.0, spread).astype(np.float32)

    def _map(self, vectors: Floats) -> Floats:
        centred: Floats = vectors - self.mean_
        centred /= self.scale_
        return centred
