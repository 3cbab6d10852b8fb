"""What every forward pass gives: the hidden states of windows of token ids."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.types import Floats


class Backbone(Protocol):
    """A model that turns windows of token ids into token vectors."""

    dim: int
    n_layers: int

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``: -1 the word embeddings, 0 the blocks' input, 1..L the blocks.

        ``ids`` has shape ``(batch, tokens)``, padded at the right with any id; ``lengths``, shape ``(batch,)``, counts
        the tokens of each row that are not padding. Each is float32, shape ``(batch, tokens, d)``; rows at padding are
        undefined.
        """
        ...

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table, float32, shape ``(vocabulary, d)``."""
        ...
