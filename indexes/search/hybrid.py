"""Hybrid search of a snapshot: dense and lexical scores of the same candidates, fused, then fused with feedback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search import feedback
from ragembed.indexes.search.dense import ChunkVectors, nearest
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.selection import Selection
from ragembed.indexes.text.analyzer import of_language
from ragembed.types import Doubles, Floats

SharedWords: TypeAlias = "Callable[[Snapshot, Sequence[int], int], Doubles]"
"""Tells how much chunks share the words of the first of them, as :func:`shared_words`."""

DEPTH = 200
"""Best chunks of either search that are candidates, at least."""

LEXICAL_DEPTH = 2000
"""Matching chunks whose BM25 is known, at least."""

FEEDBACK_CHUNKS = 3
"""Chunks that are taken to be what is asked for."""

COMPARED_BY_WORDS = 100
"""Candidates, where no more are asked for, whose words are compared with those of the best; the others fall away."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What hybrid search chose among for one query, best first.

    ``vector`` is the unit vector of the search, ``towards`` are the keys of the chunks that it was moved towards. Of
    the chunks ``keys``, ``dense`` has the cosines, ``lexical`` BM25, ``shared`` how much each shares the words of the
    chunks ``like``, None where that was not asked, and ``scores`` the fused scores, all float64, shape ``(n,)``.
    """

    vector: Floats
    towards: list[int]
    keys: list[int]
    dense: Doubles
    lexical: Doubles
    scores: Doubles
    shared: Doubles | None = None
    like: tuple[int, ...] = ()

    def by_key(self) -> dict[int, float]:
        """Return the fused scores by chunk key."""
        return dict(zip(self.keys, self.scores.tolist(), strict=True))

    def fused(self, fusion: Fusion) -> Candidates:
        """Return the same candidates with their scores fused, in the order of these."""
        scores = fusion.scores(self.dense, self.lexical, self.shared)
        order = np.lexsort((np.array(self.keys, dtype=np.int64), -scores))
        return replace(
            self,
            keys=[self.keys[i] for i in order],
            dense=self.dense[order],
            lexical=self.lexical[order],
            scores=scores[order],
            shared=None if self.shared is None else self.shared[order],
        )

    def foremost(self, count: int) -> Candidates:
        """Return the best ``count``, and those that tie with the last of them."""
        if len(self.keys) <= count:
            return self
        stop = int((self.scores >= self.scores[count - 1]).sum())
        return replace(
            self, keys=self.keys[:stop], dense=self.dense[:stop], lexical=self.lexical[:stop], scores=self.scores[:stop]
        )


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """What lexical search says of a query: BM25 by chunk key, ``floor`` for chunks it does not list.

    ``likely`` are the keys that are good enough by words alone, ``vectors`` those read before the query's own was
    known, if any.
    """

    scores: dict[int, float]
    floor: float
    likely: Sequence[int]
    vectors: ChunkVectors | None = None

    @classmethod
    def of(
        cls, snapshot: Snapshot, expression: str, depth: int, selection: Selection | None, *, read_vectors: bool = False
    ) -> LexicalMatches:
        """Search for the best ``depth`` and beyond; ``read_vectors`` reads those of the likely chunks, and keeps them.

        That takes time that passes anyway where another thread makes the query's vector, and memory.
        """
        limit = max(LEXICAL_DEPTH, depth)
        matches = snapshot.matches(expression, limit, selection)
        # Below the deepest match listed, its score is the closest bound that is known without searching again.
        floor = matches[-1][1] if len(matches) >= limit else 0.0
        likely = [key for key, _ in fulltext.with_ties(matches, depth)]
        vectors = None
        if read_vectors:
            vectors = ChunkVectors(snapshot)
            vectors.of(likely)
        return cls(dict(matches), floor, likely, vectors)

    def chunk_vectors(self, snapshot: Snapshot) -> ChunkVectors:
        """Return the vectors that were read before, and read others; where none are kept, all are read again."""
        return self.vectors or ChunkVectors(snapshot)

    def of_chunk(self, key: int) -> float:
        """Return BM25 of a chunk."""
        return self.scores.get(key, self.floor)


def candidates(
    snapshot: Snapshot,
    vectors: Floats,
    worded: Sequence[LexicalMatches],
    depth: int,
    candidate_depth: int,
    selection: Selection | None,
    fusion: Fusion,
    shared: SharedWords | None = None,
) -> list[Candidates]:
    """Return the candidates for each query, whose unit vectors have shape ``(n, d)``: at least ``candidate_depth``.

    The best ``depth`` of both searches are fused; with ``fusion.feedback`` once more with what the best have in
    vectors, and once with what they have in words. ``shared`` takes the place of :func:`shared_words`.
    """
    nowhere: list[list[int]] = [[] for _ in worded]
    found = _fused(snapshot, vectors, worded, depth, selection, fusion, nowhere)
    if fusion.feedback and fusion.alpha:
        towards = [each.keys[:FEEDBACK_CHUNKS] for each in found]
        moved = [
            feedback.moved(vector, words.chunk_vectors(snapshot).of(keys), fusion.feedback)
            for vector, words, keys in zip(vectors, worded, towards, strict=True)
        ]
        found = _fused(snapshot, np.stack(moved), worded, depth, selection, fusion, towards)
    if fusion.feedback and fusion.alpha < 1:
        foremost = [each.foremost(max(candidate_depth, COMPARED_BY_WORDS)) for each in found]
        found = [_like_the_best(snapshot, each, fusion, shared or shared_words) for each in foremost]
    return found


def _fused(
    snapshot: Snapshot,
    vectors: Floats,
    worded: Sequence[LexicalMatches],
    depth: int,
    selection: Selection | None,
    fusion: Fusion,
    towards: Sequence[list[int]],
) -> list[Candidates]:
    found: list[Candidates] = []
    near = nearest(snapshot, vectors, depth, selection)
    for vector, words, cosines, moved_to in zip(vectors, worded, near, towards, strict=True):
        # Both scores of every candidate: one that only one of the two brought up is not thereby a 0 in the other.
        known = words.chunk_vectors(snapshot)
        both = cosines | known.cosines(vector, [key for key in words.likely if key not in cosines])
        keys = list(both)
        by_words = np.array([words.of_chunk(key) for key in keys])
        unfused = Candidates(vector, moved_to, keys, np.array(list(both.values())), by_words, np.zeros(len(keys)))
        found.append(unfused.fused(fusion))
    return found


def _like_the_best(snapshot: Snapshot, found: Candidates, fusion: Fusion, shared: SharedWords) -> Candidates:
    """Fuse candidates again, with how much each shares the words of the best."""
    like = tuple(found.keys[:FEEDBACK_CHUNKS])
    return replace(found, shared=shared(snapshot, found.keys, len(like)), like=like).fused(fusion)


def shared_words(snapshot: Snapshot, keys: Sequence[int], best: int) -> Doubles:
    """Return how much each of the chunks ``keys`` shares the words of the first ``best``, float64, shape ``(n,)``.

    See :func:`ragembed.indexes.search.feedback.likeness`; words are those of the store's language.
    """
    texts = catalog.embedded_by_key(snapshot.connection, keys)
    terms = of_language(catalog.analyzer_config(snapshot.connection).language)
    numbers = feedback.WordNumbers()
    found = [numbers.of(terms.of_text(texts[key])) for key in keys[:best]]
    found += [numbers.known(terms.of_text(texts[key])) for key in keys[best:]]
    return feedback.likeness(found, best)
