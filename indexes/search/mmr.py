"""Maximal marginal relevance: results that are near the query and not near each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def mmr(query: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Return the positions of ``k`` of ``vectors``, in the order in which they are chosen.

    Each is the one with the highest ``lambda_mult`` times its cosine with the query, less ``1 - lambda_mult`` times its
    highest cosine with one that was chosen before; of equals the first (Carbonell & Goldstein 1998, "The use of MMR").
    ``query``, shape ``(d,)``, and ``vectors``, shape ``(n, d)``, are unit vectors.
    """
    return choose(vectors @ query, vectors, k, lambda_mult)


def choose(relevance: Floats, vectors: Floats, k: int, lambda_mult: float) -> list[int]:
    """Return what :func:`mmr` does, by any ``relevance``, shape ``(n,)``, in the place of the cosines."""
    relevance = lambda_mult * relevance
    likeness = np.zeros(len(vectors), dtype=np.float32)  # the first is chosen by relevance alone
    left = np.ones(len(vectors), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < min(k, len(vectors)):
        best = int(np.argmax(np.where(left, relevance - (1 - lambda_mult) * likeness, -np.inf)))
        cosines = vectors @ vectors[best]
        likeness = cosines if not chosen else np.maximum(likeness, cosines)
        left[best] = False
        chosen.append(best)
    return chosen
