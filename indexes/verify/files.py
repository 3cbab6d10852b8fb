"""Checks of the files that the database names: segments, postings and the embedder; and encoding canary texts again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import StoreDamagedError
from ragembed.files import read_sha256
from ragembed.indexes.faiss_index.index import open_index
from ragembed.indexes.lexical.postings import PostingsBlock
from ragembed.indexes.storage import catalog, derived
from ragembed.indexes.storage.derived import DerivedRecord
from ragembed.indexes.storage.folders import foreign_file, hash_difference
from ragembed.indexes.storage.layout import DERIVED, EMBEDDERS, INDEX, RAW, SEGMENTS
from ragembed.indexes.storage.posting_files import stale_chunks
from ragembed.indexes.storage.segments import RAW_TYPE, SegmentFiles, SegmentRecord, stored_spec, to_vectors
from ragembed.indexes.types import VectorEncoder, text_hash
from ragembed.indexes.verify.report import Part, Problem
from ragembed.postprocess import unit_rows
from ragembed.types import Floats, Halves

CANARIES = 16
"""Number of texts that are encoded again."""

_LEAST_COSINE = 0.999
_TOLERANCE, _ROUNDING = 1e-5, 1.5
_BLOCK = 50_000


def check_files(store: Path, files: SegmentFiles, raw_part: Part, index_part: Part, key: int) -> Iterator[Problem]:
    """Compare a segment's files with their hashes in the database."""
    for name, expected, part in ((RAW, files.raw_sha256, raw_part), (INDEX, files.index_sha256, index_part)):
        file = f"{SEGMENTS}/{files.folder}/{name}"
        if (message := file_difference(store / file, expected, store)) is not None:
            yield Problem(part, file, message, key)


def check_contents(
    store: Path, connection: sqlite3.Connection, record: SegmentRecord, embedder: VectorEncoder | None
) -> Iterator[Problem]:
    """Compare a segment's files, whose hashes match, with the database, and the index with the raw vectors."""
    files, folder = record.files, f"{SEGMENTS}/{record.files.folder}"
    width = catalog.meta(connection, "dim")
    size = (store / folder / RAW).stat().st_size
    if not isinstance(width, int) or size == 0 or size != files.rows * width * RAW_TYPE.itemsize:
        message = f"the file has {size:,} bytes: expected {files.rows:,} vectors of dimension {width} in float16"
        yield Problem(Part.RAW, f"{folder}/{RAW}", message, record.key)
        return
    raw: Halves = np.memmap(store / folder / RAW, dtype=RAW_TYPE, mode="r", shape=(files.rows, width))
    for start in range(0, files.rows, _BLOCK):
        if not np.isfinite(raw[start : start + _BLOCK]).all():
            yield Problem(Part.RAW, f"{folder}/{RAW}", "a vector contains a value that is not finite", record.key)
            return
    rows = catalog.rows_of_segment(connection, record.key)
    difference = _index_difference(store / folder / INDEX, files, raw, rows, embedder)
    if difference is not None:
        yield Problem(Part.INDEX, f"{folder}/{INDEX}", difference, record.key)


def _index_difference(
    file: Path, files: SegmentFiles, raw: Halves, rows: NDArray[np.int64], embedder: VectorEncoder | None
) -> str | None:
    spec = stored_spec(files.kind)
    seen = np.zeros(len(rows), dtype=bool)
    try:
        index = open_index(file, spec, files.rows, files.dim)
        for found, kept in index.contents():
            positions = np.minimum(np.searchsorted(rows, found), len(rows) - 1)
            if seen[positions].any() or not np.array_equal(rows[positions], found):
                return "the ids in the index are not the rows that the database names"
            seen[positions] = True
            if embedder is None:
                continue
            expected = to_vectors(raw, embedder.postprocess_documents, positions)
            rounded = None if spec.lossless else index.kept_of(expected)
            if not _alike(kept, index.as_searched(expected), rounded):
                return "the vectors in the index are not those that the embedder makes from the raw vectors"
    except StoreDamagedError as error:
        return str(error)
    return None if seen.all() else "the ids in the index are not the rows that the database names"


