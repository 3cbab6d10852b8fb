"""Snapshots: the state of one store, or of several as if one store had all their chunks, and of the files on disk."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Hashable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.files import open_regular
from ragembed.indexes.faiss_index.vectors import among, inner_products, places_in, vector_blocks
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.lexical.analyzer import of_language
from ragembed.indexes.lexical.bm25 import LexicalMember, Postings, counted_terms, frequencies, highest_score
from ragembed.indexes.lexical.fulltext import indexed_terms
from ragembed.indexes.search.feedback import is_code, words_of
from ragembed.indexes.search.fusion import Fusion, stored_fusion
from ragembed.indexes.search.relevance import RelevanceModel, mean_relevance, stored_relevance
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.hubness import Hubness, MergedQueries
from ragembed.indexes.storage.layout import STORE_FOLDER, file_path, is_below
from ragembed.indexes.storage.reader import Selection, StoreView, rows_of_segment
from ragembed.indexes.storage.segments import to_vectors
from ragembed.indexes.types import ChunkRecord, Hit, Keys, Rows, SourceRecord, VectorEncoder, storable_time
from ragembed.postprocess import unit_rows
from ragembed.progress import check
from ragembed.types import Bools, Doubles, Floats, Integers

FileState = Literal["changed", "deleted"]

_HASHES_KEPT = 1000
_HASH_PART = 2**20


def file_state(record: SourceRecord, roots: Sequence[str], store: Path, *, read: bool = True) -> FileState | None:
    """Return how a file differs from its record, or None if it does not, is behind a URL, or cannot be accessed now.

    ``roots`` are the indexed paths. As in an indexing run, links below them are not followed, and a file with the same
    size and time is unchanged. If only the time differs, its content decides; without ``read``, it counts as changed.
    """
    place = file_path(record.path, store)
    if not isinstance(place, Path):
        return None
    root = root_place(record.path, roots, store)
    try:
        status = _status(place, root)
    except (FileNotFoundError, NotADirectoryError):
        return "deleted"
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return "deleted"
    if not stat.S_ISREG(status.st_mode) or status.st_size != record.size:
        return "changed"
    if storable_time(status.st_mtime_ns) == record.mtime_ns:
        return None
    if read and root is not None and _content_hash(place, root, status.st_size, status.st_mtime_ns) == record.sha256:
        return None
    return "changed"


def root_place(source: str, roots: Sequence[str], store: Path) -> Path | None:
    """Return the innermost of the indexed paths ``roots`` that contains a file, or None if none does."""
    above = [root for root in roots if is_below(source, root)]
    place = file_path(max(above, key=len), store) if above else None
    return place if isinstance(place, Path) else None


def _status(place: Path, root: Path | None) -> os.stat_result:
    """Return the status of a file; it is that of a link if the file or a folder above it, below ``root``, is one."""
    if place == root:
        return place.stat()
    if root is not None:
        for folder in list(place.parents)[: len(place.relative_to(root).parts) - 1]:
            if stat.S_ISLNK((status := folder.lstat()).st_mode):
                return status
    return place.lstat()


@lru_cache(_HASHES_KEPT)
def _content_hash(place: Path, root: Path, size: int, mtime_ns: int) -> str | None:
    """Return the hash of a file with this size and time, or None if it cannot be read without following links."""
    try:
        with open_regular(place, root) as file:
            status = os.fstat(file.fileno())
            if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
                return None
            made = hashlib.sha256()
            for part in iter(lambda: file.read(_HASH_PART), b""):
                check()
                made.update(part)
            return made.hexdigest()
    except OSError:
        return None


_TIES, _MOST_TIES = 8, 1000
"""Rows read beyond ``k``, at first and at most, to find those that tie with the last one."""
_BLOCK = 4096
_MOST_WORDS, _MOST_KINDS, _MOST_TERMS = 4096, 100_000, 100_000
"""Numbers of chunks whose words and whose kind are kept, and of terms whose frequency is.

