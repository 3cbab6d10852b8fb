"""Change the embedder of a store in one transaction: fit post-processors, or encode all texts again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.corpus import Reservoir
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import ConfigError, RankError, StoreError
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.fitting import (
    OpenedStore,
    fit_if_needed,
    fit_together,
    fits_on_store,
    has_outgrown_tokens,
    hashes_of,
    least_fit,
    without_fit,
)
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.storage.baseline import Baseline
from ragembed.indexes.storage.segments import RAW_TYPE, to_raw
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, Rows, SilentProgress
from ragembed.indexes.writing.index_selection import warn
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.postprocess.moments import Moments
from ragembed.types import Halves


def refit_store(
    path: Path,
    postprocess: Sequence[str] | None = None,
    query_fit: QueryFit | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> Embedder:
    """Fit the post-processors of a store, or replace them, and return the new embedder.

    All embeddings are computed again from the stored raw vectors, so no document is encoded again. The model encodes
    only pseudo-queries that are new since the last fit, and up to 140 queries to fit the relevance. If the process is
    killed, the store keeps its previous post-processors, and you can call the function again.

    Parameters
    ----------
    path : Path
        Folder of the store.
    postprocess : sequence of str, optional
        The post-processors, such as ``["abtt:2", "normalize"]``; the current ones by default.
    query_fit : {"shared", "separate"}, optional
        Whether queries share the fit of the documents or have a fit of their own; the current setting by default.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``.
    wait_seconds : float
        Seconds to wait if another process writes to the store.

    Raises
    ------
    ConfigError
        If the store has too few vectors to fit the post-processors, or a post-processor is invalid.
    StoreError
        If the vectors of the store do not come from ragembed.
    StoreLockedError
        If another process still writes to the store after ``wait_seconds``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes import refit_store
    >>> refit_store(Path(".ragembed"), ["center", "normalize"]).config.postprocess  # doctest: +SKIP
    ('center', 'normalize')
    """
    with Store.open(path) as store, store.writer(wait_seconds) as writer:
        current = store.embedder
        if not isinstance(current, Embedder):
            raise StoreError(f"cannot refit {path}: its vectors were not made by ragembed")
        had_postprocess, had_query_fit = store._wanted_chain()
        steps = tuple(had_postprocess if postprocess is None else postprocess)
        fitted = current.with_postprocess(steps, query_fit or had_query_fit)
        vectors = writer.live_vectors()
        if fits_on_store(current, steps) and vectors < least_fit(steps):
            raise ConfigError(
                f"{', '.join(steps)} cannot be fitted on {vectors:,} chunks: expected {least_fit(steps):,} or more"
            )
        wanted = {"postprocess": list(steps), "query_fit": fitted.config.query_fit}
        progress = progress or SilentProgress()
        fit_together([(store, writer)], fitted, progress).adopt(writer, progress, {"wanted": wanted})
        warn(writer.refresh_index(progress=progress))
        warn(calibrate(store, writer, progress, again=True))
        return fitted


def refit_if_due(store: Store, writer: StoreWriter, progress: Progress | None = None) -> list[str]:
    """Fit the embedder of a store again if the store has outgrown its fit; return warnings.

    Ten times as many chunks as the token weights and static vectors were fitted on: these are fitted again, and all
    texts are encoded again. Twice as many vectors as the post-processors were fitted on: these are fitted on the raw
    vectors.
    """
    progress, current = progress or SilentProgress(), store.embedder
    if not isinstance(current, Embedder):
        return []
    steps, query_fit = store._wanted_chain()
    too_few = fits_on_store(current, steps) and writer.live_vectors() < least_fit(steps)
    if not current._is_external and has_outgrown_tokens(store):
        wanted = (
            without_fit(current).config if too_few else current.config.replace(postprocess=steps, query_fit=query_fit)
        )
        unfitted = Embedder(wanted, device=store._device, download=False, source=current._source)
        try:
            _reencode(store, writer, unfitted, progress, {})
        except RankError as error:
            return [f"the embedder was not fitted again: {error}"]
    if too_few:
        return []
    fit, warnings = fit_if_needed([(store, writer)], progress)
    if fit is not None:
        fit.adopt(writer, progress)
    return warnings


def apply_settings(
    path: Path,
    config: EmbedderConfig | None,
    fusion: Fusion,
    device: str | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> None:
    """Apply embedder and fusion settings to a store in one transaction.

    If the raw vectors stay the same, only the post-processors are fitted again. Otherwise all documents are encoded
    again from the texts in the store. If the process is killed, the store keeps its previous settings.

    Parameters
    ----------
    path : Path
        Folder of the store.
    config : EmbedderConfig, optional
        The new embedder configuration; None keeps that of the store.
    fusion : Fusion
        The new defaults for hybrid search.
    device : str, optional
        Device for encoding, as for :meth:`ragembed.Store.open`.
    progress, wait_seconds : optional
        As in :func:`refit_store`.

    Raises
    ------
    StoreError, StoreLockedError
        As :func:`refit_store` does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes import Fusion, apply_settings
    >>> apply_settings(Path(".ragembed"), None, Fusion(alpha=0.5))  # doctest: +SKIP
    """
    progress = progress or SilentProgress()
    with Store.open(path, device=device) as store, store.writer(wait_seconds) as writer:
        embedder = store.embedder
        if not isinstance(embedder, Embedder):
            raise StoreError(f"cannot change the settings of {path}: its vectors were not made by ragembed")
        postprocess, query_fit = store._wanted_chain()
        current = embedder.config.replace(postprocess=postprocess, query_fit=query_fit)
        config = config or current
        wanted = {"postprocess": list(config.postprocess), "query_fit": config.query_fit}
        meta: dict[str, object] = {"fusion": fusion.to_dict(), "wanted": wanted}
        if config == current:
            writer.set_meta(meta)
        elif raw_part(config) == raw_part(current):
            unfitted = embedder.with_postprocess(config.postprocess, config.query_fit)
            fit_together([(store, writer)], unfitted, progress).adopt(writer, progress, meta)
        else:
            _reencode(store, writer, Embedder(config, device=device, download=False), progress, meta)
        warn(writer.refresh_index(progress=progress))
        warn(calibrate(store, writer, progress, again=True))


def _reencode(
    store: Store, writer: StoreWriter, unfitted: Embedder, progress: Progress, meta: Mapping[str, object]
) -> None:
    """Fit ``unfitted`` on the texts of the store, encode them, and save the vectors together with ``meta``.

    The texts come from the store, not from files. Searches use the previous vectors until the single commit at the end.
    The next writer removes files of a killed run. The temporary file takes as much disk space as the store's vectors.
    """
    progress.start("fitting", "chunks", len(store))
    unfitted.fit_extractor(_counted(store, progress))
    progress.finish()
    sample = Reservoir(FIT_LIMIT, unfitted.config.seed)
    # An unnamed file: the system removes it when the process ends.
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
            raise ConfigError(f"the embedder returned vectors that cannot be stored: {error}") from error


def _blocks(rows: Rows, raw: Halves) -> Iterator[tuple[Rows, Halves]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH], raw[start : start + BATCH]


def refit_together(
    paths: Mapping[str, Path],
    postprocess: Sequence[str] | None = None,
    query_fit: QueryFit | None = None,
    progress: Progress | None = None,
    wait_seconds: float = 0.0,
) -> Embedder:
    """Fit one embedder on the texts of several stores, and use it in all of them.

    The stores then give the results of one store with all their chunks; see :class:`ragembed.Collection`. If their raw
    vectors were made with the same fit, only the post-processors are fitted, on the stored raw vectors. Otherwise token
    weights and static vectors are fitted, too, and all texts in the stores are encoded again. The stores change one
    after the other: if the process is killed, call the function again.

    Parameters
    ----------
    paths : mapping of str to Path
        Folder of each store, by name.
    postprocess, query_fit, progress, wait_seconds : optional
        As in :func:`refit_store`.

    Raises
    ------
    ConfigError
        If the stores have different models or settings, or too few vectors to fit the post-processors.
    StoreError, StoreLockedError
        As :func:`refit_store` does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes import refit_together
    >>> stores = {"diary": Path("diary/.ragembed"), "letters": Path("letters/.ragembed")}
    >>> refit_together(stores, ["center", "normalize"]).config.postprocess  # doctest: +SKIP
    ('center', 'normalize')
    """
    progress = progress or SilentProgress()
    with ExitStack() as stack:
        opened = []
        for name in sorted(paths, key=lambda name: str(paths[name].absolute())):  # one order, to avoid deadlocks
            store = stack.enter_context(Store.open(paths[name]))
            opened.append((store, stack.enter_context(store.writer(wait_seconds))))
        for store, writer in opened:
            if not writer.live_vectors():
                raise ConfigError(f"{store.path} has no chunks: index documents, or remove it from the collection")
        embedders = [_own_embedder(store) for store, _ in opened]
        chains = {store._wanted_chain() for store, _ in opened}
        if len(chains) > 1 and (postprocess is None or query_fit is None):
            raise ConfigError("the stores have different post-processors: give --postprocess and --query-fit")
        steps, sides = chains.pop()
        steps, sides = tuple(steps if postprocess is None else postprocess), query_fit or sides
        meta: dict[str, object] = {"wanted": {"postprocess": list(steps), "query_fit": sides}}
        vectors = sum(writer.live_vectors() for _, writer in opened)
        if fits_on_store(embedders[0], steps) and vectors < least_fit(steps):
            raise ConfigError(
                f"{', '.join(steps)} cannot be fitted on {vectors:,} chunks: expected {least_fit(steps):,} or more"
            )
        if len({embedder.raw_fingerprint for embedder in embedders}) == 1:
            fitted = embedders[0].with_postprocess(steps, sides)
            fit = fit_together(opened, fitted, progress)
            for _, writer in opened:
                fit.adopt(writer, progress, meta)
        else:
            if len({raw_part(embedder.config) for embedder in embedders}) > 1:
                raise ConfigError(
                    "the stores have different models or settings of the embedder, which ragembed status shows: make "
                    "them with the same"
                )
            config = embedders[0].config.replace(postprocess=steps, query_fit=sides)
            fitted = Embedder(config, device=opened[0][0]._device, download=False, source=embedders[0]._source)
            _reencode_together(opened, fitted, progress, meta)
        for store, writer in opened:
            warn(writer.refresh_index(progress=progress, for_collection=True))
            warn(calibrate(store, writer, progress, again=True))
        return fitted


def _own_embedder(store: Store) -> Embedder:
    embedder = store.embedder
    if not isinstance(embedder, Embedder):
        raise StoreError(f"cannot refit {store.path}: its vectors were not made by ragembed")
    return embedder


def _reencode_together(
    opened: Sequence[OpenedStore], unfitted: Embedder, progress: Progress, meta: Mapping[str, object]
) -> None:
    """Fit ``unfitted`` on the texts of all stores, encode them, and save the vectors; see :func:`_reencode`."""
    progress.start("fitting", "chunks", sum(len(store) for store, _ in opened))
    unfitted.fit_extractor(text for store, _ in opened for text in _counted(store, progress))
    progress.finish()
    sample = Reservoir(FIT_LIMIT, unfitted.config.seed)
    seen: set[bytes] = set()
    with ExitStack() as stack:
        spools = []
        progress.start("embedding", "chunks", sum(writer.live_vectors() for _, writer in opened))
        for store, writer in opened:
            spool = stack.enter_context(tempfile.TemporaryFile(dir=store.path))
            own = Reservoir(FIT_LIMIT, unfitted.config.seed)
            ids: list[int] = []
            for rows, raw in _encoded(writer, unfitted, progress):
                hashes = hashes_of(store, rows)
                sample.add(raw[np.array([hashes[row] not in seen for row in rows], dtype=bool)])
                seen.update(hashes.values())
                own.add(raw)
                spool.write(raw.tobytes())
                ids += rows
            spool.flush()
            spools.append((writer, spool, ids, own))
        progress.finish()
        progress.start("fitting", "chunks", None)
        texts = chain.from_iterable(store.embedded_texts() for store, _ in opened)
        unfitted.fit_chain(sample.rows(), texts)
        progress.finish()
        width = sample.rows().shape[1]
        for writer, spool, ids, own in spools:
            baseline = Baseline(writer.last_row(), len(ids), Moments.of(own.rows()), unfitted.fitted_queries)
            raws = np.memmap(spool, dtype=RAW_TYPE, mode="r", shape=(len(ids), width))
            writer.replace_vectors(unfitted, _blocks(np.array(ids, dtype=np.int64), raws), width, meta, baseline)
