"""The store: a folder with the chunks of documents, their vectors and their words, that can be searched.

:class:`Store` is a facade: :mod:`ragembed.indexes.storage` has the database and the files,
:mod:`ragembed.indexes.search` reads them, :mod:`ragembed.indexes.writing` writes them. ``docs/reference/store-format.md``
describes the format.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, DimensionError, StoreError
from ragembed.files import make_folders, write_file
from ragembed.indexes.ann.choosing import Budget
from ragembed.indexes.ann.gpus import searching_gpus
from ragembed.indexes.ann.library import require_library
from ragembed.indexes.ann.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.ann.specs import AUTO
from ragembed.indexes.filters import Where, parse
from ragembed.indexes.search import search
from ragembed.indexes.search.fanout import Engine, segment_search
from ragembed.indexes.search.fusion import Fusion, stored_fusion
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.reader import Answer, SnapshotReader
from ragembed.indexes.search.search import Mode
from ragembed.indexes.search.snapshot import SegmentSearch, Snapshot
from ragembed.indexes.storage import catalog, run_records
from ragembed.indexes.storage.baseline import KEY as BASELINE
from ragembed.indexes.storage.baseline import save_first_baseline
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.storage.embedders import save_embedder
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
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.named_postings import named_postings
from ragembed.indexes.storage.run_records import Record, taken_out
from ragembed.indexes.storage.schema import FORMAT_VERSION, create_database
from ragembed.indexes.storage.transactions import database_error, open_for_writing
from ragembed.indexes.text.stemming import ENGLISH, AnalyzerConfig
from ragembed.indexes.types import ChunkRecord, Hit, Progress, SourceRecord, VectorEncoder, as_records
from ragembed.indexes.writing import boilerplate_store
from ragembed.indexes.writing.boilerplate_store import BoilerplateLine
from ragembed.indexes.writing.index_selection import warn
from ragembed.indexes.writing.writer import StoreWriter
from ragembed.types import Floats
from ragembed.version import __version__

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import Explanation
    from ragembed.indexes.search.why_not import WhyNot
    from ragembed.indexes.verify import Report


class Store:
    """A store on disk, opened for reading; :meth:`writer` opens it for writing.

    Any number of processes and threads may read while one writes: each search sees one whole generation. Use
    :meth:`create` and :meth:`open`, and close it or use it as a context manager.
    """

    def __init__(
        self,
        path: Path,
        embedder: VectorEncoder | None = None,
        device: str | None = None,
        search_device: str = "cpu",
        threads: int | None = None,
        searcher: SegmentSearch | None = None,
    ) -> None:
        self.path = path
        self._given = embedder
        self._device = device
        self._reader = SnapshotReader(path, embedder, device, threads, searching_gpus(search_device), searcher)

    @classmethod
    def create(
        cls,
        path: str | Path,
        embedder: VectorEncoder,
        meta: Mapping[str, object] | None = None,
        *,
        index: str = AUTO,
        budget: Budget | None = None,
        shards: int = 1,
        language: str = ENGLISH,
        locked: bool = False,
    ) -> Store:
        """Make an empty store at ``path`` for vectors of a fitted embedder, and keep the JSON values ``meta`` in it.

        ``index`` is the kind of FAISS index, by one of the names of ``docs/how-to/choose-an-index.md`` or a factory string;
        ``"auto"`` is what suits ``budget``, and exact below 50,000 vectors. The index is in ``shards`` parts, see
        ``docs/how-to/use-shards.md``. ``language`` decides on the stems that words are found by, as ``docs/how-to/search.md`` lists them.
        ``locked`` says that the caller holds the writer lock of the folder already. Raises :class:`StoreError` where
        the folder holds a store or anything else, or cannot be written, :class:`ConfigError` for an unknown kind or
        language and for less than one shard, :class:`MissingExtraError` where the language's stemmer is not installed.
        """
        path = require_place(path)
        words = AnalyzerConfig.of_language(language)
        wanted = IndexConfig(index, budget or Budget(), shards)
        require_library(index)
        about = {"index": wanted.to_dict(), "words": words.to_dict(), **(meta or {})}
        make_folder(path)
        with nullcontext() if locked else writer_lock(path):
            cls._create(path, embedder, about, language)
        return cls(path, embedder)

    @staticmethod
    def _create(path: Path, embedder: VectorEncoder, meta: Mapping[str, object], language: str) -> None:
        require_place(path)  # again, with the lock
        try:
            write_file(path / GITIGNORE, GITIGNORE_TEXT)  # first: it marks the folder as a store
            make_folders(path / SEGMENTS)
            make_folders(path / EMBEDDERS)
            about = {"embedder": save_embedder(path, embedder), "ragembed": __version__, **meta}
            about[BASELINE] = save_first_baseline(path, embedder)
            for suffix in (COMMITTED_SUFFIX, "-wal", "-shm", "-journal"):  # of a store whose database was deleted
                (path / (DATABASE + suffix)).unlink(missing_ok=True)
            create_database(path / DATABASE, about, language)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"no store can be made at {path}: {getattr(error, 'strerror', None) or error}") from error

    @classmethod
    def open(
        cls,
        path: str | Path,
        embedder: VectorEncoder | None = None,
        *,
        device: str | None = None,
        search_device: str = "cpu",
        threads: int | None = None,
        engine: Engine = "local",
        address: str | None = None,
        replicas: int = 1,
    ) -> Store:
        """Open the store at ``path``.

        Parameters
        ----------
        path
            Folder of the store.
        embedder
            Needed only where the store was made with one that is not ragembed's own; one that makes other raw vectors
            than the store's is refused when it is needed.
        device
            Where documents are encoded and indexes built: ``"cpu"``, ``"gpu"`` (every GPU), ``"gpu:0,2"``, or GPUs
            where there are any (None).
        search_device
            The same for searching, ``"auto"`` for GPUs where there are any. A copy of each index is kept in the memory
            of the GPUs; graphs cannot be, and searches under a filter stay on the CPU.
        threads
            Most threads that search at once, one or more; as many as FAISS takes if left out. One query is searched
            for in one thread in each of the large segments.
        engine
            Where vectors are searched: ``"local"``, in this process, or ``"ray"``, on actors of a Ray cluster that hold
            the shards of the index; see ``docs/how-to/use-shards.md``.
        address
            Of the Ray cluster's head node, as ``"HOST:PORT"``, or ``"auto"``; a node on this machine if left out and
            ``$RAY_ADDRESS`` names none.
        replicas
            How many actors hold the same vectors, so that as many queries are answered at once.

        Raises
        ------
        StoreNotFoundError, StoreDamagedError, IncompatibleStoreError
            If there is no store, or it cannot be used.
        GpuError
            If a GPU is missing.
        ConfigError
            For an unknown engine or device, and for fewer than one thread or replica.
        MissingExtraError, WorkerLostError
            If Ray is to search and is not installed, or the cluster cannot be reached.
        """
        path = require_store(Path(path))
        searcher = segment_search(path, engine, address, replicas, threads, search_device)
        try:
            return cls(path, embedder, device, search_device, threads, searcher)
        except BaseException:
            searcher.close()
            raise

    def read(self, answer: Callable[[], Answer]) -> Answer:
        """Return ``answer()``; everything that it reads from this store is of one generation.

        ``answer`` is called again if a writer removed files of that generation, so it must have no effects. Reads in
        other threads are not included.
        """
        return self._reader.read(lambda _: answer())

    # Searching

    def search(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
    ) -> list[Hit]:
        """Return the best ``k`` chunks for a query, best first; see :class:`ragembed.indexes.Hit` for scores.

        ``mode`` is ``"dense"`` (cosine), ``"lexical"`` (BM25) or ``"hybrid"`` (both fused). ``where`` selects the
        chunks that are searched, by an expression as in ``"ext = 'md'"`` or a dictionary of LangChain's form; see
        ``docs/reference/filters.md``. ``fusion`` says how the two are fused; the store has its own if left out. ``ranking`` folds
        near-duplicates, reranks the best, and the like; by default none of this is done. See ``docs/how-to/search.md``.
        """
        return self.search_many([query], k, mode, where=where, fusion=fusion, ranking=ranking)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
    ) -> list[list[Hit]]:
        """Answer several queries at once, each as :meth:`search` does, all from one generation of the store."""
        if isinstance(queries, str):
            raise ConfigError(f"queries is the text {queries[:40]!r}: expected a list of texts; ask one with search")
        condition = None if where is None else parse(where)
        asked = list(queries)

        def answer(snapshot: Snapshot) -> list[list[Hit]]:
            fused = fusion or stored_fusion(snapshot.connection)
            return search.search(snapshot, asked, k, mode, condition, fused, ranking)

        return self._reader.read(answer)

    @property
    def fusion(self) -> Fusion:
        """How hybrid search fuses scores if a search does not say: as tuned, else the defaults of :class:`Fusion`."""
        return self._reader.read(lambda snapshot: stored_fusion(snapshot.connection))

    def explain(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        ranking: RankingOptions | None = None,
    ) -> list[Explanation]:
        """Return what :meth:`search` does, each hit with the terms of its score; see ``docs/how-to/explain-results.md``."""
        from ragembed.indexes.search.explain import explain

        condition = None if where is None else parse(where)

        def answer(snapshot: Snapshot) -> list[Explanation]:
            fused = fusion or stored_fusion(snapshot.connection)
            return explain(snapshot, query, k, mode, condition, fused, ranking)

        return self._reader.read(answer)

    def why_not(
        self, query: str, source: str, k: int = 10, mode: Mode = "hybrid", *, fusion: Fusion | None = None
    ) -> WhyNot:
        """Return where the file called ``source`` in the store comes for a query, and what it lacks.

        It is compared with the best ``k`` chunks. Raises :class:`ragembed.errors.ConfigError` for a file that is not in
        the store; the message says whether it was skipped, and why.
        """
        from ragembed.indexes.search.why_not import why_not

        def answer(snapshot: Snapshot) -> WhyNot:
            return why_not(snapshot, query, source, k, mode, fusion or stored_fusion(snapshot.connection))

        return self._reader.read(answer)

    def search_vector(self, vector: Floats, k: int = 10, *, where: Where | None = None) -> list[Hit]:
        """Return the ``k`` chunks nearest to a query vector, shape ``(d,)``, by cosine, best first.

        ``where`` selects the chunks that are searched, as in :meth:`search`.
        """
        return self.search_vectors(_one_vector(vector)[None, :], k, where=where)[0]

    def search_vectors(self, vectors: Floats, k: int = 10, *, where: Where | None = None) -> list[list[Hit]]:
        """Return for each query vector, shape ``(n, d)``, what :meth:`search_vector` does."""
        vectors = np.asarray(vectors, dtype=np.float32)
        condition = None if where is None else parse(where)
        if not vectors.size and vectors.shape[:1] == (0,):
            return []
        if vectors.ndim != 2:
            raise DimensionError(f"the query vectors have shape {vectors.shape}: expected one vector a row")

        def answer(snapshot: Snapshot) -> list[list[Hit]]:
            self._require_dimension(snapshot, vectors)
            return search.search_vectors(snapshot, vectors, k, condition)

        return self._reader.read(answer)

    def search_mmr(
        self,
        query: str,
        k: int = 10,
        *,
        fetch_k: int = 50,
        lambda_mult: float = 0.5,
        where: Where | None = None,
    ) -> list[Hit]:
        """Return ``k`` chunks that are near a query and unlike each other, by maximal marginal relevance.

        They are chosen among the ``fetch_k`` nearest by cosine; ``lambda_mult`` is from 0 (unlike each other) to 1
        (near the query). Hits come in the order in which they are chosen, with their cosines as scores.
        """
        condition = None if where is None else parse(where)

        def answer(snapshot: Snapshot) -> list[Hit]:
            vector = snapshot.embedder().encode_queries([query])[0]
            return search.search_mmr(snapshot, vector, k, fetch_k, lambda_mult, condition)

        return self._reader.read(answer)

    def search_mmr_vector(
        self,
        vector: Floats,
        k: int = 10,
        *,
        fetch_k: int = 50,
        lambda_mult: float = 0.5,
        where: Where | None = None,
    ) -> list[Hit]:
        """Return what :meth:`search_mmr` does, for a query vector, shape ``(d,)``."""
        vector = _one_vector(vector)
        condition = None if where is None else parse(where)

        def answer(snapshot: Snapshot) -> list[Hit]:
            self._require_dimension(snapshot, vector[None, :])
            return search.search_mmr(snapshot, vector, k, fetch_k, lambda_mult, condition)

        return self._reader.read(answer)

    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of the chunks ``ids``, float32, shape ``(n, d)``; an unknown id is a KeyError."""

        def answer(snapshot: Snapshot) -> Floats:
            rows = catalog.rows_of_ids(snapshot.connection, ids)
            return snapshot.vectors([rows[chunk_id] for chunk_id in ids])

        return self._reader.read(answer)

    def _require_dimension(self, snapshot: Snapshot, vectors: Floats) -> None:
        if (dim := snapshot.dim()) not in (None, vectors.shape[1]):
            raise DimensionError(
                f"the query vector has shape {vectors.shape[1:]}, the store {self.path} holds vectors of dimension "
                f"{dim}"
            )

    # Looking in

    def __len__(self) -> int:
        return self._reader.read(lambda snapshot: catalog.count(snapshot.connection, "chunks"))

    def get(self, ids: Sequence[str]) -> list[ChunkRecord]:
        """Return the chunks with these ids, in the order asked; unknown ids are left out."""
        found = self._reader.read(lambda snapshot: catalog.chunks_by_id(snapshot.connection, ids))
        return [found[chunk_id] for chunk_id in dict.fromkeys(ids) if chunk_id in found]

    def chunks(self, source: str | None = None, *, where: Where | None = None) -> Iterator[ChunkRecord]:
        """Yield the chunks in order of insertion, all or those of one file, and of these those ``where`` selects."""
        condition = None if where is None else parse(where)
        with self._reader.snapshot() as snapshot:
            yield from catalog.iterate_chunks(snapshot.connection, source, condition)

    def embedded_texts(self) -> Iterator[str]:
        """Yield the text that each chunk's vector is made of, in order of insertion."""
        with self._reader.snapshot() as snapshot:
            yield from catalog.embedded_texts(snapshot.connection)

    def ids(self) -> list[str]:
        """Return the ids of the chunks in order of insertion."""
        return self._reader.read(lambda snapshot: catalog.chunk_ids(snapshot.connection))

    def run_records(self, namespace: str) -> RunRecords:
        """Return what programs that synchronise documents have noted in ``namespace`` about the chunks they wrote."""
        return RunRecords(namespace, self._reader, self.writer)

    def _all_run_records(self) -> list[Record]:
        """Return the records of indexing runs in every namespace, for :meth:`StoreWriter.take_run_records`."""
        return self._reader.read(lambda snapshot: taken_out(snapshot.connection))

    def sources(self) -> dict[str, SourceRecord]:
        """Return the files in the store by name."""
        return self._reader.read(lambda snapshot: catalog.sources(snapshot.connection))

    def boilerplate(self) -> list[BoilerplateLine]:
        """Return the lines that many files repeat and that are left out of what is searched, most repeated first."""
        return self._reader.read(lambda snapshot: boilerplate_store.stored(snapshot.connection))

    @property
    def unfinished(self) -> bool:
        """Whether the last run over files was interrupted."""
        return bool(self._reader.read(lambda snapshot: catalog.meta(snapshot.connection, "unfinished", False)))

    @property
    def generation(self) -> int:
        """How many changes have been committed."""
        return int(self._reader.read(lambda snapshot: catalog.meta(snapshot.connection, "generation", 0)))

    @property
    def _resume_token(self) -> str | None:
        """What a run in stages that was interrupted has left to be known again by, None where there was none."""
        found: str | None = self._reader.read(lambda snapshot: catalog.meta(snapshot.connection, "work"))
        return found

    def _wanted_chain(self) -> tuple[tuple[str, ...], QueryFit]:
        """Return the post-processors and query fit of the finished store; an unfinished first run has others."""

        def answer(snapshot: Snapshot) -> tuple[tuple[str, ...], QueryFit]:
            embedder = snapshot.embedder()
            made = (
                embedder.config
                if isinstance(embedder, Embedder)
                else EmbedderConfig(postprocess=(), query_fit="shared")
            )
            wanted = catalog.meta(snapshot.connection, "wanted", {})
            return tuple(wanted.get("postprocess", made.postprocess)), wanted.get("query_fit", made.query_fit)

        return self._reader.read(answer)

    @property
    def language(self) -> str:
        """The language that decides on the stems that words are found by."""
        return self._reader.read(lambda snapshot: catalog.analyzer_config(snapshot.connection).language)

    @property
    def wanted_index(self) -> IndexConfig:
        """What is asked of the index."""
        return self._reader.read(lambda snapshot: catalog.index_config(snapshot.connection))

    def index_choice(self) -> IndexSelection | None:
        """Return the index that was picked and why, None where none was."""
        return self._reader.read(lambda snapshot: catalog.index_choice(snapshot.connection))

    def index_check(self) -> IndexEvaluation | None:
        """Return the last measurement of the index, None where there was none."""
        return self._reader.read(lambda snapshot: catalog.index_check(snapshot.connection))

    def last_request(self) -> dict[str, Any] | None:
        """Return the paths that were indexed and the options of the last run, None where no file was indexed."""
        found: dict[str, Any] | None = self._reader.read(lambda snapshot: catalog.meta(snapshot.connection, "indexing"))
        return found

    def status(self) -> dict[str, Any]:
        """Return what is in the store, and what made it, as JSON values."""

        def answer(snapshot: Snapshot) -> dict[str, Any]:
            connection = snapshot.connection
            return {
                "path": str(self.path),
                "format": FORMAT_VERSION,
                "ragembed": catalog.meta(connection, "ragembed"),
                "generation": catalog.meta(connection, "generation", 0),
                "files": catalog.count(connection, "sources"),
                "skipped": catalog.skipped(connection),
                "chunks": catalog.count(connection, "chunks"),
                "boilerplate": boilerplate_store.status(connection),
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
                    {"folder": record.files.folder, "chunks": record.files.chunks}
                    for record in named_postings(connection)
                ],
                "bytes": sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
                "embedder": catalog.embedder(connection),
                "fusion": stored_fusion(connection).to_dict(),
                "indexing": catalog.meta(connection, "indexing"),
                "unfinished": bool(catalog.meta(connection, "unfinished", False)),
            }

        return self._reader.read(answer)

    @property
    def embedder(self) -> VectorEncoder:
        """The embedder of the current generation; raises :class:`IncompatibleStoreError` where it cannot be loaded."""
        return self._reader.read(lambda snapshot: snapshot.embedder())

    # Writing

    @contextmanager
    def writer(self, wait_seconds: float = 0.0, *, locked: bool = False) -> Iterator[StoreWriter]:
        """Open the store for writing, alone.

        ``locked`` says that the caller holds the store's writer lock already. Raises :class:`StoreLockedError` where
        another process holds it for longer than ``wait_seconds``.
        """
        with nullcontext() if locked else writer_lock(self.path, wait_seconds):
            embedder = self.embedder
            try:
                with open_for_writing(self.path / DATABASE) as database:
                    yield StoreWriter(self.path, database, embedder, self._device)
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
        """Add texts or chunk records, encoding their texts, and return their ids.

        Parameters
        ----------
        chunks
            Texts, or :class:`ChunkRecord` objects, which have ids and metadata of their own.
        ids
            An id for each text; a hash of the text and its metadata if left out, so that adding a text twice keeps one.
            A chunk whose id is in the store replaces the one there.
        metadata
            A mapping of JSON values for each text, which filters can select by.
        wait_seconds
            How long to wait while another process writes to the store.

        Raises
        ------
        ConfigError
            If ``ids`` or ``metadata`` are not as many as the texts, or given with chunk records.
        StoreLockedError
            If another process writes for longer than ``wait_seconds``.
        BudgetError
            If the store has outgrown its index, and no other index meets the limits that were asked for.
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
        """Delete chunks by id, files by name in the store (a folder's for all below it), and what ``where`` selects.

        Returns how many chunks went. Unknown ids and names are no error. Warns and raises as :meth:`optimize` does.
        """
        condition = None if where is None else parse(where)
        with self.writer(wait_seconds) as writer:
            deleted = writer.delete(list(ids), list(paths), condition)
            writer.merge()
            warn(writer.refresh_index())
        return deleted

    def count_selected(self, ids: Iterable[str] = (), *, paths: Iterable[str] = (), where: Where | None = None) -> int:
        """Return how many chunks :meth:`delete` would delete."""
        condition = None if where is None else parse(where)
        chosen = list(ids), list(paths)

        def answer(snapshot: Snapshot) -> int:
            names = catalog.sources_below(snapshot.connection, chosen[1])
            return len(catalog.selected_keys(snapshot.connection, chosen[0], names, condition))

        return self._reader.read(answer)

    def optimize(
        self, progress: Progress | None = None, wait_seconds: float = 0.0, *, index: IndexConfig | None = None
    ) -> None:
        """Join small segments, drop what no chunk uses, and give the space back to the disk.

        ``index`` asks for another index than before. Warns with :class:`ragembed.errors.IndexWarning` where the index
        finds less than is wanted. Raises :class:`ragembed.errors.BudgetError` where none meets what is asked for; the
        store keeps the one that it has.
        """
        with self.writer(wait_seconds) as writer:
            warn(writer.optimize(index, progress))

    def copy(self, target: str | Path, wait_seconds: float = 0.0) -> None:
        """Write a copy of the store, as of its last commit, to the folder ``target``, in place of a store there.

        Raises :class:`StoreError` where there is something else at ``target``, or it cannot be written.
        """
        copy_store(self.path, Path(target), wait_seconds)

    def verify(
        self,
        progress: Progress | None = None,
        *,
        repair: bool = False,
        trust_database: bool = False,
        wait_seconds: float = 0.0,
    ) -> Report:
        """Check the whole store; see :func:`ragembed.indexes.verify.verify_store`."""
        from ragembed.indexes.verify import verify_store

        return verify_store(
            self.path,
            self._given,
            progress,
            repair=repair,
            trust_database=trust_database,
            wait_seconds=wait_seconds,
        )

    # Closing

    def close(self) -> None:
        """Close the database and let go of the mapped files; the next use opens them again."""
        self._reader.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _index_status(connection: sqlite3.Connection) -> dict[str, Any]:
    choice, check = catalog.index_choice(connection), catalog.index_check(connection)
    return {
        "wanted": catalog.index_config(connection).to_dict(),
        "choice": None if choice is None else choice.to_dict(),
        "check": None if check is None else check.to_dict(),
    }


def _one_vector(vector: Floats) -> Floats:
    vector = np.asarray(vector, dtype=np.float32)
    if vector.ndim != 1:
        raise DimensionError(f"the query vector has shape {vector.shape}: expected one dimension")
    return vector


class RunRecords:
    """The records of one namespace in a store; see :meth:`ragembed.indexes.Store.run_records`."""

    def __init__(
        self, namespace: str, reader: SnapshotReader, writer: Callable[[float], AbstractContextManager[StoreWriter]]
    ) -> None:
        self.namespace = namespace
        self._reader = reader
        self._writer = writer

    def now(self) -> float:
        """Return the time, in seconds since 1970; it is later than that of every record."""
        return self._reader.read(lambda snapshot: run_records.now(snapshot.connection, self.namespace))

    def noted(self, keys: Sequence[str]) -> set[str]:
        """Return those of ``keys`` that a run has taken note of."""
        return self._reader.read(lambda snapshot: run_records.noted(snapshot.connection, self.namespace, keys))

    def keys(
        self,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str | None] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return keys by time, at most ``limit``: updated before and after these times, of any of these groups.

        The group of a chunk that a killed run wrote is not known, so it counts to each.
        """
        wanted = before, after, group_ids, limit
        return self._reader.read(lambda snapshot: run_records.listed(snapshot.connection, self.namespace, *wanted))

    def note(
        self, keys: Sequence[str], group_ids: Sequence[str | None] | None = None, wait_seconds: float = 0.0
    ) -> None:
        """Take note of ``keys`` as of now; those that are no chunk's are left out.

        Without ``group_ids``, one for each key, groups stay as they are.
        """
        with self._writer(wait_seconds) as writer:
            writer.note_run(self.namespace, keys, group_ids)

    def forget(self, keys: Sequence[str], wait_seconds: float = 0.0) -> None:
        """Delete the records of ``keys``."""
        with self._writer(wait_seconds) as writer:
            writer.forget_run(self.namespace, keys)
