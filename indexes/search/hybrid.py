"""Hybrid search of a snapshot: dense and lexical scores of the same candidates are fused, then fused with feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ragembed.indexes.ann.vectors import places_in
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search import feedback
from ragembed.indexes.search.dense import ChunkVectors, nearest
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.snapshot import Snapshot, TokenVectors
from ragembed.indexes.storage.selection import Admission, among
from ragembed.indexes.storage.token_vectors import contextual_extractor
from ragembed.indexes.types import Keys
from ragembed.types import Doubles, Floats

SharedWords: TypeAlias = "Callable[[Snapshot, Keys, int], Doubles]"
"""Computes how similar the words of chunks are to those of the first of them, as :func:`shared_words` does."""

DEPTH = 200
"""Minimum number of best chunks of either search that become candidates."""

LEXICAL_DEPTH = 2000
"""Minimum number of matching chunks for which BM25 is computed."""

FEEDBACK_CHUNKS = 3
"""Number of first hits that feedback assumes to be relevant."""

COMPARED_BY_WORDS = 100
"""Number of candidates, unless more are needed, whose words or tokens are compared; others are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of hybrid search for one query, best first.

    ``vector`` is the unit vector that was searched for, and ``towards`` holds the weights of the chunks that it was
    moved towards, by key. For the chunks ``keys``, ``dense`` holds the cosines less a part of the hubness, ``lexical``
    BM25, ``shared`` the similarity of their words to those of the chunks ``like`` (or None), ``late`` the
    late-interaction scores (or None), and ``scores`` the fused scores. All have shape ``(n,)``; the keys are int64, the
    scores float64. ``fusion`` fused them.
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
    late: Doubles | None = None

    def by_key(self) -> dict[int, float]:
        """Return the fused scores by chunk key."""
        return dict(zip(self.keys.tolist(), self.scores.tolist(), strict=True))

    def fused(self) -> Candidates:
        """Return the candidates with fused scores, best first."""
        scores = self.fusion.scores(self.dense, self.lexical, self.shared)
        if self.late is not None:
            scores += self.fusion.late_part(scores, self.late)
        order = np.lexsort((self.keys, -scores))
        return replace(
            self,
            keys=self.keys[order],
            dense=self.dense[order],
            lexical=self.lexical[order],
            scores=scores[order],
            shared=None if self.shared is None else self.shared[order],
            late=None if self.late is None else self.late[order],
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
        return cls(keys[order], scores[order], floor, likely)

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


def candidates(
    snapshot: Snapshot,
    vectors: Floats,
    worded: Sequence[LexicalMatches],
    depth: int,
    candidate_depth: int,
    selection: Admission | None,
    fusion: Fusion,
    shared: SharedWords | None = None,
    queries: Sequence[str] = (),
) -> list[Candidates]:
    """Return the candidates of each query, at least ``candidate_depth`` if the store has that many.

    The unit vectors of the queries have shape ``(n, d)``. The best ``depth`` chunks of both searches are fused. With
    ``fusion.feedback``, they are fused again after feedback from vectors, and again after feedback from words. With
    ``queries``, they are fused again with late-interaction scores if the store keeps token vectors. ``shared`` replaces
    :func:`shared_words`.
    """
    unmoved: list[Mapping[int, float]] = [{} for _ in worded]
    found = _fused(snapshot, vectors, worded, depth, selection, fusion, unmoved)
    if fusion.feedback and fusion.alpha:
        towards = [each.weights() for each in found]
        moved = [
            feedback.moved(
                vector, words.chunk_vectors(snapshot).of(np.array(list(best))), np.array(list(best.values()))
            )
            for vector, words, best in zip(vectors, worded, towards, strict=True)
        ]
        found = _fused(snapshot, np.stack(moved), worded, depth, selection, fusion, towards)
    if fusion.feedback and fusion.alpha < 1:
        best = [each.best(max(candidate_depth, COMPARED_BY_WORDS)) for each in found]
        found = [_with_shared_words(snapshot, each, shared or shared_words) for each in best]
    if fusion.late_interaction and queries and (tokens := snapshot.tokens()) is not None:
        best = [each.best(max(candidate_depth, COMPARED_BY_WORDS)) for each in found]
        found = [_with_late_scores(snapshot, tokens, *of_one) for of_one in zip(queries, best, strict=True)]
    return found


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


def _with_shared_words(snapshot: Snapshot, found: Candidates, shared: SharedWords) -> Candidates:
    """Fuse candidates again, with the similarity of their words to those of the best."""
    like = tuple(found.keys[:FEEDBACK_CHUNKS].tolist())
    return replace(found, shared=shared(snapshot, found.keys, len(like)), like=like).fused()


def _with_late_scores(snapshot: Snapshot, tokens: TokenVectors, query: str, found: Candidates) -> Candidates:
    late = late_scores(snapshot, tokens, query, found.keys)
    return found if late is None else replace(found, late=late).fused()


def late_scores(snapshot: Snapshot, tokens: TokenVectors, query: str, keys: Keys) -> Doubles | None:
    """Return the late-interaction scores of the chunks ``keys``, float64, shape ``(n,)``.

    A chunk whose token vectors are not made yet gets the mean of the others. Returns None if no chunk has any, or the
    query has no word.
    """
    extractor = contextual_extractor(snapshot.embedder())
    of_query = extractor.query_tokens(query)
    late = of_query.scores(tokens.of(snapshot.rows_of_keys(keys).tolist(), of_query.vectors.shape[1]))
    if late is None or np.isnan(late).all():
        return None
    return np.where(np.isnan(late), np.nanmean(late), late)


def shared_words(snapshot: Snapshot, keys: Keys, best: int) -> Doubles:
    """Return how similar the words of the chunks ``keys`` are to those of the first ``best``, float64, shape ``(n,)``.

    See :func:`ragembed.indexes.search.feedback.likeness`.
    """
    words = snapshot.words_by_key(keys.tolist())
    return feedback.likeness([words[key] for key in keys.tolist()], best)
