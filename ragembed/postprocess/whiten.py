"""``whiten``: decorrelate the dimensions and scale them to the same variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragembed.errors import ConfigError, RankError
from ragembed.postprocess.moments import by_blocks, column_means, column_variances, largest, principal
from ragembed.postprocess.protocol import ROUNDING, PostProcessor, Saved, check_fittable
from ragembed.types import Doubles, Floats

if TYPE_CHECKING:
    from typing_extensions import Self


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
        n, d = vectors.shape
        if self.components is not None and self.components > fitted.rank:
            remedy = f"write whiten:{fitted.rank}, whiten" if fitted.rank else "write whiten"
            raise RankError(
                f"whiten:{self.components} is above the rank of the fitted vectors, {fitted.rank} "
                f"(n_samples={n}, n_features={d}): {remedy}, or fit on more texts"
            )
        self.mean_ = fitted.mean
        if fitted.rank == 0:
            self.directions_, self.scale_ = np.eye(d), np.ones(d)
        else:
            kept = self.components or fitted.rank
            self.directions_, self.scale_ = fitted.directions[:kept].copy(), fitted.spreads[:kept].copy()

    def _map(self, vectors: Floats) -> Floats:
        turned = self.directions_.T / self.scale_
        return by_blocks(vectors, lambda block: (block - self.mean_) @ turned, len(self.scale_))
