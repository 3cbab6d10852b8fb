"""Index a folder of documents into a new store, or update an existing store after edits.

A run compares files with the store and chunks the files that differ (:mod:`ragembed.indexes.indexing.scan`). For a new
store it fits the token weights on the whole corpus. It then encodes and commits the chunks in batches. At the end it
fits the post-processors on the raw vectors. Until then, a new store searches unit-length raw vectors, so you can search
the store after an interrupted run.
"""

from __future__ import annotations

import json
import shlex
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragembed.corpus import grouped
from ragembed.documents.boilerplate import Stripper
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place, exists
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError, StoreError, StoreLockedError
from ragembed.extras import is_installed
from ragembed.indexes.ann.library import require_library
from ragembed.indexes.ann.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.backend import (
    ChunkedFiles,
    IndexingBackend,
    LocalBackend,
    Present,
    RunEncoder,
    Sources,
    StageReport,
)
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.request import (
    IndexingRequest,
    mismatch,
    open_existing,
    require_same,
    require_whole,
    stored_request,
)
from ragembed.indexes.indexing.scan import IndexingOptions, Scan
from ragembed.indexes.storage.folders import require_place
from ragembed.indexes.storage.layout import WORK, file_path, is_below, make_folder, require_writable, source_path
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.work_folder import WorkFolder
from ragembed.indexes.store import Store
from ragembed.indexes.text.stemming import ENGLISH, stemmer
from ragembed.indexes.types import ChunkRecord, Progress, SilentProgress, SourceRecord, chunk_ids, text_hash
from ragembed.indexes.writing.boilerplate_store import STRIP, StrippingPlan, found_in, restripped, strip_all
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.resources import configure_torch

MANY_TEXTS = 128
"""Number of encoded texts from which a run recommends to install PyTorch."""


@dataclass(frozen=True, slots=True)
class IndexingReport:
    """The result of an indexing run.

    Parameters
    ----------
    scan : Scan
        The files that were added, changed, removed and skipped, with their names in the store, and warnings.
    chunks : int
        Number of chunks in the store. After a dry run: number of chunks in the files that differ from the store.
    encoded : int
        Number of texts that the model encoded.
    seconds : float
        Duration of the run.
    devices : tuple of str
        PyTorch's names of the devices that encoded documents.
    picked : IndexSelection or None
        The index, if the run chose a new one.
    check : IndexEvaluation or None
        The measurement of the new index, if any.
    stages : tuple of StageReport
        The stages of a run with several workers.
    tokens : int or None
        After a dry run: number of tokens to encode, with template and special tokens; estimated for a model behind a
        server.
    requests : int or None
        After a dry run: approximate number of requests to the server; None if there is none.

    Examples
    --------
    >>> import ragembed
    >>> report = ragembed.index("docs")  # doctest: +SKIP
    >>> report.scan.added, report.chunks  # doctest: +SKIP
    (['docs/guide.md'], 12)
    """

    scan: Scan
    chunks: int
    encoded: int
    seconds: float
    devices: tuple[str, ...] = ()
    picked: IndexSelection | None = None
    check: IndexEvaluation | None = None
    stages: tuple[StageReport, ...] = ()
    tokens: int | None = None
    requests: int | None = None

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        scan = self.scan
        counts = {name: len(getattr(scan, name)) for name in ("added", "changed", "removed", "skipped")}
        rows = [(f"Files {name}", f"{count:,}") for name, count in counts.items()]
        rows += [("Chunks", f"{self.chunks:,}"), ("Texts encoded", f"{self.encoded:,}")]
        return notebook_table(f"Indexing, {self.seconds:.1f} s", (), rows)


def index_files(
    request: IndexingRequest,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
    backend: IndexingBackend | None = None,
) -> IndexingReport:
    """Update the store from the files of the request; with ``dry_run``, only report what would change.

    ``backend`` reads, fits and encodes; by default this process does. If the run is interrupted, the store keeps all
    completed batches, and the next run continues. Raises :class:`ConfigError` if there is nothing to index,
    :class:`StoreLockedError` if another process still writes after ``wait_seconds``, and other errors of
    :mod:`ragembed.errors` if the store cannot be used.
    """
    progress, backend = progress or SilentProgress(), backend or LocalBackend()
    already_open = request.opened
    configure_torch()
    with open_existing(request.store, request.device) if already_open is None else nullcontext(already_open) as opened:
        require_whole(opened)
        return IndexRun(request, opened, progress, backend).run(dry_run, wait_seconds)


