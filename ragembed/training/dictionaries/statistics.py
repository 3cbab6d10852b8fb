"""The size of a dictionary, as table 1 of Liu 2024 (DefSent+) states it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragembed.training.dictionaries.senses import Dictionary


@dataclass(frozen=True, slots=True)
class DictionaryStatistics:
    """Definitions, entries, and the longest and the median definition in tokens, special tokens counted."""

    definitions: int
    entries: int
    max_length: int
    median_length: float

    def to_dict(self) -> dict[str, int | float]:
        """Return the fields as JSON values."""
        return asdict(self)


def statistics(dictionary: Dictionary, lengths: ArrayLike) -> DictionaryStatistics:
    """Return the statistics of ``dictionary``, whose definitions have ``lengths`` tokens, shape ``(definitions,)``."""
    tokens = np.asarray(lengths)
    return DictionaryStatistics(len(tokens), len(dictionary), int(tokens.max()), float(np.median(tokens)))
