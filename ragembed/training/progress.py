"""What a training says of itself; how it is shown is for others to decide."""

from __future__ import annotations

from typing import Protocol


class TrainingProgress(Protocol):
    """A listener. One phase runs at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin ``phase`` ("step 1 of 3, run 1 of 10"), of ``total`` units if that is known."""
        ...

    def advance(self, count: int, detail: str = "") -> None:
        """Take note that ``count`` more units are done; ``detail`` is what else there is to say ("loss 4.21")."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...

    def note(self, text: str) -> None:
        """Say something once: a resumed training, definitions that are cut."""
        ...


class SilentTraining:
    """Says nothing."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Ignore the phase."""

    def advance(self, count: int, detail: str = "") -> None:
        """Ignore the count."""

    def finish(self) -> None:
        """Ignore the end."""

    def note(self, text: str) -> None:
        """Ignore the note."""
