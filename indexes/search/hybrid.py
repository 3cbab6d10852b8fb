"""Hybrid search of a snapshot: dense and lexical scores of the same candidates are fused, then fused with feedback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search import feedback
from ragembed.indexes.search.dense import ChunkVectors, nearest
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage.selection import Admission, among
from ragembed.indexes.types import Keys
from ragembed.types import Doubles, Floats

DEPTH, DEEPER = 200, 4
"""Number of best chunks of either search that become candidates, and the factor by which each deeper search grows."""

LEXICAL_DEPTH = 2000
"""Minimum number of matching chunks for which BM25 is computed."""

FEEDBACK_CHUNKS = 3
"""Number of first hits that feedback assumes to be relevant."""

COMPARED_BY_WORDS = 100
"""Number of candidates whose words are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of hybrid search for one query, best first.

    ``vector`` is the unit vector that was searched for, and ``towards`` holds the weights of the chunks that it was
    moved towards, by key. For the chunks ``keys``, ``dense`` holds the cosines less a part of the hubness, ``lexical``
    BM25, ``shared`` the similarity of their words to those of the chunks ``like`` (or None), and ``scores`` the fused
    scores. All have shape ``(n,)``; the keys are int64, the scores float64. ``fusion`` fused them.
    """

    vector: Floats
    towards: Mapping[int, float]
    keys: Keys
    dense: Doubles
    lexical: Doubles
    scores: Doubles
    fusion: Fusion
    shared: Doubles | None = None
    like: tuple[int, ...] = ()

    def by_key(self) -> dict[int, float]:
        """Return the fused scores by chunk key."""
        return dict(zip(self.keys.tolist(), self.scores.tolist(), strict=True))

    def fused(self) -> Candidates:
        """Return the candidates with fused scores, best first."""
        scores = self.fusion.scores(self.dense, self.lexical, self.shared)
        order = np.lexsort((self.keys, -scores))
        return replace(
            self,
            keys=self.keys[order],
            dense=self.dense[order],
            lexical=self.lexical[order],
            scores=scores[order],
            shared=None if self.shared is None else self.shared[order],
        )

    def weights(self) -> dict[int, float]:
        """Return the weights in feedback of the best chunks, by key."""
        shares = self.fusion.feedback * feedback.shares(self.scores, FEEDBACK_CHUNKS)
        return dict(zip(self.keys[:FEEDBACK_CHUNKS].tolist(), shares.tolist(), strict=True))

    def best(self, count: int) -> Candidates:
        """Return the best ``count`` candidates, and those that tie with the last of them."""
        if len(self.keys) <= count:
            return self
        stop = int((self.scores >= self.scores[count - 1]).sum())
        return replace(
            self,
            keys=self.keys[:stop],
            dense=self.dense[:stop],
            lexical=self.lexical[:stop],
            scores=self.scores[:stop],
            shared=None if self.shared is None else self.shared[:stop],
        )


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """The lexical matches of a query: chunk keys, ascending, their BM25, and ``floor`` for chunks that are not listed.

    ``likely`` are the keys of the best matches, best first. ``vectors`` holds their vectors if they were read before
    the query vector was known.
    """

    expression: str
    keys: Keys
    scores: Doubles
    floor: float
    likely: Keys
    vectors: ChunkVectors | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, expression: str, depth: int, selection: Admission | None) -> LexicalMatches:
        """Search for the best ``depth`` matches and more."""
        limit = max(LEXICAL_DEPTH, depth)
        keys, scores = snapshot.matches(expression, limit, selection)
        # For chunks that are not listed, the score of the last match is the best known upper bound.
        floor = float(scores[-1]) if len(keys) >= limit else 0.0
        likely, _ = fulltext.with_ties(keys, scores, depth)
        order = np.argsort(keys)
        return cls(expression, keys[order], scores[order], floor, likely)

    def deeper(self, snapshot: Snapshot, depth: int, selection: Admission | None) -> LexicalMatches:
        """Search again for the best ``depth`` matches, and keep the vectors that were read."""
        return replace(LexicalMatches.of(snapshot, self.expression, depth, selection), vectors=self.vectors)

    def with_vectors(self, snapshot: Snapshot) -> LexicalMatches:
        """Read the vectors of the best matches; this takes no extra time if another thread encodes the query."""
        vectors = ChunkVectors(snapshot)
        vectors.of(self.likely)
        return replace(self, vectors=vectors)

    def chunk_vectors(self, snapshot: Snapshot) -> ChunkVectors:
        """Return the vectors that were read early. Without them, every call reads the vectors it needs."""
        return self.vectors or ChunkVectors(snapshot)

    def of_chunks(self, keys: Keys) -> Doubles:
        """Return BM25 of each of the chunks ``keys``, float64, shape ``(n,)``."""
        if not len(self.keys):
            return np.full(len(keys), self.floor)
        at = places_in(self.keys, keys)
        return np.where(self.keys[at] == keys, self.scores[at], self.floor)


def tiers(
    snapshot: Snapshot,
    vectors: Floats,
    worded: Sequence[LexicalMatches],
    selection: Admission | None,
    fusion: Fusion,
) -> list[Iterator[Candidates]]:
    """Return the candidates of each query in tiers. The chunks that a tier adds rank below those of the tiers before.

    The unit vectors of the queries have shape ``(n, d)``; ``worded`` are the best :data:`DEPTH` matches and more. The
    best :data:`DEPTH` chunks of both searches are fused. With ``fusion.feedback``, they are fused again after feedback
    from vectors. The best :data:`COMPARED_BY_WORDS` of them are fused again after feedback from words: these are the
    first tier. The others are the second. Each further tier has the best chunks of searches that are deeper by the
    factor :data:`DEEPER`, until all chunks are read. So the order of the chunks does not depend on how many of them are
    read.
    """
    unmoved: list[Mapping[int, float]] = [{} for _ in worded]
    pools = _fused(snapshot, vectors, worded, DEPTH, selection, fusion, unmoved)
    if fusion.feedback and fusion.alpha:
        towards = [pool.weights() for pool in pools]
        moved = [
            feedback.moved(
                vector, words.chunk_vectors(snapshot).of(np.array(list(best))), np.array(list(best.values()))
            )
            for vector, words, best in zip(vectors, worded, towards, strict=True)
        ]
        pools = _fused(snapshot, np.stack(moved), worded, DEPTH, selection, fusion, towards)
    first = [_compared(snapshot, pool) for pool in pools]
    together = zip(first, pools, worded, strict=True)
    return [chain([best, pool], _deeper(snapshot, pool, words, selection)) for best, pool, words in together]


def _compared(snapshot: Snapshot, pool: Candidates) -> Candidates:
    """Return the best candidates, fused again after feedback from words."""
    if not pool.fusion.feedback or pool.fusion.alpha == 1:
        return pool
    best = pool.best(COMPARED_BY_WORDS)
    like = tuple(best.keys[:FEEDBACK_CHUNKS].tolist())
    return replace(best, shared=shared_words(snapshot, best.keys, len(like)), like=like).fused()


def _deeper(
    snapshot: Snapshot, pool: Candidates, words: LexicalMatches, selection: Admission | None
) -> Iterator[Candidates]:
    """Yield the candidates of deeper and deeper searches for the vector and the words of ``pool``."""
    depth, count = DEPTH, snapshot.count()
    while depth < count:
        depth *= DEEPER
        words = words.deeper(snapshot, depth, selection)
        [found] = _fused(snapshot, pool.vector[None, :], [words], depth, selection, pool.fusion, [pool.towards])
        yield found


def _fused(
    snapshot: Snapshot,
    vectors: Floats,
    worded: Sequence[LexicalMatches],
    depth: int,
    selection: Admission | None,
    fusion: Fusion,
    towards: Sequence[Mapping[int, float]],
) -> list[Candidates]:
    found: list[Candidates] = []
    near = nearest(snapshot, vectors, depth, selection)
    for vector, words, (near_keys, cosines), moved_to in zip(vectors, worded, near, towards, strict=True):
        # Compute both scores of every candidate: a chunk that only one search returned does not score 0 in the other.
        known = words.chunk_vectors(snapshot)
        others = words.likely[~among(words.likely, near_keys)]
        keys = np.concatenate([near_keys, others])
        by_vectors = np.concatenate([cosines, known.cosines(vector, others)])
        by_vectors -= known.correction(keys, fusion.hubness)
        by_words = words.of_chunks(keys)
        unfused = Candidates(vector, moved_to, keys, by_vectors, by_words, np.zeros(len(keys)), fusion)
        found.append(unfused.fused())
    return found


def shared_words(snapshot: Snapshot, keys: Keys, best: int) -> Doubles:
    """Return how similar the words of the chunks ``keys`` are to those of the first ``best``, float64, shape ``(n,)``.

    See :func:`ragembed.indexes.search.feedback.likeness`.
    """
    words = snapshot.words_by_key(keys.tolist())
    return feedback.likeness([words[key] for key in keys.tolist()], best)
