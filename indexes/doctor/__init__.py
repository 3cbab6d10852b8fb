"""Diagnosis: every check of a store and its files in one pass that only reads, with the remedy for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.indexes.doctor.diagnosis import diagnose
    from ragembed.indexes.doctor.findings import Diagnosis, Finding, SkippedCheck

__all__ = ["Diagnosis", "Finding", "SkippedCheck", "diagnose"]

__getattr__, __dir__ = lazy_attributes(
    __name__, {"diagnosis": ("diagnose",), "findings": ("Diagnosis", "Finding", "SkippedCheck")}
)
