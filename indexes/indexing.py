"""A folder of documents to a searchable store, and to the next state of it after edits.

Files are compared with the store and what differs is chunked (:mod:`scan`); token weights are fitted on the whole
corpus; batches are encoded and committed; at the end the post-processors are fitted on the raw vectors. Until then a
new store answers with unit-length raw vectors, so that an interrupted run leaves something to search.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragembed.config import EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError, StoreError
from ragembed.indexes.layout import file_path, is_store, source_path
from ragembed.indexes.lock import discard_lock, writer_lock
from ragembed.indexes.progress import Progress, Silent
from ragembed.indexes.records import ChunkRecord, SourceRecord, chunk_ids
from ragembed.indexes.scan import IndexingOptions, Scan, Scanner
from ragembed.indexes.spool import Spool
from ragembed.indexes.store import Store
from ragembed.indexes.writer import BATCH, StoreWriter

_PROVISIONAL_POSTPROCESS = ("normalize",)
_REFIT_GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class IndexingReport:
    """What one run did: names of files as kept in the store, chunks now in it, texts that the model encoded."""

    scan: Scan
    chunks: int
    encoded: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IndexingRequest:
    """What to index: ``paths`` and ``options`` left out are those of the store's last run.

    ``embedder`` is what a new store is made with, the default preset if left out; for a store that exists it must be
    what that was made with.
    """

    store: Path
    paths: tuple[Path, ...] = ()
    options: IndexingOptions | None = None
    embedder: EmbedderConfig | None = None


def stored_request(store: Path) -> tuple[tuple[Path, ...], IndexingOptions] | None:
    """Return the paths and options of the store's last run, None if there was none."""
    if not is_store(store):
        return None
    with Store.open(store) as opened:
        kept = opened.status()["indexing"]
    if kept is None:
        return None
    return tuple(file_path(name, store) for name in kept["paths"]), IndexingOptions.from_dict(kept["options"])


def index_files(
    request: IndexingRequest, progress: Progress | None = None, *, dry_run: bool = False, wait_seconds: float = 0.0
) -> IndexingReport:
    """Bring the store up to date with the files; with ``dry_run`` only tell what would be done.

    Interrupted at any moment, the store holds every batch finished before, and the next run carries on. Raises
    :class:`ConfigError` when there is nothing to index, :class:`StoreLockedError` when another process writes, and
    other errors of :mod:`ragembed.errors` for a store that cannot be used.
    """
    return _Run(request, progress or Silent()).run(dry_run, wait_seconds)


