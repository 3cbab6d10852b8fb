"""The store: a folder of documents' chunks, their vectors and their words, that can be searched.

The facade over the modules beside it: :mod:`schema` and :mod:`catalog` (the database), :mod:`segments` (vector files),
:mod:`search` (reading), :mod:`writer` (writing). The format is described in ``docs/store-format.md``.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragembed.config import EmbedderConfig, Sides
from ragembed.embedder import Embedder
from ragembed.errors import IncompatibleStoreError, StoreDamagedError, StoreError
from ragembed.indexes import catalog, search
from ragembed.indexes.layout import DATABASE, EMBEDDERS, SEGMENTS, is_store, make_folder, require_store
from ragembed.indexes.lock import writer_lock
from ragembed.indexes.records import ChunkRecord, Hit, SourceRecord, VectorEncoder
from ragembed.indexes.schema import FORMAT_VERSION, connect, create_database
from ragembed.indexes.search import Mode
from ragembed.indexes.segments import Segment
from ragembed.indexes.view import View
from ragembed.indexes.writer import StoreWriter, embedder_record, save_embedder
from ragembed.version import __version__

Floats = NDArray[np.float32]
Answer = TypeVar("Answer")

_SNAPSHOT_TRIES = 5


class Store:
    """A store on disk, opened for reading; :meth:`writer` opens it for writing.

    Any number of processes and threads may read while one writes: each search sees one whole generation. Use
    :meth:`create` and :meth:`open`, and close it or use it as a context manager.
    """

    def __init__(self, path: Path, embedder: VectorEncoder | None = None) -> None:
        self.path = path
        self._given = embedder
        self._loaded: VectorEncoder | None = None
        self._segments: dict[str, Segment] = {}
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.RLock()
        with self._view():  # a store that cannot be read fails here
            pass

    @classmethod
    def create(
        cls,
        path: str | Path,
        embedder: VectorEncoder,
        meta: Mapping[str, object] | None = None,
        *,
        locked: bool = False,
    ) -> Store:
        """Make an empty store at ``path`` for vectors of a fitted embedder, and keep the JSON values ``meta`` in it.

        ``locked`` says that the caller holds the writer lock of the folder already. Raises :class:`StoreError` where
        there is a store already or the folder cannot be written.
        """
        path = Path(path)
        make_folder(path)
        with nullcontext() if locked else writer_lock(path):
            cls._create(path, embedder, meta or {})
        return cls(path, embedder)

    @staticmethod
    def _create(path: Path, embedder: VectorEncoder, meta: Mapping[str, object]) -> None:
        if is_store(path):
            raise StoreError(f"there is a store at {path} already: open it with Store.open, or choose another path")
        try:
            (path / SEGMENTS).mkdir(exist_ok=True)
            (path / EMBEDDERS).mkdir(exist_ok=True)
            (path / ".gitignore").write_text("*\n", encoding="ascii")
            save_embedder(path, embedder)
            about = {"embedder": embedder_record(embedder), "ragembed": __version__, **meta}
            create_database(path / DATABASE, about)
        except OSError as error:
            raise StoreError(f"no store can be made at {path}: {error.strerror or error}") from error

    @classmethod
    def open(cls, path: str | Path, embedder: VectorEncoder | None = None) -> Store:
        """Open the store at ``path``.

        ``embedder`` is needed only where the store was made with one that is not ragembed's own; one that makes other
        raw vectors than the store's is refused when it is needed. Raises :class:`StoreNotFoundError`,
        :class:`StoreDamagedError` or :class:`IncompatibleStoreError`.
        """
        return cls(require_store(Path(path)), embedder)

    # Searching

    def search(self, query: str, k: int = 10, mode: Mode = "hybrid") -> list[Hit]:
        """Return the best ``k`` chunks for a question, best first; see :class:`ragembed.indexes.Hit` for scores.

        ``mode`` is ``"dense"`` (cosine), ``"lexical"`` (BM25) or ``"hybrid"`` (both fused).
        """
        return self._read(lambda view: search.search(view, query, k, mode))

    def search_vector(self, vector: Floats, k: int = 10) -> list[Hit]:
        """Return the ``k`` chunks nearest to a query vector, shape ``(d,)``, by cosine, best first."""
        vector = np.asarray(vector, dtype=np.float32)

        def answer(view: View) -> list[Hit]:
            dim = view.dim()
            if dim is None:
                return []
            if vector.shape != (dim,):
                raise IncompatibleStoreError(
                    f"the query vector has shape {vector.shape}, the store {self.path} holds vectors of dimension {dim}"
                )
            return search.search_vector(view, vector, k)

        return self._read(answer)

    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of the chunks ``ids``, float32, shape ``(n, d)``; an unknown id is a KeyError."""

        def answer(view: View) -> Floats:
            rows = catalog.rows_of_ids(view.connection, ids)
            return view.vectors([rows[chunk_id] for chunk_id in ids])

        return self._read(answer)

    # Looking in

    def __len__(self) -> int:
        return self._read(lambda view: catalog.count(view.connection, "chunks"))

    def get(self, ids: Sequence[str]) -> list[ChunkRecord]:
        """Return the chunks with these ids, in the order asked; unknown ids are left out."""
        found = self._read(lambda view: catalog.chunks_by_id(view.connection, ids))
        return [found[chunk_id] for chunk_id in dict.fromkeys(ids) if chunk_id in found]

    def chunks(self, source: str | None = None) -> Iterator[ChunkRecord]:
        """Yield the chunks in order of insertion, all or those of one file."""
        with self._view() as view:
            yield from catalog.iterate_chunks(view.connection, source)

    def sources(self) -> dict[str, SourceRecord]:
        """Return the files in the store by name."""
        return self._read(lambda view: catalog.sources(view.connection))

    @property
    def unfinished(self) -> bool:
        """Whether the last run over files was interrupted."""
        return bool(self._read(lambda view: catalog.meta(view.connection, "unfinished", False)))

    def wanted_chain(self) -> tuple[tuple[str, ...], Sides]:
        """Return the post-processors and sides that vectors are to have; an unfinished first run has others."""

        def answer(view: View) -> tuple[tuple[str, ...], Sides]:
            embedder = view.embedder()
            made = embedder.config if isinstance(embedder, Embedder) else EmbedderConfig(postprocess=(), sides="one")
            wanted = catalog.meta(view.connection, "wanted", {})
            return tuple(wanted.get("postprocess", made.postprocess)), wanted.get("sides", made.sides)

        return self._read(answer)

    def last_request(self) -> dict[str, Any] | None:
        """Return the paths that were indexed and the options of the last run, None where no file was indexed."""
        found: dict[str, Any] | None = self._read(lambda view: catalog.meta(view.connection, "indexing"))
        return found

    def status(self) -> dict[str, Any]:
        """Return what is in the store, and what made it, as JSON values."""

        def answer(view: View) -> dict[str, Any]:
            connection = view.connection
            return {
                "path": str(self.path),
                "format": FORMAT_VERSION,
                "ragembed": catalog.meta(connection, "ragembed"),
                "generation": catalog.meta(connection, "generation", 0),
                "files": catalog.count(connection, "sources"),
                "skipped": catalog.skipped(connection),
                "chunks": catalog.count(connection, "chunks"),
                "vectors": catalog.count(connection, "vectors"),
                "unused_vectors": catalog.count(connection, "tombstones"),
                "dim": view.dim(),
                "raw_dim": catalog.meta(connection, "dim"),
                "segments": [
                    {"id": record.id, "rows": record.rows, "kind": record.kind}
                    for record in catalog.segments(connection)
                ],
                "bytes": sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
                "embedder": catalog.embedder(connection),
                "indexing": catalog.meta(connection, "indexing"),
                "unfinished": bool(catalog.meta(connection, "unfinished", False)),
            }

        return self._read(answer)

    @property
    def embedder(self) -> VectorEncoder:
        """The embedder of the current generation; raises :class:`IncompatibleStoreError` where it cannot be loaded."""
        return self._read(lambda view: view.embedder())

    # Writing

    @contextmanager
    def writer(self, wait_seconds: float = 0.0, *, locked: bool = False) -> Iterator[StoreWriter]:
        """Open the store for writing, alone.

        ``locked`` says that the caller holds the store's writer lock already. Raises :class:`StoreLockedError` where
        another process holds it for longer than ``wait_seconds``.
        """
        with nullcontext() if locked else writer_lock(self.path, wait_seconds):
            connection = connect(self.path / DATABASE, writable=True)
            try:
                yield StoreWriter(self.path, connection, self.embedder)
                # All commits into the one file where no reader is in the way, so that it can be read or copied alone.
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.DatabaseError as error:
                raise self._damaged(error) from error
            finally:
                connection.close()

    def add(self, records: Iterable[ChunkRecord], wait_seconds: float = 0.0) -> None:
        """Add chunks, encoding their texts; a chunk whose id is there already replaces it."""
        records = list(records)
        with self.writer(wait_seconds) as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records)
            writer.merge()

    def delete(self, ids: Iterable[str], wait_seconds: float = 0.0) -> None:
        """Delete the chunks with these ids; unknown ids are no error."""
        with self.writer(wait_seconds) as writer:
            writer.commit(removed_ids=list(ids))

    # Closing

    def close(self) -> None:
        """Close the database and let go of the mapped files; the next use opens them again."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._segments.clear()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Reading one generation

    def _read(self, answer: Callable[[View], Answer]) -> Answer:
        for _ in range(_SNAPSHOT_TRIES - 1):
            with contextlib.suppress(FileNotFoundError), self._view() as view:
                return answer(view)
            # A writer merged this generation's segments between the snapshot and the opening of a file: look again.
        try:
            with self._view() as view:
                return answer(view)
        except FileNotFoundError as error:
            raise StoreDamagedError(
                f"a file of the store is missing: {error.filename}; delete the store and index again"
            ) from error
        except OSError as error:
            raise StoreError(f"{error.filename or self.path} cannot be read: {error.strerror or error}") from error

    @contextmanager
    def _view(self) -> Iterator[View]:
        """Pin the current generation for the time of the ``with`` block."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or connect(self.path / DATABASE, writable=False)
        try:
            connection.execute("BEGIN")
            yield View(connection, lambda: self._open_segments(connection), lambda: self._embedder(connection))
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._lock:
                self._idle.append(connection)

    def _damaged(self, error: sqlite3.DatabaseError) -> StoreDamagedError:
        return StoreDamagedError(
            f"the database of {self.path} cannot be used: {error}; delete the store and index again"
        )

    def _open_segments(self, connection: sqlite3.Connection) -> dict[str, Segment]:
        records = {record.id: record for record in catalog.segments(connection)}
        with self._lock:
            for name, record in records.items():
                if name not in self._segments:
                    self._segments[name] = Segment(self.path, record)
            self._segments = {name: self._segments[name] for name in records}
            return dict(self._segments)

    def _embedder(self, connection: sqlite3.Connection) -> VectorEncoder:
        record = catalog.embedder(connection)
        with self._lock:
            for embedder in (self._loaded, self._given):
                if embedder is not None and embedder.fingerprint == record["fingerprint"]:
                    return embedder
            stranger = self._given is not None and self._given.raw_fingerprint != record["raw_fingerprint"]
            if record["kind"] != "ragembed" or stranger:
                raise IncompatibleStoreError(
                    f"the vectors of {self.path} were made by {_named(record)}, and {_named(self._given)} was given: "
                    "open the store with the embeddings it was made with, or search it with mode='lexical'"
                )
            folder = self.path / EMBEDDERS / record["fingerprint"]
            if not folder.is_dir():
                raise FileNotFoundError(errno.ENOENT, "No such folder", str(folder))
            self._loaded = Embedder.load(folder)
            return self._loaded


def _named(embedder: VectorEncoder | Mapping[str, Any] | None) -> str:
    """Return an embedder's model and the beginning of its fingerprint; it is given itself or as kept in a store."""
    if embedder is None:
        return "none"
    record: Mapping[str, Any] = embedder if isinstance(embedder, Mapping) else embedder_record(embedder)
    return f"{record['model']} ({record['fingerprint'][:12]})"
