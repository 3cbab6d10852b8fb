"""A set of vectors in several indexes of about equal size, each of which is searched, and what they find merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragembed.indexes.ann.vectors import Floats, Rows, Vectors


@dataclass(frozen=True, slots=True)
class Shard:
    """Vectors that one index is made of: their ids are ``rows``, int64, shape ``(n,)``, ascending; it goes to ``file``.

    Its centroids and quantisers learn from its own vectors alone, so that it can be made, and made again, without the
    other shards.
    """

    vectors: Vectors
    rows: Rows
    file: Path


def shard_sizes(total: int, shards: int) -> list[int]:
    """Return how many of ``total`` vectors each shard has: sizes that differ by one at most, and none that is empty."""
    count = max(1, min(shards, total))
    return [total * (i + 1) // count - total * i // count for i in range(count)]


def best_scores(of_shards: Sequence[Floats], k: int) -> Floats:
    """Return the best ``k`` of the scores found in each shard, shapes ``(n, m)``, for each query, best first."""
    if len(of_shards) == 1:
        return of_shards[0]
    merged: Floats = -np.sort(-np.hstack(of_shards), axis=1)[:, :k]
    return merged
