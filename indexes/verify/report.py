"""The report of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Part(Enum):
    """The part of a store that a problem concerns, which decides how it can be repaired."""

    DATABASE = "database"
    ROWS = "rows"
    LOG = "log"
    WORDS = "words"
    POSTINGS = "postings"
    RAW = "raw"
    INDEX = "index"
    EMBEDDER = "embedder"
    BASELINE = "baseline"
    HUBNESS = "hubness"
    CANARY = "canary"
    REWRITTEN = "rewritten"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference from the committed state of a store.

    Attributes
    ----------
    part : Part
        The part of the store that is damaged.
    file : str
        The file, relative to the store's folder.
    message : str
        Description of the damage.
    segment : int or None
        Key of the segment that the file belongs to, if any.
    """

    part: Part
    file: str
    message: str
    segment: int | None = None


@dataclass(slots=True)
class Report:
    """The result of verifying a store.

    Attributes
    ----------
    problems : list of Problem
        The damage that was found.
    notes : list of str
        What could not be checked, and why.
    repaired : list of Problem
        The damage that was found and repaired.
    leftovers : int
        Number of folders of writes that never committed.
    files, bytes, segments, vectors, chunks, canaries : int
        Numbers of checked files, bytes, segments, vectors, chunks, and texts that were encoded again for comparison.
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
        """Return the parts of the store that the problems concern."""
        return {problem.part for problem in self.problems}

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [(each.part.value, each.file, each.message) for each in self.problems]
        found = f"{len(self.problems):,} problems" if self.problems else "no problems"
        return notebook_table(f"Verification of {self.files:,} files: {found}", ("Part", "File", "Problem"), rows)
