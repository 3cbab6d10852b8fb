"""The interface through which a training reports its progress."""

from __future__ import annotations

from typing import Protocol


class TrainingProgress(Protocol):
    """Receives the progress of a training. One phase runs at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Start ``phase`` (such as "step 1 of 3, run 1 of 10") with ``total`` units, or None if unknown."""
        ...

    def advance(self, count: int, detail: str = "") -> None:
        """Report ``count`` more finished units. ``detail`` is additional information (such as "loss 4.21")."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...

    def note(self, text: str) -> None:
        """Report a single message, such as a resumed training or truncated definitions."""
        ...


class SilentTraining:
    """Ignores all progress."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Ignore the phase."""

    def advance(self, count: int, detail: str = "") -> None:
        """Ignore the count."""

    def finish(self) -> None:
        """Ignore the end."""

    def note(self, text: str) -> None:
        """Ignore the note."""
