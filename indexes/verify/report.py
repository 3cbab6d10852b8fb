"""What was checked of a store, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Part(Enum):
    """What a problem concerns, and so how it can be mended."""

    DATABASE = "database"
    ROWS = "rows"
    LOG = "log"
    WORDS = "words"
    POSTINGS = "postings"
    RAW = "raw"
    INDEX = "index"
    EMBEDDER = "embedder"
    BASELINE = "baseline"
    CANARY = "canary"
    REWRITTEN = "rewritten"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was committed: ``file``, below the store's folder, and what is wrong with it.

    ``segment`` is the key of the segment that it belongs to, if it belongs to one.
    """

    part: Part
    file: str
    message: str
    segment: int | None = None


@dataclass(slots=True)
class Report:
    """What verifying a store gave.

    ``notes`` say what could not be checked, and why; ``leftovers`` counts folders of writes that never committed.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repaired: list[Problem] = field(default_factory=list)
    leftovers: int = 0
    files: int = 0
    bytes: int = 0
    segments: int = 0
    vectors: int = 0
    chunks: int = 0
    canaries: int = 0

    def parts(self) -> set[Part]:
        """Return what the problems concern."""
        return {problem.part for problem in self.problems}
