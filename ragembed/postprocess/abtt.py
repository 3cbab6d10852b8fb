"""``abtt``, ``common`` and ``common-weighted``: remove the directions that all texts share."""

from __future__ import annotations

import numpy as np

from ragembed.errors import ConfigError, RankError
from ragembed.postprocess.moments import Principal, by_blocks, principal
from ragembed.postprocess.protocol import PostProcessor, Saved
from ragembed.types import Doubles, Floats


class AllButTheTop(PostProcessor):
    """``Ã - Ã UᵀU`` with ``Ã = x - μ`` and U the top principal directions of the fitted vectors.

    Source: Mu & Viswanath 2018; Stankevičius & Lukoševičius 2024, section 3.4. The mean is not added back. The
    dimension stays the same, so documents and queries can lose different directions.
    """

    saved = (Saved("mean", np.float64, "d"), Saved("directions", np.float64, "rd"))
    mean_: Doubles
    directions_: Doubles

    def __init__(self, directions: int = 2) -> None:
        _check_directions("abtt", directions)
        self.directions = directions

    def _learn(self, vectors: Floats) -> None:
        fitted = principal(vectors)
        _check_rank("abtt", self.directions, fitted, vectors)
        self.mean_, self.directions_ = fitted.mean, fitted.directions[: self.directions].copy()

    def _map(self, vectors: Floats) -> Floats:
        return by_blocks(vectors, self._without_top, vectors.shape[1])

    def _without_top(self, block: Doubles) -> Doubles:
        block -= self.mean_
        block -= (block @ self.directions_.T) @ self.directions_
        return block


class CommonComponents(PostProcessor):
    """Remove common components: the first right singular vectors of the fitted vectors, which are not centred.

    ``x - Σᵢ λᵢ (x · cᵢ) cᵢ`` with the unit vectors c of the largest singular values σ. λ is 1 (Arora et al. 2017, "A
    simple but tough-to-beat baseline for sentence embeddings", algorithm 1), or ``σᵢ² / Σⱼ σⱼ²`` over the removed
    components if ``weighted`` (Ethayarajh 2018, "Unsupervised random walk sentence embeddings", section 3).
    """

    saved = (Saved("directions", np.float64, "rd"), Saved("weights", np.float64, "r"))
    directions_: Doubles
    weights_: Doubles

    def __init__(self, directions: int = 1, *, weighted: bool = False) -> None:
        self._name = "common-weighted" if weighted else "common"
        _check_directions(self._name, directions)
        self.directions = directions
        self.weighted = weighted

    def _learn(self, vectors: Floats) -> None:
        fitted = principal(vectors, centred=False)
        _check_rank(self._name, self.directions, fitted, vectors)
        self.directions_ = fitted.directions[: self.directions].copy()
        energies = fitted.spreads[: self.directions] ** 2
        self.weights_ = energies / energies.sum() if self.weighted else np.ones(self.directions)

    def _map(self, vectors: Floats) -> Floats:
        return by_blocks(vectors, self._without_common, vectors.shape[1])

    def _without_common(self, block: Doubles) -> Doubles:
        block -= (block @ self.directions_.T * self.weights_) @ self.directions_
        return block


def _check_directions(name: str, directions: int) -> None:
    if directions < 1:
        raise ConfigError(f"{name}:{directions} removes {directions} directions: expected at least 1")


def _check_rank(name: str, directions: int, fitted: Principal, vectors: Floats) -> None:
    """Raise :class:`RankError` if the fitted ``vectors`` have fewer directions than are removed."""
    if directions > fitted.rank:
        n, d = vectors.shape
        remedy = f"write {name}:{fitted.rank}" if fitted.rank else "write center"
        raise RankError(
            f"{name}:{directions} removes more directions than the rank of the fitted vectors, {fitted.rank} "
            f"(n_samples={n}, n_features={d}): {remedy}, or fit on more texts"
        )
