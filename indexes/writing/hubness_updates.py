"""Updates of the hubness of a store's chunks after its chunks or its embedder changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import StoreDamagedError
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.compaction import sweep_unnamed
from ragembed.indexes.storage.hubness import (
    DRAWS,
    HASH_BYTES,
    KEY,
    LEAST_CHUNKS,
    PSEUDO_QUERIES,
    DrawnQueries,
    Hubness,
    hubness_record,
    load_hubness,
    save_hubness,
)
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.transactions import Database
from ragembed.indexes.types import Rows, VectorEncoder, text_hash
from ragembed.postprocess import unit_rows
from ragembed.progress import Progress
from ragembed.pseudo_queries import PseudoQueries, draw_spans
from ragembed.resources import give_back
from ragembed.types import Floats

_GROWTH = 2
"""Growth of a store since its pseudo-queries were drawn that makes a new draw necessary."""

_MOST_UNMEASURED = 0.05
"""Share of unmeasured chunks up to which the file is not rewritten; queries then measure the chunks that they need."""

_BATCH = 10_000


def kept_queries(store: Path, connection: sqlite3.Connection) -> PseudoQueries | None:
    """Return the pseudo-queries of the store's hubness in memory, or None if it was not measured."""
    record = hubness_record(connection)
    if record is None:
        return None
    drawn = _loaded(store, record).queries.drawn
    return PseudoQueries(drawn.texts, drawn.raw.copy())


def _loaded(store: Path, record: Mapping[str, Any]) -> Hubness:
    try:
        return load_hubness(store, record)
    except FileNotFoundError as error:
        raise StoreDamagedError(
            f"a file of the store is missing: {error.filename}; remove its record with 'ragembed doctor --repair'"
        ) from error


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

    Pseudo-queries whose raw vectors are ``known``, from before the embedder changed, are not encoded again.
    Remove it if the store has no chunk with a word, or vectors that another program made, because encoding
    pseudo-queries may cost money there. A store with few chunks gets one if it is ``for_collection``, and keeps it.
    """
    connection = database.connection
    chunks, record, former = catalog.count(connection, "chunks"), hubness_record(connection), None
    drawn_from, is_small = chunks, chunks < LEAST_CHUNKS
    is_needed = chunks > 0 and (not is_small or for_collection or record is not None)
    if not is_needed or not isinstance(embedder, Embedder) or embedder._is_external:
        _forget(store, database)
        return
    same_size = record is not None and is_small == (record["chunks"] < LEAST_CHUNKS)
    if record is not None and same_size and chunks < _GROWTH * record["chunks"]:
        # Chunks that use an older row again are not counted. Queries measure them, too.
        if catalog.chunks_after_row(connection, record["last_row"]) <= _MOST_UNMEASURED * chunks:
            return
        former, drawn_from = _loaded(store, record), record["chunks"]
    rows = catalog.live_rows(connection)
    measured, values = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=np.float32)
    queries: DrawnQueries | None
    if former is None:
        progress.start("fitting", "chunks", len(rows))
        queries = _drawn(connection, embedder, known if record is None else kept_queries(store, connection))
    else:
        queries, (measured, values) = former.queries, former.known(rows)
        progress.start("fitting", "chunks", int(np.count_nonzero(~measured)))
    if queries is None:
        _forget(store, database)
    else:
        values[~measured] = _measured(store, connection, embedder, queries, rows[~measured], progress)
        hubness = Hubness(queries, rows, values, drawn_from)
        _adopt(store, database, save_hubness(store, embedder.fingerprint, hubness))
    progress.finish()


def _forget(store: Path, database: Database) -> None:
    if catalog.meta(database.connection, KEY) is not None:
        _adopt(store, database, None)


def _adopt(store: Path, database: Database, record: dict[str, object] | None) -> None:
    with database.transaction():
        catalog.set_meta(database.connection, KEY, record)
    sweep_unnamed(store, database.connection)


def _drawn(connection: sqlite3.Connection, embedder: Embedder, known: PseudoQueries | None) -> DrawnQueries | None:
    """Draw pseudo-queries from the store's texts, and encode those not ``known``; None if no text has a word."""
    seed = embedder.config.seed
    drawn = [
        each
        for draw in range(DRAWS)
        for each in draw_spans(catalog.embedded_texts(connection), PSEUDO_QUERIES, seed + draw)
    ]
    if not drawn:
        return None
    origins = np.frombuffer(b"".join(text_hash(text) for _, text in drawn), dtype=np.uint8).reshape(-1, HASH_BYTES)
    queries = PseudoQueries.of([span for span, _ in drawn], embedder._raw_pseudo_queries, known)
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
    found = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        found[start : start + len(some)] = _of_rows(connection, segments, embedder, queries, some)
        progress.advance(len(some))
    return found


def _of_rows(
    connection: sqlite3.Connection, segments: dict[int, Segment], embedder: Embedder, queries: DrawnQueries, rows: Rows
) -> Floats:
    places = catalog.places_of_rows(connection, rows.tolist())
    hashes = catalog.hashes_of_rows(connection, rows.tolist())
    keys, positions = np.array([places[row] for row in rows.tolist()], dtype=np.int64).T
    vectors = np.empty((len(rows), queries.vectors.shape[1]), dtype=np.float32)
    for key in np.unique(keys).tolist():
        inside = keys == key
        vectors[inside] = segments[key].vectors(embedder.postprocess_documents).at(positions[inside])
    return queries.hubness(vectors, [hashes[row] for row in rows.tolist()])
