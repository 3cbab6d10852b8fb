"""The index of a whole store: when it is chosen again, and how well the current one works."""

from __future__ import annotations

import datetime as dt
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.corpus import draw_pseudo_queries
from ragembed.errors import IndexWarning
from ragembed.indexes.faiss_index import measure
from ragembed.indexes.faiss_index.building import IndexInput
from ragembed.indexes.faiss_index.choose import (
    EXACT_WITHOUT_FAISS,
    LEAST_APPROXIMATE,
    Picked,
    TuningQueries,
    least_asked,
    pick,
)
from ragembed.indexes.faiss_index.index import RefinedIndex
from ragembed.indexes.faiss_index.records import IndexConfig, IndexEvaluation, IndexSelection, Measurement
from ragembed.indexes.faiss_index.specs import AUTO, FLAT, IndexSpec, has_faiss, parse_spec
from ragembed.indexes.faiss_index.vectors import Vectors
from ragembed.indexes.search.segment_search import SegmentSearch
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.storage.segments import Segment
from ragembed.indexes.storage.selection import select
from ragembed.indexes.types import VectorEncoder, text_hash
from ragembed.postprocess import unit_rows
from ragembed.progress import Progress
from ragembed.types import Floats
from ragembed.version import install_command

QUERIES = 300
"""Number of pseudo-queries that an index is tuned on, and of others that it is measured on."""

_GROWTH, _SHRINKAGE, _DRIFT = 2, 4, 0.1
_ROUNDING = 1e-9
_SEED = 20
_TEXTS_PER_QUERY = 4


def needs_pick(connection: sqlite3.Connection, wanted: IndexConfig, rows: int) -> bool:
    """Return whether an index for the settings ``wanted`` must be chosen, given ``rows`` used vectors.

    This is so for other settings, or if the store has doubled since the choice, or shrunk to a quarter. Without
    settings, a store stays flat until it has enough vectors for an approximate index, and FAISS is installed.
    """
    return rows > 0 and _is_due(connection, wanted, rows) and not _exact_without_faiss(wanted)


def _is_due(connection: sqlite3.Connection, wanted: IndexConfig, rows: int) -> bool:
    choice = catalog.index_choice(connection)
    if choice is None or choice.wanted != wanted:
        all_flat = all(record.files.kind == FLAT for record in catalog.segments(connection))
        return not (all_flat and _stays_flat(wanted, rows))
    open_kind = IndexConfig(wanted.kind)
    if choice.kind == FLAT and not _stays_flat(open_kind, rows) and wanted.kind != AUTO:
        return True  # The store had too few vectors for the configured kind.
    if any(reason.startswith(EXACT_WITHOUT_FAISS) for reason in choice.reasons) and has_faiss():
        return True
    return rows >= _GROWTH * choice.rows or _SHRINKAGE * rows <= choice.rows


def _stays_flat(wanted: IndexConfig, rows: int) -> bool:
    if not wanted.budget.open:
        return False
    if wanted.kind == AUTO:
        return rows < LEAST_APPROXIMATE
    return wanted.kind == FLAT or too_few(wanted, rows)


def _exact_without_faiss(wanted: IndexConfig) -> bool:
    return wanted.kind == AUTO and wanted.budget.open and not has_faiss()


def exact_note(wanted: IndexConfig, rows: int) -> list[str]:
    """Return a warning if the store is too large for exact search, and FAISS is not installed."""
    outgrown = wanted.kind == AUTO and rows >= LEAST_APPROXIMATE and not has_faiss()
    return [f"the store has {rows:,} vectors: {EXACT_WITHOUT_FAISS}{install_command('cpu')}"] if outgrown else []


def too_few(wanted: IndexConfig, rows: int) -> bool:
    """Return whether the store has too few vectors for the configured index kind."""
    return wanted.kind != AUTO and rows < least_asked(parse_spec(wanted.kind))


