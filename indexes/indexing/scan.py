"""Comparing files with a store: what is new, changed, gone or as it was; reading and chunking what differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ragembed.documents.chunking import Chunker, ChunkingConfig
from ragembed.documents.discovery import DiscoveryOptions, FileCandidate, discover, size_reason
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place
from ragembed.documents.readers import ReadOptions, only_document_errors, read
from ragembed.documents.readers.registry import PLAIN, named_reader
from ragembed.errors import ConfigError, DocumentError, MissingExtraError
from ragembed.extractors.protocol import Tokenizer
from ragembed.indexes.indexing.spool import Spool, SpoolEntry
from ragembed.indexes.storage.layout import NamesInStore, is_below, source_path
from ragembed.indexes.types import Progress, SourceRecord, storable_time
from ragembed.indexes.writing.boilerplate_store import MODES, STRIP


@dataclass(frozen=True, slots=True)
class IndexingOptions:
    """What is read below the given paths, and how it is chunked; kept in the store and used again.

    ``chunk_tokens`` is the longest chunk in tokens of the model, None for as long as the model takes at once.
    ``boilerplate`` is ``"strip"``, to leave out of what is searched the lines that many files repeat, or ``"keep"``.
    """

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    max_bytes: int = DiscoveryOptions().max_bytes
    hidden: bool = False
    text_columns: tuple[str, ...] = ()
    title_column: str | None = None
    chunk_tokens: int | None = None
    overlap: int = 0
    boilerplate: str = STRIP

    def __post_init__(self) -> None:
        if self.boilerplate not in MODES:
            raise ConfigError(f"boilerplate is {self.boilerplate!r}: expected one of {', '.join(MODES)}")

    def discovery(self) -> DiscoveryOptions:
        """Return what decides which files are read."""
        return DiscoveryOptions(self.exclude, self.include, self.max_bytes, self.hidden)

    def reading(self) -> ReadOptions:
        """Return what decides what is read of a file."""
        return ReadOptions(text_columns=self.text_columns, title_column=self.title_column)

    def chunking(self, room: int) -> ChunkingConfig:
        """Return what decides how texts are split, where the model takes ``room`` tokens of a text at once."""
        if self.chunk_tokens is not None and self.chunk_tokens > room:
            raise ConfigError(
                f"chunks of {self.chunk_tokens} tokens do not fit the model, which takes {room}: give at most that"
            )
        return ChunkingConfig(max_tokens=self.chunk_tokens or room, overlap=self.overlap)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> IndexingOptions:
        """Build from :meth:`to_dict`'s output."""
        options = cls(**fields)
        return replace(
            options,
            exclude=tuple(options.exclude),
            include=tuple(options.include),
            text_columns=tuple(options.text_columns),
        )


@dataclass(slots=True)
class Scan:
    """What comparing the files with the store gave; all names are those in the store.

    ``roots`` are the paths that were compared, ``gone`` those of them that do not exist any more.
    ``removed`` follows from the rest, once all files are compared. ``kept`` are the files that the store is to hold
    after the run, in their old or their new state; ``unseen`` are places that cannot be looked at now.
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
        """Return what is to be filled by comparing the files below ``paths``, where those of ``gone`` are gone."""
        roots, left = ([source_path(path, store) for path in places] for places in (paths, gone))
        return cls(roots=[*roots, *left], gone=left)

    def add(self, other: Scan) -> None:
        """Take over what was found out about other files."""
        for mine, theirs in (
            (self.added, other.added),
            (self.changed, other.changed),
            (self.touched, other.touched),
            (self.warnings, other.warnings),
            (self.unseen, other.unseen),
        ):
            mine.extend(theirs)  # type: ignore[arg-type]  # pairs of one type each
        self.unchanged += other.unchanged
        self.skipped.update(other.skipped)
        self.kept |= other.kept

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {**asdict(self), "kept": sorted(self.kept)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Scan:
        """Build from :meth:`to_dict`'s output."""
        touched = [SourceRecord(**source) for source in fields["touched"]]
        return cls(**{**fields, "touched": touched, "kept": set(fields["kept"])})


