"""Word vectors as a token table: B2S, GloVe, word2vec (Stankevičius & Lukoševičius 2024, section 3.2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.word_vectors import WordVectors
from ragembed.types import Floats, Integers


class WordTable:
    """The vectors of a file without the ``drop`` most frequent words, which come first in the file."""

    def __init__(self, vectors: WordVectors, drop: int) -> None:
        self.dim = vectors.dim
        self._vectors = vectors
        self._drop = drop

    @property
    def config(self) -> Mapping[str, Any]:
        """The hash of the file, and the number of words left out."""
        return {"words": self._vectors.sha256, "drop": self._drop}

    def rows(self, ids: Integers) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        return np.asarray(self._vectors.vectors[ids], dtype=np.float32)

    def present(self, ids: Integers) -> NDArray[np.bool_]:
        """Return which of ``ids`` are not left out."""
        return np.asarray(ids >= self._drop)
