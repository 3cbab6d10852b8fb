"""Tuning a store on its own documents, without labels: :func:`tune_store`, and what it reports."""

from __future__ import annotations

from ragembed.indexes.tuning.applying import apply_settings
from ragembed.indexes.tuning.report import Candidate, Compared, TuningReport
from ragembed.indexes.tuning.run import tune_store

__all__ = ["Candidate", "Compared", "TuningReport", "apply_settings", "tune_store"]
