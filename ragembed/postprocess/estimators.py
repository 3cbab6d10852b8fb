"""The post-processors as scikit-learn transformers, for pipelines, grid searches and data frames.

Each class wraps the post-processor of the same name, which is the attribute ``kernel_`` after a fit. All of them read
float32 or float64 arrays of shape ``(n, d)`` and return float32. They need scikit-learn 1.6 or later. The page
"Post-processors" has the formulas and their sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Self

from ragembed.extras import needed_for
from ragembed.postprocess.protocol import PostProcessor
from ragembed.postprocess.quantile import Output, Quantile
from ragembed.postprocess.steps import AllButTheTop, Center, CommonComponents, Normalize, Robust, Whiten, ZScore
from ragembed.types import Floats

with needed_for("a scikit-learn transformer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data


class _KernelEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class: scikit-learn's checks around a post-processor, which is ``kernel_`` after a fit."""

    _made: ClassVar[Callable[..., PostProcessor]]
    """The class of the post-processor, which takes the parameters of the estimator."""
    kernel_: PostProcessor
    n_features_in_: int

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: N803  scikit-learn's signature
        """Fit on the rows of ``X``, float32 or float64, finite, shape ``(n, d)``, ``n >= 1``; ``y`` is ignored.

        Raises :class:`ragembed.errors.RankError` if the post-processor needs more directions than the rank of ``X``,
        and :class:`ValueError` for a wrong ``X``.
        """
        del y
        self.kernel_ = type(self)._made(**self.get_params()).fit(self._validated(X, reset=True))
        return self

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803  scikit-learn's signature
        """Return the transformed rows of ``X``, float32, shape ``(n, d')``.

        Raises scikit-learn's ``NotFittedError`` before a fit, and :class:`ValueError` if ``X`` has another dimension
        than the fit or a value is not finite.
        """
        check_is_fitted(self)
        return self.kernel_.transform(self._validated(X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _validated(self, X: ArrayLike, reset: bool) -> Floats:  # noqa: N803  as above
        vectors: Floats = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        return vectors


class _OneToOneEstimator(OneToOneFeatureMixin, _KernelEstimator):  # type: ignore[misc]  # as above
    """Base class of estimators that keep the dimension, so that features keep their names."""


class CenterEstimator(_OneToOneEstimator):
    """Subtract the mean of each dimension; the post-processor ``center`` as a scikit-learn transformer."""

    _made = Center


class ZScoreEstimator(_OneToOneEstimator):
    """Standardise each dimension; the post-processor ``zscore`` as a scikit-learn transformer."""

    _made = ZScore


class QuantileEstimator(_OneToOneEstimator):
    """Give each dimension a uniform or normal distribution; ``quantile-u`` and ``quantile-n`` as one transformer.

    ``output`` is ``"uniform"`` or ``"normal"``.
    """

    def __init__(self, output: Output = "uniform") -> None:
        self.output = output

    _made = Quantile


class RobustEstimator(_OneToOneEstimator):
    """Standardise each dimension by its quartiles; the post-processor ``robust`` as a scikit-learn transformer."""

    _made = Robust


class WhitenEstimator(ClassNamePrefixFeaturesOutMixin, _KernelEstimator):  # type: ignore[misc]  # as above
    """Decorrelate the dimensions; the post-processor ``whiten[:k]`` as a scikit-learn transformer.

    ``components`` is the number of directions to keep, those with the largest variance first; None keeps all along
    which the vectors vary.
    """

    def __init__(self, components: int | None = None) -> None:
        self.components = components

    @property
    def _n_features_out(self) -> int:
        return len(self.kernel_.state()["scale"])

    _made = Whiten


class AllButTheTopEstimator(_OneToOneEstimator):
    """Remove the top principal directions; the post-processor ``abtt:d`` as a scikit-learn transformer.

    ``directions`` is the number of directions to remove.
    """

    def __init__(self, directions: int = 2) -> None:
        self.directions = directions

    _made = AllButTheTop


class CommonComponentsEstimator(_OneToOneEstimator):
    """Remove common components; the post-processors ``common:m`` and ``common-weighted:m`` as one transformer.

    ``directions`` is the number of components; if ``weighted``, a part of each is removed.
    """

    def __init__(self, directions: int = 1, weighted: bool = False) -> None:
        self.directions = directions
        self.weighted = weighted

    _made = CommonComponents


class NormalizeEstimator(_OneToOneEstimator):
    """Scale each row to length 1; the post-processor ``normalize`` as a scikit-learn transformer."""

    _made = Normalize
