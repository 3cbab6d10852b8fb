"""``abtt``, all but the top: remove the directions that all texts share."""

from __future__ import annotations

import numpy as np

from ragembed.errors import ConfigError, RankError
from ragembed.postprocess.moments import by_blocks, principal
from ragembed.postprocess.protocol import PostProcessor, Saved
from ragembed.types import Doubles, Floats


class AllButTheTop(PostProcessor):
    """``Ã - Ã UᵀU`` with ``Ã = x - μ`` and U the top principal directions of the fitted vectors.

    Source: Mu & Viswanath 2018; Stankevičius & Lukoševičius 2024, section 3.4. The mean is not added back. The
    dimension stays the same, so documents and queries can lose different directions.

    Parameters
    ----------
    directions
        Number of directions to remove.
    """

    saved = (Saved("mean", np.float64, "d"), Saved("directions", np.float64, "rd"))
    mean_: Doubles
    directions_: Doubles

    def __init__(self, directions: int = 2) -> None:
        if directions < 1:
            raise ConfigError(f"abtt:{directions} removes {directions} directions: expected at least 1")
        self.directions = directions

    def _learn(self, vectors: Floats) -> None:
        fitted = principal(vectors)
        if self.directions > fitted.rank:
            n, d = vectors.shape
            remedy = f"write abtt:{fitted.rank}" if fitted.rank else "write center"
            raise RankError(
                f"abtt:{self.directions} removes more directions than the rank of the fitted vectors, {fitted.rank} "
                f"(n_samples={n}, n_features={d}): {remedy}, or fit on more texts"
            )
        self.mean_, self.directions_ = fitted.mean, fitted.directions[: self.directions].copy()

    def _map(self, vectors: Floats) -> Floats:
        return by_blocks(vectors, self._without_top, vectors.shape[1])

    def _without_top(self, block: Doubles) -> Doubles:
        block -= self.mean_
        block -= (block @ self.directions_.T) @ self.directions_
        return block
