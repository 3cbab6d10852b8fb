"""Post-processors: maps of vectors that are fitted on the corpus, and the two-sided chain of them.

:class:`Chain` and :class:`TwoSidedChain` are what ragembed itself uses; they need NumPy alone. The classes that end in
``Estimator`` offer the same maps to scikit-learn, which is imported when the first of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes
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


__getattr__ = lazy_attributes(__name__, {"estimators": tuple(name for name in __all__ if name.endswith("Estimator"))})
