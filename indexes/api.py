"""The two functions that most programs need: index files, and search them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.documents.places import Place, place_of
from ragembed.errors import ConfigError
from ragembed.indexes.filters import Where
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import IndexingReport, index_files
from ragembed.indexes.indexing.scan import IndexingOptions
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.search import Mode
from ragembed.indexes.storage.layout import choose_store, require_store
from ragembed.indexes.store import Store
from ragembed.indexes.types import Hit, Progress


def index(
    paths: str | Path | Sequence[str | Path] = (),
    store: str | Path | None = None,
    *,
    embedder: EmbedderConfig | None = None,
    options: IndexingOptions | None = None,
    progress: Progress | None = None,
) -> IndexingReport:
    """Index files and folders, or bring a store up to date with them, as ``ragembed index`` does.

    Parameters
    ----------
    paths
        Files, folders or URLs; all paths that were indexed so far if left out.
    store
        Folder of the store. If left out: ``$RAGEMBED_STORE``, else the nearest ``.ragembed`` in the working directory
        or above, else a new ``.ragembed`` in the working directory.
    embedder
        How texts become vectors; the default preset if left out. An existing store must have been made with it.
    options
        Which files are read and how they are chunked; those of the last run if left out.
    progress
        Receives the progress of the run.

    Returns
    -------
    IndexingReport
        What was added, changed, removed and skipped, and how many chunks the store holds.

    Raises
    ------
    ConfigError
        If there is nothing to index.
    StoreError
        If the store cannot be used: see the classes below it in :mod:`ragembed.errors`.
    """
    several = [paths] if isinstance(paths, (str, Path)) else paths
    request = IndexingRequest(_chosen(store), tuple(_place(path) for path in several), options, embedder)
    return index_files(request, progress)


def search(
    query: str,
    store: str | Path | None = None,
    k: int = 10,
    mode: Mode = "hybrid",
    *,
    where: Where | None = None,
    fusion: Fusion | None = None,
    ranking: RankingOptions | None = None,
) -> list[Hit]:
    """Return the best ``k`` chunks of a store for a query, best first.

    ``store`` is chosen as in :func:`index`; the other parameters are those of :meth:`Store.search`. Each call opens the
    store: for many queries, open a :class:`Store` once. Raises :class:`StoreNotFoundError` if there is no store.
    """
    with Store.open(require_store(_chosen(store))) as opened:
        return opened.search(query, k, mode, where=where, fusion=fusion, ranking=ranking)


def _chosen(store: str | Path | None) -> Path:
    if store is not None and not str(store):
        raise ConfigError("the path of the store is empty: give the name of a folder, as in .ragembed")
    return choose_store(None if store is None else Path(store))


def _place(path: str | Path) -> Place:
    if not str(path):
        raise ConfigError("a path is empty: give the name of a file or folder, or a URL")
    return place_of(path) if isinstance(path, str) else path
