"""Where the files of a number of vectors are, and what was settled about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

K = 10
"""Answers that are asked for."""

RANK, SCALE = 64, 0.7
"""Principal components that noise is spread over, and its standard deviation as a share of theirs."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The folder of ``size`` vectors."""

    folder: Path
    size: int

    @property
    def vectors(self) -> Path:
        """Unit vectors, float32, shape ``(size, d)``, alone in a folder, as autofaiss wants them."""
        return self.folder / "vectors" / "vectors.npy"

    @property
    def raw(self) -> Path:
        """The same in float16, little-endian, row-major, as a store keeps raw vectors."""
        return self.folder / "raw.f16"

    @property
    def tuning(self) -> Path:
        """Pseudo-queries for ragembed to tune with, float32."""
        return self.folder / "tuning.npy"

    @property
    def questions(self) -> Path:
        """What is asked in the end, float32, shape ``(n, d)``."""
        return self.folder / "questions.npy"

    @property
    def truth(self) -> Path:
        """Of each question whether it is a person's (``real``), and the rows that are right (``rows``)."""
        return self.folder / "truth.npz"
