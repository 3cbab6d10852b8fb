"""``center``: subtract the mean of the fitted vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess.protocol import Floats, State, require


class Center:
    """``x - μ`` per dimension (Stankevičius & Lukoševičius 2024, section 3.4)."""

    mean_: NDArray[np.float32]

    def fit(self, vectors: Floats) -> Center:
        """Take the mean of ``vectors``, shape ``(n, d)``, in float64."""
        self.mean_ = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Return ``vectors`` centred, float32, shape ``(n, d)``."""
        return vectors - self.mean_

    def state(self) -> State:
        """Return what was fitted, by name."""
        return {"mean": self.mean_}

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> Center:
        """Take back :meth:`state`."""
        self.mean_ = require(state, "mean")
        return self
