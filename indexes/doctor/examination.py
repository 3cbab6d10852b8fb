"""A store under examination: the snapshot that all checks read, and what several of them need."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import RagembedError
from ragembed.indexes.doctor.commands import Commands
from ragembed.indexes.doctor.findings import EXAMPLES
from ragembed.indexes.indexing.request import IndexingOptions, stored_config
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord, VectorEncoder
from ragembed.indexes.verify import Report
from ragembed.progress import Progress


class CannotCheckError(RagembedError):
    """A check cannot run on this store; the message is the reason."""


@dataclass(slots=True)
class Examination:
    """One generation of a store. ``embedder`` is None if it cannot be loaded; ``notes`` collects notes of checks."""

    store: Store
    snapshot: Snapshot
    report: Report
    embedder: VectorEncoder | None
    commands: Commands
    roots: Sequence[str]
    options: IndexingOptions | None
    sources: Mapping[str, SourceRecord]
    progress: Progress
    notes: list[str] = field(default_factory=list)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of the snapshot."""
        return self.snapshot.connection

    @property
    def chunks(self) -> int:
        """Number of chunks in the store."""
        return catalog.count(self.connection, "chunks")

    def own_embedder(self) -> Embedder:
        """Return the embedder; raise :class:`CannotCheckError` if it is missing or another program's."""
        if self.embedder is None:
            raise CannotCheckError("the embedder of the store cannot be loaded")
        if self.embedder.refittable is None:
            raise CannotCheckError("the vectors were not made by ragembed")
        return self.embedder.refittable

    def require_no_server(self, command: str) -> None:
        """Raise :class:`CannotCheckError` if the embedder sends texts to a server; ``command`` is how to allow that."""
        if self.embedder is not None and self.embedder.is_remote:
            raise CannotCheckError(f"it would send texts to the server of the model: run {command!r} for it")

    def spread_keys(self, count: int) -> list[int]:
        """Return the keys of up to ``count`` chunks, spread evenly over the store."""
        keys, _ = catalog.chunk_rows(self.connection)
        if len(keys) <= count:
            return list(keys.tolist())
        return list(keys[np.linspace(0, len(keys) - 1, count).astype(np.int64)].tolist())


def stored_settings(store: Store) -> tuple[Sequence[str], IndexingOptions | None, Commands]:
    """Return the indexed paths, by name, the options of the last run, and the commands for a store."""
    request = store.last_request()
    roots = () if request is None else tuple(request["paths"])
    options = None if request is None else IndexingOptions.from_dict(request["options"])
    try:
        config = stored_config(store)
    except (RagembedError, OSError):
        config = None
    return roots, options, Commands(store.path, roots, options, config, store.language)


def examples(names: Sequence[str]) -> tuple[str, ...]:
    """Return the first names, as many as a finding has."""
    return tuple(names[:EXAMPLES])


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
