"""Post-processors: maps of raw vectors that are fitted on the corpus, and chains of them.

:class:`Chain` and :class:`TwoSidedChain` need NumPy only. The classes whose names end in ``Estimator`` offer the same
maps as scikit-learn transformers; scikit-learn is imported when you first use one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.postprocess.chain import Chain as Chain
    from ragembed.postprocess.chain import TwoSidedChain as TwoSidedChain
    from ragembed.postprocess.estimators import AllButTheTopEstimator as AllButTheTopEstimator
    from ragembed.postprocess.estimators import CenterEstimator as CenterEstimator
    from ragembed.postprocess.estimators import CommonComponentsEstimator as CommonComponentsEstimator
    from ragembed.postprocess.estimators import NormalizeEstimator as NormalizeEstimator
    from ragembed.postprocess.estimators import QuantileEstimator as QuantileEstimator
    from ragembed.postprocess.estimators import RobustEstimator as RobustEstimator
    from ragembed.postprocess.estimators import WhitenEstimator as WhitenEstimator
    from ragembed.postprocess.estimators import ZScoreEstimator as ZScoreEstimator
    from ragembed.postprocess.steps import unit_rows as unit_rows

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "chain": ("Chain", "TwoSidedChain"),
        "estimators": (
            *("AllButTheTopEstimator", "CenterEstimator", "CommonComponentsEstimator", "NormalizeEstimator"),
            *("QuantileEstimator", "RobustEstimator", "WhitenEstimator", "ZScoreEstimator"),
        ),
        "steps": ("unit_rows",),
    },
)
__all__ = __dir__()
