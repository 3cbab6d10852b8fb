"""A whole run in stages."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ragembed.indexes.asked import IndexingRequest
from ragembed.indexes.indexing import IndexingReport, index_files
from ragembed.indexes.layout import WORK, is_store
from ragembed.indexes.progress import Progress
from ragembed.scaling.engine import Engine
from ragembed.scaling.staged import Staged


def index_in_stages(
    request: IndexingRequest,
    engine: Engine,
    progress: Progress | None = None,
    *,
    work: Path | None = None,
    shards: int | None = None,
    wait_seconds: float = 0.0,
) -> IndexingReport:
    """Bring a store up to date as :func:`ragembed.indexes.indexing.index_files` does, with workers.

    The store is the same as that of one process: the same chunks with the same ids in the same order, and the same fit.
    ``work`` is the folder for what the stages leave for one another, ``work`` in the store's if left out; from it an
    interrupted run is carried on. Other files in it stay, and so does a folder that was there before. Raises what
    :func:`index_files` raises, :class:`ragembed.errors.ConfigError` for a work folder that holds other files and no
    plan, and :class:`ragembed.errors.WorkerLostError` where workers die again and again.
    """
    folder = (work or request.store / WORK).absolute()
    keep_folder = work is not None and folder.exists()
    steps = Staged(folder, engine, shards, request.device, keep_folder=keep_folder)
    try:
        return index_files(request, progress, wait_seconds=wait_seconds, steps=steps)
    finally:
        if not is_store(request.store):
            with suppress(OSError):  # it is there, with what is to be carried on, or was never made
                request.store.rmdir()
