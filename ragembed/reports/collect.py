"""Collect the contents of a report from a store, without any HTML. Everything comes from one snapshot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.readers.registry import location_of, member_of, sheet_of
from ragembed.indexes.doctor.drift import measure_drift
from ragembed.indexes.indexing.commands import Commands
from ragembed.indexes.indexing.languages import language_problems, languages_of
from ragembed.indexes.search.ranking import NearDuplicates
from ragembed.indexes.search.relevance import is_weak
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Rows
from ragembed.languages import everyday_sentences, main_language
from ragembed.progress import Progress
from ragembed.reports.map import MOST_GROUPS, VectorMap, labels, make_map, place_beside
from ragembed.types import Doubles, Floats

HITS = 10
"""Number of hits of each query."""

_QUERIES = 200
"""Maximum number of queries that a report shows."""
_TEXTS = 10_000
"""Maximum number of chunks whose texts are part of a report."""
_READ_FOR_LANGUAGE = 300
_LANGUAGE_CHARACTERS = 4_000
_NEAR_COSINE = 0.9
_GROUPS_SHOWN, _MEMBERS_SHOWN = 20, 5
_WORDS, _LEAST_TEXTS, _LEAST_SHARE = 15, 3, 0.002
_PERIODS = 7
_OTHER, _NONE, _NOT_RECOGNISED = "other", "(none)", "not recognised"
_READ_FOR_WEIGHTS = 2_000
"""Number of chunks whose words get a weight."""
_WORD = re.compile(r"[^\W\d_]{2,}")


class FileKind(NamedTuple):
    """The files with one extension: their number, bytes and chunks."""

    name: str
    files: int
    bytes: int
    chunks: int


class Colouring(NamedTuple):
    """A property of chunks: its values, ``ordered`` or not, and the number of each chunk's, uint8, ``(n,)``."""

    name: str
    values: tuple[str, ...]
    codes: NDArray[np.uint8]
    ordered: bool = False


class ShownChunk(NamedTuple):
    """A chunk whose text is part of the report: its number in the map, its file, its place there, and its text."""

    number: int
    file: str
    place: str
    text: str


class QueryResult(NamedTuple):
    """A query with the numbers of its hits, best first, and the relevance of the best one, if it is known."""

    query: str
    hits: tuple[int, ...]
    best: ShownChunk | None
    relevance: float | None
    is_weak: bool
    place: tuple[int, int] | None


class WeightedWord(NamedTuple):
    """A word, the mean weight of its tokens relative to the median word, and the shares of texts and of all weights."""

    word: str
    weight: float
    texts: float
    share: float


class ClusterSummary(NamedTuple):
    """A cluster: its words, its number of chunks, the number of its group, and its most central chunk."""

    words: tuple[str, ...]
    size: int
    group: int
    example: ShownChunk


