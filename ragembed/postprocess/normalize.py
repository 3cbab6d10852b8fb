"""``normalize``: unit length."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.protocol import Floats, PostProcessor


def unit_rows(vectors: Floats) -> Floats:
    """Scale each row of ``vectors``, shape ``(n, d)``, to length 1; a zero row stays zero.

    Lengths are summed in float64, where no square of a float32 value is lost.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    lengths[lengths == 0.0] = 1.0
    unit: Floats = vectors / lengths[:, None].astype(vectors.dtype)
    return unit


class Normalize(PostProcessor):
    """Unit Euclidean length; a zero row stays zero; nothing is fitted."""

    def _learn(self, vectors: Floats) -> None:
        """Do nothing: a row's length is its own."""

    def _map(self, vectors: Floats) -> Floats:
        return unit_rows(vectors)