def pick_index(
    store: Path,
    connection: sqlite3.Connection,
    embedder: VectorEncoder,
    wanted: IndexConfig,
    progress: Progress,
    gpus: Sequence[int] = (),
    built_on: str = "on the CPU",
) -> tuple[compaction.Rewritten, IndexSelection, IndexEvaluation]:
    """Choose an index for the settings ``wanted``, and write all used vectors into one segment.

    Returns the segment, and the choice and its measurement to store when the segment is committed. Raises
    :class:`ragembed.errors.BudgetError` if no index meets the budget.
    """
    queries = _queries(connection, embedder)
    picked: list[Picked] = []

    def make(given: IndexInput) -> IndexSpec:
        picked.append(pick(given, queries, wanted, progress, gpus=gpus))
        return picked[0].spec

    rewritten = compaction.rewrite(store, connection, catalog.segments(connection), embedder, make)
    [best], [(files, rows)] = picked, rewritten.new
    choice = IndexSelection(wanted, best.kind, best.effort, len(rows), best.reasons, best.runner_up, built_on)
    check = IndexEvaluation(best.measured, _today(), len(rows), (files.folder,))
    return rewritten, choice, check


def needs_check(connection: sqlite3.Connection, rows: int) -> bool:
    """Return whether the index must be measured again: an approximate segment is new, or a tenth of the rows is."""
    approximate = _approximate_folders(connection)
    check = catalog.index_check(connection)
    if check is None:
        return bool(approximate)
    return bool(approximate) and (
        not approximate <= set(check.segments) or abs(rows - check.rows) > _DRIFT * check.rows
    )


def check_index(store: Path, connection: sqlite3.Connection, embedder: VectorEncoder, rows: int) -> IndexEvaluation:
    """Measure the recall of the store's index against exact search, and its latency, with pseudo-queries."""
    segments = {record.key: Segment(store, record.files) for record in catalog.segments(connection)}
    selection, choice = select(connection, None), catalog.index_choice(connection)
    mask = None if selection is None else selection.mask
    effort = None if choice is None else choice.effort
    queries = _queries(connection, embedder).measuring
    size = sum(segment.index_file.stat().st_size for segment in segments.values())
    folders = tuple(segment.files.folder for segment in segments.values())
    if len(queries) < measure.LEAST_QUERIES:
        return IndexEvaluation(Measurement(None, None, size), _today(), rows, folders)

    def search(vectors: Floats, k: int) -> Floats:
        nearest = SegmentSearch(1).nearest(
            connection, segments, unit_rows(vectors), k, mask, effort, embedder.postprocess_documents
        )
        cosines = np.full((len(vectors), k), -np.inf, dtype=np.float32)
        for row, (_, of_query) in zip(cosines, nearest, strict=True):
            row[: len(of_query)] = of_query
        return cosines

    truth = measure.exact(_live_parts(connection, segments, embedder), queries)
    recall = measure.recall(search, truth)
    latency = measure.latency_ms(_bare_search(connection, segments, embedder), queries)
    return IndexEvaluation(Measurement(recall, latency, size), _today(), rows, folders)


def _bare_search(
    connection: sqlite3.Connection, segments: Mapping[int, Segment], embedder: VectorEncoder
) -> measure.Search:
    """Return a search of the indexes alone, timed in the same way as when an index is chosen."""
    choice = catalog.index_choice(connection)
    effort = None if choice is None else choice.effort
    indexes = [
        RefinedIndex(
            segment.index(),
            segment.spec,
            segment.vectors(embedder.postprocess_documents),
            catalog.rows_of_segment(connection, key),
        )
        for key, segment in segments.items()
    ]
    return lambda vectors, k: np.hstack([index.search(vectors, k, effort=effort)[0] for index in indexes])


