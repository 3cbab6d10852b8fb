"""Hubness: how near each chunk is to queries of any kind, measured with pseudo-queries and kept in a file.

Some chunks are near many queries and would be among the results of most of them. The hubness of a chunk is the mean
cosine of its nearest pseudo-queries; hybrid search subtracts a part of it from the chunk's cosine. This is the
query-side half of cross-domain similarity local scaling (Conneau et al. 2018, "Word translation without parallel data",
section 2.3). It is forgotten when the embedder changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import PseudoQueries, draw_spans
from ragembed.embedder import Embedder
from ragembed.errors import ModelError, StoreDamagedError
from ragembed.extractors.protocol import saved_array
from ragembed.files import write_file
from ragembed.indexes.faiss_index.vectors import places_in
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.compaction import sweep_unnamed
from ragembed.indexes.storage.derived import DerivedFile, DerivedRecord
from ragembed.indexes.storage.embedders import queries_of, query_arrays
from ragembed.indexes.storage.segments import Segment, to_vectors
from ragembed.indexes.storage.transactions import Database
from ragembed.indexes.types import Rows, VectorEncoder, text_hash
from ragembed.postprocess import unit_rows
from ragembed.progress import Progress
from ragembed.resources import give_back
from ragembed.tensor_map import map_tensors
from ragembed.types import Bools, Floats

NEAREST = 13
"""Number of nearest pseudo-queries whose cosines are averaged."""

PSEUDO_QUERIES = 800
"""Maximum number of pseudo-queries. Three times as many do not rank better."""

LEAST_CHUNKS = 100
"""Number of chunks from which a search uses hubness: fewer chunks give too few pseudo-queries."""

HASH_BYTES = 16
"""Size of the hash of a text."""

_BLOCK = 1024
_MOST_MEASURED = 1_000_000
"""Number of texts whose hubness is kept in memory."""
_GROWTH = 2
"""Growth of a store since its pseudo-queries were drawn that makes a new draw necessary."""
_MOST_UNMEASURED = 0.05
"""Share of unmeasured chunks up to which the file is not rewritten; queries then measure the chunks that they need."""
_BATCH = 10_000


@dataclass(frozen=True, eq=False)
class DrawnQueries:
    """The ``m`` pseudo-queries that chunks are compared with, and their unit vectors, float32, shape ``(m, d)``.

    ``origins`` are the hashes of the texts that they were drawn from, uint8, shape ``(m, 16)``. A chunk with such a
    text is not compared with its own pseudo-query, which would be nearer than any query.
    """

    drawn: PseudoQueries
    origins: NDArray[np.uint8]
    vectors: Floats

    def hubness(self, vectors: Floats, hashes: Sequence[bytes]) -> Floats:
        """Return the hubness of unit vectors, shape ``(n, d)``, whose texts have these hashes; float32, shape ``(n,)``.

        It is the mean of the ``NEAREST`` highest cosines with pseudo-queries from other texts.
        """
        own = self._of_text
        values = np.zeros(len(vectors), dtype=np.float32)
        nearest = min(NEAREST, len(self.vectors) - 1)
        if nearest < 1:
            return values
        for start in range(0, len(vectors), _BLOCK):
            cosines = vectors[start : start + _BLOCK] @ self.vectors.T
            for row, key in enumerate(hashes[start : start + _BLOCK]):
                if key in own:
                    cosines[row, own[key]] = -1.0
            cosines.partition(cosines.shape[1] - nearest, axis=1)
            values[start : start + _BLOCK] = cosines[:, -nearest:].mean(axis=1)
        return values

    @cached_property
    def _of_text(self) -> dict[bytes, int]:
        """Position of the pseudo-query of each text that has one, by the hash of the text."""
        return {origin.tobytes(): at for at, origin in enumerate(self.origins)}


@dataclass(frozen=True, eq=False)
class MergedQueries(DrawnQueries):
    """The pseudo-queries of several stores. The hubness of each text is kept after its first measurement."""

    measured: dict[bytes, float] = field(default_factory=dict)

    @classmethod
    def of(cls, drawn: Sequence[tuple[DrawnQueries, Mapping[bytes, str]]], seed: int) -> MergedQueries | None:
        """Return the pseudo-queries that a store with the texts of all stores would have drawn, None if there are none.

        ``drawn`` has the pseudo-queries of each store, and the texts that they come from by hash. A draw takes the
        texts with the smallest hashes, so the stores have drawn all of them. Pseudo-queries whose text was deleted are
        left out.
        """
        texts = {key: text for _, of_store in drawn for key, text in of_store.items()}
        hashes = {text: key for key, text in texts.items()}
        places = {
            (queries.drawn.texts[at], queries.origins[at].tobytes()): (queries, at)
            for queries, _ in drawn
            for at in range(len(queries.origins))
        }
        spans = [(span, hashes[text]) for span, text in draw_spans(texts.values(), PSEUDO_QUERIES, seed)]
        chosen = [(span, origin, *places[span, origin]) for span, origin in spans if (span, origin) in places]
        if not chosen:
            return None
        return cls(
            PseudoQueries(
                tuple(span for span, *_ in chosen), np.stack([queries.drawn.raw[at] for *_, queries, at in chosen])
            ),
            np.frombuffer(b"".join(origin for _, origin, *_ in chosen), dtype=np.uint8).reshape(-1, HASH_BYTES),
            np.stack([queries.vectors[at] for *_, queries, at in chosen]),
        )

    def hubness(self, vectors: Floats, hashes: Sequence[bytes]) -> Floats:
        """Return the hubness of unit vectors; see :meth:`DrawnQueries.hubness`."""
        by_hash = {key: self.measured[key] for key in hashes if key in self.measured}
        new = [i for i, key in enumerate(hashes) if key not in by_hash]
        values = DrawnQueries.hubness(self, vectors[new], [hashes[i] for i in new]).tolist()
        by_hash.update(zip((hashes[i] for i in new), values, strict=True))
        if len(self.measured) <= _MOST_MEASURED:
            self.measured.update(by_hash)
        return np.array([by_hash[key] for key in hashes], dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Hubness:
    """The hubness ``values`` of the vector rows ``rows``, and the pseudo-queries that it is measured with.

    Rows are ascending, int64, shape ``(n,)``, ``n >= 1``; values are float32, shape ``(n,)``. Hubness depends only on
    the row: a chunk whose searched text changes gets another row, and rows are never reused. ``chunks`` is the number
    of chunks when the pseudo-queries were drawn.
    """

    queries: DrawnQueries
    rows: Rows
    values: Floats
    chunks: int

    @classmethod
    def read(cls, file: Path) -> Hubness:
        """Map a file of :meth:`save`; raise :class:`StoreDamagedError` if it is invalid."""
        try:
            arrays = map_tensors(file)
            drawn, dim, count = queries_of(arrays), arrays["queries"].shape[1], arrays["rows"].size
            queries = DrawnQueries(
                drawn,
                saved_array(arrays, "origins", np.uint8, (len(drawn.texts), HASH_BYTES)),
                saved_array(arrays, "queries", np.float32, (len(drawn.texts), dim)),
            )
            return cls(
                queries,
                saved_array(arrays, "rows", np.int64, (count,)),
                saved_array(arrays, "values", np.float32, (count,)),
                int(saved_array(arrays, "chunks", np.int64, (1,))[0]),
            )
        except (ModelError, KeyError, ValueError, IndexError) as error:
            raise StoreDamagedError(f"{file} is damaged: {error}") from error

    def save(self, file: Path) -> None:
        """Write the hubness to ``file``."""
        from safetensors.numpy import save

        arrays = {
            **query_arrays(self.queries.drawn),
            "origins": self.queries.origins,
            "queries": self.queries.vectors,
            "rows": self.rows,
            "values": self.values,
            "chunks": np.array([self.chunks], dtype=np.int64),
        }
        write_file(file, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))

    def if_enough(self) -> Hubness | None:
        """Return the hubness if the store has enough chunks to be searched with it, else None."""
        return self if self.chunks >= LEAST_CHUNKS else None

    def known(self, rows: Rows) -> tuple[Bools, Floats]:
        """Return which rows have been measured, and the hubness of each, 0 if it has not been; shapes ``(n,)``."""
        at = places_in(self.rows, rows)
        measured: Bools = self.rows[at] == rows
        return measured, np.where(measured, self.values[at], np.float32(0.0))


def update_hubness(
    store: Path,
    database: Database,
    embedder: VectorEncoder,
    known: PseudoQueries | None,
    progress: Progress,
    *,
    for_collection: bool = False,
) -> None:
    """Measure the hubness of new chunks, or of all chunks if the embedder changed or the store has doubled.

    Pseudo-queries whose raw vectors are ``known``, from before the embedder changed, are not encoded again. A store has
    none if no chunk has a word, or if another program makes the vectors, because encoding pseudo-queries may cost money
    there. A store with few chunks gets one if it is ``for_collection``, and keeps it.
    """
    connection = database.connection
    chunks = catalog.count(connection, "chunks")
    record = next(iter(derived.records(connection, HUBNESS.name)), None)
    drawn_from, is_small, former = chunks, chunks < LEAST_CHUNKS, None
    is_needed = chunks > 0 and (not is_small or for_collection or record is not None)
    own = embedder.refittable
    if not is_needed or own is None or own.is_remote:
        _adopt(store, database, record, None)
        return
    if record is not None and is_small == (record.chunks < LEAST_CHUNKS) and chunks < _GROWTH * record.chunks:
        # Chunks that use an older row again are not counted. Queries measure them, too.
        if catalog.chunks_after_row(connection, record.last) <= _MOST_UNMEASURED * chunks:
            return
        former, drawn_from = _former(store, database), record.chunks
    rows = catalog.live_rows(connection)
    measured, values = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=np.float32)
    queries: DrawnQueries | None
    if former is None:
        progress.start("fitting", "chunks", len(rows))
        queries = _drawn(connection, own, kept_queries(store, database) or known)
    else:
        queries, (measured, values) = former.queries, former.known(rows)
        progress.start("fitting", "chunks", int(np.count_nonzero(~measured)))
    hubness = None
    if queries is not None:
        values[~measured] = _measured(store, connection, own, queries, rows[~measured], progress)
        hubness = Hubness(queries, rows, values, drawn_from)
    _adopt(store, database, record, hubness)
    progress.finish()


def kept_queries(store: Path, database: Database) -> PseudoQueries | None:
    """Return the pseudo-queries of the store's hubness in memory, or None if it was not measured."""
    former = _former(store, database)
    return None if former is None else PseudoQueries(former.queries.drawn.texts, former.queries.drawn.raw.copy())


