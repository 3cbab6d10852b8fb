"""Fit the post-processors of one store, or of several stores together, on their own raw vectors.

The model encodes new pseudo-queries only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ragembed.config.settings import QueryFit
from ragembed.config.specs import parse_postprocessor
from ragembed.corpus import PseudoQueries, Reservoir
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import RankError
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.baseline import Baseline
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, Rows
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.postprocess import Chain
from ragembed.postprocess.moments import Moments
from ragembed.types import Floats, Halves

OpenedStore: TypeAlias = tuple[Store, StoreWriter]

MIN_FIT = 32
"""Minimum number of vectors for fitting post-processors: fewer vectors do not represent a corpus."""

_WITHOUT_FIT = ("normalize",)
"""The post-processors of a store that has too few vectors to fit others."""

_REFIT_GROWTH, _REWEIGH_GROWTH = 2.0, 10.0
"""Growth of a store since its fit that triggers a refit of the post-processors, and a warning about token weights."""


def without_fit(embedder: Embedder) -> Embedder:
    """Return an embedder with the extractor of ``embedder`` and post-processors without fit, for a new, small store."""
    return embedder.with_postprocess(_WITHOUT_FIT, "shared").fit_chain(np.zeros((1, 1), dtype=np.float32), [])


def create_store(path: Path, settings: Embedder, texts: Iterable[str], **about: Any) -> None:
    """Create an empty store with an embedder that is fitted on ``texts``, the first texts that will be added.

    Its post-processors are fitted later, by :func:`ragembed.indexes.indexing.refit.refit_if_due`. ``about`` are
    arguments of :meth:`Store.create`.
    """
    fitted = copy(settings).fit_extractor(texts)
    wanted = {"postprocess": list(fitted.config.postprocess), "query_fit": fitted.config.query_fit}
    Store.create(path, without_fit(fitted), {"wanted": wanted}, **about).close()


def fit_if_needed(opened: Sequence[OpenedStore], progress: Progress) -> tuple[Fit | None, list[str]]:
    """Fit the post-processors of stores if they are not fitted yet, or if the corpus has at least doubled since.

    The stores have the same raw vectors and settings. Return the fit, which no store uses yet, or None if there is
    none, and warnings for post-processors that could not be fitted.
    """
    (store, _), vectors = opened[0], sum(writer.live_vectors() for _, writer in opened)
    current = store.embedder
    postprocess, query_fit = store._wanted_chain()
    if not isinstance(current, Embedder):
        return None, []
    # A chain without fitted parameters is fitted once, to record the baseline for drift.
    has_baseline = all(writer.has_baseline for _, writer in opened)
    needs_baseline = vectors > 0 and not Chain(postprocess).learns and not has_baseline
    differ = len({store.embedder.fingerprint for store, _ in opened}) > 1  # a run ended between two stores
    if not (differ or needs_baseline or _needs_fit(current, postprocess, query_fit, vectors)):
        return None, []
    if fits_on_store(current, postprocess) and vectors < (least := least_fit(postprocess)):
        if not vectors:
            return None, []
        steps = ", ".join(postprocess)
        return None, [f"{steps} cannot be fitted on {_chunks(vectors)} yet: fitting needs {least:,} chunks or more"]
    try:
        return fit_together(opened, current.with_postprocess(postprocess, query_fit), progress), []
    except RankError as error:
        return None, [f"the post-processors were not fitted: {error}"]


def _needs_fit(current: Embedder, postprocess: Sequence[str], query_fit: QueryFit, vectors: int) -> bool:
    other_query_fit = Chain(postprocess).learns and current.config.query_fit != query_fit
    if other_query_fit or current.config.postprocess != tuple(postprocess):
        return True
    if not fits_on_store(current, postprocess):
        return False
    fitted = current.fitted_on.documents if current.fitted_on else 0
    return fitted < FIT_LIMIT and vectors >= _REFIT_GROWTH * fitted


def notes_on_model(embedder: Embedder) -> list[str]:
    """Return a note about what the model's package states and the settings of ``embedder`` replace."""
    if not embedder.set_aside:
        return []
    return [f"the settings replace {' and '.join(embedder.set_aside)} of {embedder.config.model}"]


def has_outgrown_tokens(store: Store) -> bool:
    """Return whether the corpus is much larger than at the fit of the token weights and static vectors."""
    embedder = store.embedder
    if not isinstance(embedder, Embedder) or not embedder.config.fits_tokens:
        return False
    return len(store) >= _REWEIGH_GROWTH * int(embedder.describe()["fitted_on"]["texts"])


def warn_if_outgrown(store: Store) -> list[str]:
    """Return a warning if the corpus is much larger than at the fit of the token weights."""
    if not has_outgrown_tokens(store):
        return []
    fitted = store.embedder.describe()["fitted_on"]["texts"]
    warning = (
        f"token weights and static vectors were fitted on {_chunks(fitted)} and the store has grown to "
        f"{len(store):,}: to fit them again, delete {store.path} and index again"
    )
    return [warning]


