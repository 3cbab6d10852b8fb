"""Post-processors: maps of vectors that are fitted on the corpus, and the two-sided chain of them.

:class:`Chain` and :class:`TwoSidedChain` are what ragembed itself uses; they need NumPy alone. The classes that end in
``Estimator`` offer the same maps to scikit-learn, which is imported when the first of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragembed.postprocess.chain import Chain, TwoSidedChain
from ragembed.postprocess.normalize import unit_rows

if TYPE_CHECKING:
    from ragembed.postprocess.estimators import (
        AllButTheTopEstimator,
        CenterEstimator,
        NormalizeEstimator,
        QuantileEstimator,
        RobustEstimator,
        WhitenEstimator,
        ZScoreEstimator,
    )

_ESTIMATORS = (
    "AllButTheTopEstimator",
    "CenterEstimator",
    "NormalizeEstimator",
    "QuantileEstimator",
    "RobustEstimator",
    "WhitenEstimator",
    "ZScoreEstimator",
)

__all__ = [
    "AllButTheTopEstimator",
    "CenterEstimator",
    "Chain",
    "NormalizeEstimator",
    "QuantileEstimator",
    "RobustEstimator",
    "TwoSidedChain",
    "WhitenEstimator",
    "ZScoreEstimator",
    "unit_rows",
]


def __getattr__(name: str) -> Any:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'ragembed.postprocess' has no attribute {name!r}")
    from ragembed.postprocess import estimators

    return getattr(estimators, name)