def degradation(wanted: IndexConfig, before: IndexEvaluation | None, now: IndexEvaluation) -> str | None:
    """Return a warning if the index misses its recall, or a latency or memory that the budget sets, else None."""
    budget, found = wanted.budget, now.measurement
    missed = [
        f"{what} {limit:g}"
        for what, limit, exceeded in (
            (
                "recall@10",
                budget.wanted_recall,
                found.recall is not None and found.recall.mean < budget.wanted_recall - _ROUNDING,
            ),
            ("ms a query", budget.max_latency_ms, _above(found.latency_ms, budget.max_latency_ms)),
            ("bytes", budget.max_memory, _above(found.bytes, budget.max_memory)),
        )
        if exceeded
    ]
    if not missed:
        return None
    was = "" if before is None else f", before: {before.measurement.describe()}"
    return (
        f"the index misses its target ({', '.join(missed)}): {found.describe()}{was}; "
        "rebuild it with 'ragembed doctor --repair'"
    )


def _above(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def warn(notes: Iterable[str]) -> None:
    """Warn with :class:`ragembed.errors.IndexWarning` for each message."""
    for note in notes:
        warnings.warn(note, IndexWarning, stacklevel=3)


def _approximate_folders(connection: sqlite3.Connection) -> set[str]:
    records = catalog.segments(connection)
    specs = ((record.files.folder, IndexSpec(record.files.kind)) for record in records)
    return {folder for folder, spec in specs if spec.family != "exhaustive"}


def _live_parts(
    connection: sqlite3.Connection, segments: Mapping[int, Segment], embedder: VectorEncoder
) -> Iterator[tuple[Vectors, NDArray[np.bool_]]]:
    dead = catalog.dead_rows(connection)
    for key, segment in segments.items():
        rows = catalog.rows_of_segment(connection, key)
        yield segment.vectors(embedder.postprocess_documents), ~np.isin(rows, dead)


def _queries(connection: sqlite3.Connection, embedder: VectorEncoder) -> TuningQueries:
    """Encode pseudo-queries of texts all over the store, or return those of a fit that was just made."""
    fitted = _fitted_queries(connection, embedder)
    if fitted is not None:
        return fitted
    texts = _texts(connection, _TEXTS_PER_QUERY * 2 * QUERIES)
    whole = set(texts)
    drawn = draw_pseudo_queries(texts, 2 * QUERIES, _SEED)
    spans = [span.partition(" ")[2] or span if span in whole else span for span in drawn]
    if not spans:
        nothing = np.zeros((0, 1), dtype=np.float32)
        return TuningQueries(nothing, nothing)
    vectors = unit_rows(embedder.encode_queries(spans))
    return TuningQueries(vectors[::2], vectors[1::2])


def _fitted_queries(connection: sqlite3.Connection, embedder: VectorEncoder) -> TuningQueries | None:
    """Return pseudo-queries that ``embedder`` was fitted on, or None if too few of them are not whole texts."""
    own = embedder.refittable
    if own is None or own.fitted_queries is None:
        return None
    queries = own.fitted_queries
    hashes = [text_hash(text) for text in queries.texts]
    whole = catalog.rows_of_hashes(connection, hashes)
    raw = queries.raw[[key not in whole for key in hashes]][: 2 * QUERIES]
    if len(raw) < 2 * QUERIES:
        return None
    vectors = unit_rows(own.postprocess_queries(raw))
    return TuningQueries(vectors[::2], vectors[1::2])


def _texts(connection: sqlite3.Connection, count: int) -> Sequence[str]:
    """Return the texts of up to ``count`` chunks, spread evenly over the store."""
    low, high = connection.execute("SELECT min(key), max(key) FROM chunks").fetchone()
    if low is None:
        return []
    nearest = "SELECT key FROM chunks WHERE key >= ? ORDER BY key LIMIT 1"
    wanted = np.unique(np.linspace(low, high, count).astype(np.int64)).tolist()
    keys = {connection.execute(nearest, (key,)).fetchone()[0] for key in wanted}
    return [record.chunk.text for record in catalog.chunks_by_key(connection, sorted(keys)).values()]


def _today() -> str:
    return dt.datetime.now(dt.timezone.utc).date().isoformat()
