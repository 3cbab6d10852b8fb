"""Giving a store other settings: the fusion alone, other post-processors, or other raw vectors."""

from __future__ import annotations

from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import StoreError
from ragembed.evaluation.encoding import raw_part
from ragembed.indexes.indexing.fitting import fit_store
from ragembed.indexes.indexing.refit import reencode
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, SilentProgress
from ragembed.indexes.writing.index_selection import warn


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
            reencode(store, writer, Embedder(config, device=device, download=False), progress, meta)
        warn(writer.refresh_index(progress=progress))
