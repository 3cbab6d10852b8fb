"""The two functions that most programs need: :func:`index` and :func:`search`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.documents.places import Place, place_of
from ragembed.errors import ConfigError
from ragembed.indexes.filters import Where
from ragembed.indexes.indexing.index_run import IndexingReport, index_files
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.storage.layout import choose_store, require_store
from ragembed.indexes.store import Store
from ragembed.indexes.types import Hit
from ragembed.progress import Progress, progress_for


def index(
    paths: str | Path | Sequence[str | Path] = (),
    store: str | Path | None = None,
    *,
    embedder: EmbedderConfig | None = None,
    options: IndexingOptions | None = None,
    progress: Progress | bool | None = None,
) -> IndexingReport:
    """Index files and folders, or update a store after they changed, as ``ragembed index`` does.

    Parameters
    ----------
    paths : str, pathlib.Path or sequence of them, optional
        Files, folders or URLs. By default, every path that was indexed into the store before.
    store : str or pathlib.Path, optional
        Folder of the store. By default, ``$RAGEMBED_STORE``, else the nearest ``.ragembed`` in the working directory or
        a folder above it, else a new ``.ragembed`` in the working directory.
    embedder : ragembed.EmbedderConfig, optional
        Settings that turn texts into vectors. By default, those of the default preset. For an existing store they must
        be the settings that the store was made with.
    options : ragembed.indexes.IndexingOptions, optional
        Which files to read and how to divide them into chunks. By default, the options of the last run.
    progress : bool or object, optional
        False prints no progress. By default, it is printed to stderr in a terminal or notebook, and nowhere else. Or a
        listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``.

    Returns
    -------
    ragembed.indexes.IndexingReport
        The files that were added, changed, removed and skipped, and the number of chunks in the store.

    Raises
    ------
    ConfigError
        If there is nothing to index, or a path is empty.
    StoreError
        If the store cannot be read or written; :mod:`ragembed.errors` lists the subclasses.

    Examples
    --------
    >>> from pathlib import Path
    >>> import ragembed
    >>> Path("docs").mkdir()
    >>> Path("docs/tea.md").write_text("Tea is brewed with hot water.", encoding="utf-8")
    29
    >>> ragembed.index("docs", store="docs-store").chunks
    1
    """
    several = [paths] if isinstance(paths, (str, Path)) else paths
    request = IndexingRequest(_chosen(store), tuple(_place(path) for path in several), options, embedder)
    return index_files(request, progress_for(progress))


def search(
    query: str,
    store: str | Path | None = None,
    k: int = 10,
    mode: Mode = "hybrid",
    *,
    where: Where | None = None,
    fusion: Fusion | None = None,
    ranking: RankingOptions | None = None,
    min_relevance: float | None = None,
) -> list[Hit]:
    """Return up to ``k`` of the best chunks of a store for a query, best first.

    Each call opens the store. For many queries, open a :class:`Store` once and call :meth:`Store.search`.

    Parameters
    ----------
    query : str
        Text of the query.
    store : str or pathlib.Path, optional
        Folder of the store. The default is the same as in :func:`index`.
    k, mode, where, fusion, ranking, min_relevance : optional
        As in :meth:`Store.search`.

    Raises
    ------
    StoreNotFoundError
        If there is no store. Other errors are those of :meth:`Store.search`.

    Examples
    --------
    >>> import ragembed
    >>> [hit.id for hit in ragembed.search("How do I brew tea?", store="notes", k=1)]
    ['tea']
    """
    with Store.open(require_store(_chosen(store))) as opened:
        return opened.search(query, k, mode, where=where, fusion=fusion, ranking=ranking, min_relevance=min_relevance)


def _chosen(store: str | Path | None) -> Path:
    if store is not None and not str(store):
        raise ConfigError("the path of the store is empty: expected the name of a folder, such as .ragembed")
    return choose_store(None if store is None else Path(store))


def _place(path: str | Path) -> Place:
    if not str(path):
        raise ConfigError("a path is empty: expected the name of a file or folder, or a URL")
    return place_of(path) if isinstance(path, str) else path