class _Run:
    """One run over one store."""

    def __init__(self, request: IndexingRequest, progress: Progress) -> None:
        self._started = time.monotonic()
        self._progress = progress
        self._store_path = request.store
        stored = stored_request(request.store)
        self._paths = request.paths or (stored[0] if stored else ())
        self._options = request.options or (stored[1] if stored else IndexingOptions())
        self._config = request.embedder
        if not self._paths:
            raise ConfigError("nothing to index: give a file or folder, as in: ragembed index docs/")

    def run(self, dry_run: bool, wait_seconds: float) -> IndexingReport:
        with Spool() as spool:
            if dry_run:
                _, scan = self._scan(spool)
                return IndexingReport(scan, spool.chunks, 0, time.monotonic() - self._started)
            with self._locked(wait_seconds):
                embedder, scan = self._scan(spool)
                if not is_store(self._store_path):
                    if not spool.files:
                        raise ConfigError(_nothing_to_read(self._paths, scan))
                    self._create(embedder, spool)
                with Store.open(self._store_path) as store:
                    with store.writer(locked=True) as writer:
                        encoded = self._write(writer, spool, scan)
                        self._fit(store, writer)
                        writer.merge()
                    return IndexingReport(scan, len(store), encoded, time.monotonic() - self._started)

    @contextmanager
    def _locked(self, wait_seconds: float) -> Iterator[None]:
        """Hold the writer lock from the first look at the files on; leave no folder where no store came to be."""
        try:
            self._store_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"no store can be made at {self._store_path}: {error.strerror or error}") from error
        try:
            with writer_lock(self._store_path, wait_seconds):
                yield
        finally:
            if not is_store(self._store_path):
                discard_lock(self._store_path)

    def _scan(self, spool: Spool) -> tuple[Embedder, Scan]:
        known: dict[str, SourceRecord] = {}
        if is_store(self._store_path):
            with Store.open(self._store_path) as store:
                embedder = self._stored_embedder(store)
                known = store.sources()
        else:
            embedder = Embedder(self._config)
        scanner = Scanner(self._store_path, self._options, known, embedder.tokenizer, embedder.max_tokens)
        return embedder, scanner.scan(self._paths, spool, self._progress)

    def _stored_embedder(self, store: Store) -> Embedder:
        embedder = store.embedder
        if not isinstance(embedder, Embedder):
            raise StoreError(
                f"the vectors of {self._store_path} are not ragembed's own: add to it from the program that made it"
            )
        wanted = self._config
        if wanted is not None and wanted.model != embedder.config.model:
            raise IncompatibleStoreError(
                f"the store {self._store_path} was made with the model {embedder.config.model}, not {wanted.model}: "
                "leave --model out, or choose another store with --store"
            )
        return embedder

    def _create(self, embedder: Embedder, spool: Spool) -> None:
        """Fit the token weights on all that was read, and make the store with a provisional chain."""
        self._progress.start("fitting", "chunks", spool.chunks)

        def texts() -> Iterator[str]:
            for _, chunks in spool:
                yield from (chunk.embedded_text for chunk in chunks)
                self._progress.advance(len(chunks))

        embedder.fit_weights(texts())
        self._progress.finish()
        provisional = embedder.with_postprocess(_PROVISIONAL_POSTPROCESS, "one")
        provisional.fit_chain(np.zeros((1, 1), dtype=np.float32), [])
        wanted = {"postprocess": list(embedder.config.postprocess), "sides": embedder.config.sides}
        Store.create(self._store_path, provisional, {"wanted": wanted}, locked=True).close()

    # Writing

    def _write(self, writer: StoreWriter, spool: Spool, scan: Scan) -> int:
        """Encode and commit the spool batch by batch; returns how many texts the model encoded."""
        self._keep_request(writer)
        encoded = 0
        self._progress.start("embedding", "chunks", spool.chunks)
        removed = scan.removed
        for batch in _batches(spool):
            texts = [chunk.embedded_text for _, chunks in batch for chunk in chunks]
            new = writer.stage(texts, self._progress.advance)
            self._progress.advance(len(texts) - new)
            encoded += new
            records = [
                ChunkRecord(chunk_id, chunk, source.path)
                for source, chunks in batch
                for chunk_id, chunk in zip(chunk_ids(source.path, chunks), chunks, strict=True)
            ]
            # What is gone goes with the first batch that comes, so that a moved file is never missing in between.
            writer.commit(chunks=records, sources=[source for source, _ in batch], removed_sources=removed)
            removed = []
        if removed:
            writer.commit(removed_sources=removed)
        self._progress.finish()
        writer.touch_sources(scan.touched)
        writer.set_skipped(scan.skipped, scan.roots)
        return encoded

    def _keep_request(self, writer: StoreWriter) -> None:
        before = writer.meta("indexing")
        paths = [source_path(path, self._store_path) for path in self._paths]
        kept = {
            "paths": list(dict.fromkeys([*(before["paths"] if before else []), *paths])),
            "options": self._options.to_dict(),
        }
        if kept != before:
            writer.set_meta({"indexing": kept})

    # Fitting

    def _fit(self, store: Store, writer: StoreWriter) -> None:
        """Fit the post-processors where they never were, or the corpus has at least doubled since."""
        current = self._stored_embedder(store)
        wanted = writer.meta("wanted")
        vectors = store.status()["vectors"] - store.status()["unused_vectors"]
        if vectors == 0 or not _needs_fit(current, wanted, vectors):
            return
        self._progress.start("fitting", "chunks", None)
        raw = _sample(writer, vectors, current.config.seed)
        fitted = current.with_postprocess(wanted["postprocess"], wanted["sides"])
        fitted.fit_chain(raw, (record.chunk.embedded_text for record in store.chunks()))
        writer.adopt(fitted)
        self._progress.finish()


def _needs_fit(current: Embedder, wanted: dict[str, object], vectors: int) -> bool:
    if [list(current.config.postprocess), current.config.sides] != [wanted["postprocess"], wanted["sides"]]:
        return True
    fitted = current.fitted_on.documents if current.fitted_on else 0
    return fitted < FIT_LIMIT and vectors >= _REFIT_GROWTH * fitted


def _sample(writer: StoreWriter, vectors: int, seed: int) -> NDArray[np.float32]:
    """Return raw vectors, float32, shape ``(n, d)``: all, or a seeded sample of ``FIT_LIMIT``."""
    keep = np.ones(vectors, dtype=bool)
    if vectors > FIT_LIMIT:
        keep[:] = False
        keep[np.random.default_rng(seed).choice(vectors, FIT_LIMIT, replace=False)] = True
    blocks, start = [], 0
    for rows, raw in writer.raw_blocks():
        blocks.append(raw[keep[start : start + len(rows)]].astype(np.float32))
        start += len(rows)
    return np.concatenate(blocks)


def _batches(spool: Spool) -> Iterator[list[tuple[SourceRecord, list[Chunk]]]]:
    """Yield whole files together until they have ``BATCH`` chunks."""
    batch: list[tuple[SourceRecord, list[Chunk]]] = []
    size = 0
    for source, chunks in spool:
        batch.append((source, chunks))
        size += len(chunks)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _nothing_to_read(paths: Sequence[Path], scan: Scan) -> str:
    where = ", ".join(str(path) for path in paths)
    if not scan.skipped:
        return f"nothing to index: there is no file to read in {where}; ragembed files --skipped says what was left out"
    name, reason = next(iter(scan.skipped.items()))
    return f"nothing to index: none of the {len(scan.skipped)} files in {where} can be read (first: {name}: {reason})"
