"""Diagnosis: every check of a store and its files in one pass that only reads, with the remedy for each finding."""

from __future__ import annotations

from ragembed.indexes.doctor.findings import Diagnosis, Finding, SkippedCheck
from ragembed.indexes.doctor.run import diagnose

__all__ = ["Diagnosis", "Finding", "SkippedCheck", "diagnose"]
