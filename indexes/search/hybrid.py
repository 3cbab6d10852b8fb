"""What hybrid search computes of a query: its vector, encoded ahead, its lexical matches, and its candidates."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from ragembed.errors import DimensionError
from ragembed.indexes.faiss_index.vectors import among, inner_products, places_in
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.snapshot import Selected, Snapshot
from ragembed.indexes.types import Hit, Keys
from ragembed.postprocess import unit_rows
from ragembed.resources import processors
from ragembed.types import Bools, Doubles, Floats

LEXICAL_DEPTH = 2000
"""Minimum number of matching chunks for which BM25 is computed."""
QUERIES_AT_ONCE = 32
"""Queries that are encoded together, in one thread, while another searches for those before them."""


ESTIMATED_SPREAD = 0.75
"""Spread of estimated cosines relative to real ones.

With it, neither the chunks with a vector nor those without one have an advantage: if half of the chunks have one, they
are 49 to 56 % of the first ten results on five collections of abstracts, code and documentation, and nDCG is highest.
"""
_FIRST_HITS, _OF_ONE_DOCUMENT = 10, 3
"""Number of first hits, and how many of one document are not moved to their end."""
_LEAST_PEERS = 10
"""Number of lexical matches with a vector that are enough to estimate the cosines of those without one."""


class _Processors:
    """What the searches of a process share: ``places`` for as many as there are processors, and ``threads`` for them.

    More searches at once would wait for one another, at half the rate.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start without searches and threads, as in a child process."""
        self.places = threading.BoundedSemaphore(processors())
        self.threads = ThreadPoolExecutor(processors(), thread_name_prefix="ragembed-query")


PROCESSORS = _Processors()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESSORS.renew)


class EncodedAhead:
    """The vectors of queries. Another thread begins to encode a block when the one before it is needed."""

    def __init__(self, encode: Callable[[Sequence[str]], Floats], queries: Sequence[str]) -> None:
        starts = range(0, len(queries), QUERIES_AT_ONCE)
        self._jobs = [partial(encode, queries[start : start + QUERIES_AT_ONCE]) for start in starts]
        self._begun = PROCESSORS.threads.submit(self._jobs[0])
        self._encoded: list[Floats] = []

    def __call__(self, start: int, stop: int) -> Floats:
        """Return the vectors of the queries from ``start`` up to, not including, ``stop``, in one block."""
        block = start // QUERIES_AT_ONCE
        while len(self._encoded) <= block:
            begun, following = self._begun, len(self._encoded) + 1
            if following < len(self._jobs):
                self._begun = PROCESSORS.threads.submit(self._jobs[following])
            # This thread encodes the block itself if no other was free.
            self._encoded.append(self._jobs[following - 1]() if begun.cancel() else begun.result())
        return self._encoded[block][start % QUERIES_AT_ONCE :][: stop - start]


class ChunkVectors:
    """Unit vectors of a snapshot's chunks by key. Each is read once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._keys = np.zeros(0, dtype=np.int64)
        self._vectors = np.zeros((0, 0), dtype=np.float32)

    def of(self, keys: Keys) -> Floats:
        """Return the vectors of the chunks ``keys``, shape ``(n, d)``; raise KeyError for an unknown key."""
        if not len(keys):
            return np.zeros((0, self._snapshot.dim() or 0), dtype=np.float32)
        new = np.unique(keys[~among(keys, self._keys)])
        if len(new):
            vectors = self._snapshot.vectors(self._snapshot.rows_of_keys(new))
            together = np.concatenate([self._keys, new])
            order = np.argsort(together)
            self._vectors = np.concatenate([self._vectors, vectors])[order] if len(self._keys) else vectors
            self._keys = together[order]
        return self._vectors[np.searchsorted(self._keys, keys)]

    def cosines(self, vector: Floats, keys: Keys) -> Doubles:
        """Return the exact cosines of the chunks ``keys``, shape ``(n,)``, with a query vector, shape ``(d,)``."""
        if not len(keys):
            return np.zeros(0)
        cosines: Doubles = inner_products(unit_rows(vector[None, :]), self.of(keys))[0].astype(np.float64)
        return cosines

    def missing(self, keys: Keys) -> Bools:
        """Return which of the chunks ``keys`` have no vector yet, shape ``(n,)``."""
        missing: Bools = np.logical_not(self.of(keys).any(axis=1))
        return missing

    def correction(self, keys: Keys, weight: float) -> Floats:
        """Return the part of the hubness of ``keys`` that is subtracted from their cosines, float32, shape ``(n,)``.

        Hubness that is new is measured; 0 if the store has none.
        """
        hubness = self._snapshot.hubness() if weight else None
        if hubness is None:
            return np.zeros(len(keys), dtype=np.float32)
        rows = self._snapshot.rows_of_keys(keys)
        measured, values = hubness.known(rows)
        if not measured.all():
            new = rows[~measured].tolist()
            hashes = self._snapshot.hashes_of_rows(new)
            values[~measured] = hubness.queries.hubness(self.of(keys[~measured]), [hashes[row] for row in new])
        return weight * values


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

    @classmethod
    def fused(
        cls,
        vector: Floats,
        towards: Mapping[int, float],
        keys: Keys,
        dense: Doubles,
        lexical: Doubles,
        fusion: Fusion,
        shared: Doubles | None = None,
        like: tuple[int, ...] = (),
    ) -> Candidates:
        """Return candidates with fused scores, best first."""
        scores = fusion.scores(dense, lexical, shared)
        order = np.lexsort((keys, -scores))
        shared = None if shared is None else shared[order]
        return cls(vector, towards, keys[order], dense[order], lexical[order], scores[order], fusion, shared, like)


