"""Where the embedder of a store is fitted, in one store or in several that share their fit.

- The extractor (token weights, static vectors) is fitted on texts, before these are encoded: :func:`create_store` and
  :func:`ragembed.indexes.indexing.index_run.index_files` for a new store, :func:`reencode` for an existing one.
- The post-processors are fitted on the raw vectors in the store, at the end of a run: :func:`fit_if_needed`. No text is
  encoded again; the model encodes only new pseudo-queries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import parse_postprocessor
from ragembed.corpus import PseudoQueries, Reservoir, blocks
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import RankError
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.embedders import joined
from ragembed.indexes.storage.segments import RAW_TYPE, to_raw
from ragembed.indexes.storage.writer import BATCH, StoreWriter
from ragembed.indexes.store import Store
from ragembed.indexes.types import Rows
from ragembed.postprocess import Chain
from ragembed.printable import counted
from ragembed.progress import Progress
from ragembed.types import Floats, Halves

OpenedStore: TypeAlias = tuple[Store, StoreWriter]
HashesOf: TypeAlias = Callable[[Sequence[int]], Mapping[int, bytes]]

MIN_FIT = 32
"""Minimum number of vectors for fitting post-processors: fewer vectors do not represent a corpus."""

_REFIT_GROWTH, _REWEIGH_GROWTH = 2.0, 10.0
"""Growth of a store since its fit that triggers a refit of the post-processors, and a warning about token weights."""


def without_fit(embedder: Embedder) -> Embedder:
    """Return an embedder with the extractor of ``embedder`` and post-processors without fit, for a new, small store."""
    return embedder.with_postprocess(("normalize",), "shared").fit_chain(np.zeros((1, 1), dtype=np.float32), [])


def wanted_record(config: EmbedderConfig) -> dict[str, object]:
    """Return the value of the database that names the post-processors of the finished store."""
    return {"wanted": {"postprocess": list(config.postprocess), "query_fit": config.query_fit}}


def create_store(path: Path, settings: Embedder, texts: Iterable[str], **about: Any) -> None:
    """Create an empty store with an embedder that is fitted on ``texts``, the first texts that will be added.

    Its post-processors are fitted later, by :func:`ragembed.indexes.indexing.refit.refit_if_due`.
    """
    fitted = copy(settings).fit_extractor(texts)
    Store.create(path, without_fit(fitted), wanted_record(fitted.config), **about).close()


def finish_store(
    store: Store,
    writer: StoreWriter,
    progress: Progress,
    *,
    index: IndexConfig | None = None,
    for_collection: bool = False,
    again: bool = False,
) -> list[str]:
    """Finish a store after its vectors or its fit changed: update or choose its index and the relevance of hits.

    ``index`` are new requirements for the index. ``again`` fits the relevance even if the store has not doubled.
    Return warnings.
    """
    warnings = writer.refresh_index(index, progress, for_collection=for_collection)
    return [*warnings, *calibrate(store, writer, progress, again=again)]


# Post-processors, fitted on raw vectors


@dataclass(frozen=True, slots=True)
class Fit:
    """An embedder that was fitted on stores. ``queries`` are the pseudo-queries with known raw vectors, if any."""

    embedder: Embedder
    queries: PseudoQueries | None = None

    def adopt(self, writer: StoreWriter, progress: Progress, meta: Mapping[str, object] | None = None) -> None:
        """Make a store use the embedder, and save the JSON values ``meta`` with it."""
        writer.adopt(self.embedder, progress, meta, self.queries)


def fit_if_needed(opened: Sequence[OpenedStore], progress: Progress) -> tuple[Fit | None, list[str]]:
    """Fit the post-processors of stores if they are not fitted yet, or if the corpus has at least doubled since.

    The stores have the same raw vectors and settings. Return the fit, which no store uses yet, or None if there is
    none, and warnings for post-processors that could not be fitted.
    """
    (store, _), vectors = opened[0], sum(writer.live_vectors() for _, writer in opened)
    current = store.embedder.refittable
    if current is None:
        return None, []
    wanted = store.wanted_config()
    postprocess = wanted.postprocess
    differ = len({store.embedder.fingerprint for store, _ in opened}) > 1  # a run ended between two stores
    if not (differ or _needs_fit(current, wanted, vectors)):
        return None, []
    if fits_on_store(current, postprocess) and vectors < (least := least_fit(postprocess)):
        if not vectors:
            return None, []
        steps = ", ".join(postprocess)
        return None, [
            f"{steps} cannot be fitted on {counted(vectors, 'chunk')} yet: fitting needs {least:,} chunks or more"
        ]
    try:
        return fit_on_stores(opened, current.with_postprocess(postprocess, wanted.query_fit), progress), []
    except RankError as error:
        return None, [f"the post-processors were not fitted: {error}"]


def _needs_fit(current: Embedder, wanted: EmbedderConfig, vectors: int) -> bool:
    other_query_fit = Chain(wanted.postprocess).learns and current.config.query_fit != wanted.query_fit
    if other_query_fit or current.config.postprocess != wanted.postprocess:
        return True
    if not fits_on_store(current, wanted.postprocess):
        return False
    fitted = current.fitted_on.documents if current.fitted_on else 0
    return fitted < FIT_LIMIT and vectors >= _REFIT_GROWTH * fitted


def fit_on_stores(opened: Sequence[OpenedStore], unfitted: Embedder, progress: Progress) -> Fit:
    """Fit ``unfitted`` on stores with the same raw vectors; raises RankError if these have too few dimensions."""
    progress.start("fitting", "chunks", None)
    raw = sample_raw(_distinct(opened), unfitted.config.seed)
    fits_here = fits_on_store(unfitted, unfitted.config.postprocess)
    queries = joined(writer.fit_queries() for _, writer in opened)
    unfitted.fit_chain(raw if fits_here else raw[:0], _texts(opened), queries)
    progress.finish()
    return Fit(unfitted, unfitted.fitted_queries or queries)


def _texts(opened: Sequence[OpenedStore]) -> Iterator[str]:
    return chain.from_iterable(store.embedded_texts() for store, _ in opened)


def _distinct(opened: Sequence[OpenedStore]) -> Iterator[tuple[Rows, Halves]]:
    """Yield the raw vectors of all stores; the vector of a text that several stores have counts once."""
    distinct = DistinctRows(len(opened))
    for store, writer in opened:
        for rows, raw in writer.live_raw():
            new = distinct.are_new(_hashes_of(store), rows.tolist())
            yield rows[new], raw[new]


def _hashes_of(store: Store) -> HashesOf:
    return lambda rows: store.read_database(catalog.hashes_of_rows, rows)


class DistinctRows:
    """Finds the rows of vectors whose text no earlier one of ``stores`` has. One store has one vector for each text."""

    def __init__(self, stores: int) -> None:
        self._is_single = stores == 1
        self._seen: set[bytes] = set()

    def are_new(self, hashes_of: HashesOf, rows: Sequence[int]) -> slice | NDArray[np.bool_]:
        """Return a mask of the new ones among the vector rows of a store, or a slice of all."""
        if self._is_single:
            return slice(None)
        hashes = hashes_of(rows)
        new = np.array([hashes[row] not in self._seen for row in rows], dtype=bool)
        self._seen.update(hashes.values())
        return new


def sample_raw(blocks: Iterable[tuple[Rows, Halves]], seed: int) -> Floats:
    """Return the raw vectors to fit post-processors on, float32, shape ``(n, d)``.

    ``blocks`` are those of :func:`ragembed.indexes.storage.compaction.live_raw`.
    """
    reservoir = Reservoir(FIT_LIMIT, seed)
    for _, raw in blocks:
        reservoir.add(raw)
    return reservoir.rows() if reservoir.seen else np.empty((0, 0), dtype=np.float32)


# The extractor, fitted on the texts of stores, which are then encoded again


def reencode(opened: Sequence[OpenedStore], unfitted: Embedder, progress: Progress, meta: Mapping[str, object]) -> None:
    """Fit ``unfitted`` on the texts of stores, encode these, and save the vectors together with ``meta``.

    The texts come from the stores, not from files. Searches use the previous vectors until the single commit at the end
    of each store. The next writer removes files of a killed run. The temporary files take as much disk space as the
    vectors of the stores.
    """
    progress.start("fitting", "chunks", sum(len(store) for store, _ in opened))
    unfitted.fit_extractor(counted_texts(_texts(opened), progress))
    progress.finish()
    seed = unfitted.config.seed
    sample, distinct = Reservoir(FIT_LIMIT, seed), DistinctRows(len(opened))
    with ExitStack() as stack:
        spools = []
        progress.start("embedding", "chunks", sum(writer.live_vectors() for _, writer in opened))
        for store, writer in opened:
            # An unnamed file: the system removes it when the process ends.
            spool = stack.enter_context(tempfile.TemporaryFile(dir=store.path))
            ids: list[int] = []
            for rows, raw in _encoded(writer, unfitted, progress):
                sample.add(raw[distinct.are_new(_hashes_of(store), rows)])
                spool.write(raw.tobytes())
                ids += rows
            spool.flush()
            spools.append((writer, spool, np.array(ids, dtype=np.int64)))
        progress.finish()
        progress.start("fitting", "chunks", None)
        raws = sample.rows()
        unfitted.fit_chain(raws, _texts(opened))
        progress.finish()
        for writer, spool, all_rows in spools:
            stored = np.memmap(spool, dtype=RAW_TYPE, mode="r", shape=(len(all_rows), raws.shape[1]))
            starts = range(0, len(all_rows), BATCH)
            parts = ((all_rows[start : start + BATCH], stored[start : start + BATCH]) for start in starts)
            writer.replace_vectors(unfitted, parts, raws.shape[1], meta, unfitted.fitted_queries)


def counted_texts(texts: Iterable[str], progress: Progress) -> Iterator[str]:
    """Yield ``texts``, and advance ``progress`` by one for each."""
    for text in texts:
        yield text
        progress.advance(1)


def _encoded(writer: StoreWriter, embedder: Embedder, progress: Progress) -> Iterator[tuple[list[int], Halves]]:
    for batch in blocks(writer.texts_of_rows(), BATCH):
        vectors = embedder.raw_documents([text for _, text in batch], progress.advance)
        yield [row for row, _ in batch], to_raw(vectors)


# What a store says about its fit


def fits_on_store(embedder: Embedder, postprocess: Sequence[str]) -> bool:
    """Return whether the steps are fitted on the store's own vectors."""
    return embedder.config.postprocess_corpus is None and Chain(postprocess).learns


