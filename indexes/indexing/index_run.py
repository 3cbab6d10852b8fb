"""Index a folder of documents into a new store, or update an existing store after edits: :func:`index_files`.

Until the post-processors are fitted at the end of its first run, a new store searches unit-length raw vectors, so you
can search the store after an interrupted run.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ragembed.corpus import blocks
from ragembed.documents.cutting import grouped
from ragembed.documents.model import Chunk
from ragembed.documents.readers.registry import named_reader, unread_reason
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.extras import is_installed
from ragembed.indexes.faiss_index.records import IndexEvaluation, IndexSelection, require_library
from ragembed.indexes.indexing import fitting
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
from ragembed.indexes.indexing.scan import ChunkedFiles, Scan, Scanner, Spool, check_scan, nothing_to_read, sort_paths
from ragembed.indexes.lexical.analyzer import ENGLISH, stemmer
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.folders import require_place
from ragembed.indexes.storage.layout import make_folder, require_writable
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.writer import BATCH, StoreWriter
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, SourceRecord, VectorEncoder, chunk_ids, text_hash
from ragembed.printable import counted
from ragembed.progress import Progress, SilentProgress, phase
from ragembed.resources import configure_torch, give_back
from ragembed.types import Floats
from ragembed.version import install_command

_KINDS = (
    (r"over the limit|the limit is|unpacks to more|more than [\d,]+ ", "{} too large"),
    (r"the package '(?P<package>[\w-]+)'", "{} without the package {}"),
    (r"no converter", "{} without a converter"),
    (r"contains no text", "{} without text"),
    (r"encrypted", "encrypted {}"),
    (r"minified", "minified files"),
    (r"a lock file|a source map|generated code", "generated files"),
    (r"symbolic link", "symbolic links"),
    (r"a named pipe|a socket|a device", "special files"),
    (r"cannot be (?:read|opened|accessed|listed)|not valid Unicode", "unreadable files"),
)
"""Patterns of reasons (the first that matches counts) and what is counted; ``{}`` is the kind of the file."""
_PLURAL = re.compile(r"(?:(?<=x)es|s)(?= |$)")


def skip_counts(skipped: Mapping[str, str]) -> str:
    """Return the numbers of skipped files by kind and reason, the most frequent first. ``skipped`` has the reasons."""
    counts = Counter(_kind(name, reason) for name, reason in skipped.items())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_PLURAL.sub('', kind, count=1) if count == 1 else kind}" for kind, count in ordered)


def _kind(name: str, reason: str) -> str:
    name = PurePosixPath(name).name
    unread = unread_reason(name)
    if reason == unread:
        return _noun(name)
    for pattern, kind in _KINDS:
        if match := re.search(pattern, reason):
            return kind.format(_noun(name), match.groupdict().get("package"))
    return f"broken {_noun(name)}"


def _noun(name: str) -> str:
    """Return the kind of a file in the plural, such as ``images`` and ``pdf files``."""
    what = re.search(r": (?:an? )?(.+?)(?: or .*?)?[;,]", unread_reason(name))
    if what is not None and not what[1].startswith("neither"):
        kind, of, whose = what[1].partition(" of ")
        return f"{kind.removesuffix('s')}{'es' if kind.endswith('x') else 's'}{of}{whose}"
    reader = named_reader(name)
    if reader is None:
        return "files of unknown format"
    return "archives" if reader.name in ("zip", "tar") else f"{reader.name} files"


MANY_TEXTS = 128
"""Number of encoded texts from which a run recommends to install PyTorch."""

PART, _SMALL_PART = 1 << 17, 1 << 15
"""Numbers of characters of texts that a model on the CPU encodes at once, in batches, and one text after the other.

