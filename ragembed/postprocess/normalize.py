"""``normalize``: scale vectors to unit length."""

from __future__ import annotations

import numpy as np

from ragembed.postprocess.parts import Parts
from ragembed.postprocess.protocol import PostProcessor
from ragembed.types import Floats


def unit_rows(vectors: Floats) -> Floats:
    """Scale each row to length 1; a zero row stays zero.

    Lengths are summed in float64, so that squares of float32 values neither overflow nor underflow.

    Parameters
    ----------
    vectors : numpy.ndarray
        The vectors, float32, shape ``(n, d)``.

    Returns
    -------
    numpy.ndarray
        The scaled vectors, of the same type and shape.

    Examples
    --------
    >>> import numpy as np
    >>> from ragembed.postprocess import unit_rows
    >>> unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[:, None]
    lengths[lengths == 0.0] = 1.0
    if lengths.max(initial=0.0) <= np.finfo(vectors.dtype).max:
        lengths = lengths.astype(vectors.dtype)  # avoids a float64 copy of the vectors in the division
    unit: Floats = (vectors / lengths).astype(vectors.dtype, copy=False)
    return unit


class Normalize(PostProcessor):
    """Scale each vector to Euclidean length 1; a zero vector stays zero. There is nothing to fit."""

    def _learn(self, vectors: Floats) -> None:
        """Do nothing: the length of a vector depends on that vector alone."""

    def transform_parts(self, parts: Parts) -> Parts:
        """Divide all summands by the length of their sum."""
        return Parts(parts.rows / (np.linalg.norm(parts.whole) or 1.0), parts.shares)

    def _map(self, vectors: Floats) -> Floats:
        return unit_rows(vectors)