def least_fit(postprocess: Sequence[str]) -> int:
    """Return the minimum number of vectors to fit the post-processors: one more than their directions."""
    return max([MIN_FIT, *((parse_postprocessor(step)[1] or 0) + 1 for step in postprocess)])


def pending_fit(store: Store) -> str | None:
    """Return which post-processors of the store are not fitted yet, and when they will be; None if all are fitted."""
    current = store.embedder.refittable
    if current is None or current.config.postprocess == (steps := store.wanted_config().postprocess):
        return None
    least = least_fit(steps)
    when = f"index {least:,} chunks or more" if len(store) < least else "run 'ragembed index'"
    return f"{', '.join(steps)} not fitted yet: {when}"


def notes_on_model(embedder: Embedder) -> list[str]:
    """Return a note about what the model's package states and the settings of ``embedder`` leave out."""
    if not embedder.set_aside:
        return []
    return [f"the settings leave out {' and '.join(embedder.set_aside)} of {embedder.config.model}"]


def has_outgrown_tokens(store: Store) -> bool:
    """Return whether the corpus is much larger than at the fit of the token weights and static vectors."""
    embedder = store.embedder.refittable
    if embedder is None or not embedder.config.fits_tokens:
        return False
    return len(store) >= _REWEIGH_GROWTH * int(embedder.describe()["fitted_on"]["texts"])


def warn_if_outgrown(store: Store) -> list[str]:
    """Return a warning if the corpus is much larger than at the fit of the token weights."""
    if not has_outgrown_tokens(store):
        return []
    fitted = store.embedder.describe()["fitted_on"]["texts"]
    warning = (
        f"token weights and static vectors were fitted on {counted(fitted, 'chunk')} and the store has grown to "
        f"{len(store):,}: to fit them again, delete {store.path} and index again"
    )
    return [warning]
