"""``zscore``: standardise each dimension."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess.protocol import Floats, State, require


class ZScore:
    """``(x - μ) / σ`` per dimension, population σ; a constant dimension is only centred.

    Source: Stankevičius & Lukoševičius 2024, section 3.4. A dimension counts as constant when its σ is below
    1e-6 of its largest absolute value, which is rounding noise in float32.
    """

    mean_: NDArray[np.float32]
    scale_: NDArray[np.float32]

    def fit(self, vectors: Floats) -> ZScore:
        """Take mean and standard deviation of ``vectors``, shape ``(n, d)``, in float64."""
        self.mean_ = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = vectors.std(axis=0, dtype=np.float64)
        constant = scale <= 1e-6 * np.abs(vectors).max(axis=0)
        self.scale_ = np.where(constant, 1.0, scale).astype(np.float32)
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Return ``vectors`` standardised, float32, shape ``(n, d)``."""
        return (vectors - self.mean_) / self.scale_

    def state(self) -> State:
        """Return what was fitted, by name."""
        return {"mean": self.mean_, "scale": self.scale_}

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> ZScore:
        """Take back :meth:`state`."""
        self.mean_, self.scale_ = require(state, "mean"), require(state, "scale")
        return self
