"""The post-processors that shift, scale, rotate or project vectors; ``quantile`` has a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragembed.errors import ConfigError, RankError
from ragembed.postprocess.moments import Principal, by_blocks, column_means, column_variances, largest, principal
from ragembed.postprocess.protocol import ROUNDING, Parts, PostProcessor, Saved, check_fittable
from ragembed.postprocess.quantile import column_quantiles
from ragembed.types import Doubles, Floats

if TYPE_CHECKING:
    from typing_extensions import Self


def unit_rows(vectors: Floats) -> Floats:
    """Scale each row of vectors, float32, shape ``(n, d)``, to length 1; a zero row stays zero.

    Lengths are summed in float64, so that squares of float32 values neither overflow nor underflow.

    >>> import numpy as np
    >>> from ragembed.postprocess import unit_rows
    >>> unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    lengths[lengths == 0.0] = 1.0
    if lengths.max(initial=0.0) <= np.finfo(vectors.dtype).max:
        lengths = lengths.astype(vectors.dtype)  # avoids a float64 copy of the vectors in the division
    unit: Floats = (vectors / lengths).astype(vectors.dtype, copy=False)
    return unit


class Normalize(PostProcessor):
    """Scale each vector to Euclidean length 1; a zero vector stays zero. There is nothing to fit."""

    def _learn(self, vectors: Floats) -> None:
        """Do nothing: the length of a vector depends on that vector alone."""

    def transform_parts(self, parts: Parts) -> Parts:
        """Divide all summands by the length of their sum."""
        return Parts(parts.rows / (np.linalg.norm(parts.whole) or 1.0), parts.shares)

    def _map(self, vectors: Floats) -> Floats:
        return unit_rows(vectors)


class Center(PostProcessor):
    """Subtract the mean of each dimension: ``x - μ`` (Stankevičius & Lukoševičius 2024, section 3.4)."""

    saved = (Saved("mean", np.float32, "d"),)
    mean_: Floats

    def _learn(self, vectors: Floats) -> None:
        self.mean_ = column_means(vectors).astype(np.float32)

    def _map(self, vectors: Floats) -> Floats:
        return vectors - self.mean_


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


class Whiten(PostProcessor):
    """PCA whitening, ``(x - μ) V / √variance``, with variances over ``n - 1``, on the first ``components`` directions.

    Source: Stankevičius & Lukoševičius 2024, section 3.4; equal to scikit-learn's ``PCA(whiten=True)``, signs included.
    Directions along which the fitted vectors vary no more than by rounding are dropped. If all vectors are equal, no
    direction is left, and vectors are only centred.
    """

    saved = (
        Saved("mean", np.float64, "d"),
        Saved("directions", np.float64, "od"),
        Saved("scale", np.float64, "o"),
    )
    mean_: Doubles
    directions_: Doubles
    scale_: Doubles

    def __init__(self, components: int | None = None) -> None:
        if components is not None and components < 1:
            raise ConfigError(f"whiten:{components} keeps {components} directions: expected at least 1")
        self.components = components

    def fit_queries(self, vectors: Floats, documents: Self) -> Self:
        """Fit mean and variances on query vectors, along the directions of ``documents``.

        With directions of its own, the cosine between queries and documents would be meaningless. Along a direction in
        which the queries vary no more than by rounding, the variance of the documents is used.
        """
        check_fittable(vectors)
        directions = documents.state()["directions"]
        if vectors.shape[1] != directions.shape[1]:
            raise ConfigError(
                f"the query vectors have {vectors.shape[1]} dimensions: expected {directions.shape[1]}, "
                "like the document vectors"
            )
        self.mean_, self.directions_ = column_means(vectors), directions
        unbiased = len(vectors) / max(len(vectors) - 1, 1)
        spreads = np.sqrt(column_variances(vectors, self.mean_, self.directions_) * unbiased)
        still = spreads <= ROUNDING * np.maximum(documents.scale_, largest(vectors).max())
        self.scale_ = np.where(still, documents.scale_, spreads)
        return self

    def _learn(self, vectors: Floats) -> None:
        fitted = principal(vectors)
        if self.components is not None:
            _check_rank("whiten", self.components, fitted, vectors, without="whiten")
        self.mean_ = fitted.mean
        if fitted.rank == 0:
            self.directions_, self.scale_ = np.eye(vectors.shape[1]), np.ones(vectors.shape[1])
        else:
            count = self.components or fitted.rank
            self.directions_, self.scale_ = fitted.directions[:count].copy(), fitted.spreads[:count].copy()

    def _map(self, vectors: Floats) -> Floats:
        turned = self.directions_.T / self.scale_
        return by_blocks(vectors, lambda block: (block - self.mean_) @ turned, len(self.scale_))


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


def _check_rank(name: str, directions: int, fitted: Principal, vectors: Floats, without: str = "center") -> None:
    """Raise :class:`RankError` if the fitted ``vectors`` have fewer directions than a post-processor needs."""
    if directions > fitted.rank:
        n, d = vectors.shape
        remedy = f"write {name}:{fitted.rank} or {without}" if fitted.rank else f"write {without}"
        raise RankError(
            f"{name}:{directions} needs more directions than the rank of the fitted vectors, {fitted.rank} "
            f"(n_samples={n}, n_features={d}): {remedy}, or fit on more texts"
        )