class ReportData:
    """The contents of a report, from one snapshot of a store. ``vector_map`` is None if the store has no chunks.

    ``points`` are the positions of all chunks on the map, uint16, shape ``(n, 2)``; ``cluster`` are their clusters.
    ``duplicates`` are the first chunks of each group with nearly the same text, and the size of the group.
    ``queries`` are those with the weakest matches, weakest first; ``asked`` counts all queries, and ``weak`` all with
    weak matches.
    """

    def __init__(self, store: Store, snapshot: Snapshot, progress: Progress, queries: Sequence[str]) -> None:
        self._store, self._snapshot, self._progress = store, snapshot, progress
        self._connection = connection = snapshot.connection
        self._keys, rows = catalog.chunk_rows(connection)
        self._rows, self._vector_of = np.unique(rows, return_inverse=True)
        self._sources = catalog.source_kinds(connection)
        numbers = {source: number for number, (source, *_) in enumerate(self._sources)}
        self._file = np.array(
            [numbers.get(source, -1) for source in catalog.chunk_sources(connection)[1].tolist()], np.int64
        )
        self.status: Mapping[str, Any] = store.status()
        self.vector_map = made = self._map() if len(self._rows) else None
        self.points = np.zeros((0, 2), np.uint16) if made is None else made.places[self._vector_of]
        self.cluster = np.zeros(0, np.uint8) if made is None else made.cluster[self._vector_of].astype(np.uint8)
        self.languages = self._languages()
        self.groups: tuple[tuple[str, ...], ...] = ()
        self.clusters: tuple[ClusterSummary, ...] = ()
        duplicates: list[list[int]] = []
        if made is not None:
            self.groups, self.clusters = self._clusters(made, self.cluster)
            duplicates = self._duplicates(made)
        results = store.search_many(queries, HITS) if queries else []
        answered = [self._query(text, hits) for text, hits in zip(queries, results, strict=True)]
        answered.sort(key=lambda answer: -1.0 if answer.relevance is None else answer.relevance)
        self.asked, self.weak = len(answered), sum(answer.is_weak for answer in answered)
        self.queries = tuple(answered[:_QUERIES])
        self.size = self._size()
        self.kinds = self._kinds()
        self.skipped = _grouped(self.status["skipped"])
        self.colourings = tuple(self._colourings())
        self.chunks = self._texts({number for query in self.queries for number in query.hits})
        self.duplicates = [(self._shown(group[:_MEMBERS_SHOWN]), len(group)) for group in duplicates[:_GROUPS_SHOWN]]
        self.duplicate_groups, self.duplicate_chunks = len(duplicates), sum(len(group) - 1 for group in duplicates)
        self.heaviest, self.lightest = self._weights()
        own = snapshot.embedder().refittable  # None if ragembed did not make the vectors
        self.drift = measure_drift(store) if own is not None and len(self._rows) else None
        self.commands = Commands.of(store)
        together = (self.status["detected_language"] or {}).get("language")
        languages = languages_of(connection, together)
        self.language_problems = [] if own is None else language_problems(own, languages, store.language, self.commands)

    def _map(self) -> VectorMap:
        def read(numbers: Rows) -> Floats:
            return self._snapshot.vectors(self._rows[numbers])

        self._progress.start("drawing the map", "vectors", len(self._rows))
        try:
            return make_map(len(self._rows), read, self._progress.advance)
        finally:
            self._progress.finish()

    # Chunks

    def _shown(self, numbers: Sequence[int]) -> tuple[ShownChunk, ...]:
        """Return the chunks with these numbers."""
        keys = [int(self._keys[number]) for number in numbers]
        records = catalog.chunks_by_key(self._connection, keys)
        return tuple(_shown(number, records[key]) for number, key in zip(numbers, keys, strict=True))

    def _texts(self, wanted: set[int]) -> tuple[ShownChunk, ...]:
        """Return evenly spread chunks and those ``wanted``, in order."""
        count = len(self._keys)
        spread = np.linspace(0, count - 1, min(count, _TEXTS)).round().astype(np.int64).tolist() if count else []
        return self._shown(sorted({*spread, *wanted}))

    def _clusters(
        self, made: VectorMap, cluster: NDArray[np.uint8]
    ) -> tuple[tuple[tuple[str, ...], ...], tuple[ClusterSummary, ...]]:
        first = np.full(len(self._rows), -1, dtype=np.int64)  # the number of the first chunk of each vector
        first[self._vector_of[::-1]] = np.arange(len(self._vector_of))[::-1]
        numbers = first[made.laid_out]
        of_key = catalog.embedded_by_key(self._connection, self._keys[numbers].tolist())
        texts = [of_key[key] for key in self._keys[numbers].tolist()]
        own = made.cluster[made.laid_out]
        group = made.clusters.group
        languages = [name for name, _ in self.languages if name != _NOT_RECOGNISED] or everyday_sentences()
        by_cluster, by_group = labels(texts, [own, group[own]], self._store.language, languages)
        examples = self._shown([int(numbers[position]) for position in self._central(made, own)])
        sizes = np.bincount(cluster, minlength=len(group)).tolist()
        summaries = (
            ClusterSummary(tuple(words), size, number, example)
            for words, size, number, example in zip(by_cluster, sizes, group.tolist(), examples, strict=True)
        )
        return tuple(map(tuple, by_group)), tuple(summaries)

    def _central(self, made: VectorMap, own: Rows) -> list[int]:
        """Return for each cluster the number, in ``laid_out``, of the vector nearest to its centre."""
        best = []
        for number, centre in enumerate(made.clusters.centres):
            members = np.flatnonzero(own == number)
            vectors = self._snapshot.vectors(self._rows[made.laid_out[members]])
            best.append(int(members[np.argmax(vectors @ centre)]))
        return best

    def _duplicates(self, made: VectorMap) -> list[list[int]]:
        """Return groups of chunks with nearly the same text, large ones first.

        Only chunks that share their vector, or whose vectors are near each other and were laid out, are compared.
        """
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        chunks_of: dict[int, list[int]] = {}
        for number, vector in enumerate(self._vector_of.tolist()):
            chunks_of.setdefault(vector, []).append(number)
        near = made.cosines >= _NEAR_COSINE
        first, second = np.repeat(np.arange(len(near)), near.sum(axis=1)), made.neighbours[near]
        edges = coo_matrix((np.ones(len(first)), (first, second)), shape=(len(near), len(near)))
        _, part = connected_components(edges, directed=False)
        parts: dict[int, list[int]] = {}
        for position, number in enumerate(part.tolist()):
            parts.setdefault(number, []).extend(chunks_of.pop(int(made.laid_out[position])))
        groups: list[list[int]] = []
        for candidates in [*parts.values(), *chunks_of.values()]:
            if len(candidates) > 1:
                groups += self._repeated(sorted(candidates))
        return sorted(groups, key=lambda group: (-len(group), group))

    def _repeated(self, candidates: Sequence[int]) -> list[list[int]]:
        seen, groups = NearDuplicates(), []
        records = catalog.chunks_by_key(self._connection, [int(self._keys[number]) for number in candidates])
        for number in candidates:
            first = seen.place(records[int(self._keys[number])].chunk.text)
            if first is None:
                groups.append([number])
            else:
                groups[first].append(number)
        return [group for group in groups if len(group) > 1]

    # Colours

    def _colourings(self) -> list[Colouring]:
        names = [path for _, path, *_ in self._sources]
        colourings = [
            self._named("Folder", _folders(names)),
            self._named("Type", [ext or _NONE for _, _, ext, *_ in self._sources]),
        ]
        if self._sources:
            colourings.append(self._dates())
        for fit in derived.records(self._connection, derived.QUERIES):
            added = self._rows[self._vector_of] > fit.last
            colourings.append(Colouring("Drift", ("in the fit", "added since the fit"), added.astype(np.uint8)))
        return colourings

    def _named(self, name: str, of_files: Sequence[str]) -> Colouring:
        """Return the colouring by a name of each file: the most frequent ones, and one value for all others."""
        of_chunks = [of_files[file] if file >= 0 else _NONE for file in self._file.tolist()]
        counted = Counter(of_chunks)
        ranked = sorted(counted, key=lambda group: (-counted[group], group))
        shown = ranked if len(ranked) <= MOST_GROUPS else [*ranked[: MOST_GROUPS - 1], _OTHER]
        numbers = {group: number for number, group in enumerate(shown)}
        codes = np.array([numbers.get(of_chunk, len(shown) - 1) for of_chunk in of_chunks], dtype=np.uint8)
        return Colouring(name, tuple(shown), codes)

    def _dates(self) -> Colouring:
        """Return the colouring by the time of modification, in periods with about equally many chunks."""
        days = np.array([mtime // 86_400_000_000_000 for *_, mtime in self._sources], dtype=np.int64)
        of_chunks = np.where(self._file >= 0, days[self._file], -(2**62))
        dated = of_chunks[self._file >= 0]
        ends = (
            np.unique(np.quantile(dated, np.linspace(0, 1, _PERIODS + 1)[1:], method="higher")) if len(dated) else dated
        )
        codes = np.searchsorted(ends, of_chunks)
        starts = [dated[np.searchsorted(ends, dated) == number].min() for number in range(len(ends))]
        names = [_days(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
        if len(dated) < len(of_chunks):
            codes, names = np.where(self._file >= 0, codes, len(names)), [*names, _NONE]
        return Colouring("Date", tuple(names), codes.astype(np.uint8), ordered=True)

    # Queries

    def _query(self, query: str, hits: Sequence[Any]) -> QueryResult:
        keys = catalog.keys_of_ids(self._connection, [hit.id for hit in hits])
        numbers = [int(np.searchsorted(self._keys, keys[hit.id])) for hit in hits]
        relevances = [hit.relevance for hit in hits]
        best = None if not hits else relevances[0]
        place = None
        if numbers:
            places: Doubles = self.points[numbers].astype(np.float64)
            x, y = place_beside(places, 1.0 / np.arange(1, len(numbers) + 1)).round().astype(int).tolist()
            place = (x, y)
        shown = self._shown(numbers[:1])
        weak = is_weak(relevances) or not hits
        return QueryResult(query, tuple(numbers), shown[0] if shown else None, best, weak, place)

    # The store

    def _size(self) -> int:
        """Return the size of the store in bytes, without SQLite's temporary files."""
        temporary = ("-wal", "-shm", "-journal")
        files = (file for file in self._store.path.rglob("*") if file.is_file())
        return sum(file.stat().st_size for file in files if not file.name.endswith(temporary))

    def _kinds(self) -> tuple[FileKind, ...]:
        chunks = np.bincount(self._file[self._file >= 0], minlength=len(self._sources)).tolist()
        by_extension: dict[str, list[int]] = {}
        for (_, _, ext, size, _), count in zip(self._sources, chunks, strict=True):
            kind = by_extension.setdefault(ext or _NONE, [0, 0, 0])
            kind[:] = kind[0] + 1, kind[1] + size, kind[2] + count
        if alone := int((self._file < 0).sum()):
            by_extension["(no file)"] = [0, 0, alone]
        kinds = (FileKind(name, *numbers) for name, numbers in by_extension.items())
        return tuple(sorted(kinds, key=lambda kind: (-kind.chunks, kind.name)))

    def _languages(self) -> tuple[tuple[str, int], ...]:
        """Return the languages of evenly spread files, with the number of files in each."""
        languages: Counter[str] = Counter()
        with_chunks = np.unique(self._file[self._file >= 0])
        places = np.linspace(0, len(with_chunks) - 1, min(len(with_chunks), _READ_FOR_LANGUAGE)).round().astype(int)
        firsts = np.searchsorted(np.sort(self._file), with_chunks)
        order = np.argsort(self._file, kind="stable")
        for place in np.unique(places).tolist():
            some = order[firsts[place] : firsts[place] + 4]
            of_file = some[self._file[some] == with_chunks[place]]
            texts = catalog.embedded_by_key(self._connection, self._keys[of_file].tolist())
            languages[main_language(text[:_LANGUAGE_CHARACTERS] for text in texts.values()) or _NOT_RECOGNISED] += 1
        return tuple(sorted(languages.items(), key=lambda item: (-item[1], item[0])))

    def _weights(self) -> tuple[tuple[WeightedWord, ...], tuple[WeightedWord, ...]]:
        """Return the words that carry most weight, and the frequent words with the lowest, if weights are fitted."""
        embedder = self._snapshot.embedder().refittable
        if embedder is None or embedder.is_remote:
            return (), ()
        weights = embedder.extractor.weights
        table = weights.table
        if table is None:
            return (), ()
        weights.require_fitted()
        count = len(self._keys)
        spread = np.linspace(0, count - 1, min(count, _READ_FOR_WEIGHTS)).round().astype(np.int64)
        texts = catalog.embedded_by_key(self._connection, self._keys[spread].tolist()).values()
        occurrences: Counter[str] = Counter()
        frequency: Counter[str] = Counter()
        for text in texts:
            words = [word.lower() for word in _WORD.findall(text)]
            occurrences.update(words)
            frequency.update(set(words))
        least = max(_LEAST_TEXTS, _LEAST_SHARE * len(texts))
        distinct = sorted(occurrences)
        of_word = {
            word: float(table[ids].mean())
            for word, ids in zip(distinct, embedder.tokenizer.ids(distinct), strict=True)
            if len(ids)
        }
        frequent = [word for word in of_word if frequency[word] >= least]
        if not frequent:
            return (), ()
        middle = float(np.median([of_word[word] for word in frequent])) or 1.0
        total = sum(weight * occurrences[word] for word, weight in of_word.items()) or 1.0

        def weighted(word: str) -> WeightedWord:
            share = of_word[word] * occurrences[word] / total
            return WeightedWord(word, of_word[word] / middle, frequency[word] / len(texts), share)

        most = sorted(frequent, key=lambda word: (-of_word[word] * occurrences[word], word))
        least_weight = sorted(frequent, key=lambda word: (of_word[word], word))
        return tuple(map(weighted, most[:_WORDS])), tuple(map(weighted, least_weight[:_WORDS]))


def _shown(number: int, record: ChunkRecord) -> ShownChunk:
    chunk = record.chunk
    member = member_of(record.source, chunk.metadata)
    place = "" if member is None else f": {member}"
    path = record.source or record.id
    sheet = sheet_of(member or record.source, chunk.headings)
    whole = location_of(f"{path}{place}", chunk.start_line, chunk.end_line, chunk.page, chunk.end_page, sheet)
    return ShownChunk(number, path, whole.removeprefix(path), chunk.text)


def _folders(names: Sequence[str]) -> list[str]:
    """Return the folder of each file: its first part below the folder that all files have in common."""
    parts = [PurePosixPath(name).parts[:-1] for name in names]
    shared = 0
    while parts and all(len(part) > shared for part in parts) and len({part[: shared + 1] for part in parts}) == 1:
        shared += 1
    return ["/".join(part[: shared + 1]) or "." for part in parts]


def _days(first: int, last: int) -> str:
    """Return a period, whose days are counted from 1970, as ``2024-03-01 to 2024-05-07``."""
    shown = dict.fromkeys(
        datetime.fromtimestamp(day * 86_400, tz=timezone.utc).date().isoformat() for day in (first, last)
    )
    return " to ".join(shown)


def _grouped(skipped: Mapping[str, str]) -> tuple[tuple[str, int, str], ...]:
    """Return each reason for skipping files, with the number of files and the first of them, frequent ones first."""
    names_of: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names_of.setdefault(reason, []).append(name)
    reasons = sorted(names_of, key=lambda reason: (-len(names_of[reason]), reason))
    return tuple((reason, len(names_of[reason]), min(names_of[reason])) for reason in reasons)
