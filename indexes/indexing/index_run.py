"""Index a folder of documents into a new store, or update an existing store after edits.

A run compares files with the store and chunks the files that differ (:mod:`ragembed.indexes.indexing.scan`). For a new
store it fits the token weights on the whole corpus. It then encodes and commits the chunks in batches. At the end it
fits the post-processors on the raw vectors. Until then, a new store searches unit-length raw vectors, so you can search
the store after an interrupted run.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ragembed.corpus import grouped
from ragembed.documents.boilerplate import LineKeys, Stripper
from ragembed.documents.places import Place, exists
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError, StoreError
from ragembed.indexes.faiss_index.library import require_library
from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.file_writing import finish_store, slow_model, write_files
from ragembed.indexes.indexing.request import (
    IndexingOptions,
    IndexingRequest,
    mismatch,
    next_request,
    open_existing,
    require_same,
    require_whole,
    stored_request,
)
from ragembed.indexes.indexing.scan import Scan, Scanner
from ragembed.indexes.indexing.spool import Spool
from ragembed.indexes.lexical.analyzer import ENGLISH, stemmer
from ragembed.indexes.storage.folders import require_place
from ragembed.indexes.storage.layout import file_path, is_below, make_folder, require_writable, source_path
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.store import Store
from ragembed.indexes.types import Progress, SilentProgress, SourceRecord, text_hash
from ragembed.indexes.writing.boilerplate_store import STRIP, found_in, strip_all
from ragembed.indexes.writing.writer import BATCH
from ragembed.resources import configure_torch


@dataclass(frozen=True, slots=True)
class StageReport:
    """The work and cost of one stage: the number of tasks, and ``items``, the number of files or chunks processed.

    ``seconds`` is the duration of the stage, ``busy`` the total duration of its tasks, and ``memory`` the peak memory
    of one worker in MiB. Tasks that an earlier run completed are not counted.
    """

    stage: str
    tasks: int
    items: int
    seconds: float
    busy: float
    memory: float


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
    request: IndexingRequest, progress: Progress | None = None, *, dry_run: bool = False, wait_seconds: float = 0.0
) -> IndexingReport:
    """Update the store from the files of the request; with ``dry_run``, only report what would change.

    If the run is interrupted, the store keeps all completed batches, and the next run continues. Raises
    :class:`ConfigError` if there is nothing to index, :class:`StoreLockedError` if another process still writes after
    ``wait_seconds``, and other errors of :mod:`ragembed.errors` if the store cannot be used.
    """
    configure_torch()
    already_open = request.opened
    with open_existing(request.store, request.device) if already_open is None else nullcontext(already_open) as opened:
        require_whole(opened)
        run = IndexRun(request, opened, progress or SilentProgress())
        if dry_run:
            return run.preview([] if opened is None else [opened])
        return _create(run, wait_seconds) if opened is None else _update(run, opened, wait_seconds)


def _create(run: IndexRun, wait_seconds: float) -> IndexingReport:
    path, request = run.request.store, run.request
    # Create the folder of the store only if there is something to index.
    require_place(path)
    require_writable(path)
    embedder = run.embedder()
    with Spool() as spool:
        scan = run.scan(embedder, {}, spool)
        run.require_files(embedder, spool.files, scan)
        _fit(embedder, spool, run.stripper(spool.lines), run.progress)
        make_folder(path)
        with writer_lock(path, wait_seconds):
            new = fitting.without_fit(embedder)
            Store.create(path, new, wanted_meta(embedder), language=run.language, locked=True).close()
            with Store.open(path, new, device=request.device) as store:
                return _write(run, store, spool, scan, fitted=True)


def _update(run: IndexRun, opened: Store, wait_seconds: float) -> IndexingReport:
    with writer_lock(run.request.store, wait_seconds), Spool() as spool:
        scan = run.scan(run.embedder(opened), opened.sources(), spool)
        return _write(run, opened, spool, scan, fitted=False)


def _fit(embedder: Embedder, spool: Spool, stripper: Stripper, progress: Progress) -> None:
    """Fit the token weights and static vectors in one pass over the spool."""

    def texts() -> Iterator[str]:
        for source, chunks in spool:
            yield from (chunk.embedded_text for chunk in strip_all(stripper, source, chunks))
            progress.advance(len(chunks))

    progress.start("fitting", "chunks", spool.chunks)
    embedder.fit_extractor(texts())
    progress.finish()


def _write(run: IndexRun, store: Store, spool: Spool, scan: Scan, *, fitted: bool) -> IndexingReport:
    """Write the files into the store, fit its post-processors if needed, and finish it."""
    options, progress = run.options, run.progress
    before = store.index_choice(), store.index_check()
    with store.writer(locked=True) as writer:
        plan = writer.plan_stripping(spool.lines, scan.removed, options.boilerplate)
        former = writer.meta("indexing")
        if (request := next_request(former, scan.roots, scan.gone, options)) != former:
            writer.set_meta({"indexing": request})
        encoded, devices = write_files(store, writer, spool, scan, plan, progress)
        fit, warnings = fitting.fit_if_needed([(store, writer)], progress)
        if fit is not None:
            fit.adopt(writer, progress)
        warnings += finish_store(store, writer, options.boilerplate, run.request.index, progress)
        scan.warnings += [*warnings, *fitting.warn_if_outgrown(store)]
    scan.warnings += slow_model(store, encoded, fitted=fitted)
    choice, check = store.index_choice(), store.index_check()
    picked_now = choice != before[0] and check != before[1]  # an index that no longer fits is kept, not measured
    picked = (choice, check) if picked_now else (None, None)
    return IndexingReport(scan, len(store), encoded, run.seconds(), devices, *picked)


def wanted_meta(embedder: Embedder) -> dict[str, object]:
    """Return the JSON values of a new store whose post-processors are fitted at the end of the run."""
    return {"wanted": {"postprocess": list(embedder.config.postprocess), "query_fit": embedder.config.query_fit}}


class IndexRun:
    """A request, and the steps before a store is written; ``opened`` is a store whose last request completes it."""

    def __init__(self, request: IndexingRequest, opened: Store | None, progress: Progress) -> None:
        self._started = time.monotonic()
        self.request = request
        self.progress = progress
        stored = stored_request(opened)
        self.paths = request.paths or (stored[0] if stored else ())
        self.options = request.options or (stored[1] if stored else IndexingOptions())
        self.language = request.language or ENGLISH
        if request.index is not None:
            require_library(request.index.kind)
        if not self.paths:
            raise ConfigError("nothing to index: give a file or folder, as in 'ragembed index docs/'")

    def seconds(self) -> float:
        """Return the duration of the run so far."""
        return time.monotonic() - self._started

    def embedder(self, store: Store | None = None) -> Embedder:
        """Return the embedder of the store, which must have the requested settings; without a store, a new one."""
        config, path = self.request.embedder, self.request.store
        if store is None:
            stemmer(self.language)  # report an unknown language before reading any file
            return Embedder(config, device=self.request.device)
        embedder = store.embedder
        if not isinstance(embedder, Embedder):
            raise StoreError(
                f"cannot index files into {path}: its vectors were not made by ragembed; add documents with the "
                "program that created the store"
            )
        if config is not None:
            require_same(embedder, Embedder(config), store._wanted_chain(), path)
        if self.request.language not in (None, store.language):
            raise IncompatibleStoreError(mismatch(path, "language", store.language, self.request.language))
        return embedder

    def scanner(self, embedder: Embedder, known: Mapping[str, SourceRecord]) -> Scanner:
        """Return a scanner that compares files with those ``known``."""
        return Scanner(self.request.store, self.options, known, embedder.tokenizer, embedder.text_tokens)

    def scan(self, embedder: Embedder, known: Mapping[str, SourceRecord], spool: Spool) -> Scan:
        """Compare the files with those ``known``, and append the chunks of the files that differ to ``spool``."""
        paths, gone, notes = self.sort_paths(known)
        scan = self.scanner(embedder, known).scan(paths, gone, spool, self.progress)
        self.check(scan, notes)
        return scan

    def sort_paths(self, known: Mapping[str, SourceRecord]) -> tuple[list[Place], list[Place], list[str]]:
        """Return the paths to read, the paths whose files are to be removed, and notes on missing paths.

        The files of a missing path stay unless the request allows an empty path, because its disk may just not be
        mounted. A missing path that the request names and that has no files in the store is read, which raises an
        error; so is a URL that the request names and that cannot be accessed.
        """
        paths, gone, notes = [], [], []
        for path in self.paths:
            root = source_path(path, self.request.store)
            try:
                has_files = any(is_below(name, root) for name in known)
                if exists(path) or (self.request.paths and not has_files):
                    paths.append(path)
                elif self.request.allow_empty:
                    gone.append(path)
                else:
                    notes.append(f"{path} is missing: its files stay in the store{_to_remove(path)}")
            except OSError as error:
                if self.request.paths:
                    paths.append(path)
                else:
                    notes.append(f"{path} cannot be accessed: {error.strerror}; its files stay in the store")
        return paths, gone, notes

    def check(self, scan: Scan, notes: Sequence[str]) -> None:
        """Check a complete scan, keep the files of emptied paths, and add the ``notes`` of :meth:`sort_paths`."""
        include = self.options.include
        if include and scan.removed and not (scan.kept or scan.gone):
            raise ConfigError(
                f"no file matches --include {' '.join(include)}: this would remove {len(scan.removed):,} files from "
                "the store; expected a pattern that matches files, such as '*.md' (to remove files, run 'ragembed "
                "delete')"
            )
        emptied = [] if self.request.allow_empty else _keep_emptied(scan, self.request.store)
        scan.warnings += [*notes, *emptied]

    def require_files(self, embedder: Embedder, files: int, scan: Scan) -> None:
        """Raise :class:`ConfigError` if a new store would get no file; ``scan`` gets notes on the model."""
        if not files:
            raise ConfigError(_nothing_to_read(self.paths, scan))
        scan.warnings += fitting.notes_on_model(embedder)

    def stripper(self, lines: Mapping[str, tuple[str, LineKeys]]) -> Stripper:
        """Return the stripper of a new store with the given lines of its files."""
        return Stripper(found_in(lines) if self.options.boilerplate == STRIP else {})

    def preview(self, opened: Sequence[Store]) -> IndexingReport:
        """Report what the run would change and encode in the stores, without changing them.

        Texts that have a vector in a store, and repeated texts, are not encoded. The boilerplate of a new store is left
        out; that of existing ones is counted.
        """
        embedder = self.embedder(*opened[:1])
        with Spool() as spool:
            scan = self.scan(embedder, dict(chain.from_iterable(store.sources().items() for store in opened)), spool)
            if not opened:
                scan.warnings += fitting.notes_on_model(embedder)
            stripper = Stripper({}) if opened else self.stripper(spool.lines)
            framing = embedder.max_tokens - embedder.text_tokens
            counted: set[bytes] = set()
            tokens: list[int] = []
            files = ((source, strip_all(stripper, source, chunks)) for source, chunks in spool)
            for batch in grouped(files, lambda file: len(file[1]), BATCH):
                texts = {text_hash(chunk.embedded_text): chunk.embedded_text for _, chunks in batch for chunk in chunks}
                known = counted.union(*(store._encoded(texts) for store in opened))
                new = [text for key, text in texts.items() if key not in known]
                counted.update(texts)
                tokens += (embedder.tokenizer.ids(new).lengths + framing).tolist()
            return IndexingReport(
                scan, spool.chunks, 0, self.seconds(), tokens=sum(tokens), requests=_requests(embedder, tokens)
            )


def _requests(embedder: Embedder, tokens: Sequence[int]) -> int | None:
    """Return the number of requests to encode texts of these numbers of tokens, or None if there is no server."""
    if not embedder._is_external:
        return None
    from ragembed.models.served import requests

    return requests(tokens)


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


def _nothing_to_read(paths: Sequence[Place], scan: Scan) -> str:
    where = ", ".join(str(path) for path in paths)
    if not scan.skipped:
        command = f"ragembed files --skipped {shlex.join(str(path) for path in paths)}"
        return f"nothing to index: no file to read in {where}; to see skipped files, run '{command}'"
    name, reason = next(iter(scan.skipped.items()))
    if len(scan.skipped) == 1:
        return f"nothing to index: {name} is the only file found, and it was skipped: {reason}"
    return f"nothing to index: none of the {len(scan.skipped)} files in {where} can be read (first: {name}: {reason})"
