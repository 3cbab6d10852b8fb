"""The interface through which an evaluation reports its progress."""

from __future__ import annotations

from typing import Protocol


class EvaluationProgress(Protocol):
    """Receives the progress of an evaluation. One phase runs at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Start ``phase``, such as "sts12: encoding", with ``total`` units, or None if unknown."""
        ...

    def advance(self, count: int) -> None:
        """Report ``count`` more finished units."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...


class SilentEvaluation:
    """Ignores all progress."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Ignore the phase."""

    def advance(self, count: int) -> None:
        """Ignore the count."""

    def finish(self) -> None:
        """Ignore the end."""
