"""``normalize``: unit length."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.parts import Parts
from ragembed.postprocess.protocol import PostProcessor
from ragembed.types import Floats


def unit_rows(vectors: Floats) -> Floats:
    """Scale each row of ``vectors``, shape ``(n, d)``, to length 1; a zero row stays zero.

    Lengths are summed in float64, where no square of a float32 value is lost.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    lengths[lengths == 0.0] = 1.0
    if lengths.max(initial=0.0) <= np.finfo(vectors.dtype).max:
        lengths = lengths.astype(vectors.dtype)  # the division then needs no float64 copy of the vectors
    unit: Floats = (vectors / lengths).astype(vectors.dtype, copy=False)
    return unit


class Normalize(PostProcessor):
    """Unit Euclidean length; a zero row stays zero; nothing is fitted."""

    def _learn(self, vectors: Floats) -> None:
        """Do nothing: a row's length is its own."""

    def transform_parts(self, parts: Parts) -> Parts:
        """Divide all parts by the length of their sum."""
        return Parts(parts.rows / (np.linalg.norm(parts.whole) or 1.0), parts.shares)

    def _map(self, vectors: Floats) -> Floats:
        return unit_rows(vectors)
