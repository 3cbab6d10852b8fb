"""The post-processors as scikit-learn transformers, for pipelines, grid searches and data frames.

Each is a thin case for the post-processor of the same name, whose docstring gives formula and source: parameters in,
``kernel_`` out. All take float32 or float64 of shape ``(n, d)`` and give float32. scikit-learn 1.6 or later.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Self

from ragembed.extras import needed_for
from ragembed.postprocess.abtt import AllButTheTop
from ragembed.postprocess.center import Center
from ragembed.postprocess.normalize import Normalize
from ragembed.postprocess.protocol import PostProcessor
from ragembed.postprocess.quantile import Output, Quantile
from ragembed.postprocess.robust import Robust
from ragembed.postprocess.whiten import Whiten
from ragembed.postprocess.zscore import ZScore
from ragembed.types import Floats

with needed_for("a scikit-learn transformer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data


class _KernelEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Checks of scikit-learn around a post-processor, which is ``kernel_`` once fitted."""

    kernel_: PostProcessor
    n_features_in_: int

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: N803, ARG002  scikit-learn's signature
        """Fit on the rows of ``X``, shape ``(n, d)``, finite, ``n >= 1``; ``y`` is ignored."""
        self.kernel_ = self._kernel().fit(self._validated(X, reset=True))
        return self

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803  scikit-learn's signature
        """Return the rows of ``X``, shape ``(n, d)``, transformed, float32."""
        check_is_fitted(self)
        return self.kernel_.transform(self._validated(X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _validated(self, X: ArrayLike, reset: bool) -> Floats:  # noqa: N803  as above
        vectors: Floats = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        return vectors

    @abstractmethod
    def _kernel(self) -> PostProcessor:
        """Return the post-processor that the parameters ask for, not fitted."""


class _OneToOneEstimator(OneToOneFeatureMixin, _KernelEstimator):  # type: ignore[misc]  # as above
    """A post-processor that works on each dimension, or keeps the space, so that features keep their names."""


class CenterEstimator(_OneToOneEstimator):
    """``center`` as a scikit-learn transformer; see :class:`ragembed.postprocess.center.Center`."""

    def _kernel(self) -> Center:
        return Center()


class ZScoreEstimator(_OneToOneEstimator):
    """``zscore`` as a scikit-learn transformer; see :class:`ragembed.postprocess.zscore.ZScore`."""

    def _kernel(self) -> ZScore:
        return ZScore()


class QuantileEstimator(_OneToOneEstimator):
    """``quantile-u`` and ``quantile-n`` as one transformer; see :class:`ragembed.postprocess.quantile.Quantile`."""

    def __init__(self, output: Output = "uniform") -> None:
        self.output = output

    def _kernel(self) -> Quantile:
        return Quantile(self.output)


class RobustEstimator(_OneToOneEstimator):
    """``robust`` as a scikit-learn transformer; see :class:`ragembed.postprocess.robust.Robust`."""

    def _kernel(self) -> Robust:
        return Robust()


class WhitenEstimator(ClassNamePrefixFeaturesOutMixin, _KernelEstimator):  # type: ignore[misc]  # as above
    """``whiten[:k]`` as a scikit-learn transformer; see :class:`ragembed.postprocess.whiten.Whiten`."""

    def __init__(self, components: int | None = None) -> None:
        self.components = components

    @property
    def _n_features_out(self) -> int:
        return len(self.kernel_.state()["scale"])

    def _kernel(self) -> Whiten:
        return Whiten(self.components)


class AllButTheTopEstimator(_OneToOneEstimator):
    """``abtt:d`` as a scikit-learn transformer; see :class:`ragembed.postprocess.abtt.AllButTheTop`."""

    def __init__(self, directions: int = 2) -> None:
        self.directions = directions

    def _kernel(self) -> AllButTheTop:
        return AllButTheTop(self.directions)


class NormalizeEstimator(_OneToOneEstimator):
    """``normalize`` as a scikit-learn transformer; see :class:`ragembed.postprocess.normalize.Normalize`."""

    def _kernel(self) -> Normalize:
        return Normalize()