def _alike(kept: Floats, expected: Floats, rounded: Floats | None) -> bool:
    """Return whether an index holds the expected vectors, within the rounding error that it would have today."""
    if rounded is None:
        return bool(np.allclose(kept, expected, atol=_TOLERANCE))
    allowed = _ROUNDING * np.linalg.norm(rounded - expected, axis=1).max() + _TOLERANCE
    return bool(np.linalg.norm(kept - expected, axis=1).max() <= allowed)


def check_embedder_files(store: Path, record: Mapping[str, Any]) -> Iterator[Problem]:
    """Compare the embedder's files with their hashes in the database."""
    for name, expected in record["files"].items():
        file = f"{EMBEDDERS}/{record['fingerprint']}/{name}"
        if (message := file_difference(store / file, expected, store)) is not None:
            yield Problem(Part.EMBEDDER, file, message)


def check_canaries(connection: sqlite3.Connection, embedder: VectorEncoder, raw_of: Mapping[int, Halves]) -> list[str]:
    """Encode some of the store's texts again; return a message for each that differs from its stored raw vector.

    ``raw_of`` maps a segment key to the raw vectors of the segment.
    """
    records = _spread(connection)
    if not records:
        return []
    again = embedder.raw_documents([text for _, text, _, _ in records])
    stored = np.stack([raw_of[segment][position] for _, _, segment, position in records]).astype(np.float32)
    if again.shape != stored.shape or not np.isfinite(again).all():
        return [f"encoding texts again gives vectors of shape {again.shape}: expected finite vectors of {stored.shape}"]
    cosines = (unit_rows(again) * unit_rows(stored)).sum(axis=1)
    cosines[~again.any(axis=1) & ~stored.any(axis=1)] = 1.0
    return [
        f"encoding the text of chunk {chunk_id!r} again gives another vector (cosine {cosine:.4f}): the model, its "
        "tokenizer or a library has changed since the store was made"
        for (chunk_id, _, _, _), cosine in zip(records, cosines.tolist(), strict=True)
        if cosine < _LEAST_COSINE
    ]


def _spread(connection: sqlite3.Connection) -> list[tuple[str, str, int, int]]:
    """Return id, text, segment and position of chunks that are spread evenly over the store.

    Chunks with another vector than that of their text are left out.
    """
    total = catalog.count(connection, "chunks")
    offsets = sorted({i * total // CANARIES for i in range(CANARIES)}) if total else []
    keys = [
        connection.execute("SELECT key FROM chunks ORDER BY key LIMIT 1 OFFSET ?", (offset,)).fetchone()[0]
        for offset in offsets
    ]
    records = catalog.chunks_by_key(connection, keys)
    rows = catalog.rows_of_keys(connection, keys)
    places, hashes = (of(connection, list(rows.values())) for of in (catalog.places_of_rows, catalog.hashes_of_rows))
    texts = {key: records[key].chunk.embedded_text for key in keys}
    own = [key for key in keys if hashes[rows[key]] == text_hash(texts[key])]
    return [(records[key].id, texts[key], *places[rows[key]]) for key in own]


def file_difference(file: Path, expected: str, store: Path) -> str | None:
    """Return a message if a file of ``store`` is missing or does not have the sha256 ``expected``, else None."""
    try:
        difference = foreign_file(file, store) or hash_difference(read_sha256(file), expected)
    except FileNotFoundError:
        return "it is missing"
    return None if difference is None else f"it {difference}"


def check_derived(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    """Compare each derived file with its hash in the database, and postings with the chunks in the store."""
    for record in derived.records(connection):
        file = f"{DERIVED}/{record.file}"
        message = file_difference(store / file, record.sha256, store)
        if message is None and record.name == derived.POSTINGS:
            message = _stray(store / file, connection, record)
        if message is not None:
            yield Problem(Part(record.name), file, message)


def _stray(file: Path, connection: sqlite3.Connection, record: DerivedRecord) -> str | None:
    """Return a message if a file has postings of chunks that the store neither has nor had."""
    try:
        block = PostingsBlock.read(file)
    except StoreDamagedError as error:
        return str(error)
    if not block.is_sound():
        return "the file has numbers that are out of range"
    chunks = block.chunks
    strays = np.setdiff1d(chunks, np.concatenate([catalog.chunk_rows(connection)[0], stale_chunks(connection, record)]))
    return f"the file has postings of {len(strays):,} chunks that are not in the store" if len(strays) else None