@dataclass(frozen=True, slots=True)
class LexicalMatches:
    """The lexical matches of a query: chunk keys, ascending, their BM25, and ``floor`` for chunks that are not listed.

    ``likely`` are the keys of the best matches, best first. ``vectors`` keeps the vectors of chunks that are read.
    """

    expression: str
    keys: Keys
    scores: Doubles
    floor: float
    likely: Keys
    vectors: ChunkVectors

    @classmethod
    def of(
        cls, snapshot: Snapshot, expression: str, depth: int, selection: Selected, vectors: ChunkVectors | None = None
    ) -> LexicalMatches:
        """Search for the best ``depth`` matches and more."""
        limit = max(LEXICAL_DEPTH, depth)
        keys, scores = snapshot.matches(expression, limit, selection)
        # For chunks that are not listed, the score of the last match is the best known upper bound.
        floor = float(scores[-1]) if len(keys) >= limit else 0.0
        likely, _ = fulltext.with_ties(keys, scores, depth)
        order = np.argsort(keys)
        return cls(expression, keys[order], scores[order], floor, likely, vectors or ChunkVectors(snapshot))

    def of_chunks(self, keys: Keys) -> Doubles:
        """Return BM25 of each of the chunks ``keys``, float64, shape ``(n,)``."""
        if not len(self.keys):
            return np.full(len(keys), self.floor)
        at = places_in(self.keys, keys)
        return np.where(self.keys[at] == keys, self.scores[at], self.floor)


def with_expected(dense: Doubles, matches: LexicalMatches, keys: Keys) -> Doubles:
    """Return the cosines ``dense`` of the chunks ``keys``, shape ``(n,)``, with an estimate for those without a vector.

    Among the lexical matches, the estimate is :data:`ESTIMATED_SPREAD` times as many standard deviations from the mean
    cosine as BM25 is from the mean BM25.
    """
    missing = matches.vectors.missing(keys)
    if not missing.any() or missing.all():
        return dense
    words = matches.of_chunks(keys)
    peers = ~missing & (words > matches.floor)
    if np.count_nonzero(peers) < _LEAST_PEERS:
        peers = ~missing
    spread = float(words[peers].std()) or float(words.std()) or 1.0
    standard = (words[missing] - words[peers].mean()) / spread
    estimated = dense.copy()
    estimated[missing] = dense[peers].mean() + ESTIMATED_SPREAD * dense[peers].std() * standard
    return estimated


def nearest_chunks(snapshot: Snapshot, vectors: Floats, k: int, selection: Selected) -> list[tuple[Keys, Doubles]]:
    """Return for each query vector the keys of the chunks of its ``k`` nearest rows, ascending, and their cosines.

    ``vectors`` has shape ``(n, d)``. Raises :class:`DimensionError` if the store holds vectors of another dimension.
    """
    dim = snapshot.dim()
    if dim not in (None, vectors.shape[1]):
        raise DimensionError(
            f"the query vector has dimension {vectors.shape[1]}: expected {dim}, the dimension of the vectors in the "
            "store; search it with the embedder that it was made with"
        )
    nearest = []
    for rows, cosines in snapshot.nearest_rows(vectors, k, selection):
        order = np.argsort(rows)
        rows, cosines = rows[order], cosines[order]
        keys, of_keys = snapshot.chunks_of_rows(rows)
        if selection is not None:
            admitted = selection.admits(keys)
            keys, of_keys = keys[admitted], of_keys[admitted]
        nearest.append((keys, cosines[np.searchsorted(rows, of_keys)].astype(np.float64)))
    return nearest


def fused(
    snapshot: Snapshot,
    vectors: Floats,
    words: Sequence[LexicalMatches],
    depth: int,
    selection: Selected,
    fusions: Sequence[Fusion],
    towards: Sequence[Mapping[int, float]],
) -> list[Candidates]:
    """Return the chunks of both searches for each query with their fused scores; ``towards`` are as in Candidates."""
    candidates = []
    nearest = nearest_chunks(snapshot, vectors, depth, selection)
    for vector, matches, (near, cosines), fusion, moved_to in zip(
        vectors, words, nearest, fusions, towards, strict=True
    ):
        # Compute both scores of every candidate: a chunk that only one search returned does not score 0 in the other.
        others = matches.likely[~among(matches.likely, near)]
        keys = np.concatenate([near, others])
        dense = np.concatenate([cosines, matches.vectors.cosines(vector, others)])
        dense -= matches.vectors.correction(keys, fusion.hubness)
        if snapshot.waiting():
            dense = with_expected(dense, matches, keys)
        candidates.append(Candidates.fused(vector, moved_to, keys, dense, matches.of_chunks(keys), fusion))
    return candidates


def spread_documents(hits: Iterator[Hit]) -> Iterator[Hit]:
    """Yield hits in their order, but of the first ten, those after the third of their document last.

    So one long document does not take all of the first results. A row of a table or a mail of a mailbox is a document.
    The score of a hit that comes later is at most that of the hit before.
    """
    documents: list[tuple[object, ...]] = []
    later, lowest = [], np.inf
    for hit in islice(hits, _FIRST_HITS):
        document = hit.store, hit.source, hit.chunk.title, hit.chunk.metadata
        if hit.source is not None and documents.count(document) >= _OF_ONE_DOCUMENT:
            later.append(hit)
        else:
            lowest = hit.score
            yield hit
        documents.append(document)
    yield from (replace(hit, score=min(hit.score, lowest)) for hit in later)
    yield from hits
