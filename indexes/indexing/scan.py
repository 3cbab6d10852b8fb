"""Compare files with a store, and read and chunk the files that are new or changed."""

from __future__ import annotations

import hashlib
import json
import logging
import shlex
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from ragembed.documents import chunking
from ragembed.documents.chunking import BATCH_CHARACTERS, Chunker, short_texts
from ragembed.documents.cutting import grouped
from ragembed.documents.discovery import BINARY_SUFFIXES, FileCandidate, discover, size_reason
from ragembed.documents.model import Chunk, ParsedDocument
from ragembed.documents.normalisation import normalised_file
from ragembed.documents.places import Place, RemotePath, exists
from ragembed.documents.readers import only_document_errors, read
from ragembed.documents.readers.registry import PLAIN, READERS, named_reader
from ragembed.errors import ConfigError, DocumentError, MissingExtraError
from ragembed.extractors.protocol import Tokenizer
from ragembed.extras import is_installed
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest
from ragembed.indexes.storage.layout import NamesInStore, file_path, is_below, source_path
from ragembed.indexes.types import SourceRecord, storable_time
from ragembed.printable import printable_line
from ragembed.progress import Progress, SilentProgress
from ragembed.types import Spans

_SOURCE, _CHUNK = ([column.name for column in fields(record)] for record in (SourceRecord, Chunk))

_SMALL = 1 << 14
"""Largest file, in bytes, whose documents are in memory together with those of other files."""

_LARGE = 4 << 20
"""Smallest file, in bytes, whose progress is shown."""

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Scan:
    """The files that an indexing run compared with the store, by their names in the store.

    ``touched`` files have only a new time, ``skipped`` has the reasons, ``gone`` are ``roots`` that no longer exist,
    ``kept`` is in the store after the run, and ``unseen`` are places that cannot be accessed now.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    touched: list[SourceRecord] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    unseen: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, paths: Sequence[Place], gone: Sequence[Place], store: Path) -> Scan:
        """Return an empty scan of ``paths``, and of the paths ``gone``, which no longer exist."""
        roots, gone_roots = ([source_path(path, store) for path in places] for places in (paths, gone))
        return cls(roots=[*roots, *gone_roots], gone=gone_roots)

    def add(self, other: Scan) -> None:
        """Add the results of a scan of other files."""
        for name in ("added", "changed", "touched", "warnings", "unseen"):
            getattr(self, name).extend(getattr(other, name))
        self.unchanged += other.unchanged
        self.skipped.update(other.skipped)
        self.kept |= other.kept

    def emptied(self, store: Path) -> dict[str, list[str]]:
        """Return the paths in which none of their files exists, with the names of these files."""
        missing_by_root = {}
        for root in self.roots:
            missing = [name for name in self.removed if is_below(name, root)]
            if not missing or any(is_below(name, root) for name in self.kept):
                continue
            files = (file_path(name, store) for name in missing)
            if isinstance(file_path(root, store), RemotePath) or not any(exists(file) for file in files):
                missing_by_root[root] = missing  # Otherwise they are left out on purpose, for example by --exclude.
        return missing_by_root

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {**asdict(self), "kept": sorted(self.kept)}


def sort_paths(
    paths: Sequence[Place], request: IndexingRequest, stored_files: Mapping[str, SourceRecord]
) -> tuple[list[Place], list[Place], list[str]]:
    """Return the paths to read, the paths whose files are to be removed, and notes on missing paths.

    The files of a missing path stay unless the request allows an empty path, because its disk may just not be mounted.
    """
    present, gone, notes = [], [], []
    for path in paths:
        root = source_path(path, request.store)
        try:
            if exists(path) or (request.paths and not any(is_below(name, root) for name in stored_files)):
                present.append(path)
            elif request.allow_empty:
                gone.append(path)
            else:
                notes.append(f"{path} is missing: its files stay in the store{_to_remove(path)}")
        except OSError as error:
            if request.paths:
                present.append(path)
            else:
                notes.append(f"{path} cannot be accessed: {error.strerror}; its files stay in the store")
    return present, gone, notes


def check_scan(scan: Scan, request: IndexingRequest, include: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if ``include`` would remove all files; keep the files of paths that were emptied."""
    if include and scan.removed and not (scan.kept or scan.gone):
        raise ConfigError(
            f"no file matches --include {' '.join(include)}: this would remove {len(scan.removed):,} files from "
            "the store; expected a pattern that matches files, such as '*.md' (to remove files, run 'ragembed delete')"
        )
    if request.allow_empty or not scan.removed:
        return
    for root, missing in scan.emptied(request.store).items():
        place = file_path(root, request.store)
        scan.kept.update(missing)
        scan.warnings.append(
            f"{place} has none of its {len(missing):,} files: they stay in the store{_to_remove(place)}"
        )
    scan.removed = [name for name in scan.removed if name not in scan.kept]


