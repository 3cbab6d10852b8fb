"""The ten best of a pool for each query: dense alone, and fused as :mod:`ragembed.indexes.hybrid` does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragembed.indexes.feedback import likeness, moved
from ragembed.indexes.fusion import Fusion
from ragembed.indexes.hybrid import COMPARED_BY_WORDS, DEPTH, FEEDBACK_CHUNKS
from ragembed.indexes.tuning.words import Matches, PoolTexts
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
    texts
        The texts of the pool, as changed for each.
    """

    def __init__(self, queries: Sequence[PseudoQuery], words: Sequence[Matches], texts: PoolTexts) -> None:
        self._queries = queries
        self._words = words
        self._texts = texts
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
            nearer = asked.copy()
            for i, row in enumerate(rows):
                if not self._words[row].wordless:
                    best, _ = self._fused(row, cosines[i], fusion)
                    nearer[i] = moved(asked[i], self._vectors_at(vectors, row, best[:FEEDBACK_CHUNKS]), fusion.feedback)
            cosines = self._cosines(vectors, nearer, rows)
        return [
            _best(cosine) if self._words[row].wordless else self._hybrid(row, cosine, fusion)
            for row, cosine in zip(rows, cosines, strict=True)
        ]

    def _hybrid(self, row: int, cosines: Floats, fusion: Fusion) -> Positions:
        """Return the ten best, after their words were compared with those of the best where that is asked."""
        candidates, scores = self._fused(row, cosines, fusion)
        if fusion.feedback and fusion.alpha < 1:
            near = candidates[scores >= scores[:COMPARED_BY_WORDS][-1]]
            shared = likeness(self._texts.at(row, near), FEEDBACK_CHUNKS)
            again = fusion.scores(cosines[near].astype(np.float64), self._words[row].of(near), shared)
            candidates = near[np.argsort(-again, kind="stable")]
        return candidates[:CUT]

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

    def _fused(self, row: int, cosines: Floats, fusion: Fusion) -> tuple[Positions, Doubles]:
        """Return the candidates, best first, of equals the first, and their fused scores, both of shape ``(n,)``."""
        candidates = np.union1d(_nearest(cosines, DEPTH), self._words[row].likely)
        scores = fusion.scores(cosines[candidates].astype(np.float64), self._words[row].of(candidates))
        order = np.argsort(-scores, kind="stable")
        return candidates[order], scores[order]


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
