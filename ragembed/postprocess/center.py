"""``center``: subtract the mean of the fitted vectors."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.moments import column_means
from ragembed.postprocess.protocol import PostProcessor, Saved
from ragembed.types import Floats


class Center(PostProcessor):
    """Subtract the mean of each dimension: ``x - μ`` (Stankevičius & Lukoševičius 2024, section 3.4)."""

    saved = (Saved("mean", np.float32, "d"),)
    mean_: Floats

    def _learn(self, vectors: Floats) -> None:
        self.mean_ = column_means(vectors).astype(np.float32)

    def _map(self, vectors: Floats) -> Floats:
        return vectors - self.mean_