class Scanner:
    """Read and chunk the files that differ from what a store holds.

    ``known`` are the files in the store by name; ``pipeline_hash`` changes with whatever would change a file's chunks.
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
        chunking = options.chunking(text_tokens)
        self._chunker = Chunker(chunking, tokenizer.offsets)
        reading = options.reading()
        self._pipeline_settings = json.dumps([asdict(chunking), reading.text_columns, reading.title_column])
        self._names = NamesInStore(store)

    def scan(self, paths: Sequence[Place], gone: Sequence[Place], spool: Spool, progress: Progress) -> Scan:
        """Compare every file below ``paths`` with the store; those that are new or differ go to ``spool``.

        ``gone`` are paths that do not exist any more, whose files are to leave the store.
        """
        result = Scan.of(paths, gone, self._store)
        progress.start("reading", "files", None)
        for candidate in self.waiting(paths, result, progress):
            self.read(candidate, result, spool)
            progress.advance(1)
        self.finish(result)
        progress.finish()
        return result

    def waiting(self, paths: Sequence[Place], result: Scan, progress: Progress) -> Iterator[FileCandidate]:
        """Yield the files below ``paths`` that have to be read; of the others ``result`` and ``progress`` take note."""
        for candidate in discover(paths, self._options.discovery()):
            name = source_path(candidate.path, self._store) if candidate.is_dir else self._names.of(candidate.path)
            if candidate.skipped is not None:
                if not candidate.ignored:
                    result.skipped[name] = candidate.skipped
                    if candidate.unseen:
                        result.unseen.append(name)
            elif self._is_as_it_was(candidate, name):
                result.unchanged += 1
                result.kept.add(name)
            else:
                yield candidate
                continue
            progress.advance(1)

    def finish(self, result: Scan) -> None:
        """Take note in ``result`` of the files that are to leave the store, once all others are compared."""
        result.removed = [
            name
            for name in self._known
            if name not in result.kept
            and any(is_below(name, root) for root in result.roots)
            # What cannot be looked at now says nothing about the files there.
            and not any(is_below(name, place) for place in result.unseen)
        ]

    def _is_as_it_was(self, candidate: FileCandidate, name: str) -> bool:
        known = self._known.get(name)
        now = candidate.size, candidate.mtime_ns
        return (
            known is not None
            and (known.size, known.mtime_ns) == now
            and known.pipeline_hash == self._pipeline_hash(candidate)
        )

    def _pipeline_hash(self, candidate: FileCandidate) -> str:
        reader = named_reader(candidate.path.name) or PLAIN  # what is not text has been left out
        return _short_hash(f"{self._pipeline_settings}:{reader.name}:{reader.version}")

    def read(self, candidate: FileCandidate, result: Scan, spool: Spool) -> None:
        """Read a file and compare it; it goes to ``spool`` if it differs, and ``result`` takes note of it."""
        name = self._names.of(candidate.path)
        known = self._known.get(name)
        pipeline_hash = self._pipeline_hash(candidate)
        try:
            with only_document_errors():
                data, mtime_ns = candidate.read()
                source = SourceRecord(
                    name, len(data), storable_time(mtime_ns or 0), hashlib.sha256(data).hexdigest(), pipeline_hash
                )
                if known is not None and (known.sha256, known.pipeline_hash) == (source.sha256, pipeline_hash):
                    result.unchanged += 1
                    if source != known:
                        result.touched.append(source)
                    result.kept.add(name)
                    return
                entry = SpoolEntry.of(source, self._chunks(data, name, candidate.path.name, result))
        except OSError as error:
            result.skipped[name] = f"cannot be read: {error.strerror or error}"
            result.kept.add(name)
            return
        except MissingExtraError as error:
            result.skipped[name] = str(error)
            result.kept.add(name)
            return
        except (DocumentError, ConfigError) as error:
            result.skipped[name] = str(error)
            return
        spool.append(entry)
        result.kept.add(name)
        (result.added if known is None else result.changed).append(name)

    def _chunks(self, data: bytes, name: str, file_name: str, result: Scan) -> list[Chunk]:
        def warn(message: str) -> None:
            result.warnings.append(f"{name}: {message}")

        if reason := size_reason(len(data), self._options.max_bytes):
            raise DocumentError(reason)  # some servers tell no sizes
        options = replace(self._options.reading(), on_warning=warn)
        chunks = list(self._chunker.split_all(read(Path(file_name), options, data)))
        if not chunks:
            raise DocumentError("no text in it")
        return chunks


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
