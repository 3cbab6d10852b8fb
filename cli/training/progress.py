"""The progress of a training on stderr: rate and time left as elsewhere, and the loss."""

from __future__ import annotations

from ragembed.cli.output import say
from ragembed.cli.progress import StderrProgress


class StderrTrainingProgress(StderrProgress):
    """Shows phases with their loss, and notes; implements :class:`ragembed.training.progress.TrainingProgress`."""

    def __init__(self) -> None:
        super().__init__()
        self._detail = ""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin a phase."""
        self._detail = ""
        super().start(phase, unit, total)

    def advance(self, count: int, detail: str = "") -> None:
        """Count, and show where it is time to, with the last ``detail``."""
        self._detail = detail or self._detail
        super().advance(count)

    def note(self, text: str) -> None:
        """Say something on a line of its own."""
        self.finish()
        say(f"note: {text}", err=True)

    def line(self, seconds: float) -> str:
        """Return what is shown after ``seconds`` of the phase."""
        shown = super().line(seconds)
        return f"{shown}, {self._detail}" if self._detail else shown
