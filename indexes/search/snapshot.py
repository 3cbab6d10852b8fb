"""Snapshots: the state of one store that a search reads, and what a search needs of any snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ragembed.errors import ConfigError
from ragembed.indexes.faiss_index.vectors import blocks, inner_products, places_in
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.analyzer import of_language
from ragembed.indexes.lexical.bm25 import HighestScores, Postings, TermCounts, frequencies
from ragembed.indexes.per_generation import PerGeneration
from ragembed.indexes.search.fanout import SegmentSearch
from ragembed.indexes.search.feedback import KeptWords
from ragembed.indexes.search.fusion import Fusion, stored_fusion
from ragembed.indexes.search.relevance import RelevanceModel, stored_relevance
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.file_states import FileState, file_state
from ragembed.indexes.storage.hubness import Hubness
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.selection import KeptRows, Selection
from ragembed.indexes.types import ChunkRecord, Hit, Keys, Rows, SourceRecord, VectorEncoder
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats, Integers

Value = TypeVar("Value")

_TIES, _MOST_TIES = 8, 1000
"""Rows read beyond ``k``, at first and at most, to find those that tie with the last one."""
_BLOCK = 4096


class Snapshot(Protocol):
    """What a search reads: the state of one store (:class:`StoreSnapshot`), or of several that are searched as one.

    Chunks have keys and vectors have rows: integers that are valid within the snapshot. Pass the result of
    :meth:`select` to the methods with a ``selection``.
    """

    def dim(self) -> int | None:
        """Return the dimension of the searched vectors, or None if there are no vectors yet."""
        ...

    def embedder(self) -> VectorEncoder:
        """Return the embedder of the vectors."""
        ...

    def language(self) -> str:
        """Return the language whose stemmer lexical search uses."""
        ...

    def count(self) -> int:
        """Return the number of chunks."""
        ...

    def fusion(self) -> Fusion:
        """Return the default settings of hybrid search."""
        ...

    def relevance(self) -> RelevanceModel | None:
        """Return the relevance model of the embedder, or None if it was not fitted."""
        ...

    def select(self, where: Filter | None, /) -> Any:
        """Return which chunks match ``where`` and can be found, or None if these are all chunks.

        The result has the methods of :class:`ragembed.indexes.storage.selection.Admission`.
        """
        ...

    def nearest_rows(self, queries: Floats, k: int, selection: Any) -> list[tuple[Rows, Floats]]:
        """Return for each query, shape ``(n, d)``, the ``k`` nearest selected rows and their cosines, best first.

        Rows that tie with the last one are included, up to a thousand, so the result does not depend on the order in
        which rows were inserted.
        """
        ...

    def matches(self, expression: str, limit: int, selection: Any) -> tuple[Keys, Doubles]:
        """Return keys and BM25 of the best ``limit`` selected chunks, and of chunks that tie with the last."""
        ...

    def scores_of(self, expression: str, keys: Sequence[int]) -> dict[int, float]:
        """Return BM25 of each chunk in ``keys`` that matches ``expression``."""
        ...

    def lexical_rank(self, expression: str, score: float) -> int:
        """Return 1 plus the number of chunks with a higher BM25 than ``score``."""
        ...

    def highest_score(self, expression: str) -> float:
        """Return the highest BM25 that a text could have for an expression."""
        ...

    def hubness(self) -> Hubness | None:
        """Return the hubness of the chunks, or None if it was not measured."""
        ...

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors."""
        ...

    def raw_vector(self, row: int) -> Floats:
        """Return the raw vector of a row, float32, shape ``(d,)``."""
        ...

    def rows_of_keys(self, keys: Keys) -> Rows:
        """Return the vector row of each of the chunk keys, shape ``(n,)``; raise KeyError for an unknown key."""
        ...

    def chunks_of_rows(self, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        ...

    def hashes_of_rows(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the hash of the text of each vector row."""
        ...

    def chunks_by_key(self, keys: Sequence[int]) -> dict[int, ChunkRecord]:
        """Return the chunks with these keys."""
        ...

    def words_by_key(self, keys: Sequence[int]) -> dict[int, Integers]:
        """Return the terms of each chunk by key, as :func:`ragembed.indexes.search.feedback.words_of` does."""
        ...

    def keys_of(self, records: Sequence[Hit | ChunkRecord]) -> list[int | None]:
        """Return the key of each hit or chunk, None if it is not in the snapshot."""
        ...

    def keys_of_source(self, source: str, store: str | None) -> list[int]:
        """Return the keys of a file's chunks in the store named ``store``; raises :class:`ConfigError` if none."""
        ...

    def neighbour(self, key: int, step: int) -> int | None:
        """Return the key of the chunk after ``key`` in the same file, or of the one before if ``step`` is negative."""
        ...

    def indexed_file(self, source: str, store: str | None) -> tuple[SourceRecord | None, list[str]]:
        """Return the record of a file, None if it is not in the store, and the paths of the store's last run."""
        ...

    def file_states(self, records: Sequence[Hit | ChunkRecord], *, read: bool = True) -> list[FileState | None]:
        """Return for each hit or chunk how its file differs from the one that was indexed, as :func:`file_state`."""
        ...

    def boilerplate_keys(self) -> Keys:
        """Return the keys of the chunks that hold only boilerplate, ascending, shape ``(n,)``."""
        ...

    def all_cosines(self, vector: Floats) -> tuple[Keys, Floats]:
        """Return the keys of all chunks and their cosines with a unit vector, shapes ``(n,)``, without an index."""
        ...


def unread_share(snapshot: Snapshot, query: str) -> float:
    """Return the share of the letters of a query that the model cannot read, 0 if the model is not known."""
    if query.isascii():
        return 0.0
    embedder = snapshot.embedder().refittable
    return 0.0 if embedder is None else embedder.unread_share(query)


def known_keys(snapshot: Snapshot, records: Sequence[Hit | ChunkRecord]) -> list[int]:
    """Return the key of each hit or chunk of the snapshot; raise KeyError for another."""
    keys = snapshot.keys_of(records)
    for key, record in zip(keys, records, strict=True):
        if key is None:
            raise KeyError(record.id)
    return [key for key in keys if key is not None]


def rows_of(snapshot: Snapshot, records: Sequence[Hit | ChunkRecord]) -> list[int]:
    """Return the vector row of each hit or chunk of the snapshot; raise KeyError for another."""
    rows: list[int] = snapshot.rows_of_keys(np.array(known_keys(snapshot, records), dtype=np.int64)).tolist()
    return rows


def vectors_of(snapshot: Snapshot, records: Sequence[Hit | ChunkRecord]) -> Floats:
    """Return the unit vector of each hit or chunk of the snapshot, float32, shape ``(n, d)``."""
    return snapshot.vectors(np.array(rows_of(snapshot, records), dtype=np.int64))


class KeptFacts:
    """Keeps values that depend on the generation of a store only. Threads may share an instance."""

    def __init__(self) -> None:
        self._kept: PerGeneration[dict[Callable[..., Any], Any]] = PerGeneration()

    def clear(self) -> None:
        """Drop everything that is kept, because the store may have been replaced."""
        self._kept.clear()

    def of(self, connection: sqlite3.Connection, generation: object, read: Callable[..., Value], *given: Any) -> Value:
        """Return ``read(connection, *given)``, called once for each generation; ``given`` is the same in each call."""
        values = self._kept.of(generation, lambda _: {})
        with self._kept.lock:
            if read in values:
                kept: Value = values[read]
                return kept
        value = read(connection, *given)
        with self._kept.lock:
            values[read] = value
        return value


@dataclass(frozen=True, slots=True)
class StoreState:
    """What is kept between the searches of a store: term frequencies, words, rows and facts of its generation."""

    highest: HighestScores = field(default_factory=HighestScores)
    words: KeptWords = field(default_factory=KeptWords)
    rows: KeptRows = field(default_factory=KeptRows)
    facts: KeptFacts = field(default_factory=KeptFacts)

    def clear(self) -> None:
        """Drop everything that is kept, because the store may have been replaced."""
        for each in (self.highest, self.words, self.rows, self.facts):
            each.clear()


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The state of one store; ``connection`` is in a read transaction while the snapshot is used.

    ``committed`` is the generation that it sees, as the database has it. ``segments`` (by key), ``embedder``,
    ``select``, ``postings`` and ``kept_hubness`` are functions, because not every query needs them. ``searcher``
    searches the segments. ``kept`` is the state of earlier searches. ``folder`` is that of the store.
    """

    connection: sqlite3.Connection
    committed: Any
    segments: Callable[[], Mapping[int, Segment]]
    embedder: Callable[[], VectorEncoder]
    select: Callable[[Filter | None], Selection | None]
    postings: Callable[[], Postings | None]
    kept_hubness: Callable[[], Hubness | None]
    kept: StoreState
    searcher: SegmentSearch
    folder: Path

    def _fact(self, read: Callable[..., Value], *given: Any) -> Value:
        """Return ``read(connection, *given)``, from memory if an earlier search of this generation has read it."""
        return self.kept.facts.of(self.connection, self.committed, read, *given)

    def dim(self) -> int | None:
        """Return the dimension of the searched vectors, or None if there are no vectors yet."""
        return next((record.files.dim for record in self._fact(catalog.segments)), None)

    def nearest_rows(self, queries: Floats, k: int, selection: Selection | None) -> list[tuple[Rows, Floats]]:
        """Return the nearest rows and their cosines; see :meth:`Snapshot.nearest_rows`."""
        if not len(queries):
            return []
        queries = unit_rows(queries)
        candidate_depth = k + _TIES
        while True:
            found = self._nearest(queries, candidate_depth, selection)
            if candidate_depth >= k + _MOST_TIES or not any(_cut_off(own, k, candidate_depth) for _, own in found):
                return [_with_ties(*hits, k) for hits in found]
            candidate_depth = k + _MOST_TIES

    def _nearest(self, queries: Floats, k: int, selection: Selection | None) -> list[tuple[Rows, Floats]]:
        """Return the ``k`` nearest rows for each query, best first, and their cosines."""
        segments = self.searcher.nearest(self, queries, k, None if selection is None else selection.mask)
        nearest = []
        for i in range(len(queries)):
            rows = np.concatenate([np.zeros(0, dtype=np.int64), *(hits.rows[i] for hits in segments)])
            scores = np.concatenate([np.zeros(0, dtype=np.float32), *(hits.scores[i] for hits in segments)])
            if len(rows) and rows.min() < 0:
                rows, scores = rows[rows >= 0], scores[rows >= 0]
            order = np.lexsort((rows, -scores))[:k]
            nearest.append((rows[order], scores[order]))
        return nearest

    def rows_of(self, key: int) -> Rows:
        """Return the row of each vector of a segment by position, int64, ascending."""
        segment = self.segments()[key]
        rows = segment.rows
        if rows is None:
            in_order = segment.spec.family != "lists"  # the index has the rows in order; a list has its own
            rows = segment.rows = segment.index().rows() if in_order else catalog.rows_of_segment(self.connection, key)
        return rows

    def effort(self) -> int | None:
        """Return the search effort of an approximate index (efSearch or nprobe), or None if it was not measured."""
        choice = self._fact(catalog.index_choice)
        return None if choice is None else choice.effort

    def _postprocess(self, raw: Floats) -> Floats:
        return self.embedder().postprocess_documents(raw)

    def matches(self, expression: str, limit: int, selection: Selection | None) -> tuple[Keys, Doubles]:
        """Return the result of :func:`ragembed.indexes.lexical.fulltext.search`, from postings if the store has any."""
        postings = self.postings()
        admits, most_left_out = (None, 0) if selection is None else (selection.admits, selection.most_left_out)
        if postings is None:
            return fulltext.search(self.connection, expression, limit, admits, most_left_out)
        return postings.search([self.connection], expression, limit, admits)

    def scores_of(self, expression: str, keys: Sequence[int]) -> dict[int, float]:
        """Return BM25 of each chunk in ``keys`` that matches ``expression``."""
        return fulltext.scores_of(self.connection, expression, keys)

    def lexical_rank(self, expression: str, score: float) -> int:
        """Return 1 plus the number of chunks with a higher BM25 than ``score``."""
        return fulltext.rank(self.connection, expression, score)

    def highest_score(self, expression: str) -> float:
        """Return the highest BM25 that a text could have for an expression."""
        return self.kept.highest.of(self.terms(), expression)

    def terms(self) -> TermCounts:
        """Return the numbers of chunks that contain terms."""
        of_terms = partial(frequencies, self.connection, self.postings())
        return TermCounts(self.generation(), self.language(), self.count(), of_terms)

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors."""
        if not len(rows):
            return np.zeros((0, self.dim() or 0), dtype=np.float32)
        segments = self.segments()
        keys, positions = self._places(rows)
        found = np.empty((len(rows), next(iter(segments.values())).files.dim), dtype=np.float32)
        for key in np.unique(keys).tolist():
            inside = keys == key
            found[inside] = segments[key].vectors(self._postprocess).at(positions[inside])
        return found

    def _places(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the segment key and the position in the segment of each row, shapes ``(n,)``."""
        keys, positions = np.zeros_like(rows), np.zeros_like(rows)
        for key, segment in self.segments().items():
            if segment.rows is None and segment.spec.family == "lists":  # more rows to read than needed here
                found = catalog.places_of_rows(self.connection, rows.tolist())
                keys, positions = np.array([found[row] for row in rows.tolist()], dtype=np.int64).T
                break
            of_segment = self.rows_of(key)
            at = places_in(of_segment, rows)
            here = of_segment[at] == rows
            keys[here], positions[here] = key, at[here]
        return keys, positions

    def raw_vector(self, row: int) -> Floats:
        """Return the raw vector of a row, float32, shape ``(d,)``."""
        segment, position = catalog.places_of_rows(self.connection, [row])[row]
        vector: Floats = self.segments()[segment].raw()[position].astype(np.float32)
        return vector

    def language(self) -> str:
        """Return the language whose stemmer lexical search uses."""
        return self._fact(catalog.analyzer_config).language

    def count(self) -> int:
        """Return the number of chunks."""
        return self._fact(catalog.count, "chunks")

    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return str(self._fact(catalog.embedder)["fingerprint"])

    def generation(self) -> int:
        """Return the number of changes that have been committed."""
        return int(self.committed)

    def seed(self) -> int:
        """Return the seed of the embedder."""
        return self.embedder().seed

    def fusion(self) -> Fusion:
        """Return the default settings of hybrid search."""
        return self._fact(stored_fusion)

    def relevance(self) -> RelevanceModel | None:
        """Return the relevance model of the embedder, or None if it was not fitted."""
        return self._fact(stored_relevance)

    def hubness(self) -> Hubness | None:
        """Return the hubness of the chunks, or None if it was not measured, or for too few chunks."""
        kept = self.kept_hubness()
        return None if kept is None else kept.if_enough()

    def rows_of_keys(self, keys: Keys) -> Rows:
        """Return the vector row of each of the chunk keys, shape ``(n,)``; raise KeyError for an unknown key."""
        return self.kept.rows.of_keys(self.connection, self.committed, self.count(), keys)

    def chunks_of_rows(self, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        return self.kept.rows.of_rows(self.connection, self.committed, self.count(), rows)

    def hashes_of_rows(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the hash of the text of each vector row."""
        return catalog.hashes_of_rows(self.connection, rows)

    def chunks_by_key(self, keys: Sequence[int]) -> dict[int, ChunkRecord]:
        """Return the chunks with these keys."""
        return catalog.chunks_by_key(self.connection, keys)

    def words_by_key(self, keys: Sequence[int]) -> dict[int, Integers]:
        """Return the terms of each chunk by key, as :func:`ragembed.indexes.search.feedback.words_of` does."""
        terms = of_language(self.language())

        def read(new: Sequence[int]) -> dict[int, str]:
            return {key: terms.of_text(text) for key, text in catalog.embedded_by_key(self.connection, new).items()}

        return self.kept.words.of(keys, self.generation(), read)

    def keys_of(self, records: Sequence[Hit | ChunkRecord]) -> list[int | None]:
        """Return the key of each hit or chunk, None if it is not in the store."""
        found = catalog.keys_of_ids(self.connection, [record.id for record in records])
        return [found.get(record.id) for record in records]

    def keys_of_source(self, source: str, store: str | None = None) -> list[int]:  # noqa: ARG002  there is one store
        """Return the keys of a file's chunks; raise :class:`ConfigError` with the reason if there are none."""
        keys = catalog.selected_keys(self.connection, (), [source], None)
        if keys:
            return keys
        reason = catalog.skipped(self.connection).get(source)
        if reason is not None:
            raise ConfigError(f"{source} is not in the store: the last run skipped it: {reason}")
        if catalog.sources_below(self.connection, [source]):
            raise ConfigError(f"{source} is a folder in the store: expected a file")
        raise ConfigError(
            f"{source} is not in the store: it was never indexed, or was deleted; add it with 'ragembed index PATH'"
        )

    def neighbour(self, key: int, step: int) -> int | None:
        """Return the key of the chunk after ``key`` in the same file, or of the one before if ``step`` is negative."""
        return catalog.neighbour(self.connection, key, step)

    def indexed_file(self, source: str, store: str | None = None) -> tuple[SourceRecord | None, list[str]]:  # noqa: ARG002
        """Return the record of a file, None if it is not in the store, and the paths of the store's last run."""
        return catalog.sources(self.connection, [source]).get(source), self._roots()

    def _roots(self) -> list[str]:
        roots: list[str] = (self._fact(catalog.last_request) or {}).get("paths", [])
        return roots

    def file_states(self, records: Sequence[Hit | ChunkRecord], *, read: bool = True) -> list[FileState | None]:
        """Return how the file of each hit or chunk differs from the indexed one; see :meth:`Snapshot.file_states`."""
        states = self.states_of_files({record.source for record in records if record.source is not None}, read=read)
        return [None if record.source is None else states.get(record.source) for record in records]

    def states_of_files(self, names: Iterable[str] | None = None, *, read: bool = True) -> dict[str, FileState]:
        """Return the files that differ from their records; all files are compared, or those with one of ``names``."""
        found = {} if names == set() else catalog.sources(self.connection, names)
        roots = self._roots() if found else []
        states = ((name, file_state(each, roots, self.folder, read=read)) for name, each in found.items())
        return {name: state for name, state in states if state is not None}

    def boilerplate_keys(self) -> Keys:
        """Return the keys of the chunks that hold only boilerplate, ascending, shape ``(n,)``."""
        return catalog.boilerplate_only_chunks(self.connection)[0]

    def all_cosines(self, vector: Floats) -> tuple[Keys, Floats]:
        """Return the keys of all chunks and their cosines with a unit vector, shapes ``(n,)``, without an index."""
        keys, rows = catalog.chunk_rows(self.connection)
        by_row = np.zeros(catalog.last_row(self.connection) + 1, dtype=np.float32)
        for key, segment in self.segments().items():
            of_segment = catalog.rows_of_segment(self.connection, key)
            for start, block in blocks(segment.vectors(self._postprocess), _BLOCK):
                by_row[of_segment[start : start + len(block)]] = inner_products(vector[None, :], block)[0]
        return keys, by_row[rows]


def _cut_off(cosines: Floats, k: int, candidate_depth: int) -> bool:
    """Return whether more rows than those with ``cosines``, best first, may tie with the ``k``-th."""
    return 0 < k <= len(cosines) == candidate_depth and bool(cosines[-1] == cosines[k - 1])


def _with_ties(rows: Rows, cosines: Floats, k: int) -> tuple[Rows, Floats]:
    """Return the first ``k`` rows with their ``cosines``, best first, and those that tie with the last."""
    if len(cosines) > k:
        stop = int(np.count_nonzero(cosines >= cosines[k - 1])) if k else 0
        rows, cosines = rows[:stop], cosines[:stop]
    return rows, cosines
