"""Reading every byte of a store to tell whether it is what was committed, and rebuilding what can be rebuilt."""

from __future__ import annotations

from ragembed.indexes.verify.report import Part, Problem, Report
from ragembed.indexes.verify.run import verify_store

__all__ = ["Part", "Problem", "Report", "verify_store"]
