"""The store: a folder that holds the chunks of documents with their vectors and full-text index.

:class:`Store` is a facade. :mod:`ragembed.indexes.storage` reads and writes the database and the files, and
:mod:`ragembed.indexes.search` searches them. The page "Store format" of the documentation specifies the format.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ragembed.config.settings import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, StoreError
from ragembed.files import make_folders, replace_file
from ragembed.indexes.faiss_index.gpus import choose_gpus
from ragembed.indexes.faiss_index.records import (
    AUTO,
    Budget,
    IndexConfig,
    IndexEvaluation,
    IndexSelection,
    require_library,
)
from ragembed.indexes.filters import Where, parse
from ragembed.indexes.lexical.analyzer import ENGLISH, AnalyzerConfig
from ragembed.indexes.search.fusion import stored_fusion
from ragembed.indexes.search.relevance import stored_relevance
from ragembed.indexes.search.searchable import Searchable, retried
from ragembed.indexes.search.snapshot import FileState, states_of_files
from ragembed.indexes.storage import catalog, derived, run_records
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.embedders import described_embedder, save_embedder, save_queries
from ragembed.indexes.storage.folders import require_place
from ragembed.indexes.storage.layout import (
    COMMITTED_SUFFIX,
    DATABASE,
    EMBEDDERS,
    GITIGNORE,
    GITIGNORE_TEXT,
    SEGMENTS,
    make_folder,
    require_store,
)
from ragembed.indexes.storage.lock import is_being_written, writer_lock
from ragembed.indexes.storage.reader import StoreReader
from ragembed.indexes.storage.run_records import Record, taken_out
from ragembed.indexes.storage.schema import FORMAT_VERSION, create_database
from ragembed.indexes.storage.transactions import database_error, open_for_writing
from ragembed.indexes.storage.upkeep import warn
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.indexes.types import ChunkRecord, SourceRecord, VectorEncoder, as_records
from ragembed.progress import Progress, progress_for
from ragembed.version import __version__

if TYPE_CHECKING:
    from ragembed.indexes.integrity import Report

Value = TypeVar("Value")


class Store(Searchable):
    """A folder with chunks, their vectors and a full-text index, opened for reading.

    Create a store with :meth:`create` or open one with :meth:`open`; do not call the class itself. Close it with
    :meth:`close`, or use it as a context manager. Any number of processes and threads can read while one process
    writes. Each search reads one snapshot of the store, even if a writer commits a change meanwhile. ``len(store)`` is
    the number of chunks.

    Attributes
    ----------
    path : pathlib.Path
        The folder of the store.

    Examples
    --------
    The examples of the methods use the store of this example.

    >>> from ragembed import Embedder, Store
    >>> notes = {
    ...     "tea": "Tea is brewed with hot water.",
    ...     "lock": "A writer locks the store before it commits a change.",
    ...     "bird": "Many birds fly south in autumn.",
    ... }
    >>> store = Store.create("notes", Embedder().fit(notes.values()))
    >>> store.add(notes.values(), ids=list(notes), metadata=[{"year": 2023}, {"year": 2024}, {"year": 2025}])
    ['tea', 'lock', 'bird']
    >>> [hit.id for hit in store.search("How do I brew tea?", k=1)]
    ['tea']
    """

    def __init__(
        self,
        path: Path,
        embedder: VectorEncoder | None = None,
        device: str | None = None,
        search_device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        _require_encoder(embedder)
        self.path = path
        self._given = embedder
        self.device = device
        gpus = () if search_device == "cpu" else choose_gpus(search_device)
        self.reader = StoreReader(path, embedder, device, threads, gpus, self._first_problem)
        super().__init__(self.reader.views)

    def _first_problem(self, connection: sqlite3.Connection) -> str | None:
        from ragembed.indexes.verification import first_problem

        return first_problem(self.path, connection)

    @classmethod
    def create(
        cls,
        path: str | Path,
        embedder: VectorEncoder,
        meta: Mapping[str, object] | None = None,
        *,
        index: str = AUTO,
        budget: Budget | None = None,
        language: str = ENGLISH,
        locked: bool = False,
    ) -> Store:
        """Create an empty store.

        Parameters
        ----------
        path : str or pathlib.Path
            Folder of the store. It must be missing or empty.
        embedder : ragembed.indexes.VectorEncoder
            A fitted :class:`ragembed.Embedder`, or an object of a class that derives from
            :class:`ragembed.indexes.VectorEncoder`. The store saves a copy of it.
        meta : mapping of str to object, optional
            JSON values to keep in the store's database, by key.
        index : str, default "auto"
            Kind of FAISS index: a name that the page "Choose an index" lists, or a FAISS factory string. ``"auto"``
            chooses the kind for ``budget``, and stays exact below 50,000 vectors.
        budget : ragembed.indexes.Budget, optional
            Limits for the index. None sets no limits.
        language : str, default "english"
            Language of the texts, which selects the stemmer for lexical search; see the page "Search a store".
        locked : bool, default False
            Whether the caller already holds the writer lock of the folder.

        Raises
        ------
        StoreError
            If the folder already holds a store or other files, or cannot be written.
        ConfigError
            If the index kind or the language is unknown.
        MissingExtraError
            If the language needs a stemmer that is not installed, or the index needs FAISS and FAISS is not installed.

        Examples
        --------
        >>> from ragembed import Embedder, Store
        >>> embedder = Embedder().fit(["Tea is brewed with hot water.", "Birds fly south in autumn."])
        >>> with Store.create("empty", embedder, index="flat") as empty:
        ...     len(empty)
        0
        """
        _require_encoder(embedder)
        path = require_place(path)
        words = AnalyzerConfig.of_language(language)
        wanted = IndexConfig(index, budget or Budget())
        require_library(index)
        about = {"index": wanted.to_dict(), "words": words.to_dict(), **(meta or {})}
        make_folder(path)
        with nullcontext() if locked else writer_lock(path):
            cls._create(path, embedder, about, language)
        return cls(path, embedder)

    @staticmethod
    def _create(path: Path, embedder: VectorEncoder, meta: Mapping[str, object], language: str) -> None:
        require_place(path)  # Check again: another process may have used the folder before the lock was held.
        try:
            replace_file(path / GITIGNORE, GITIGNORE_TEXT)  # Written first, because it marks the folder as a store.
            make_folders(path / SEGMENTS)
            make_folders(path / EMBEDDERS)
            about = {"embedder": save_embedder(path, embedder), "ragembed": __version__, **meta}
            named = []
            own = embedder.refittable
            if own is not None and own.fitted_queries is not None:
                write = partial(save_queries, queries=own.fitted_queries)
                named.append(astuple(derived.write_derived(path, derived.QUERIES, write)))
            for suffix in (COMMITTED_SUFFIX, "-wal", "-shm", "-journal"):  # Left over if a database was deleted.
                (path / (DATABASE + suffix)).unlink(missing_ok=True)
            create_database(path / DATABASE, about, language, named)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(f"cannot create a store at {path}: {reason}") from error

    @classmethod
    def open(
        cls,
        path: str | Path,
        embedder: VectorEncoder | None = None,
        *,
        device: str | None = None,
        search_device: str = "cpu",
        threads: int | None = None,
    ) -> Store:
        """Open an existing store for reading.

        Parameters
        ----------
        path : str or pathlib.Path
            Folder of the store.
        embedder : ragembed.indexes.VectorEncoder, optional
            The embedder that the store was created with. You only need it if that is not a :class:`ragembed.Embedder`.
        device : str, optional
            Device that encodes documents and builds indexes: ``"cpu"``, ``"gpu"`` (every GPU) or ``"gpu:0,2"`` (these
            GPUs). None uses the GPUs if there are any, else the CPU.
        search_device : str, default "cpu"
            Device that searches: ``"cpu"``, ``"gpu"``, ``"gpu:0,2"`` or ``"auto"`` (GPUs if there are any). The GPUs
            hold copies of the indexes in their memory. They cannot search graphs (HNSW) and some other indexes: such a
            search raises a ConfigError. Searches with a filter run on the CPU.
        threads : int, optional
            Maximum number of threads of one search, 1 or more. None uses as many as FAISS does. For a single query,
            each large segment is searched in its own thread.

        Raises
        ------
        StoreNotFoundError
            If ``path`` holds no store.
        StoreDamagedError
            If the database is damaged.
        IncompatibleStoreError
            If another version of ragembed wrote the store in another format.
        GpuError
            If a requested GPU does not exist.
        ConfigError
            If the device is unknown, or ``threads`` is less than 1.

        Examples
        --------
        >>> from ragembed import Store
        >>> with Store.open("notes") as store:
        ...     len(store)
        3
        """
        return cls(require_store(Path(path)), embedder, device, search_device, threads)

    def read_database(self, read: Callable[..., Value], *args: Any) -> Value:
        """Return ``read(connection, *args)`` for a connection that sees one snapshot.

        Parameters
        ----------
        read : callable
            Function of a connection to the database.
        *args : optional
            Further arguments of ``read``.
        """
        with self.snapshot() as snapshot:
            return read(snapshot.connection, *args)

    # Contents

    def chunks(
        self, source: str | None = None, *, where: Where | None = None, limit: int | None = None, offset: int = 0
    ) -> Iterator[ChunkRecord]:
        """Yield the chunks of one snapshot, in order of insertion.

        Raise :class:`ConfigError` if the filter is invalid, or ``limit`` or ``offset`` is negative.

        Parameters
        ----------
        source : str, optional
            Name of a file in the store. Only the chunks of this file are yielded.
        where : str or mapping, optional
            Filter, as in :meth:`search`. Only chunks that match it are yielded.
        limit : int, optional
            Maximum number of chunks, 0 or more. None yields all of them.
        offset : int, default 0
            Number of chunks to skip, 0 or more.

        Examples
        --------
        >>> [record.id for record in store.chunks(where="year >= 2024")]
        ['lock', 'bird']
        >>> [record.id for record in store.chunks(limit=1, offset=2)]
        ['bird']
        """
        for name, number in (("limit", limit), ("offset", offset)):
            if number is not None and number < 0:
                raise ConfigError(f"{name} is {number}: expected 0 or more")
        condition = None if where is None else parse(where)
        with self.reader.views() as [view]:
            yield from catalog.iterate_chunks(view.connection, source, condition, limit, offset)

    def embedded_texts(self) -> Iterator[str]:
        """Yield the text that the vector of each chunk was made from, in order of insertion.

        It is the title and headings, followed by the searched text.
        """
        with self.reader.views() as [view]:
            yield from catalog.embedded_texts(view.connection)

    def run_records(self, namespace: str) -> RunRecords:
        """Return the records that programs keep about the chunks they wrote, such as LangChain's indexing API.

        Parameters
        ----------
        namespace : str
            Name that separates the records of one program from those of another.

        Examples
        --------
        >>> records = store.run_records("notes")
        >>> records.note(["tea"])
        >>> records.keys()
        ['tea']
        """
        return RunRecords(namespace, self)

    def all_run_records(self) -> list[Record]:
        """Return the records of indexing runs in every namespace, for :meth:`StoreWriter.take_run_records`."""
        return self.read_database(taken_out)

    def sources(self, paths: Iterable[str] | None = None) -> dict[str, SourceRecord]:
        """Return the files in the store, each with its size, modification time and hashes, by name in the store.

        Parameters
        ----------
        paths : iterable of str, optional
            Names of files in the store. Only these files are returned; unknown names are ignored.
        """
        names = None if paths is None else list(paths)
        return self.read_database(catalog.sources, names)

    def stale_files(self, paths: Iterable[str] | None = None) -> dict[str, FileState]:
        """Return the files that were deleted, or whose size or modification time differs from the last run.

        The values are ``"changed"`` or ``"deleted"``, by name in the store. No file is read, so a file that was only
        touched counts as changed. Files behind URLs are not checked.

        Parameters
        ----------
        paths : iterable of str, optional
            As in :meth:`sources`.
        """
        names = None if paths is None else set(paths)
        with self.snapshot() as snapshot:
            return states_of_files(snapshot.stores[0], names, read=False)

    @property
    def being_written(self) -> bool:
        """Whether a process of this machine is writing to the store now."""
        return is_being_written(self.path)

    @property
    def part_record(self) -> catalog.PartRecord | None:
        """The record of a store that holds only a part of the files of its paths, or None."""
        return self.read_database(catalog.part)

    def encoded(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return the text hashes for which the store has a vector.

        Parameters
        ----------
        hashes : iterable of bytes
            Hashes of texts, as :func:`ragembed.indexes.types.text_hash` returns them.
        """
        with self.snapshot() as snapshot:
            return set(catalog.rows_of_hashes(snapshot.connection, hashes, with_vector=True))

    def own_embedder(self, purpose: str, remedy: str = "") -> Embedder:
        """Return the embedder if it is a :class:`ragembed.Embedder`; otherwise raise :class:`StoreError`.

        Parameters
        ----------
        purpose : str
            What the caller wants to do with the store, such as ``"refit"``, for the message of the error.
        remedy : str, optional
            What to do instead, appended to the message.
        """
        if (embedder := self.embedder.refittable) is None:
            raise StoreError(f"cannot {purpose} {self.path}: its vectors were not made by ragembed{remedy}")
        return embedder

    def wanted_config(self) -> EmbedderConfig:
        """Return the configuration of the finished store; the embedder of an unfinished first run has another chain."""
        fitted = self.own_embedder("read the configuration of").config
        return fitted.replace(**self.read_database(catalog.wanted_chain))

    @property
    def wanted_index(self) -> IndexConfig:
        """Kind and budget of the index, as set for this store."""
        return self.read_database(catalog.index_config)

    def index_choice(self) -> IndexSelection | None:
        """Return the index that ragembed chose for the store, and why; None if the store has had too few vectors."""
        return self.read_database(catalog.index_choice)

    def index_check(self) -> IndexEvaluation | None:
        """Return the last measurement of the index: recall, latency and size; None if it has not been measured."""
        return self.read_database(catalog.index_check)

    def last_request(self) -> catalog.RunRecord | None:
        """Return the paths and options of the last indexing run, as JSON values; None if no files have been indexed."""
        return self.read_database(catalog.last_request)

    @retried
    def status(self) -> dict[str, Any]:
        """Return the contents, index, embedder and settings of the store, as ``ragembed status --json`` prints them.

        Examples
        --------
        >>> status = store.status()
        >>> status["chunks"], status["format"]
        (3, 2)
        """
        with self.snapshot() as snapshot:
            connection = snapshot.connection
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
                "dim": snapshot.dim(),
                "raw_dim": catalog.meta(connection, "dim"),
                "language": catalog.analyzer_config(connection).language,
                "index": _index_status(connection),
                "segments": [
                    {"folder": record.files.folder, "rows": record.files.rows, "kind": record.files.kind}
                    for record in catalog.segments(connection)
                ],
                "postings": [
                    {"file": record.file, "chunks": record.chunks}
                    for record in derived.records(connection, derived.POSTINGS)
                ],
                "bytes": sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
                "embedder": described_embedder(connection),
                "fusion": stored_fusion(connection).to_dict(),
                "relevance": None if (model := stored_relevance(connection)) is None else model.to_dict(),
                "detected_language": catalog.detected_language(connection),
                "indexing": catalog.last_request(connection),
                "unfinished": bool(catalog.meta(connection, "unfinished", False)),
                **({} if (part := catalog.part(connection)) is None else {"part": asdict(part)}),
            }

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        status = self.status()
        kinds = sorted({segment["kind"] for segment in status["segments"]})
        rows = [
            ("Files", f"{status['files']:,}"),
            ("Chunks", f"{status['chunks']:,}"),
            ("Model", str(status["embedder"]["model"])),
            ("Dimension", str(status["dim"] or "–")),
            ("Index", ", ".join(kinds) or "none"),
            ("Generation", f"{status['generation']:,}"),
        ]
        return notebook_table(f"Store {self.path}", (), rows)

    # Writing

    @contextmanager
    def writer(self, wait_seconds: float = 0.0, *, locked: bool = False) -> Iterator[StoreWriter]:
        """Open the store for writing.

        Only one writer can be open at a time. Each method of the writer commits its changes in one transaction.

        Parameters
        ----------
        wait_seconds : float, default 0.0
            Maximum time in seconds to wait while another process writes. A negative number waits for ever.
        locked : bool, default False
            Whether the caller already holds the writer lock of the store.

        Raises
        ------
        StoreLockedError
            If another process writes for longer than ``wait_seconds``.
        StoreError
            If the store cannot be written.

        Examples
        --------
        >>> with store.writer() as writer:
        ...     writer.delete(["lock"])
        1
        """
        with nullcontext() if locked else writer_lock(self.path, wait_seconds):
            embedder = self.embedder
            try:
                with open_for_writing(self.path / DATABASE) as database:
                    yield StoreWriter(self.path, database, embedder, self.device)
            except sqlite3.DatabaseError as error:
                raise database_error(self.path, error) from error

    def add(
        self,
        chunks: Iterable[str | ChunkRecord],
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        wait_seconds: float = 0.0,
    ) -> list[str]:
        """Encode texts and add them as chunks; return their ids.

        Parameters
        ----------
        chunks : iterable of str or ChunkRecord
            Texts, or :class:`ChunkRecord` objects, which have their own ids and metadata.
        ids : sequence of str, optional
            One id for each text. A chunk with the same id is replaced. By default, the id is a hash of the text and its
            metadata, and adding the same text twice keeps one chunk.
        metadata : sequence of mappings, optional
            One mapping of JSON values for each text. Filters can select chunks by these values.
        wait_seconds : float, default 0.0
            As in :meth:`writer`, with the same error.

        Raises
        ------
        ConfigError
            If ``ids`` or ``metadata`` does not have one entry for each text, or is given with chunk records, or if a
            value cannot be stored.
        BudgetError
            If the store has outgrown its index, and no other index meets the budget.

        Examples
        --------
        >>> store.add(["Coffee is roasted before it is ground."], ids=["coffee"], metadata=[{"year": 2025}])
        ['coffee']
        """
        records = as_records(chunks, ids, metadata)
        with self.writer(wait_seconds) as writer:
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records)
            writer.merge()
            warn(writer.refresh_index())
        return [record.id for record in records]

    def delete(
        self,
        ids: Iterable[str] = (),
        *,
        paths: Iterable[str] = (),
        where: Where | None = None,
        wait_seconds: float = 0.0,
    ) -> int:
        """Delete chunks by id, by file or by filter; return their number.

        Parameters
        ----------
        ids : iterable of str, optional
            Ids of chunks. Unknown ids are ignored.
        paths : iterable of str, optional
            Names of files in the store, or of folders. A folder stands for all files below it. Unknown names are
            ignored.
        where : str or mapping, optional
            Filter, as in :meth:`search`. Every chunk that matches it is deleted.
        wait_seconds : float, default 0.0
            As in :meth:`writer`, with the same error.

        Raises
        ------
        ConfigError
            If the filter is invalid.
        BudgetError
            If a new index is needed, and none meets the budget.

        Warns
        -----
        IndexWarning
            If the index does not meet its budget or its recall any more.

        Examples
        --------
        >>> store.delete(["lock"], where="year = 2025")
        2
        """
        condition = None if where is None else parse(where)
        with self.writer(wait_seconds) as writer:
            deleted = writer.delete(list(ids), list(paths), condition)
            writer.merge()
            warn(writer.refresh_index())
        return deleted

    def count_selected(self, ids: Iterable[str] = (), *, paths: Iterable[str] = (), where: Where | None = None) -> int:
        """Return how many chunks :meth:`delete` would delete.

        Parameters
        ----------
        ids, paths, where : optional
            As in :meth:`delete`.
        """
        condition = None if where is None else parse(where)
        with self.snapshot() as snapshot:
            names = catalog.sources_below(snapshot.connection, list(paths))
            return len(catalog.selected_keys(snapshot.connection, list(ids), names, condition))

    def optimize(
        self, progress: Progress | bool | None = None, wait_seconds: float = 0.0, *, index: IndexConfig | None = None
    ) -> None:
        """Merge small segments, drop unused vectors, and return free space to the disk.

        Warn as :meth:`delete` does.

        Parameters
        ----------
        progress : bool or object, optional
            As in :func:`ragembed.index`.
        wait_seconds : float, default 0.0
            As in :meth:`writer`, with the same error.
        index : ragembed.indexes.IndexConfig, optional
            New settings for the index. None keeps the current ones.

        Raises
        ------
        BudgetError
            If no index meets the budget. The store keeps its index and settings.
        ConfigError
            If the index settings cannot be used.

        Examples
        --------
        >>> store.optimize()
        >>> store.status()["unused_vectors"]
        0
        """
        with self.writer(wait_seconds) as writer:
            warn(writer.optimize(index, progress_for(progress)))

    def copy(self, target: str | Path, wait_seconds: float = 0.0) -> None:
        """Copy the last commit of the store to another folder.

        Raise :class:`StoreError` if ``target`` holds other files, or cannot be written.

        Parameters
        ----------
        target : str or pathlib.Path
            Folder of the copy. A store in this folder is replaced.
        wait_seconds : float, default 0.0
            As in :meth:`writer`, with the same error, for either store.

        Examples
        --------
        >>> from ragembed import Store
        >>> store.copy("notes-copy")
        >>> with Store.open("notes-copy") as copy:
        ...     copy.ids()
        ['tea', 'lock', 'bird']
        """
        copy_store(self.path, Path(target), wait_seconds)

    def verify(
        self,
        progress: Progress | bool | None = None,
        *,
        repair: bool = False,
        trust_database: bool = False,
        wait_seconds: float = 0.0,
    ) -> Report:
        """Check every file and row of the store for damage; return what was found, repaired, and could not be checked.

        Raise :class:`IncompatibleStoreError` if another version of ragembed wrote the store in another format.

        Parameters
        ----------
        progress : bool or object, optional
            As in :func:`ragembed.index`.
        repair : bool, default False
            Whether to rebuild damaged parts that can be rebuilt.
        trust_database : bool, default False
            Whether a repair accepts database rows that do not match their digests, and a database with lost commits.
        wait_seconds : float, default 0.0
            As in :meth:`writer`, with the same error.

        Examples
        --------
        >>> store.verify().problems
        []
        """
        from ragembed.indexes.verification import verify_store

        return verify_store(
            self.path, self._given, progress, repair=repair, trust_database=trust_database, wait_seconds=wait_seconds
        )

    # Closing

    def close(self) -> None:
        """Close the database and the files. The next use of the store opens them again."""
        self.reader.close()
        self._states.clear()


