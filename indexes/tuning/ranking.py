"""The ten best of a pool for each query: dense alone, and fused as :mod:`ragembed.indexes.search` does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.fusion import Fusion
from ragembed.indexes.search import DEPTH, FEEDBACK_CHUNKS
from ragembed.indexes.tuning.words import Matches
from ragembed.postprocess import unit_rows
from ragembed.tuning.queries import PseudoQuery
from ragembed.tuning.vectors import PoolVectors

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Positions = NDArray[np.int64]

CUT = 10
"""Results that count."""
_DISCOUNT = 1.0 / np.log2(np.arange(2, CUT + 2))


class Ranking:
    """Ranks a pool for queries by vectors and words.

    Parameters
    ----------
    queries
        All queries, in the order of the rows of vectors.
    words
        What lexical search says of each.
    """

    def __init__(self, queries: Sequence[PseudoQuery], words: Sequence[Matches]) -> None:
        self._queries = queries
        self._words = words
        self._changed = [sorted(query.changed) for query in queries]
        self._starts = np.concatenate([[0], np.cumsum([len(changed) for changed in self._changed])]).astype(np.int64)

    def dense(self, vectors: PoolVectors, rows: Sequence[int]) -> Doubles:
        """Return nDCG@10 of dense search for the queries at ``rows``, float64, shape ``(n,)``."""
        return self._values(rows, self.dense_best(vectors, rows))

    def hybrid(self, vectors: PoolVectors, rows: Sequence[int], fusion: Fusion) -> Doubles:
        """Return nDCG@10 of hybrid search for the queries at ``rows``, float64, shape ``(n,)``."""
        return self._values(rows, self.hybrid_best(vectors, rows, fusion))

    def dense_best(self, vectors: PoolVectors, rows: Sequence[int]) -> list[Positions]:
        """Return the positions that dense search finds for each of the queries at ``rows``, best first."""
        return [_best(cosine) for cosine in self._cosines(vectors, vectors.queries[list(rows)], rows)]

    def hybrid_best(self, vectors: PoolVectors, rows: Sequence[int], fusion: Fusion) -> list[Positions]:
        """Return the positions that hybrid search finds for each of the queries at ``rows``, best first."""
        asked = vectors.queries[list(rows)]
        cosines = self._cosines(vectors, asked, rows)
        if fusion.feedback and fusion.alpha:
            moved = asked.copy()
            for vector, row, cosine in zip(moved, rows, cosines, strict=True):
                if not self._words[row].wordless:
                    best = self._fused(row, cosine, fusion, FEEDBACK_CHUNKS)
                    vector += fusion.feedback * self._vectors_at(vectors, row, best).mean(axis=0)
            cosines = self._cosines(vectors, unit_rows(moved), rows)
        return [
            _best(cosine) if self._words[row].wordless else self._fused(row, cosine, fusion, CUT)
            for row, cosine in zip(rows, cosines, strict=True)
        ]

    def _values(self, rows: Sequence[int], found: Sequence[Positions]) -> Doubles:
        return np.array([ndcg(best, self._queries[row].answers) for row, best in zip(rows, found, strict=True)])

    def _cosines(self, vectors: PoolVectors, asked: Floats, rows: Sequence[int]) -> Floats:
        """Return the cosines of query vectors with the pool, as changed for each; shape ``(n, pool)``."""
        cosines: Floats = asked @ vectors.documents.T
        for i, row in enumerate(rows):
            if self._changed[row]:
                changed = vectors.changed[self._starts[row] : self._starts[row + 1]]
                cosines[i, self._changed[row]] = changed @ asked[i]
        return cosines

    def _vectors_at(self, vectors: PoolVectors, row: int, positions: Positions) -> Floats:
        places = {position: self._starts[row] + i for i, position in enumerate(self._changed[row])}
        return np.stack(
            [vectors.changed[places[at]] if at in places else vectors.documents[at] for at in positions.tolist()]
        )

    def _fused(self, row: int, cosines: Floats, fusion: Fusion, count: int) -> Positions:
        """Return the ``count`` candidates with the highest fused scores, best first, of equals the first."""
        candidates = np.union1d(_nearest(cosines, DEPTH), self._words[row].likely)
        scores = fusion.scores(cosines[candidates].astype(np.float64), self._words[row].of(candidates))
        best: Positions = candidates[np.argsort(-scores, kind="stable")[:count]]
        return best


def ndcg(ranked: Positions, answers: Sequence[int]) -> float:
    """Return nDCG@10 of a ranking of positions, shape ``(n,)``, where ``answers`` count the same and others nothing."""
    hits = np.isin(ranked[:CUT], answers)
    return float(_DISCOUNT[: len(hits)][hits].sum() / _DISCOUNT[: len(answers)].sum())


def _nearest(cosines: Floats, count: int) -> Positions:
    """Return the positions of the ``count`` highest cosines, and of those that tie with the last of them."""
    if len(cosines) <= count:
        return np.arange(len(cosines))
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    return np.flatnonzero(cosines >= least)


def _best(cosines: Floats) -> Positions:
    near = _nearest(cosines, CUT)
    best: Positions = near[np.argsort(-cosines[near], kind="stable")][:CUT]
    return best
