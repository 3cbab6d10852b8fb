"""Verification: compare every byte of a store with what was committed, and rebuild what can be rebuilt."""

from __future__ import annotations

from ragembed.indexes.verify.checks import Part, Problem, Report
from ragembed.indexes.verify.verification import verify_store

__all__ = ["Part", "Problem", "Report", "verify_store"]