def _require_encoder(embedder: object) -> None:
    if not (embedder is None or isinstance(embedder, VectorEncoder)):
        raise ConfigError(
            f"the embedder is a {type(embedder).__name__}: expected a fitted Embedder, or an object of a class that "
            "derives from ragembed.indexes.VectorEncoder"
        )


def _index_status(connection: sqlite3.Connection) -> dict[str, Any]:
    choice, check = catalog.index_choice(connection), catalog.index_check(connection)
    return {
        "wanted": catalog.index_config(connection).to_dict(),
        "choice": None if choice is None else choice.to_dict(),
        "check": None if check is None else check.to_dict(),
    }


class RunRecords:
    """Records of one namespace in a store. :meth:`ragembed.Store.run_records` returns them.

    A record says that a program wrote a chunk, when, and for which group. LangChain's indexing API uses such records.
    """

    def __init__(self, namespace: str, store: Store) -> None:
        self.namespace = namespace
        self._store = store

    def now(self) -> float:
        """Return the current time in seconds since 1970. It is later than the time of every record in the namespace."""
        return self._store.read_database(run_records.now, self.namespace)

    def noted(self, keys: Sequence[str]) -> set[str]:
        """Return the ids in ``keys`` that a run has recorded."""
        return self._store.read_database(run_records.noted, self.namespace, keys)

    def keys(
        self,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str | None] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return up to ``limit`` ids, oldest first, recorded between ``after`` and ``before`` for any of the groups.

        A chunk that an interrupted run wrote has no known group, so it matches every group.
        """
        wanted = before, after, group_ids, limit
        return self._store.read_database(run_records.listed, self.namespace, *wanted)

    def note(
        self, keys: Sequence[str], group_ids: Sequence[str | None] | None = None, wait_seconds: float = 0.0
    ) -> None:
        """Record the chunks ``keys``, those in the store, with the current time and the group of each, if it is given.

        Wait for other writers as :meth:`ragembed.Store.add` does.
        """
        with self._store.writer(wait_seconds) as writer:
            writer.write(run_records.note, self.namespace, keys, group_ids)

    def forget(self, keys: Sequence[str], wait_seconds: float = 0.0) -> None:
        """Delete the records of the chunks ``keys``; wait for a writer as :meth:`note` does."""
        with self._store.writer(wait_seconds) as writer:
            writer.write(run_records.forget, self.namespace, keys)
