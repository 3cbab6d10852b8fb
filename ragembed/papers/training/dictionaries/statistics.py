"""The size of a dictionary, as in table 1 of Liu 2024 (DefSent+)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.papers.training.dictionaries.senses import Dictionary


@dataclass(frozen=True, slots=True)
class DictionaryStatistics:
    """The size of a dictionary; lengths of definitions are in tokens, including special tokens."""

    definitions: int
    entries: int
    max_length: int
    median_length: float

    def to_dict(self) -> dict[str, int | float]:
        """Return the fields as JSON values."""
        return asdict(self)


def statistics(dictionary: Dictionary, lengths: ArrayLike) -> DictionaryStatistics:
    """Return the statistics of ``dictionary``. ``lengths`` has the tokens per definition, shape ``(definitions,)``."""
    tokens = np.asarray(lengths)
    return DictionaryStatistics(len(tokens), len(dictionary), int(tokens.max()), float(np.median(tokens)))
