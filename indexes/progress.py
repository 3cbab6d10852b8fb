"""What long work says of itself; how it is shown is for others to decide."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener. One phase runs at a time."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Begin ``phase`` ("reading", "embedding"), of ``total`` units if that is known."""
        ...

    def advance(self, count: int) -> None:
        """Take note that ``count`` more units are done."""
        ...

    def finish(self) -> None:
        """End the phase."""
        ...


class Silent:
    """Says nothing."""

    def start(self, phase: str, unit: str, total: int | None) -> None:
        """Ignore the phase."""

    def advance(self, count: int) -> None:
        """Ignore the count."""

    def finish(self) -> None:
        """Ignore the end."""