@dataclass(frozen=True, slots=True)
class Fit:
    """An embedder that was fitted on stores. ``queries`` are the pseudo-queries with known raw vectors, if any.

    ``moments`` are those of the raw vectors that it was fitted on, or None if they come from several stores.
    """

    embedder: Embedder
    queries: PseudoQueries | None = None
    moments: Moments | None = None

    def adopt(self, writer: StoreWriter, progress: Progress, meta: Mapping[str, object] | None = None) -> None:
        """Make a store use the embedder, and save the JSON values ``meta`` with it."""
        moments = self.moments
        if moments is None and len(raw := sample_raw(writer.live_raw(), self.embedder.config.seed)):
            moments = Moments.of(raw)
        baseline = None
        if moments is not None:
            baseline = Baseline(writer.last_row(), writer.live_vectors(), moments, self.queries)
        writer.adopt(self.embedder, progress, meta, baseline)


def fit_together(opened: Sequence[OpenedStore], unfitted: Embedder, progress: Progress) -> Fit:
    """Fit ``unfitted`` on stores with the same raw vectors; raises RankError if these have too few dimensions."""
    progress.start("fitting", "chunks", None)
    fits_here = fits_on_store(unfitted, unfitted.config.postprocess)
    raw = sample_raw(_distinct(opened), unfitted.config.seed)
    texts = chain.from_iterable(store.embedded_texts() for store, _ in opened)
    known = _known_queries(opened)
    unfitted.fit_chain(raw if fits_here else raw[:0], texts, known)
    progress.finish()
    moments = Moments.of(raw) if len(opened) == 1 and len(raw) else None
    return Fit(unfitted, unfitted.fitted_queries or known, moments)


def _known_queries(opened: Sequence[OpenedStore]) -> PseudoQueries | None:
    """Return the pseudo-queries of all stores whose raw vectors are known."""
    baselines = [writer.baseline() for _, writer in opened]
    known = [each.pseudo_queries for each in baselines if each is not None and each.pseudo_queries is not None]
    if not known:
        return None
    texts = tuple(text for each in known for text in each.texts)
    return PseudoQueries(texts, np.concatenate([each.raw for each in known]))


def _distinct(opened: Sequence[OpenedStore]) -> Iterator[tuple[Rows, Halves]]:
    """Yield the raw vectors of all stores; the vector of a text that several stores have counts once."""
    seen: set[bytes] = set()
    for store, writer in opened:
        for rows, raw in writer.live_raw():
            if len(opened) == 1:  # A store has one vector for each text.
                yield rows, raw
                continue
            hashes = hashes_of(store, rows.tolist())
            new = np.array([hashes[row] not in seen for row in rows.tolist()], dtype=bool)
            seen.update(hashes.values())
            yield rows[new], raw[new]


def hashes_of(store: Store, rows: Sequence[int]) -> dict[int, bytes]:
    """Return the hash of the text of each vector row of a store."""
    return store.read_database(catalog.hashes_of_rows, rows)


def pending_fit(store: Store) -> str | None:
    """Return which post-processors of the store are not fitted yet, and when they will be; None if all are fitted."""
    current = store.embedder
    steps, _ = store._wanted_chain()
    if not isinstance(current, Embedder) or current.config.postprocess == tuple(steps):
        return None
    least = least_fit(steps)
    when = f"index {least:,} chunks or more" if len(store) < least else "run 'ragembed index'"
    return f"{', '.join(steps)} not fitted yet: {when}"


def fits_on_store(embedder: Embedder, postprocess: Sequence[str]) -> bool:
    """Return whether the steps are fitted on the store's own vectors."""
    return embedder.config.postprocess_corpus is None and Chain(postprocess).learns


def _chunks(count: int) -> str:
    return f"{count:,} chunk" if count == 1 else f"{count:,} chunks"


def least_fit(postprocess: Sequence[str]) -> int:
    """Return the minimum number of vectors to fit the post-processors: one more than their directions."""
    return max([MIN_FIT, *((parse_postprocessor(step)[1] or 0) + 1 for step in postprocess)])


def sample_raw(blocks: Iterable[tuple[Rows, Halves]], seed: int) -> Floats:
    """Return the raw vectors to fit post-processors on, float32, shape ``(n, d)``.

    ``blocks`` are those of :func:`ragembed.indexes.storage.compaction.live_raw`. The result has all vectors, or a
    seeded sample of ``FIT_LIMIT`` vectors.
    """
    reservoir = Reservoir(FIT_LIMIT, seed)
    for _, raw in blocks:
        reservoir.add(raw)
    return reservoir.rows() if reservoir.seen else np.empty((0, 0), dtype=np.float32)
