"""Other raw vectors for all of a store's texts, which take the place of the former in one transaction."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import ConfigError
from ragembed.indexes.storage.baseline import Baseline
from ragembed.indexes.storage.segments import RAW_TYPE, to_raw
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.moments import Moments
from ragembed.reservoir import Reservoir

Halves = NDArray[np.float16]
Rows = NDArray[np.int64]


def reencode(
    store: Store, writer: StoreWriter, unfitted: Embedder, progress: Progress, meta: Mapping[str, object]
) -> None:
    """Fit ``unfitted`` on the store's texts, encode them, and let the store adopt the vectors, and ``meta``.

    Nothing is read from files. Until the one commit at the end the store answers as before; what a killed run wrote is
    removed by the next writer. It takes as much room on the disk as the store's vectors do.
    """
    progress.start("fitting", "chunks", len(store))
    unfitted.fit_extractor(_counted(store, progress))
    progress.finish()
    sample = Reservoir(FIT_LIMIT, unfitted.config.seed)
    # A file without a name: it goes with the process.
    with tempfile.TemporaryFile(dir=store.path) as spool:
        ids: list[int] = []
        width = 0
        progress.start("embedding", "chunks", writer.live_vectors())
        for rows, raw in _encoded(writer, unfitted, progress):
            spool.write(raw.tobytes())
            sample.add(raw)
            ids += rows
            width = raw.shape[1]
        progress.finish()
        spool.flush()
        progress.start("fitting", "chunks", None)
        unfitted.fit_chain(sample.rows(), (record.chunk.embedded_text for record in store.chunks()))
        baseline = Baseline(writer.last_row(), len(ids), Moments.of(sample.rows()), unfitted.fitted_queries)
        progress.finish()
        raws = np.memmap(spool, dtype=RAW_TYPE, mode="r", shape=(len(ids), width))
        writer.replace_vectors(unfitted, _blocks(np.array(ids, dtype=np.int64), raws), width, meta, baseline)


def _counted(store: Store, progress: Progress) -> Iterator[str]:
    for record in store.chunks():
        yield record.chunk.embedded_text
        progress.advance(1)


def _encoded(writer: StoreWriter, embedder: Embedder, progress: Progress) -> Iterator[tuple[list[int], Halves]]:
    pairs = writer.texts_of_rows()
    while batch := list(islice(pairs, BATCH)):
        vectors = embedder.raw_documents([text for _, text in batch], progress.advance)
        try:
            yield [row for row, _ in batch], to_raw(vectors)
        except ValueError as error:
            raise ConfigError(f"the embedder gave vectors that cannot be stored: {error}") from error


def _blocks(rows: Rows, raw: Halves) -> Iterator[tuple[Rows, Halves]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH], raw[start : start + BATCH]
