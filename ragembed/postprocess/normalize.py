"""``normalize``: unit length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ragembed.postprocess.protocol import Floats, State


def unit_rows(vectors: Floats) -> Floats:
    """Scale each row of ``vectors``, shape ``(n, d)``, to length 1; a zero row stays zero."""
    lengths: Floats = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
    lengths[lengths == 0.0] = 1.0
    return vectors / lengths


class Normalize:
    """Unit Euclidean length; nothing is fitted."""

    def fit(self, vectors: Floats) -> Normalize:  # noqa: ARG002  the protocol's signature
        """Return self: there is nothing to fit."""
        return self

    def transform(self, vectors: Floats) -> Floats:
        """Return ``vectors`` at length 1, float32, shape ``(n, d)``."""
        return unit_rows(vectors)

    def state(self) -> State:
        """Return what was fitted: nothing."""
        return {}

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> Normalize:  # noqa: ARG002  as above
        """Return self: there is nothing to take back."""
        return self
