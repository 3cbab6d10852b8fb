"""Comparing files with a store: what is new, changed, gone or as it was; reading and chunking what differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ragembed.documents.chunking import Chunker, ChunkingConfig
from ragembed.documents.discovery import Candidate, DiscoveryOptions, discover
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place
from ragembed.documents.readers import ReadOptions, read
from ragembed.documents.readers.registry import PLAIN, named_reader
from ragembed.documents.walking import size_reason
from ragembed.errors import ConfigError, DocumentError, MissingExtraError
from ragembed.extractors.protocol import Tokenizer
from ragembed.indexes.boilerplate import MODES, STRIP
from ragembed.indexes.layout import is_below, source_path
from ragembed.indexes.progress import Progress
from ragembed.indexes.records import SourceRecord
from ragembed.indexes.spool import Spool


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


class Scanner:
    """Read and chunk the files that differ from what a store holds.

    ``known`` are the files in the store by name; ``recipe`` changes with whatever would change a file's chunks.
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
        self._recipe = json.dumps([asdict(chunking), reading.text_columns, reading.title_column])

    def scan(self, paths: Sequence[Place], gone: Sequence[Place], spool: Spool, progress: Progress) -> Scan:
        """Compare every file below ``paths`` with the store; those that are new or differ go to ``spool``.

        ``gone`` are paths that do not exist any more, whose files are to leave the store.
        """
        roots, left = ([source_path(path, self._store) for path in places] for places in (paths, gone))
        result = Scan(roots=[*roots, *left], gone=left)
        progress.start("reading", "files", None)
        present: set[str] = set()
        unseen: list[str] = []
        for candidate in discover(paths, self._options.discovery()):
            name = source_path(candidate.path, self._store)
            if candidate.skipped is None:
                if self._compare(candidate, name, result, spool):
                    present.add(name)
            elif not candidate.ignored:
                result.skipped[name] = candidate.skipped
                if candidate.unseen:
                    unseen.append(name)
            progress.advance(1)
        result.removed = [
            name
            for name in self._known
            if name not in present
            and any(is_below(name, root) for root in result.roots)
            # What cannot be looked at now says nothing about the files there.
            and not any(is_below(name, place) for place in unseen)
        ]
        progress.finish()
        return result

    def _compare(self, candidate: Candidate, name: str, result: Scan, spool: Spool) -> bool:
        """Compare one file; returns whether the store is to hold it after the run, in its old or its new state."""
        known = self._known.get(name)
        reader = named_reader(candidate.path.name) or PLAIN  # what is not text has been left out
        recipe = _short_hash(f"{self._recipe}:{reader.name}:{reader.version}")
        if known is not None and (known.size, known.mtime_ns, known.recipe) == (
            candidate.size,
            candidate.mtime_ns,
            recipe,
        ):
            result.unchanged += 1
            return True
        try:
            data = candidate.path.read_bytes()
            source = SourceRecord(name, len(data), candidate.mtime_ns or 0, hashlib.sha256(data).hexdigest(), recipe)
            if known is not None and (known.sha256, known.recipe) == (source.sha256, recipe):
                result.unchanged += 1
                if source != known:
                    result.touched.append(source)
                return True
            chunks = self._chunks(data, name, candidate.path.name, result)
        except OSError as error:
            result.skipped[name] = f"cannot be read: {error.strerror or error}"
            return True
        except MissingExtraError as error:
            result.skipped[name] = str(error)
            return True
        except (DocumentError, ConfigError) as error:
            result.skipped[name] = str(error)
            return False
        spool.append(source, chunks)
        (result.added if known is None else result.changed).append(name)
        return True

    def _chunks(self, data: bytes, name: str, file_name: str, result: Scan) -> list[Chunk]:
        def warn(message: str) -> None:
            result.warnings.append(f"{name}: {message}")

        if reason := size_reason(len(data), self._options.max_bytes):
            raise DocumentError(reason)  # some servers tell no sizes
        options = replace(self._options.reading(), on_warning=warn)
        documents = read(Path(file_name), options, data)
        chunks = [chunk for document in documents for chunk in self._chunker.split(document)]
        if not chunks:
            raise DocumentError("no text in it")
        return chunks


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