def _to_remove(place: Place) -> str:
    return (
        ", because its disk may not be mounted; to remove them, run "
        f"'ragembed index {shlex.quote(str(place))} --allow-empty'"
    )


def nothing_to_read(paths: Sequence[Place], scan: Scan) -> str:
    """Return the error message for paths without any file to index."""
    where = ", ".join(map(str, paths))
    if not scan.skipped:
        command = f"ragembed files --skipped {shlex.join(map(str, paths))}"
        return f"nothing to index: no file to read in {where}; to see skipped files, run '{command}'"
    name, reason = next(iter(scan.skipped.items()))
    if len(scan.skipped) == 1:
        return f"nothing to index: {name} is the only file found, and it was skipped: {reason}"
    return f"nothing to index: none of the {len(scan.skipped)} files in {where} can be read (first: {name}: {reason})"


class ChunkedFiles(ABC):
    """Chunked files to write into a store, in the order of the scan, with the number of their ``chunks``."""

    chunks: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield each file and its chunks."""

    def texts(self) -> Iterator[str]:
        """Yield the embedded text of each chunk."""
        return (chunk.embedded_text for _, chunks in self for chunk in chunks)


class Spool(ChunkedFiles):
    """Chunked files in a temporary file, or in ``file``, which is kept: memory use does not grow with the corpus."""

    def __init__(self, file: Path | None = None) -> None:
        opened = tempfile.TemporaryFile("w+b") if file is None else file.open("w+b")  # noqa: SIM115  closed by __exit__
        # ASCII: JSON escapes keep lone surrogates in a text, which UTF-8 cannot encode.
        self._file = TextIOWrapper(opened, encoding="ascii", newline="\n")

    def append(self, line: str, chunks: int) -> None:
        """Append a file whose chunks :func:`spool_line` has serialised."""
        self._file.write(line)
        self.chunks += chunks

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        self._file.seek(0)
        return spooled(self._file)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def spool_line(source: SourceRecord, chunks: Sequence[Chunk]) -> str:
    """Serialise a file and its chunks; raise :class:`ValueError` for values that a store cannot keep.

    ``asdict`` would copy the fields, which takes a fifth of the time of reading a table.
    """
    record = {name: getattr(source, name) for name in _SOURCE}
    return (
        json.dumps([record, [{name: getattr(chunk, name) for name in _CHUNK} for chunk in chunks]], allow_nan=False)
        + "\n"
    )


def spooled(lines: Iterable[str]) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
    """Yield each file and its chunks from serialised lines."""
    for source, chunks in map(json.loads, lines):
        yield SourceRecord(**source), [Chunk(**{**chunk, "headings": tuple(chunk["headings"])}) for chunk in chunks]


class Scanner:
    """Reads and chunks the files that differ from the store.

    ``known`` are the files in the store by name. The ``pipeline_hash`` of a file changes with every setting that
    affects its chunks.
    """

    def __init__(
        self,
        store: Path,
        options: IndexingOptions,
        known: Mapping[str, SourceRecord],
        tokenizer: Tokenizer,
        text_tokens: int,
    ) -> None:
        self._store = store
        self._options = options
        self._known = known
        limits = options.chunking(text_tokens)
        self._chunker = Chunker(limits, tokenizer.offsets)
        self._reading = reading = options.reading()
        self._settings = [chunking.VERSION, asdict(limits), reading.text_columns, reading.title_column]
        self._names = NamesInStore(store)

    def scan(self, paths: Sequence[Place], gone: Sequence[Place], spool: Spool, progress: Progress) -> Scan:
        """Compare all files below ``paths`` with the store and append the new and changed files to ``spool``.

        ``gone`` are paths that no longer exist; their files are removed from the store.
        """
        result = Scan.of(paths, gone, self._store)
        progress.start("reading", "files", None)
        for group in grouped(self.waiting(paths, result, progress), lambda file: file.size, BATCH_CHARACTERS):
            self.read(group, result, spool, progress)
            if any(candidate.size >= _LARGE for candidate in group):
                progress.start("reading", "more files", None)
            progress.advance(len(group))
        self.finish(result)
        progress.finish()
        return result

    def waiting(self, paths: Sequence[Place], result: Scan, progress: Progress) -> Iterator[FileCandidate]:
        """Yield the files below ``paths`` that must be read, and record all other files in ``result``."""
        for candidate in discover(paths, self._options):
            name = source_path(candidate.path, self._store) if candidate.is_dir else self._names.of(candidate.path)
            if candidate.skipped is not None:
                if not candidate.ignored:
                    result.skipped[name] = candidate.skipped
                    if candidate.unseen:
                        result.unseen.append(name)
            elif self._is_unchanged(candidate, name):
                result.unchanged += 1
                result.kept.add(name)
            else:
                yield candidate
                continue
            progress.advance(1)

    def finish(self, result: Scan) -> None:
        """Record in ``result`` the files to remove from the store; call after all files are compared."""
        result.removed = [
            name
            for name in self._known
            if name not in result.kept
            and any(is_below(name, root) for root in result.roots)
            # Files in places that cannot be accessed now may still exist.
            and not any(is_below(name, place) for place in result.unseen)
        ]

    def name_of(self, candidate: FileCandidate) -> str:
        """Return the name of a file in the store."""
        return self._names.of(candidate.path)

    def uses_other_reader(self, candidate: FileCandidate, stored: SourceRecord) -> bool:
        """Return whether other settings or another reader than today's made the chunks of the ``stored`` file."""
        return stored.pipeline_hash != self._pipeline_hash(candidate)

    def _is_unchanged(self, candidate: FileCandidate, name: str) -> bool:
        stored = self._known.get(name)
        now = candidate.size, candidate.mtime_ns
        return (
            stored is not None
            and (stored.size, stored.mtime_ns) == now
            and stored.pipeline_hash == self._pipeline_hash(candidate)
        )

    def _pipeline_hash(self, candidate: FileCandidate) -> str:
        reader = named_reader(candidate.path.name) or PLAIN  # the scan has already skipped binary files
        settings = self._container_settings if reader.contains_files else json.dumps(self._settings)
        return hashlib.sha256(f"{settings}:{reader.name}:{reader.version}".encode()).hexdigest()[:16]

    @cached_property
    def _container_settings(self) -> str:
        """The settings for a container: its documents depend on the rules for members and on installed readers."""
        options = self._options
        versions = [
            [reader.name, reader.version, reader.package is None or is_installed(reader.package)] for reader in READERS
        ]
        return json.dumps([*self._settings, options.exclude, options.hidden, options.max_bytes, versions])

    def read(
        self, candidates: Iterable[FileCandidate], result: Scan, spool: Spool, progress: Progress | None = None
    ) -> None:
        """Read files, append those that differ from the store to ``spool``, and record all of them in ``result``.

        Small text files are in memory together, because tokenising their texts together is faster. A large file is a
        phase of ``progress``.
        """
        progress = progress or SilentProgress()
        opened = []
        for candidate in candidates:
            if candidate.size >= _LARGE:
                name = printable_line(self._names.of(candidate.path))
                progress.start(f"reading {name}", "bytes", candidate.size)
                progress.advance(0)
            with self._recorded(self._names.of(candidate.path), result):
                if (file := self._open(candidate, result)) is not None:
                    opened.append(file)
        chunker = self._chunker.knowing(text for file in opened for text in file.short_texts)
        for file in opened:
            name, entry = file.source.path, None
            used = _counted(chunker, file.source.size, progress) if file.source.size >= _LARGE else chunker
            with self._recorded(name, result):
                parts = map(chunker.split, file.documents) if file.short_texts else [used.split_all(file.documents)]
                chunks = list(chain.from_iterable(parts))
                if not chunks:
                    raise DocumentError("contains no text")
                entry = spool_line(file.source, normalised_file(chunks)), len(chunks)
            if entry is not None:  # A full disk ends the run.
                spool.append(*entry)
                result.kept.add(name)
                (result.added if name not in self._known else result.changed).append(name)

    def _open(self, candidate: FileCandidate, result: Scan) -> _OpenFile | None:
        """Read a file, and parse it if it is small; return None if it is unchanged, recorded in ``result``."""
        name = self._names.of(candidate.path)
        stored = self._known.get(name)
        pipeline_hash = self._pipeline_hash(candidate)
        data, mtime_ns = candidate.read()
        source = SourceRecord(
            name, len(data), storable_time(mtime_ns or 0), hashlib.sha256(data).hexdigest(), pipeline_hash
        )
        if stored is not None and (stored.sha256, stored.pipeline_hash) == (source.sha256, pipeline_hash):
            result.unchanged += 1
            if source != stored:
                result.touched.append(source)
            result.kept.add(name)
            return None
        if reason := size_reason(len(data), self._options.max_bytes):
            raise DocumentError(reason)  # some servers do not report sizes before the download
        options = replace(self._reading, on_warning=lambda message: result.warnings.append(f"{name}: {message}"))
        documents = read(candidate.path.name, data, options)
        if len(data) > _SMALL or candidate.path.suffix.lower() in BINARY_SUFFIXES:
            return _OpenFile(source, documents)
        parsed = list(documents)
        return _OpenFile(source, parsed, [text for document in parsed for text in short_texts(document)])

    @contextmanager
    def _recorded(self, name: str, result: Scan) -> Iterator[None]:
        """Record an error that concerns only the file ``name`` in ``result``."""
        try:
            with only_document_errors():
                yield
        except OSError as error:
            result.skipped[name] = f"cannot be read: {error.strerror or error}"
            result.kept.add(name)
        except MissingExtraError as error:
            result.skipped[name] = str(error)
            result.kept.add(name)
        except (DocumentError, ConfigError) as error:
            _LOG.debug("%s is skipped: %s", name, error, exc_info=error)
            result.skipped[name] = str(error)


def _counted(chunker: Chunker, size: int, progress: Progress) -> Chunker:
    """Return a chunker of a file with ``size`` bytes that counts those it splits into tokens, which takes longest."""
    left = size

    def offsets(texts: list[str]) -> Sequence[Spans]:
        nonlocal left
        found = chunker.offsets(texts)
        done = min(left, sum(len(text.encode("utf-8", "surrogatepass")) for text in texts))
        left -= done
        progress.advance(done)
        return found

    return Chunker(chunker.config, offsets)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A file whose chunks are to be written. ``short_texts`` are texts that are tokenised when it is chunked."""

    source: SourceRecord
    documents: Iterable[ParsedDocument]
    short_texts: Sequence[str] = ()
