"""Find better settings for a store with queries drawn from its own documents, without labels.

:func:`tune_store` compares settings and returns a :class:`TuningReport`, which holds one :class:`Candidate` for each
setting and a :class:`Compared` for each comparison. On the command line, use ``ragembed tune``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.indexes.tuning.report import Candidate, Compared, TuningReport
    from ragembed.indexes.tuning.run import tune_store

__all__ = ["Candidate", "Compared", "TuningReport", "tune_store"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "report": ("Candidate", "Compared", "TuningReport"),
        "run": ("tune_store",),
    },
)