So the memory of a server does not grow with its queries.
"""
_BITS = 40
_LOCAL = (1 << _BITS) - 1
_SAME_COSINE = 1e-4
"""Difference of cosines up to which two rows of different stores may have the same text, encoded in other batches."""


@dataclass(frozen=True, slots=True)
class MergedSelection:
    """The chunks that match a filter and can be found, for each store of a snapshot; None stands for all of a store."""

    parts: Sequence[Selection | None]

    def admits(self, keys: Keys) -> Bools:
        """Return for each of the chunk keys, shape ``(n,)``, whether it may be returned."""
        admitted = np.ones(len(keys), dtype=bool)
        for number, part in enumerate(self.parts):
            if part is not None and part.keys is not None:
                inside = keys >> _BITS == number
                admitted[inside] = among(keys[inside] & _LOCAL, part.keys)
        return admitted


Selected: TypeAlias = "MergedSelection | None"
"""Which chunks of a snapshot match a filter and can be found, or None if these are all chunks."""


@dataclass(slots=True, eq=False)
class SearchState:
    """What is kept between the searches of the same generations of stores. Threads may share it.

    ``frequencies`` has the number of chunks that contain a term. ``words`` and ``code`` have by key the words of
    chunks, and whether they are source code. ``merged`` has the postings and the hubness of several stores, once they
    are needed.
    """

    state: Hashable
    frequencies: dict[bytes, int] = field(default_factory=dict)
    words: dict[int, Integers] = field(default_factory=dict)
    code: dict[int, bool] = field(default_factory=dict)
    merged: dict[str, Any] = field(default_factory=dict)


SearchStates: TypeAlias = "MutableMapping[tuple[str | None, ...], SearchState]"
"""The states of searches by the names of the stores."""


class Snapshot:
    """The state of ``stores``, read as if one store had all their chunks.

    Chunks have keys and vectors have rows: integers that are valid within the snapshot. Those of the store with the
    number ``i`` are its own plus ``i * 2**40``. ``states`` are those of earlier searches, and ``chosen_fusion``
    replaces the settings of the stores.
    """

    def __init__(self, stores: Sequence[StoreView], states: SearchStates, chosen_fusion: Fusion | None) -> None:
        self.stores = stores
        self._connections = [store.connection for store in stores]
        self._states = states
        self._chosen_fusion = chosen_fusion
        names = tuple(store.name for store in stores)
        self._only = stores[0] if len(stores) == 1 else None
        state = tuple([store.kept.state for store in stores])
        search_state = self._states.get(names)
        if search_state is None or search_state.state != state:
            search_state = self._states[names] = SearchState(state)
        self._kept = search_state

    @property
    def connection(self) -> sqlite3.Connection:
        """The database connection of the only store."""
        [store] = self.stores
        return store.connection

    def groups(self, mode: str | None) -> list[Snapshot]:
        """Return a snapshot for each group of stores whose scores in a mode of search can be compared."""
        if self._only is not None or mode is None:
            return [self]
        stores: dict[tuple[object, object], list[StoreView]] = {}
        for store in self.stores:
            fingerprint = store.fact(catalog.embedder)["fingerprint"] if mode != "lexical" else None
            language = store.fact(catalog.analyzer_config).language if mode != "dense" else None
            stores.setdefault((fingerprint, language), []).append(store)
        return [Snapshot(group, self._states, self._chosen_fusion) for group in stores.values()]

    def comparable(self, mode: str | None) -> Snapshot:
        """Return the snapshot; raise :class:`ConfigError` if the scores of its stores cannot be compared."""
        groups = self.groups(mode)
        if len(groups) > 1:
            named = "; ".join(", ".join(str(store.name) for store in group.stores) for group in groups)
            raise ConfigError(
                f"the stores have different embedders or languages ({named}), so their scores cannot be compared: "
                "search one of them, or stores that were made with the same settings"
            )
        return groups[0]

    def group_of(self, store: str | None) -> Snapshot:
        """Return the snapshot of the stores whose scores in hybrid search can be compared with those of ``store``."""
        groups = [group for group in self.groups("hybrid") if store in {view.name for view in group.stores}]
        return groups[0] if groups else self

    # What the stores have in common

    def dim(self) -> int | None:
        """Return the dimension of the searched vectors, or None if there are no vectors yet."""
        return next((record.files.dim for store in self.stores for record in store.fact(catalog.segments)), None)

    def embedder(self) -> VectorEncoder:
        """Return the embedder of the vectors."""
        return self.stores[0].embedder()

    def unread_share(self, query: str) -> float:
        """Return the share of the letters of a query that the model cannot read, 0 if the model is not known."""
        if query.isascii():
            return 0.0
        embedder = self.embedder().refittable
        return 0.0 if embedder is None else embedder.unread_share(query)

    def language(self) -> str:
        """Return the language whose stemmer lexical search uses."""
        return self.stores[0].fact(catalog.analyzer_config).language

    def generation(self) -> int:
        """Return the number of changes that have been committed."""
        return sum(int(store.kept.state[1]) for store in self.stores)  # type: ignore[call-overload]

    def count(self) -> int:
        """Return the number of chunks."""
        return sum([store.count() for store in self.stores])

    def waiting(self) -> int:
        """Return the number of chunks whose vectors do not exist yet; words find them meanwhile."""
        return sum([store.fact(catalog.count_waiting) for store in self.stores])

    def fusion(self) -> Fusion:
        """Return the chosen settings of hybrid search, else those of the stores if they agree, else the defaults."""
        if self._chosen_fusion is not None:
            return self._chosen_fusion
        settings = {store.fact(stored_fusion) for store in self.stores}
        return settings.pop() if len(settings) == 1 else Fusion()

    def relevance(self) -> RelevanceModel | None:
        """Return the relevance model, the mean of those of the stores, or None if it was not fitted."""
        if self._only is not None:
            return self._only.fact(stored_relevance)
        return mean_relevance([(store.fact(stored_relevance), store.count()) for store in self.stores])

    def hubness(self) -> Hubness | None:
        """Return the hubness of the chunks, or None if it was not measured, or for too few chunks.

        That of several stores is measured with the pseudo-queries of all of them.
        """
        if self._only is None:
            if "hubness" not in self._kept.merged:
                self._kept.merged["hubness"] = self._merged_hubness()
            merged: Hubness | None = self._kept.merged["hubness"]
            return merged
        hubness = self._only.hubness()
        return None if hubness is None else hubness.if_enough()

    def _merged_hubness(self) -> Hubness | None:
        """Return a hubness without measured rows, or None if no store has one.

        A store with all chunks would have drawn its pseudo-queries from those that the stores have drawn.
        """
        drawn = []
        for store in self.stores:
            if (hubness := store.hubness()) is not None:
                hashes = {origin.tobytes() for origin in hubness.queries.origins}
                drawn.append((hubness.queries, catalog.texts_of_hashes(store.connection, hashes)))
        queries = MergedQueries.of(drawn, self.embedder().seed) if drawn else None
        if queries is None:
            return None
        unmeasured = np.array([-1], dtype=np.int64), np.zeros(1, dtype=np.float32)
        return Hubness(queries, *unmeasured, self.count()).if_enough()

    # Vectors

    def select(self, where: Filter | None) -> Selected:
        """Return which chunks match ``where`` and can be found, or None if these are all chunks."""
        parts = [store.selection(where) for store in self.stores]
        return None if all(part is None for part in parts) else MergedSelection(parts)

    def nearest_rows(self, queries: Floats, k: int, selection: Selected) -> list[tuple[Rows, Floats]]:
        """Return for each query, shape ``(n, d)``, the ``k`` nearest selected rows and their cosines, best first.

        Rows that tie with the last one are included, up to a thousand, so the result does not depend on the order in
        which rows were inserted. The rows that several stores have for a text count once.
        """
        if not len(queries):
            return []
        queries = unit_rows(queries)
        parts = [None] * len(self.stores) if selection is None else selection.parts
        of_stores = [_nearest(store, queries, k, part) for store, part in zip(self.stores, parts, strict=True)]
        if self._only is not None:
            return of_stores[0]
        nearest = []
        for of_query in zip(*of_stores, strict=True):
            rows = np.concatenate([own + (number << _BITS) for number, (own, _) in enumerate(of_query)])
            cosines = np.concatenate([own for _, own in of_query])
            order = np.lexsort((rows, -cosines))
            nearest.append(self._of_nearest_texts(rows[order], cosines[order], k))
        return nearest

    def _of_nearest_texts(self, rows: Rows, cosines: Floats, k: int) -> tuple[Rows, Floats]:
        """Return the ``rows`` of the first ``k`` texts, and of ties with the last one, with their ``cosines``."""
        close = np.flatnonzero(np.diff(-cosines.astype(np.float64)) <= _SAME_COSINE)
        texts: dict[int, Hashable] = dict(self.hashes_of_rows(rows[np.union1d(close, close + 1)].tolist()))
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

    def vectors(self, rows: Rows) -> Floats:
        """Return the unit vectors of ``rows``, float32, shape ``(n, d)``, made from the raw vectors.

        The vector of a row that waits for it is 0.
        """
        vectors = np.zeros((len(rows), self.dim() or 0), dtype=np.float32)
        for store, _, inside, local in self._by_store(rows):
            segments = store.segments()
            keys, positions = _places(store, local)
            of_store = np.zeros((len(local), vectors.shape[1]), dtype=np.float32)
            for key in np.unique(keys[keys > 0]).tolist():
                of_segment = keys == key
                of_store[of_segment] = to_vectors(segments[key].raw(), store.postprocess, positions[of_segment])
            vectors[inside] = of_store
        return vectors

    def raw_vector(self, row: int) -> Floats:
        """Return the raw vector of a row, float32, shape ``(d,)``."""
        store, local = self.stores[row >> _BITS], row & _LOCAL
        segment, position = catalog.places_of_rows(store.connection, [local])[local]
        vector: Floats = store.segments()[segment].raw()[position].astype(np.float32)
        return vector

    def all_cosines(self, vector: Floats) -> tuple[Keys, Floats]:
        """Return the keys of all chunks and their cosines with a unit vector, shapes ``(n,)``, without an index."""
        keys, cosines = [], []
        for number, store in enumerate(self.stores):
            own, rows = catalog.chunk_rows(store.connection)
            by_row = np.zeros(catalog.last_row(store.connection) + 1, dtype=np.float32)
            for key, segment in store.segments().items():
                of_segment = catalog.rows_of_segment(store.connection, key)
                for start, block in vector_blocks(segment.vectors(store.postprocess), _BLOCK):
                    by_row[of_segment[start : start + len(block)]] = inner_products(vector[None, :], block)[0]
            keys.append(own + (number << _BITS))
            cosines.append(by_row[rows])
        return np.concatenate(keys), np.concatenate(cosines)

    # Words

    def matches(self, expression: str, limit: int, selection: Selected) -> tuple[Keys, Doubles]:
        """Return keys and BM25 of the best ``limit`` selected chunks, and of chunks that tie with the last."""
        admits = None
        if selection is not None and any(part is not None and part.keys is not None for part in selection.parts):
            admits = selection.admits
        return self._postings().search(self._connections, expression, limit, admits)

    def word_scores(self, expression: str) -> tuple[Keys, Doubles]:
        """Return the keys of the chunks that match ``expression``, and their BM25, shapes ``(n,)``."""
        return self._postings().all_scores(self._connections, expression)

    def word_scores_of(self, expression: str, keys: Sequence[int]) -> dict[int, float]:
        """Return BM25 of each chunk in ``keys`` that matches ``expression``."""
        matching, scores = self.word_scores(expression)
        wanted = np.isin(matching, np.array(keys, dtype=np.int64))
        return dict(zip(matching[wanted].tolist(), scores[wanted].tolist(), strict=True))

    def highest_score(self, expression: str) -> float:
        """Return the highest BM25 that a text could have for an expression."""
        if len(self._kept.frequencies) > _MOST_TERMS:
            self._kept.frequencies = {}
        by_term, terms = self._kept.frequencies, counted_terms(self.language(), expression)
        if new := [term for term in dict.fromkeys(terms) if term not in by_term]:
            of_stores = [frequencies(store.connection, store.postings(), new) for store in self.stores]
            by_term.update(zip(new, map(sum, zip(*of_stores, strict=True)), strict=True))
        return highest_score(self.count(), [by_term[term] for term in terms])

    def _postings(self) -> Postings:
        """Return the words of all chunks."""
        if "postings" not in self._kept.merged:
            members = [
                store.fact(LexicalMember.of, store.postings(), number << _BITS)
                for number, store in enumerate(self.stores)
            ]
            self._kept.merged["postings"] = Postings(members, indexed_terms(self.language()))
        merged: Postings = self._kept.merged["postings"]
        return merged

    # Chunks and files

    def rows_of_keys(self, keys: Keys) -> Rows:
        """Return the vector row of each of the chunk keys, shape ``(n,)``; raise KeyError for an unknown key."""
        rows = np.zeros(len(keys), dtype=np.int64)
        for store, first, inside, local in self._by_store(keys):
            rows[inside] = store.kept.rows.of_keys(store.connection, store.count(), local) + first
        return rows

    def chunks_of_rows(self, rows: Rows) -> tuple[Keys, Rows]:
        """Return the keys of the chunks that use any of ``rows``, ascending, and the row of each; shapes ``(n,)``."""
        keys, of_keys = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for store, first, _, local in self._by_store(rows):
            own = store.kept.rows.of_rows(store.connection, store.count(), local)
            keys.append(own[0] + first)
            of_keys.append(own[1] + first)
        return np.concatenate(keys), np.concatenate(of_keys)

    def hashes_of_rows(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the hash of the text of each vector row."""
        return {
            row + first: text
            for store, first, _, local in self._by_store(rows)
            for row, text in catalog.hashes_of_rows(store.connection, local.tolist()).items()
        }

    def chunks_by_key(self, keys: Sequence[int]) -> dict[int, ChunkRecord]:
        """Return the chunks with these keys, with the names of their stores."""
        return {
            key + first: record if store.name is None else replace(record, store=store.name)
            for store, first, _, local in self._by_store(keys)
            for key, record in catalog.chunks_by_key(store.connection, local.tolist()).items()
        }

    def words(self, keys: Sequence[int]) -> list[Integers]:
        """Return the terms of each chunk, as :func:`ragembed.indexes.search.feedback.words_of` does."""
        if len(self._kept.words) > _MOST_WORDS:
            self._kept.words = {}
        words = self._kept.words
        if new := [key for key in keys if key not in words]:
            terms = of_language(self.language())
            words.update({key: words_of(terms.of_text(text)) for key, text in self._embedded_texts(new).items()})
        return [words[key] for key in keys]

    def are_code(self, keys: Sequence[int]) -> bool:
        """Return whether most of the chunks are source code."""
        if len(self._kept.code) > _MOST_KINDS:
            self._kept.code = {}
        code = self._kept.code
        if new := [key for key in keys if key not in code]:
            code.update({key: is_code(text) for key, text in self._embedded_texts(new).items()})
        return 2 * sum(code[key] for key in keys) > len(keys)

    def _embedded_texts(self, keys: Sequence[int]) -> dict[int, str]:
        return {
            key + first: text
            for store, first, _, local in self._by_store(keys)
            for key, text in catalog.embedded_by_key(store.connection, local.tolist()).items()
        }

    def keys_of(self, records: Sequence[Hit | ChunkRecord]) -> list[int | None]:
        """Return the key of each hit or chunk, None if it is not in its store."""
        keys: list[int | None] = [None] * len(records)
        for number, store in enumerate(self.stores):
            own = [i for i, record in enumerate(records) if store.name in (None, record.store)]
            by_id = catalog.keys_of_ids(store.connection, [records[i].id for i in own]) if own else {}
            for i in own:
                key = by_id.get(records[i].id)
                keys[i] = None if key is None else key + (number << _BITS)
        return keys

    def keys_of_ids(self, ids: Sequence[str]) -> list[int]:
        """Return the key of the chunk with each id in the first store that has it; raise KeyError for another id."""
        keys: dict[str, int] = {}
        for number, store in enumerate(self.stores):
            own = catalog.keys_of_ids(store.connection, ids)
            keys = {chunk_id: key + (number << _BITS) for chunk_id, key in own.items()} | keys
        return [keys[chunk_id] for chunk_id in ids]

    def known_keys(self, records: Sequence[Hit | ChunkRecord]) -> list[int]:
        """Return the key of each hit or chunk of the snapshot; raise KeyError for another."""
        keys = []
        for key, record in zip(self.keys_of(records), records, strict=True):
            if key is None:
                raise KeyError(record.id)
            keys.append(key)
        return keys

    def vectors_of(self, records: Sequence[Hit | ChunkRecord]) -> Floats:
        """Return the unit vector of each hit or chunk of the snapshot, float32, shape ``(n, d)``."""
        return self.vectors(self.rows_of_keys(np.array(self.known_keys(records), dtype=np.int64)))

    def keys_of_source(self, source: str, store: str | None) -> list[int]:
        """Return the keys of a file's chunks in the store named ``store``; raise :class:`ConfigError` if none."""
        number = self._number(store)
        connection = self.stores[number].connection
        if keys := catalog.selected_keys(connection, (), [source], None):
            return [key + (number << _BITS) for key in keys]
        reason = catalog.skipped(connection).get(source)
        if reason is not None:
            raise ConfigError(f"{source} is not in the store: the last run skipped it: {reason}")
        if catalog.sources_below(connection, [source]):
            raise ConfigError(f"{source} is a folder in the store: expected a file")
        by_stem = {PurePosixPath(name).stem.lower(): name for name in catalog.sources(connection)}
        alike = [by_stem[stem] for stem in get_close_matches(PurePosixPath(source).stem.lower(), by_stem)]
        hint = f"did you mean {' or '.join(alike)}?" if alike else "add it with 'ragembed index PATH'"
        raise ConfigError(f"{source} is not in the store: it was never indexed, or was deleted; {hint}")

    def neighbour(self, key: int, step: int) -> int | None:
        """Return the key of the chunk after ``key`` in the same file, or of the one before if ``step`` is negative."""
        neighbour = catalog.neighbour(self.stores[key >> _BITS].connection, key & _LOCAL, step)
        return None if neighbour is None else neighbour + (key >> _BITS << _BITS)

    def folder(self, store: str | None) -> Path:
        """Return the folder of the store named ``store``, which the names of its files are relative to."""
        if store is None and self.stores[0].name is not None:
            # A text that comes from no store has a name that is relative to the working directory.
            return Path(STORE_FOLDER)
        return self.stores[self._number(store)].reader.path

    def indexed_file(self, source: str, store: str | None) -> tuple[SourceRecord | None, list[str]]:
        """Return the record of a file, None if it is not in the store, and the paths of the store's last run."""
        view = self.stores[self._number(store)]
        return catalog.sources(view.connection, [source]).get(source), _roots(view)

    def file_states(self, records: Sequence[Hit | ChunkRecord], *, read: bool = True) -> list[FileState | None]:
        """Return for each hit or chunk how its file differs from the one that was indexed, as :func:`file_state`."""
        states: list[FileState | None] = [None] * len(records)
        for store in self.stores:
            own = [i for i, record in enumerate(records) if store.name in (None, record.store)]
            of_store = states_of_files(store, {name for i in own if (name := records[i].source) is not None}, read=read)
            for i in own:
                states[i] = of_store.get(records[i].source or "")
        return states

    def _number(self, store: str | None) -> int:
        names = [view.name for view in self.stores]
        if names == [None]:
            return 0
        if store not in names:
            raise ConfigError(
                f"unknown store {store!r}: expected the store that has the file, one of {', '.join(map(str, names))}"
            )
        return names.index(store)

    def _by_store(
        self, numbers: Sequence[int] | Integers
    ) -> Iterator[tuple[StoreView, int, slice | Integers, Integers]]:
        """Yield each store with its first number, the positions of its keys or rows, and their values in the store."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if self._only is not None:
            if len(numbers):
                yield self._only, 0, slice(None), numbers
            return
        of_store = numbers >> _BITS
        for number in np.unique(of_store).tolist():
            inside = np.flatnonzero(of_store == number)
            yield self.stores[number], number << _BITS, inside, numbers[inside] & _LOCAL


def require_mergeable(store: StoreView) -> None:
    """Raise :class:`StoreDamagedError` if a store has keys or rows that no store with fewer chunks can have."""
    highest = max(catalog.highest_key(store.connection), catalog.last_row(store.connection))
    if highest > _LOCAL:
        raise StoreDamagedError(
            f"the store's database has a chunk or vector with the number {highest:,}: delete the store and index again"
        )


def states_of_files(store: StoreView, names: Iterable[str] | None = None, *, read: bool = True) -> dict[str, FileState]:
    """Return the files that differ from their records; all files are compared, or those with one of ``names``."""
    records = {} if names == set() else catalog.sources(store.connection, names)
    roots = _roots(store) if records else []
    states = ((name, file_state(record, roots, store.reader.path, read=read)) for name, record in records.items())
    return {name: state for name, state in states if state is not None}


def _roots(store: StoreView) -> list[str]:
    request = store.fact(catalog.last_request)
    return request["paths"] if request else []


def _nearest(store: StoreView, queries: Floats, k: int, selection: Selection | None) -> list[tuple[Rows, Floats]]:
    """Return for each of the unit vectors ``queries`` the rows and cosines of :meth:`Snapshot.nearest_rows`."""
    mask, segments, effort = None if selection is None else selection.mask, store.segments(), None
    if not all(segment.flat for segment in segments.values()) and (choice := store.fact(catalog.index_choice)):
        effort = choice.effort
    for depth in (k + _TIES, k + _MOST_TIES):
        nearest = store.reader.searcher.nearest(
            store.connection, segments, queries, depth, mask, effort, store.postprocess
        )
        if not any(0 < k <= len(cosines) == depth and cosines[-1] == cosines[k - 1] for _, cosines in nearest):
            break
    return [fulltext.with_ties(rows, cosines, k) for rows, cosines in nearest]


def _places(store: StoreView, rows: Rows) -> tuple[Rows, Rows]:
    """Return the segment key, 0 if there is no vector yet, and the position of each row, shapes ``(n,)``."""
    keys, positions = np.zeros_like(rows), np.zeros_like(rows)
    for key, segment in store.segments().items():
        if segment.rows is None and segment.spec.family == "lists":  # more rows to read than needed here
            places = catalog.places_of_rows(store.connection, rows.tolist())
            keys, positions = np.array([places.get(row, (0, 0)) for row in rows.tolist()], dtype=np.int64).T
            break
        of_segment = rows_of_segment(store.connection, key, segment)
        at = places_in(of_segment, rows)
        is_in_segment = of_segment[at] == rows
        keys[is_in_segment], positions[is_in_segment] = key, at[is_in_segment]
    return keys, positions
