"""Post-processors: maps of raw vectors that are fitted on the corpus, and chains of them.

:class:`Chain` and :class:`TwoSidedChain` need NumPy only. The classes whose names end in ``Estimator`` offer the same
maps as scikit-learn transformers; scikit-learn is imported when you first use one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.postprocess.chain import Chain, TwoSidedChain
    from ragembed.postprocess.estimators import (
        AllButTheTopEstimator,
        CenterEstimator,
        CommonComponentsEstimator,
        NormalizeEstimator,
        QuantileEstimator,
        RobustEstimator,
        WhitenEstimator,
        ZScoreEstimator,
    )
    from ragembed.postprocess.steps import unit_rows

__all__ = [
    "AllButTheTopEstimator",
    "CenterEstimator",
    "Chain",
    "CommonComponentsEstimator",
    "NormalizeEstimator",
    "QuantileEstimator",
    "RobustEstimator",
    "TwoSidedChain",
    "WhitenEstimator",
    "ZScoreEstimator",
    "unit_rows",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "chain": ("Chain", "TwoSidedChain"),
        "estimators": tuple(name for name in __all__ if name.endswith("Estimator")),
        "steps": ("unit_rows",),
    },
)