def _former(store: Path, database: Database) -> Hubness | None:
    return derived.only(database.connection, derived.sound_files(store, database, HUBNESS))


HUBNESS = DerivedFile(derived.HUBNESS, Hubness.read, derived.only)


def _adopt(store: Path, database: Database, former: DerivedRecord | None, hubness: Hubness | None) -> None:
    """Replace the hubness of a store; None removes it."""
    if former is None and hubness is None:
        return
    made = None
    if hubness is not None:
        made = derived.write_derived(store, HUBNESS.name, hubness.save, hubness.chunks, int(hubness.rows[-1]))
    with database.transaction():
        derived.forget(database.connection, HUBNESS.name)
        if made is not None:
            derived.insert(database.connection, made)
    sweep_unnamed(store, database.connection)


def _drawn(connection: sqlite3.Connection, embedder: Embedder, known: PseudoQueries | None) -> DrawnQueries | None:
    """Draw pseudo-queries from the store's texts, and encode those not ``known``; None if no text has a word."""
    drawn = draw_spans(catalog.embedded_texts(connection), PSEUDO_QUERIES, embedder.config.seed)
    if not drawn:
        return None
    origins = np.frombuffer(b"".join(text_hash(text) for _, text in drawn), dtype=np.uint8).reshape(-1, HASH_BYTES)
    queries = PseudoQueries.of([span for span, _ in drawn], embedder.raw_pseudo_queries, known)
    give_back()
    return DrawnQueries(queries, origins, unit_rows(embedder.postprocess_queries(queries.raw)))


def _measured(
    store: Path,
    connection: sqlite3.Connection,
    embedder: Embedder,
    queries: DrawnQueries,
    rows: Rows,
    progress: Progress,
) -> Floats:
    """Return the hubness of the vectors ``rows``, float32, shape ``(n,)``."""
    segments = {record.key: Segment(store, record.files) for record in catalog.segments(connection)}
    values = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH].tolist()
        places, hashes = catalog.places_of_rows(connection, some), catalog.hashes_of_rows(connection, some)
        keys, positions = np.array([places[row] for row in some], dtype=np.int64).T
        vectors = np.empty((len(some), queries.vectors.shape[1]), dtype=np.float32)
        for key in np.unique(keys).tolist():
            inside = keys == key
            vectors[inside] = to_vectors(segments[key].raw(), embedder.postprocess_documents, positions[inside])
        values[start : start + len(some)] = queries.hubness(vectors, [hashes[row] for row in some])
        progress.advance(len(some))
    return values
