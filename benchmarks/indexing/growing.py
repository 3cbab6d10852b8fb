"""More vectors than there are texts: copies with noise that has the shape of the vectors' own spread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from indexing.layout import RANK, SCALE
from ragembed.postprocess import unit_rows

Floats = NDArray[np.float32]


def grown(base: Floats, count: int, seed: int) -> Iterator[Floats]:
    """Yield ``count`` unit vectors in blocks: ``base``, shape ``(n, d)``, then its copies with noise.

    Fewer vectors are the first of more.
    """
    noise = _noise(base) if count > len(base) else None
    for number, start in enumerate(range(0, count, len(base))):
        rows = base[: min(len(base), count - start)]
        if number and noise is not None:
            drawn = np.random.default_rng([seed, number]).standard_normal((len(rows), len(noise)), dtype=np.float32)
            rows = unit_rows(rows + drawn @ noise)
        yield rows


def _noise(base: Floats) -> Floats:
    """Return the largest principal components, shape ``(RANK, d)``, each as long as its noise."""
    variances, components = np.linalg.eigh(np.cov(base, rowvar=False))
    lengths = SCALE * np.sqrt(np.maximum(variances[-RANK:], 0.0))
    return np.asarray((components[:, -RANK:] * lengths).T, dtype=np.float32)
