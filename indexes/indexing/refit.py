"""Changing the embedder of a store, in one transaction: other post-processors, or other raw vectors for all texts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import ConfigError, StoreError
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes.indexing.fitting import fit_store, fits_on_store, least_fit
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.storage.baseline import Baseline
from ragembed.indexes.storage.segments import RAW_TYPE, to_raw
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, Rows, SilentProgress
from ragembed.indexes.writing.index_selection import warn
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.postprocess.moments import Moments
from ragembed.reservoir import Reservoir
from ragembed.types import Halves


def refit_store(
    path: Path,
    postprocess: Sequence[str] | None = None,
    query_fit: QueryFit | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> Embedder:
    """Fit the post-processors of a store again, or others in their place, and return the embedder it has then.

    What is left out stays as it is. All vectors are made again from the raw ones, so that no document is encoded again;
    of the pseudo-queries, those that the store was not fitted on before: none where its texts are the same.
    Killed at any moment, the store has the former post-processors, and the next call carries on. Raises
    :class:`ConfigError` where the store has too few vectors or the steps are not accepted, :class:`StoreError` where
    its vectors are not ragembed's own, :class:`StoreLockedError` where another process writes.
    """
    with Store.open(path) as store, store.writer(wait_seconds) as writer:
        current = store.embedder
        if not isinstance(current, Embedder):
            raise StoreError(f"the vectors of {path} are not ragembed's own: they have no post-processors")
        had_postprocess, had_query_fit = store._wanted_chain()
        steps = tuple(had_postprocess if postprocess is None else postprocess)
        fitted = current.with_postprocess(steps, query_fit or had_query_fit)
        vectors = writer.live_vectors()
        if fits_on_store(current, steps) and vectors < least_fit(steps):
            raise ConfigError(
                f"{', '.join(steps)} cannot be fitted on {vectors:,} chunks: expected {least_fit(steps):,} or more"
            )
        wanted = {"postprocess": list(steps), "query_fit": fitted.config.query_fit}
        fit_store(store, writer, fitted, progress or SilentProgress(), {"wanted": wanted})
        warn(writer.refresh_index(progress=progress))
        return fitted


def apply_settings(
    path: Path,
    config: EmbedderConfig,
    fusion: Fusion,
    device: str | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> None:
    """Give the store at ``path`` the settings ``config`` and ``fusion``, at once and as a whole.

    Where raw vectors stay the same, post-processors are fitted again; else all documents are encoded again from the
    texts in the store. Killed before its end, the store has the former settings. Raises :class:`StoreError` where the
    vectors are not ragembed's own, :class:`ragembed.errors.StoreLockedError` where another process writes.
    """
    progress = progress or SilentProgress()
    with Store.open(path, device=device) as store, store.writer(wait_seconds) as writer:
        embedder = store.embedder
        if not isinstance(embedder, Embedder):
            raise StoreError(f"the vectors of {path} are not ragembed's own: they have no settings to change")
        postprocess, query_fit = store._wanted_chain()
        current = embedder.config.replace(postprocess=postprocess, query_fit=query_fit)
        wanted = {"postprocess": list(config.postprocess), "query_fit": config.query_fit}
        meta: dict[str, object] = {"fusion": fusion.to_dict(), "wanted": wanted}
        if config == current:
            writer.set_meta(meta)
        elif raw_part(config) == raw_part(current):
            fit_store(store, writer, embedder.with_postprocess(config.postprocess, config.query_fit), progress, meta)
        else:
            _reencode(store, writer, Embedder(config, device=device, download=False), progress, meta)
        warn(writer.refresh_index(progress=progress))


def _reencode(
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
        unfitted.fit_chain(sample.rows(), store.embedded_texts())
        baseline = Baseline(writer.last_row(), len(ids), Moments.of(sample.rows()), unfitted.fitted_queries)
        progress.finish()
        raws = np.memmap(spool, dtype=RAW_TYPE, mode="r", shape=(len(ids), width))
        writer.replace_vectors(unfitted, _blocks(np.array(ids, dtype=np.int64), raws), width, meta, baseline)


def _counted(store: Store, progress: Progress) -> Iterator[str]:
    for text in store.embedded_texts():
        yield text
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
