"""Change the embedder of stores that exist: fit post-processors, or encode all texts again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, RankError
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes.indexing.fitting import (
    OpenedStore,
    finish_store,
    fit_if_needed,
    fit_on_stores,
    fits_on_store,
    has_outgrown_tokens,
    least_fit,
    reencode,
    wanted_record,
    without_fit,
)
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.storage.upkeep import warn
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.indexes.store import Store
from ragembed.progress import Progress, SilentProgress, progress_for


def refit_store(
    path: Path,
    postprocess: Sequence[str] | None = None,
    query_fit: QueryFit | None = None,
    progress: Progress | bool | None = None,
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
    progress : bool or object, optional
        As in :func:`ragembed.index`.
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
    with _writing([path], wait_seconds) as opened:
        return _refit(opened, postprocess, query_fit, progress_for(progress))


def refit_together(
    paths: Mapping[str, Path],
    postprocess: Sequence[str] | None = None,
    query_fit: QueryFit | None = None,
    progress: Progress | bool | None = None,
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
    with _writing(list(paths.values()), wait_seconds) as opened:
        for store, writer in opened:
            if not writer.live_vectors():
                raise ConfigError(f"{store.path} has no chunks: index documents, or remove it from the collection")
        return _refit(opened, postprocess, query_fit, progress_for(progress), for_collection=True)


def apply_settings(
    path: Path,
    config: EmbedderConfig | None,
    fusion: Fusion,
    device: str | None = None,
    progress: Progress | bool | None = None,
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
    with _writing([path], wait_seconds, device) as opened:
        [(store, writer)], listener = opened, progress_for(progress)
        embedder, current = store.own_embedder("change the settings of"), store.wanted_config()
        config = config or current
        meta = {"fusion": fusion.to_dict(), **wanted_record(config)}
        if config == current:
            writer.set_meta(meta)
        elif raw_part(config) == raw_part(current):
            unfitted = embedder.with_postprocess(config.postprocess, config.query_fit)
            fit_on_stores(opened, unfitted, listener).adopt(writer, listener, meta)
        else:
            reencode(opened, Embedder(config, device=device, download=False), listener, meta)
        warn(finish_store(store, writer, listener, again=True))


def refit_if_due(store: Store, writer: StoreWriter) -> list[str]:
    """Fit the embedder of a store again if the store fits it itself and has outgrown its fit; return warnings.

    Ten times as many chunks as the token weights and static vectors were fitted on: these are fitted again, and all
    texts are encoded again.
    """
    progress = SilentProgress()
    if writer.meta("wanted") is None or (current := store.embedder.refittable) is None:
        return []
    wanted = store.wanted_config()
    too_few = fits_on_store(current, wanted.postprocess) and writer.live_vectors() < least_fit(wanted.postprocess)
    if not current.is_remote and has_outgrown_tokens(store):
        config = without_fit(current).config if too_few else wanted
        try:
            reencode([(store, writer)], _unfitted(store, config), progress, {})
        except RankError as error:
            return [f"the embedder was not fitted again: {error}"]
    if too_few:
        return []
    fit, warnings = fit_if_needed([(store, writer)], progress)
    if fit is not None:
        fit.adopt(writer, progress)
    return warnings


@contextmanager
def _writing(paths: Sequence[Path], wait_seconds: float, device: str | None = None) -> Iterator[list[OpenedStore]]:
    """Open stores and their writers."""
    with ExitStack() as stack:
        opened = []
        for path in sorted(paths, key=lambda path: str(path.absolute())):  # one order, to avoid deadlocks
            store = stack.enter_context(Store.open(path, device=device))
            opened.append((store, stack.enter_context(store.writer(wait_seconds))))
        yield opened


def _refit(
    opened: Sequence[OpenedStore],
    postprocess: Sequence[str] | None,
    query_fit: QueryFit | None,
    progress: Progress,
    *,
    for_collection: bool = False,
) -> Embedder:
    """Fit one embedder on all stores, make them use it, and return it."""
    embedders = [store.own_embedder("refit") for store, _ in opened]
    chains = {(config.postprocess, config.query_fit) for config in (store.wanted_config() for store, _ in opened)}
    if len(chains) > 1 and (postprocess is None or query_fit is None):
        raise ConfigError("the stores have different post-processors: give --postprocess and --query-fit")
    steps, sides = chains.pop()
    steps, sides = tuple(steps if postprocess is None else postprocess), query_fit or sides
    vectors = sum(writer.live_vectors() for _, writer in opened)
    fitted = embedders[0].with_postprocess(steps, sides)
    if fits_on_store(fitted, steps) and vectors < least_fit(steps):
        raise ConfigError(
            f"{', '.join(steps)} cannot be fitted on {vectors:,} chunks: expected {least_fit(steps):,} or more"
        )
    if len({embedder.raw_fingerprint for embedder in embedders}) == 1:
        fit = fit_on_stores(opened, fitted, progress)
        for _, writer in opened:
            fit.adopt(writer, progress, wanted_record(fitted.config))
    else:
        if len({raw_part(embedder.config) for embedder in embedders}) > 1:
            raise ConfigError(
                "the stores have different models or settings of the embedder, which ragembed status shows: make "
                "them with the same"
            )
        fitted = _unfitted(opened[0][0], fitted.config)
        reencode(opened, fitted, progress, wanted_record(fitted.config))
    for store, writer in opened:
        warn(finish_store(store, writer, progress, for_collection=for_collection, again=True))
    return fitted


def _unfitted(store: Store, config: EmbedderConfig) -> Embedder:
    """Return an embedder with the model of the store and another configuration."""
    return Embedder(config, device=store.device, download=False, source=store.own_embedder("refit").source)