An interruption loses the vectors of the part. In smaller ones, batches are not full. GPUs and other extractors encode
all texts quickly.
"""

_SERVED_PART = 64
"""Number of texts that a model behind a server encodes at once. Fewer paid vectors are lost in an interruption."""


def write_files(
    store: Store,
    writer: StoreWriter,
    files: ChunkedFiles,
    scan: Scan,
    progress: Progress,
    written: Mapping[str, SourceRecord] = MappingProxyType({}),
) -> tuple[int, tuple[str, ...]]:
    """Commit the words of ``files``, and the other changes of ``scan``; then encode what has no vector.

    Batches of files that are ``written`` already, by name, are left out. Return the number of texts that the model
    encoded, also of an interrupted run before, and PyTorch's names of the devices that did.
    """
    if files.chunks:
        writer.set_meta({"unfinished": True})
    progress.start("reading words", "chunks", files.chunks)
    for batch in grouped(files, lambda file: len(file[1]), BATCH):
        if not all(written.get(source.path) == source for source, _ in batch):
            _commit_words(writer, batch)
        progress.advance(sum(len(chunks) for _, chunks in batch))
    # Remove files last: a moved file is searchable at any moment.
    writer.commit(removed_sources=scan.removed)
    writer.touch_sources(scan.touched)
    writer.set_skipped(scan.skipped, scan.roots)
    progress.finish()
    writer.refresh_postings(progress)
    encoder = RunEncoder(store.embedder)
    encoded = writer.encode_waiting(encoder.parts, progress)
    if encoder.refused:
        texts = ((chunk.source, chunk.chunk.embedded_text) for chunk in store.chunks())
        counts = Counter(source for source, text in texts if text in encoder.refused)
        scan.warnings += [
            f"{source}: the server could not embed {counted(count, 'chunk')}; search by words finds the text"
            for source, count in counts.items()
        ]
    writer.merge()
    return encoded, encoder.devices if encoded else ()


def _commit_words(writer: StoreWriter, batch: Sequence[tuple[SourceRecord, Sequence[Chunk]]]) -> None:
    records = [
        ChunkRecord(chunk_id, chunk, source.path)
        for source, chunks in batch
        for chunk_id, chunk in zip(chunk_ids(source.path, chunks), chunks, strict=True)
    ]
    writer.commit(chunks=records, sources=[source for source, _ in batch])


class RunEncoder:
    """Encodes the documents of a run with ``embedder``, without PyTorch if importing it would take longer.

    The decision depends only on the number and length of the texts in a batch, and so do the parts in which the batch
    is encoded. ``devices`` are PyTorch's names of the devices that encoded texts, empty for an embedder from outside
    ragembed. ``refused`` are the texts for which a server gave the zero vector, or none.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self.devices: tuple[str, ...] = ()
        self.refused: set[str] = set()

    def parts(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of a batch in order, in parts that can be saved one by one."""
        embedder = self._embedder.refittable
        if embedder is None:
            yield self._embedder.raw_documents(texts, progress)
            return
        if embedder.is_remote:
            for part in blocks(texts, _SERVED_PART):
                vectors = embedder.raw_documents(part, progress)
                self.refused.update(text for text, row in zip(part, vectors, strict=True) if not row.any())
                yield vectors
            return
        without_torch = embedder.raw_without_framework(texts, progress)
        devices = ("cpu",) if without_torch is not None else embedder.device_names()
        self.devices = tuple(dict.fromkeys([*self.devices, *devices]))
        if without_torch is not None:
            yield without_torch
            return
        size = _SMALL_PART if embedder.encodes_one_by_one else PART
        parts: Iterable[Sequence[str]] = grouped(texts, len, size) if set(devices) == {"cpu"} else [texts]
        for some in parts:
            yield embedder.raw_documents(some, progress)
            give_back()


def finish_files(writer: StoreWriter) -> None:
    """Record that all files are written, and merge the segments."""
    if writer.meta("unfinished"):
        writer.set_meta({"unfinished": False})
    writer.merge()


def slow_model(store: Store, encoded: int, *, fitted: bool) -> list[str]:
    """Return a note if NumPy computed the model for many texts; ``fitted`` says if the run has fitted."""
    embedder = store.embedder.refittable
    if encoded < MANY_TEXTS or embedder is None or is_installed("openvino") or is_installed("torch"):
        return []
    if not (embedder.encodes_with_model or (fitted and embedder.fits_with_model)):
        return []
    return [f"the model ran with NumPy; PyTorch is faster: {install_command('torch')}"]


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


@dataclass(frozen=True, slots=True, repr=False)
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
    >>> ragembed.index("docs")  # doctest: +SKIP
    files: 1 added, 0 changed, 0 removed, 0 unchanged, 0 skipped; 12 chunks, 12 embedded on cpu; 0.4 s
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

    def __str__(self) -> str:
        scan, chunks = self.scan, counted(self.chunks, "chunk")
        if self.tokens is None:
            chunks += f", {self.encoded:,} embedded{' on ' if self.devices else ''}{', '.join(self.devices)}"
        elif self.requests is None:
            chunks += f" to process, {counted(self.tokens, 'token')} to encode"
        else:
            chunks += (
                f" to process, about {counted(self.tokens, 'token')} to send in {counted(self.requests, 'request')}: "
                "for the cost, multiply the tokens by the price of the provider"
            )
        return (
            f"{'' if self.tokens is None else 'dry run: '}files: {len(scan.added)} added, {len(scan.changed)} changed, "
            f"{len(scan.removed)} removed, {scan.unchanged} unchanged, {len(scan.skipped)} skipped; {chunks}; "
            f"{self.seconds:.1f} s"
        )

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, as ``ragembed index --json`` prints them."""
        scan = self.scan
        return {
            **{name: getattr(scan, name) for name in ("added", "changed", "removed", "unchanged")},
            "skipped": [{"path": name, "reason": reason} for name, reason in scan.skipped.items()],
            "warnings": scan.warnings,
            "index": None if self.picked is None else self.picked.to_dict(),
            "check": None if self.check is None else self.check.to_dict(),
            "chunks": self.chunks,
            "encoded": self.encoded,
            "devices": list(self.devices),
            "seconds": round(self.seconds, 3),
            "stages": [asdict(stage) for stage in self.stages],
            **({} if self.tokens is None else {"tokens": self.tokens, "requests": self.requests}),
        }

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

    If the run is interrupted, the store keeps all completed batches, and the next run continues.
    """
    configure_torch()
    with ExitStack() as stack:
        store = request.opened
        if store is None:
            store = stack.enter_context(open_existing(request.store, request.device))
        require_whole(store)
        run = IndexRun(request, store, progress or SilentProgress())
        if dry_run:
            return run.preview([] if store is None else [store])
        if store is not None:
            stack.enter_context(writer_lock(request.store, wait_seconds))
        embedder, spool = run.embedder(store), stack.enter_context(Spool())
        if store is not None:
            scan = run.scan(embedder, store.sources(), spool)
            return _write(run, store, spool, scan, is_new=False)
        require_place(request.store)
        require_writable(request.store)
        scan = run.scan(embedder, {}, spool)
        run.require_files(embedder, spool.chunks, scan)
        with phase(run.progress, "fitting", "chunks", spool.chunks):
            embedder.fit_extractor(fitting.counted_texts(spool.texts(), run.progress))
        store = stack.enter_context(_created(run, embedder, wait_seconds))
        return _write(run, store, spool, scan, is_new=True)


@contextmanager
def _created(run: IndexRun, embedder: Embedder, wait_seconds: float) -> Iterator[Store]:
    """Create the store and open it; the context holds its writer lock."""
    path, new = run.request.store, fitting.without_fit(embedder)
    make_folder(path)
    with writer_lock(path, wait_seconds):
        wanted = fitting.wanted_record(embedder.config)
        Store.create(path, new, wanted, language=run.language, locked=True).close()
        with Store.open(path, new, device=run.request.device) as store:
            yield store


def _write(run: IndexRun, store: Store, spool: Spool, scan: Scan, *, is_new: bool) -> IndexingReport:
    """Encode and commit the files, fit the post-processors on the raw vectors if needed, and finish the store."""
    options, progress = run.options, run.progress
    before = store.index_choice(), store.index_check()
    with store.writer(locked=True) as writer:
        former = writer.meta("indexing")
        if (record := next_request(former, scan.roots, scan.gone, options)) != former:
            writer.set_meta({"indexing": record})
        encoded, devices = write_files(store, writer, spool, scan, progress)
        fit, warnings = fitting.fit_if_needed([(store, writer)], progress)
        if fit is not None:
            fit.adopt(writer, progress)
        finish_files(writer)
        warnings += fitting.finish_store(store, writer, progress, index=run.request.index)
        writer.compact(progress)
        scan.warnings += [*warnings, *fitting.warn_if_outgrown(store)]
    scan.warnings += slow_model(store, encoded, fitted=is_new)
    choice, check = store.index_choice(), store.index_check()
    picked_now = choice != before[0] and check != before[1]  # an index that no longer fits is kept, not measured
    picked = (choice, check) if picked_now else (None, None)
    return IndexingReport(scan, len(store), encoded, time.monotonic() - run.started, devices, *picked)


class IndexRun:
    """A request, and the steps before a store is written; ``opened`` is a store whose last request completes it."""

    def __init__(self, request: IndexingRequest, opened: Store | None, progress: Progress) -> None:
        self.started = time.monotonic()
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

    def embedder(self, store: Store | None) -> Embedder:
        """Return the embedder of the store, which must have the requested settings; without a store, a new one."""
        config, path = self.request.embedder, self.request.store
        if store is None:
            stemmer(self.language)  # report an unknown language before reading any file
            return Embedder(config, device=self.request.device)
        remedy = "; add documents with the program that created the store"
        embedder = store.own_embedder("index files into", remedy)
        if config is not None:
            require_same(embedder, Embedder(config), store.wanted_config(), path)
        language = self.request.language
        if language is not None and language != store.language:
            raise IncompatibleStoreError(mismatch(path, "language", store.language, language))
        return embedder

    def scan(self, embedder: Embedder, stored_files: Mapping[str, SourceRecord], spool: Spool) -> Scan:
        """Compare the files with the ``stored_files``, and append the chunks of the files that differ to ``spool``."""
        request = self.request
        paths, gone, notes = sort_paths(self.paths, request, stored_files)
        scanner = Scanner(request.store, self.options, stored_files, embedder.tokenizer, embedder.text_tokens)
        scan = scanner.scan(paths, gone, spool, self.progress)
        scan.warnings += notes
        check_scan(scan, request, self.options.include)
        return scan

    def require_files(self, embedder: Embedder, chunks: int, scan: Scan) -> None:
        """Raise :class:`ConfigError` if a new store would get no file; ``scan`` gets notes on the model."""
        if not chunks:
            raise ConfigError(nothing_to_read(self.paths, scan))
        scan.warnings += fitting.notes_on_model(embedder)

    def preview(self, opened: Sequence[Store]) -> IndexingReport:
        """Report what the run would change and encode in the stores, without changing them.

        Texts that have a vector in a store, and repeated texts, are not encoded.
        """
        embedder = self.embedder(opened[0] if opened else None)
        with Spool() as spool:
            scan = self.scan(embedder, dict(chain.from_iterable(store.sources().items() for store in opened)), spool)
            if not opened:
                scan.warnings += fitting.notes_on_model(embedder)
            framing = embedder.max_tokens - embedder.text_tokens
            counted: set[bytes] = set()
            tokens: list[int] = []
            waiting = (text for store in opened for text in store.read_database(catalog.waiting_texts).values())
            for batch in blocks(chain(spool.texts(), waiting), BATCH):
                texts = {text_hash(text): text for text in batch}
                has_vector = counted.union(*(store.encoded(texts) for store in opened))
                new = [text for key, text in texts.items() if key not in has_vector]
                counted.update(texts)
                tokens += (embedder.tokenizer.ids(new).lengths + framing).tolist()
        requests = None
        if embedder.is_remote:
            from ragembed.models import served

            requests = served.requests(tokens)
        return IndexingReport(
            scan, spool.chunks, 0, time.monotonic() - self.started, tokens=sum(tokens), requests=requests
        )
