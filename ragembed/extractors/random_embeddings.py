"""Random embeddings (RE): a vector drawn at random for each token id.

Source: Stankevičius & Lukoševičius 2024, section 3.2.5. A baseline that knows nothing of meaning, and yet ranks texts
by the tokens that they share.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.extractors.protocol import Floats
from ragembed.extractors.static import Ids


class RandomTable:
    """One vector of ``dim`` independent N(0, ``sigma``) values for each id; ``sigma`` is a standard deviation.

    An id's vector depends on the seed and the id alone: drawn when it is first asked for, from a counter-based
    generator (Salmon et al. 2011) whose stream is fixed, by the transform of Box & Muller 1958.
    """

    def __init__(self, seed: int, dim: int, sigma: float) -> None:
        self.dim = dim
        self._seed = seed
        self._sigma = sigma
        self._row_of: dict[int, int] = {}
        self._drawn = np.empty((0, dim), dtype=np.float32)
        self._drawing = threading.Lock()

    def __reduce__(self) -> tuple[type[RandomTable], tuple[int, int, float]]:
        """Let a copy begin with no vector drawn."""
        return RandomTable, (self._seed, self.dim, self._sigma)

    @property
    def config(self) -> Mapping[str, Any]:
        """Seed, dimension and standard deviation."""
        return {"random": {"seed": self._seed, "dim": self.dim, "sigma": self._sigma}}

    def rows(self, ids: Ids) -> Floats:
        """Return the vectors of ``ids``, float32, shape ``(n, d)``."""
        with self._drawing:
            fresh = sorted(set(ids.tolist()) - self._row_of.keys())
            if fresh:
                self._drawn = np.concatenate([self._drawn, [self._draw(number) for number in fresh]])
                self._row_of.update({number: row for row, number in enumerate(fresh, start=len(self._row_of))})
            drawn = self._drawn
        return drawn[[self._row_of[number] for number in ids.tolist()]]

    def present(self, ids: Ids) -> NDArray[np.bool_]:
        """Return True for each id."""
        return np.ones(ids.shape, dtype=bool)

    def _draw(self, number: int) -> Floats:
        bits = np.random.Philox(key=[number, self._seed]).random_raw(2 * ((self.dim + 1) // 2))
        # In (0, 1]: the logarithm of 0 does not exist.
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
        radius, angle = np.sqrt(-2.0 * np.log(uniform[0::2])), 2.0 * np.pi * uniform[1::2]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        drawn: Floats = (self._sigma * normal[: self.dim]).astype(np.float32)
        return drawn
