"""What came out of a part of the comparison: the figures that a path is judged by, and what is shown of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIMES = "×"
"""The unit of ratios to a peer, or to another way of ragembed's."""


@dataclass(frozen=True, slots=True)
class Score:
    """A figure of a path, in ``unit``, and the goal that was set for it, where one was.

    ``floor`` is the share of the measured time that the machine needs at the least, from 0 to 1, None where that was
    not computed.
    """

    path: str
    value: float
    goal: float | None = None
    more_is_better: bool = True
    unit: str = TIMES
    floor: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal


@dataclass(frozen=True, slots=True)
class Outcome:
    """The scores of a part, and its paragraphs and tables in Markdown."""

    scores: Sequence[Score]
    paragraphs: Sequence[str]