class IndexRun:
    """A single run; ``opened`` is the store, or None if it does not exist yet."""

    def __init__(
        self, request: IndexingRequest, opened: Store | None, progress: Progress, backend: IndexingBackend
    ) -> None:
        self._started = time.monotonic()
        self._progress = progress
        self._backend = backend
        self._store_path = request.store
        self._opened = opened
        stored = stored_request(opened)
        self._paths = request.paths or (stored[0] if stored else ())
        self._options = request.options or (stored[1] if stored else IndexingOptions())
        self._config = request.embedder
        self._index = request.index
        if self._index is not None:
            require_library(self._index.kind)
        self._device = request.device
        self._language = request.language
        self._allow_empty = request.allow_empty
        self._explicit_paths = bool(request.paths)
        self._fitted = False
        if not self._paths:
            raise ConfigError("nothing to index: give a file or folder, as in 'ragembed index docs/'")

    def run(self, dry_run: bool, wait_seconds: float) -> IndexingReport:
        """Perform the run; see :func:`index_files`."""
        with self._backend:
            if dry_run:
                embedder, chunked, scan = self._scan()
                tokens, requests = self._work(embedder, chunked)
                return IndexingReport(scan, chunked.chunks, 0, self._seconds(), tokens=tokens, requests=requests)
            return self._perform(wait_seconds)

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _perform(self, wait_seconds: float) -> IndexingReport:
        if self._opened is not None:
            with writer_lock(self._store_path, wait_seconds):
                _, chunked, scan = self._scan()
                return self._update(self._opened, chunked, scan)
        # Create the folder of the store only if there is something to index.
        require_place(self._store_path)
        require_writable(self._store_path)
        embedder, chunked, scan = self._scan()
        provisional, meta = self._fit_new(embedder, chunked, scan)
        make_folder(self._store_path)
        with writer_lock(self._store_path, wait_seconds):
            language = self._language or ENGLISH
            Store.create(self._store_path, provisional, meta, language=language, locked=True).close()
            with Store.open(self._store_path, provisional, device=self._device) as store:
                return self._update(store, chunked, scan)

    def _fit_new(self, embedder: Embedder, chunked: ChunkedFiles, scan: Scan) -> tuple[Embedder, Mapping[str, object]]:
        """Fit the extractor on the files of a new store. Return the embedder and the JSON values that it begins with.

        Its post-processors are fitted at the end of the run.
        """
        if not chunked.files:
            raise ConfigError(_nothing_to_read(self._paths, scan))
        stripper = Stripper(found_in(chunked.lines) if self._options.boilerplate == STRIP else {})
        self._backend.fit(embedder, stripper, self._progress)
        self._fitted = True
        wanted = {"postprocess": list(embedder.config.postprocess), "query_fit": embedder.config.query_fit}
        return fitting.without_fit(embedder), {"wanted": wanted, **self._resume_meta()}

    def _work(self, embedder: Embedder, chunked: ChunkedFiles) -> tuple[int, int | None]:
        """Return the number of tokens to encode, and of requests to a server if the embedder needs one.

        Texts that have a vector in the store, and repeated texts, are not encoded. The boilerplate of a new store is
        left out; that of an existing store is counted.
        """
        strips = self._opened is None and self._options.boilerplate == STRIP
        stripper = Stripper(found_in(chunked.lines) if strips else {})
        framing = embedder.max_tokens - embedder.text_tokens
        counted: set[bytes] = set()
        tokens: list[int] = []
        files = ((source, strip_all(stripper, source, chunks)) for source, chunks in chunked)
        for batch in grouped(files, lambda file: len(file[1]), BATCH):
            texts = {text_hash(chunk.embedded_text): chunk.embedded_text for _, chunks in batch for chunk in chunks}
            known = counted | self._encoded(texts)
            new = [text for key, text in texts.items() if key not in known]
            counted.update(texts)
            tokens += (embedder.tokenizer.ids(new).lengths + framing).tolist()
        if not embedder._is_external:
            return sum(tokens), None
        from ragembed.models.served import requests

        return sum(tokens), requests(tokens)

    def _encoded(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return the text hashes that have a vector already."""
        return set() if self._opened is None else self._opened._encoded(hashes)

    def _resume_meta(self) -> dict[str, object]:
        return {} if self._backend.resume_token is None else {"work": self._backend.resume_token}

    def _scan(self) -> tuple[Embedder, ChunkedFiles, Scan]:
        present = self._present()
        paths, gone, notes = self._sort_paths(present.sources)
        sources = Sources(self._store_path, self._options, present, paths, gone)
        chunked, scan = self._backend.scan(sources, self._progress)
        if self._options.include and scan.removed and not (scan.kept or scan.gone):
            raise ConfigError(
                f"no file matches --include {' '.join(self._options.include)}: this would remove "
                f"{len(scan.removed):,} files from the store; expected a pattern that matches files, such as '*.md' "
                "(to remove files, run 'ragembed delete')"
            )
        if not self._allow_empty:
            notes.extend(_keep_emptied(scan, self._store_path))
        scan.warnings.extend(notes)
        if self._opened is None:
            scan.warnings.extend(fitting.notes_on_model(present.embedder))
        return present.embedder, chunked, scan

    def _present(self) -> Present:
        if (store := self._opened) is not None:
            return Present(self._stored_embedder(store), store.sources(), store.generation, store._resume_token)
        stemmer(self._language or ENGLISH)  # report an unknown language before reading any file
        return Present(Embedder(self._config, device=self._device))

    def _sort_paths(self, known: Mapping[str, SourceRecord]) -> tuple[list[Place], list[Place], list[str]]:
        """Return the paths to read, the paths whose files are to be removed, and notes on missing paths.

        The files of a missing path stay unless the request allows an empty path, because its disk may just not be
        mounted. A missing path that the request names and that has no files in the store is read, which raises an
        error; so is a URL that the request names and that cannot be accessed.
        """
        paths, gone, notes = [], [], []
        for path in self._paths:
            root = source_path(path, self._store_path)
            try:
                has_files = any(is_below(name, root) for name in known)
                if exists(path) or (self._explicit_paths and not has_files):
                    paths.append(path)
                elif self._allow_empty:
                    gone.append(path)
                else:
                    notes.append(f"{path} is missing: its files stay in the store{_to_remove(path)}")
            except OSError as error:
                if self._explicit_paths:
                    paths.append(path)
                else:
                    notes.append(f"{path} cannot be accessed: {error.strerror}; its files stay in the store")
        return paths, gone, notes

    def _stored_embedder(self, store: Store) -> Embedder:
        embedder = store.embedder
        if not isinstance(embedder, Embedder):
            raise StoreError(
                f"cannot index files into {self._store_path}: its vectors were not made by ragembed; add documents "
                "with the program that created the store"
            )
        if self._config is not None:
            require_same(embedder, Embedder(self._config), store._wanted_chain(), self._store_path)
        if self._language not in (None, store.language):
            raise IncompatibleStoreError(mismatch(self._store_path, "language", store.language, self._language))
        return embedder

    def _update(self, store: Store, chunked: ChunkedFiles, scan: Scan) -> IndexingReport:
        before = store.index_choice(), store.index_check()
        with store.writer(locked=True) as writer:
            plan = self._plan(writer, chunked, scan)
            encoded = self._write(store, writer, chunked, scan, plan)
            encoder = RunEncoder(store.embedder)
            encoded += self._write_stripped(store, writer, plan, encoder)
            scan.warnings.extend(self._finish(store, writer))
        scan.warnings.extend(self._slow_model(store, encoded))
        if self._backend.resume_token is None:
            _sweep_work(self._store_path)
        choice, check = store.index_choice(), store.index_check()
        picked_now = choice != before[0] and check != before[1]  # an index that no longer fits is kept, not measured
        picked = (choice, check) if picked_now else (None, None)
        devices = tuple(dict.fromkeys((*self._backend.devices, *encoder.devices))) if encoded else ()
        return IndexingReport(
            scan,
            len(store),
            encoded,
            self._seconds(),
            devices,
            *picked,
            stages=tuple(self._backend.reports),
        )

    def _plan(self, writer: StoreWriter, chunked: ChunkedFiles, scan: Scan) -> StrippingPlan:
        return writer.plan_stripping(chunked.lines, scan.removed, self._options.boilerplate)

    def _finish(self, store: Store, writer: StoreWriter) -> list[str]:
        """Fit the post-processors if needed, and finish the store; return warnings."""
        fit, warnings = fitting.fit_if_needed([(store, writer)], self._progress)
        if fit is not None:
            fit.adopt(writer, self._progress)
        warnings += finish_store(store, writer, self._options.boilerplate, self._index, self._progress)
        return [*warnings, *fitting.warn_if_outgrown(store)]

    def _slow_model(self, store: Store, encoded: int) -> list[str]:
        """Return a note if NumPy, not PyTorch, computed the model for many texts."""
        embedder = store.embedder
        if encoded < MANY_TEXTS or not isinstance(embedder, Embedder) or is_installed("torch"):
            return []
        if not (embedder._encodes_with_model or (self._fitted and embedder._fits_with_model)):
            return []
        return ["the model ran with NumPy; PyTorch is faster: pip install 'ragembed[torch]'"]

    # Writing

    def _write(self, store: Store, writer: StoreWriter, chunked: ChunkedFiles, scan: Scan, plan: StrippingPlan) -> int:
        """Encode and commit the chunked files in batches; return the number of texts that the model encoded."""
        self._keep_request(writer, scan)
        resumed = self._backend.resume_token is not None and writer.meta("work") == self._backend.resume_token
        written = store.sources() if resumed else {}
        if chunked.files or plan.again:
            writer.set_meta({"unfinished": True, **self._resume_meta()})
        writer.keep_lines(plan.uncounted)
        if chunked.files and isinstance(store.embedder, Embedder):
            self._backend.prepare(store.embedder, plan.stripper, writer.known, self._progress)
        encoded = 0
        self._progress.start(self._backend.writing, "chunks", chunked.chunks)
        files = ((source, strip_all(plan.stripper, source, chunks)) for source, chunks in chunked)
        for batch in grouped(files, lambda file: len(file[1]), BATCH):
            texts = [chunk.embedded_text for _, chunks in batch for chunk in chunks]
            if all(written.get(source.path) == source for source, _ in batch):
                self._progress.advance(len(texts))
                self._progress.keep(len(texts))
                continue
            commit, before = _FileCommits(writer, self._progress, chunked, batch), writer.last_segment()
            new = writer.stage(texts, self._progress.advance, encode=self._backend.encode, saved=commit)
            self._progress.advance(len(texts) - new)
            encoded += new
            writer.merge_since(before, BATCH)
            writer.merge()
        # Remove files last: a moved file is searchable at any moment.
        writer.commit(removed_sources=scan.removed)
        self._progress.finish()
        writer.touch_sources(scan.touched)
        writer.set_skipped(scan.skipped, scan.roots)
        return encoded

    def _write_stripped(self, store: Store, writer: StoreWriter, plan: StrippingPlan, encode: RunEncoder) -> int:
        """Update the searchable text of chunks in unchanged files if boilerplate changed.

        Return the number of texts that the model encoded.
        """
        encoded = 0
        self._progress.start("embedding", "chunks", None)
        files = (restripped(plan.stripper, list(store.chunks(path))) for path in plan.again)
        for group in grouped(files, len, BATCH):
            batch = [record for records in group for record in records]
            texts = [record.chunk.embedded_text for record in batch]
            encoded += writer.stage(texts, self._progress.advance, encode=encode.parts)
            writer.search_by(batch)
            writer.merge()
        self._progress.finish()
        if (lines := plan.lines()) != plan.before:
            writer.keep_boilerplate(lines)
        return encoded

    def _keep_request(self, writer: StoreWriter, scan: Scan) -> None:
        before = writer.meta("indexing")
        request = self._request_after(before, scan)
        if request != before:
            writer.set_meta({"indexing": request})

    def _request_after(self, before: Mapping[str, Any] | None, scan: Scan) -> dict[str, Any]:
        """Return the record of the paths and options for the next run."""
        paths = dict.fromkeys([*(before["paths"] if before else []), *scan.roots])
        remaining = [name for name in paths if name not in scan.gone]
        # JSON turns tuples into lists, as in the record to compare with.
        request: dict[str, Any] = json.loads(json.dumps({"paths": remaining, "options": self._options.to_dict()}))
        return request


def finish_store(
    store: Store,
    writer: StoreWriter,
    boilerplate: str,
    index: IndexConfig | None,
    progress: Progress,
    *,
    for_collection: bool = False,
) -> list[str]:
    """Finish a store whose files are written and whose post-processors are fitted; return warnings.

    ``boilerplate`` is the mode of the run, and ``index`` are new requirements for the index, if any. ``for_collection``
    is that of :meth:`StoreWriter.refresh_index`.
    """
    done = writer.done_stripping(boilerplate)
    if writer.meta("unfinished") or writer.meta("boilerplate") != done:
        writer.set_meta({"unfinished": False, "work": None, "boilerplate": done})
    writer.merge()
    warnings = writer.refresh_index(index, progress, for_collection=for_collection)
    return [*warnings, *calibrate(store, writer, progress)]


class _FileCommits:
    """Commits the files of a batch as soon as all of their chunks have vectors."""

    def __init__(
        self,
        writer: StoreWriter,
        progress: Progress,
        chunked: ChunkedFiles,
        batch: Sequence[tuple[SourceRecord, Sequence[Chunk]]],
    ) -> None:
        self._writer = writer
        self._progress = progress
        self._lines = chunked.lines
        self._waiting = deque(batch)
        self._saved = self._committed = 0

    def __call__(self, saved: int) -> None:
        """Commit the files whose chunks are among the first ``saved`` chunks of the batch."""
        self._progress.keep(saved - self._saved)
        self._saved = saved
        files = []
        while self._waiting and self._committed + len(self._waiting[0][1]) <= saved:
            files.append(self._waiting.popleft())
            self._committed += len(files[-1][1])
        records = [
            ChunkRecord(chunk_id, chunk, source.path)
            for source, chunks in files
            for chunk_id, chunk in zip(chunk_ids(source.path, chunks), chunks, strict=True)
        ]
        lines = {source.path: self._lines[source.path][1] for source, _ in files}
        self._writer.commit(chunks=records, sources=[source for source, _ in files], lines=lines)


def _keep_emptied(scan: Scan, store: Path) -> list[str]:
    """Keep the files of each path in which none of its files exists, and return notes on these paths."""
    notes = []
    for root, missing in scan.emptied(store).items():
        place = file_path(root, store)
        scan.kept.update(missing)
        notes.append(f"{place} has none of its {len(missing):,} files: they stay in the store{_to_remove(place)}")
    scan.removed = [name for name in scan.removed if name not in scan.kept]
    return notes


def _to_remove(place: Place) -> str:
    return (
        ", because its disk may not be mounted; to remove them, run "
        f"'ragembed index {shlex.quote(str(place))} --allow-empty'"
    )


def _sweep_work(store: Path) -> None:
    """Remove the files of an interrupted run with workers, unless such a run is active."""
    work = WorkFolder(store / WORK)
    if work.is_ours():
        with suppress(StoreLockedError):
            with writer_lock(work.path, work=True):
                work.clear()
            work.leave(remove=True)


def _nothing_to_read(paths: Sequence[Place], scan: Scan) -> str:
    where = ", ".join(str(path) for path in paths)
    if not scan.skipped:
        command = f"ragembed files --skipped {shlex.join(str(path) for path in paths)}"
        return f"nothing to index: no file to read in {where}; to see skipped files, run '{command}'"
    name, reason = next(iter(scan.skipped.items()))
    if len(scan.skipped) == 1:
        return f"nothing to index: {name} is the only file found, and it was skipped: {reason}"
    return f"nothing to index: none of the {len(scan.skipped)} files in {where} can be read (first: {name}: {reason})"
