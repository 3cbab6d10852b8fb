"""The interface of a forward pass: token ids to hidden states."""

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
        """Return the hidden states of ``layers``.

        Layer -1 is the word embeddings, 0 the input of the blocks, 1 to L the blocks. ``ids`` has shape ``(batch,
        tokens)`` and is padded on the right with any id. ``lengths``, shape ``(batch,)``, is the number of tokens per
        row without padding. Each returned array is float32, shape ``(batch, tokens, d)``; its values at padding are
        undefined.
        """
        ...

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table, float32, shape ``(vocabulary, d)``."""
        ...
