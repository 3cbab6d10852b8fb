"""The snapshots of several stores with the same embedder and language, searched as if one store had all chunks.

Keys and rows of the member with the number ``i`` are those of its store plus ``i * 2**40``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical.bm25 import HighestScores, LexicalMember, Postings, TermCounts
from ragembed.indexes.lexical.fulltext import indexed_terms
from ragembed.indexes.per_generation import PerGeneration
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.relevance import RelevanceModel, mean_relevance
from ragembed.indexes.search.snapshot import StoreSnapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.file_states import FileState
from ragembed.indexes.storage.hubness import Hubness, MergedQueries
from ragembed.indexes.storage.selection import Selection
from ragembed.indexes.types import ChunkRecord, Hit, Keys, Rows, SourceRecord, VectorEncoder
from ragembed.types import Bools, Doubles, Floats, Integers

Value = TypeVar("Value")

_BITS = 40
_LOCAL = (1 << _BITS) - 1
_SAME_COSINE = 1e-4
"""Difference of cosines up to which two rows of different stores may have the same text, encoded in other batches."""


def require_mergeable(snapshot: StoreSnapshot) -> None:
    """Raise :class:`StoreDamagedError` if a store has keys or rows that no store with fewer chunks can have."""
    highest = max(catalog.highest_key(snapshot.connection), catalog.last_row(snapshot.connection))
    if highest > _LOCAL:
        raise StoreDamagedError(
            f"the store's database has a chunk or vector with the number {highest:,}: delete the store and index again"
        )


class MergedState:
    """What is kept between the searches of a collection. Threads may share an instance."""

    def __init__(self) -> None:
        self.highest = HighestScores()
        self._lexical: dict[tuple[str, int], PerGeneration[LexicalMember]] = {}
        self._postings: PerGeneration[Postings] = PerGeneration()
        self._hubness: PerGeneration[Hubness | None] = PerGeneration()

    def postings(self, snapshot: MergedSnapshot) -> Postings:
        """Return the terms of all chunks."""

        def merged(_: Postings | None) -> Postings:
            members = [self._member(number, *each) for number, each in enumerate(snapshot.members)]
            return Postings(members, indexed_terms(snapshot.language()))

        return self._postings.of(snapshot.state(), merged)

    def _member(self, number: int, name: str, snapshot: StoreSnapshot) -> LexicalMember:
        return self._lexical.setdefault((name, number), PerGeneration()).of(
            snapshot.generation(),
            lambda _: LexicalMember.of(snapshot.connection, snapshot.postings(), number << _BITS),
        )

    def hubness(self, snapshot: MergedSnapshot) -> Hubness | None:
        """Return the hubness of all chunks, measured with the pseudo-queries of all members."""
        return self._hubness.of(snapshot.state(), lambda _: _merged_hubness(snapshot))


def _merged_hubness(snapshot: MergedSnapshot) -> Hubness | None:
    """Return a hubness without measured rows, or None if no member has one.

    A store with all chunks would have drawn its pseudo-queries from those that the members have drawn.
    """
    drawn = []
    for _, member in snapshot.members:
        if (hubness := member.kept_hubness()) is not None:
            hashes = {origin.tobytes() for origin in hubness.queries.origins}
            drawn.append((hubness.queries, catalog.texts_of_hashes(member.connection, hashes)))
    if not drawn:
        return None
    queries = MergedQueries.of(drawn, snapshot.seed())
    if queries is None:
        return None
    return Hubness(queries, np.array([-1], dtype=np.int64), np.zeros(1, dtype=np.float32), snapshot.count()).if_enough()


@dataclass(frozen=True, slots=True)
class MergedSelection:
    """The chunks of several stores that a search may return; None stands for all chunks of a store."""

    parts: Sequence[Selection | None]

    def admits(self, keys: Keys) -> Bools:
        """Return for each of the chunk keys, shape ``(n,)``, whether it may be returned."""
        admitted = np.ones(len(keys), dtype=bool)
        for number, part in enumerate(self.parts):
            if part is not None:
                inside = keys >> _BITS == number
                admitted[inside] = part.admits(keys[inside] & _LOCAL)
        return admitted


@dataclass(frozen=True, slots=True)
class MergedSnapshot:
    """The snapshots of ``members``, with the names of their stores; see :class:`ragembed.indexes.search.snapshot`.

    ``kept`` is the state of earlier searches of the same stores, and ``chosen_fusion`` replaces the settings of the
    stores.
    """

    members: Sequence[tuple[str, StoreSnapshot]]
    kept: MergedState
    chosen_fusion: Fusion | None = None

    def state(self) -> Hashable:
        """Return the names and generations of the stores."""
        return tuple((name, each.generation()) for name, each in self.members)

    def dim(self) -> int | None:
        """Return the dimension of the searched vectors, or None if there are no vectors yet."""
        return next((dim for _, each in self.members if (dim := each.dim()) is not None), None)

    def embedder(self) -> VectorEncoder:
        """Return the embedder of the vectors."""
        return self.members[0][1].embedder()

    def seed(self) -> int:
        """Return the seed of the embedder."""
        return self.members[0][1].seed()

    def language(self) -> str:
        """Return the language whose stemmer lexical search uses."""
        return self.members[0][1].language()

    def count(self) -> int:
        """Return the number of chunks."""
        return sum(each.count() for _, each in self.members)

    def fusion(self) -> Fusion:
        """Return the settings of the collection, else those of the stores if they agree, else the defaults."""
        if self.chosen_fusion is not None:
            return self.chosen_fusion
        found = {each.fusion() for _, each in self.members}
        return found.pop() if len(found) == 1 else Fusion()

    def relevance(self) -> RelevanceModel | None:
        """Return the mean of the relevance models of the stores, or None if they have none."""
        return mean_relevance([(each.relevance(), each.count()) for _, each in self.members])

    def select(self, where: Filter | None) -> MergedSelection | None:
        """Return the chunks that match ``where`` and can be found, or None if these are all chunks."""
        parts = [each.select(where) for _, each in self.members]
        return None if all(part is None for part in parts) else MergedSelection(parts)

    def nearest_rows(self, queries: Floats, k: int, selection: MergedSelection | None) -> list[tuple[Rows, Floats]]:
        """Return for each query the rows of the ``k`` nearest texts, and of ties with the last one, and their cosines.

        A store keeps one row for each text, so the rows that several stores have for a text count once.
        """
        if not len(queries):
            return []
        parts = [None] * len(self.members) if selection is None else selection.parts
        of_members = [each.nearest_rows(queries, k, part) for (_, each), part in zip(self.members, parts, strict=True)]
        found = []
        for of_query in zip(*of_members, strict=True):
            rows = np.concatenate([own + (number << _BITS) for number, (own, _) in enumerate(of_query)])
            cosines = np.concatenate([own for _, own in of_query])
            order = np.lexsort((rows, -cosines))
            found.append(self._of_nearest_texts(rows[order], cosines[order], k))
        return found

    def _of_nearest_texts(self, rows: Rows, cosines: Floats, k: int) -> tuple[Rows, Floats]:
        """Return the ``rows`` of the first ``k`` texts, and of ties with the last one, with their ``cosines``."""
        close = np.flatnonzero(np.diff(-cosines.astype(np.float64)) <= _SAME_COSINE)
        suspects = rows[np.union1d(close, close + 1)].tolist()
        texts: dict[int, Hashable] = dict(self.hashes_of_rows(suspects))
        seen: set[Hashable] = set()
        nearest = []
        least = np.inf
        for i, (row, cosine) in enumerate(zip(rows.tolist(), cosines.tolist(), strict=True)):
            text = texts.get(row, row)
            if len(seen) < k:
                least = cosine
            elif text not in seen and cosine < least:
                continue
            seen.add(text)
            nearest.append(i)
        return rows[nearest], cosines[nearest]

    def matches(self, expression: str, limit: int, selection: MergedSelection | None) -> tuple[Keys, Doubles]:
        """Return keys and BM25 of the best ``limit`` selected chunks, and of chunks that tie with the last."""
        if (only := self._only()) is not None:
            return only.matches(expression, limit, None if selection is None else selection.parts[0])
        return self.kept.postings(self).search(
            self._connections(), expression, limit, None if selection is None else selection.admits
        )

    def scores_of(self, expression: str, keys: Sequence[int]) -> dict[int, float]:
        """Return BM25 of each chunk in ``keys`` that matches ``expression``."""
        if (only := self._only()) is not None:
            return only.scores_of(expression, keys)
        found, scores = self.kept.postings(self).all_scores(self._connections(), expression)
        wanted = np.isin(found, np.array(keys, dtype=np.int64))
        return dict(zip(found[wanted].tolist(), scores[wanted].tolist(), strict=True))

    def lexical_rank(self, expression: str, score: float) -> int:
        """Return 1 plus the number of chunks with a higher BM25 than ``score``."""
        if (only := self._only()) is not None:
            return only.lexical_rank(expression, score)
        _, scores = self.kept.postings(self).all_scores(self._connections(), expression)
        return 1 + int((scores > score).sum())

    def highest_score(self, expression: str) -> float:
        """Return the highest BM25 that a text could have for an expression."""
        members = [each.terms() for _, each in self.members]

        def frequencies(terms: Sequence[bytes]) -> list[int]:
            return [sum(counts) for counts in zip(*(each.frequencies(terms) for each in members), strict=True)]

        counts = TermCounts(self.state(), self.language(), self.count(), frequencies)
        return self.kept.highest.of(counts, expression)

    def _connections(self) -> list[Any]:
        return [each.connection for _, each in self.members]

    def hubness(self) -> Hubness | None:
        """Return the hubness of the chunks, or None if it was not measured."""
        only = self._only()
        return self.kept.hubness(self) if only is None else only.hubness()

    def _only(self) -> StoreSnapshot | None:
        """Return the snapshot of the only member, whose keys and rows are those of the store, or None."""
        return self.members[0][1] if len(self.members) == 1 else None

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors."""
        found = np.zeros((len(rows), self.dim() or 0), dtype=np.float32)
        for number, at, local in _split(rows):
            found[at] = self.members[number][1].vectors(local)
        return found

    def raw_vector(self, row: int) -> Floats:
        """Return the raw vector of a row, float32, shape ``(d,)``."""
        return self.members[row >> _BITS][1].raw_vector(row & _LOCAL)

    def rows_of_keys(self, keys: Keys) -> Rows:
        """Return the vector row of each of the chunk keys, shape ``(n,)``; raise KeyError for an unknown key."""
        rows = np.zeros(len(keys), dtype=np.int64)
        for number, at, local in _split(keys):
            rows[at] = self.members[number][1].rows_of_keys(local) + (number << _BITS)
        return rows

    def chunks_of_rows(self, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        keys, of_keys = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for number, _, local in _split(rows):
            found = self.members[number][1].chunks_of_rows(local)
            keys.append(found[0] + (number << _BITS))
            of_keys.append(found[1] + (number << _BITS))
        return np.concatenate(keys), np.concatenate(of_keys)

    def hashes_of_rows(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the hash of the text of each vector row."""
        return dict(self._by_number(rows, lambda each, local: each.hashes_of_rows(local)))

    def chunks_by_key(self, keys: Sequence[int]) -> dict[int, ChunkRecord]:
        """Return the chunks with these keys, with the names of their stores."""
        return {
            key: replace(record, store=self.members[key >> _BITS][0])
            for key, record in self._by_number(keys, lambda each, local: each.chunks_by_key(local))
        }

    def words_by_key(self, keys: Sequence[int]) -> dict[int, Integers]:
        """Return the terms of each chunk by key, as :func:`ragembed.indexes.search.feedback.words_of` does."""
        return dict(self._by_number(keys, lambda each, local: each.words_by_key(local)))

    def keys_of(self, records: Sequence[Hit | ChunkRecord]) -> list[int | None]:
        """Return the key of each hit or chunk, None if it is not in its store."""
        found: list[int | None] = [None] * len(records)
        for number, (name, each) in enumerate(self.members):
            at = [i for i, record in enumerate(records) if record.store == name]
            for i, key in zip(at, each.keys_of([records[i] for i in at]) if at else [], strict=True):
                found[i] = None if key is None else key + (number << _BITS)
        return found

    def keys_of_source(self, source: str, store: str | None) -> list[int]:
        """Return the keys of a file's chunks; raise :class:`ConfigError` with the reason if there are none."""
        number = self._number(store)
        return [key + (number << _BITS) for key in self.members[number][1].keys_of_source(source)]

    def _number(self, store: str | None) -> int:
        for number, (name, _) in enumerate(self.members):
            if name == store:
                return number
        names = ", ".join(name for name, _ in self.members)
        raise ConfigError(f"unknown store {store!r}: expected the store that has the file, one of {names}")

    def neighbour(self, key: int, step: int) -> int | None:
        """Return the key of the chunk after ``key`` in the same file, or of the one before if ``step`` is negative."""
        found = self.members[key >> _BITS][1].neighbour(key & _LOCAL, step)
        return None if found is None else found + (key >> _BITS << _BITS)

    def indexed_file(self, source: str, store: str | None) -> tuple[SourceRecord | None, list[str]]:
        """Return the record of a file, None if it is not in the store, and the paths of the store's last run."""
        return self.members[self._number(store)][1].indexed_file(source)

    def file_states(self, records: Sequence[Hit | ChunkRecord], *, read: bool = True) -> list[FileState | None]:
        """Return how the file of each hit or chunk differs from the indexed one; see :meth:`Snapshot.file_states`."""
        found: list[FileState | None] = [None] * len(records)
        for name, each in self.members:
            at = [i for i, record in enumerate(records) if record.store == name]
            for i, state in zip(at, each.file_states([records[i] for i in at], read=read), strict=True):
                found[i] = state
        return found

    def boilerplate_keys(self) -> Keys:
        """Return the keys of the chunks that hold only boilerplate, ascending, shape ``(n,)``."""
        parts = [each.boilerplate_keys() + (number << _BITS) for number, (_, each) in enumerate(self.members)]
        return np.concatenate(parts)

    def all_cosines(self, vector: Floats) -> tuple[Keys, Floats]:
        """Return the keys of all chunks and their cosines with a unit vector, shapes ``(n,)``, without an index."""
        found = [each.all_cosines(vector) for _, each in self.members]
        keys = [of_member + (number << _BITS) for number, (of_member, _) in enumerate(found)]
        return np.concatenate(keys), np.concatenate([cosines for _, cosines in found])

    def _by_number(
        self, numbers: Sequence[int], read: Callable[[StoreSnapshot, Sequence[int]], dict[int, Value]]
    ) -> Iterator[tuple[int, Value]]:
        """Yield keys or rows with what ``read`` returns for them from their stores."""
        for number, _, local in _split(numbers):
            for key, value in read(self.members[number][1], local.tolist()).items():
                yield key + (number << _BITS), value


def _split(numbers: Sequence[int] | Integers) -> Iterator[tuple[int, Integers, Integers]]:
    """Yield the number of each member, the positions of its keys or rows, and their values in its store."""
    given = np.asarray(numbers, dtype=np.int64)
    of_member = given >> _BITS
    for number in np.unique(of_member).tolist():
        at = np.flatnonzero(of_member == number)
        yield number, at, given[at] & _LOCAL
