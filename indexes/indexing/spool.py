"""Chunked files that wait on disk to be written, so that memory use does not grow with the corpus."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ragembed.documents.boilerplate import LineKeys
from ragembed.documents.model import Chunk
from ragembed.indexes.types import SourceRecord
from ragembed.indexes.writing.boilerplate_store import lines_of

_SOURCE, _CHUNK = ([field.name for field in fields(record)] for record in (SourceRecord, Chunk))


class ChunkedFiles(Protocol):
    """The files to write, in the order of the scan."""

    @property
    def files(self) -> int:
        """Number of files."""
        ...

    @property
    def chunks(self) -> int:
        """Number of chunks in them."""
        ...

    @property
    def lines(self) -> Mapping[str, tuple[str, LineKeys]]:
        """The hash of the content and the keys of the lines of each file, by name."""
        ...

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield each file and its chunks."""
        ...


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """A serialised chunked file. Creating one fails for values that a store cannot keep."""

    source: SourceRecord
    line: str
    keys: LineKeys
    size: int

    @classmethod
    def of(cls, source: SourceRecord, chunks: Sequence[Chunk]) -> SpoolEntry:
        """Serialise a file and its chunks."""
        line = (
            json.dumps([_values(source, _SOURCE), [_values(chunk, _CHUNK) for chunk in chunks]], allow_nan=False) + "\n"
        )
        return cls(source, line, lines_of(source.path, chunks), len(chunks))


class Spool:
    """Chunked files that wait to be embedded, in a temporary file, or in ``file``, which is kept.

    ``starts`` are the byte offsets of the chunked files in the spool's file, and ``sizes`` their numbers of chunks.
    """

    def __init__(self, file: Path | None = None) -> None:
        opened = tempfile.TemporaryFile("w+b") if file is None else file.open("w+b")  # noqa: SIM115  closed by close()
        # ASCII: JSON escapes keep lone surrogates in a text, which UTF-8 cannot encode.
        self._file = TextIOWrapper(opened, encoding="ascii", newline="\n")
        self._end = 0
        self.chunks = 0
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.lines: dict[str, tuple[str, LineKeys]] = {}
        """The hash of the content and the keys of the lines of each file, by name."""

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.starts)

    def append(self, entry: SpoolEntry) -> None:
        """Append a file and its chunks."""
        self._file.write(entry.line)
        self.lines[entry.source.path] = entry.source.sha256, entry.keys
        self.starts.append(self._end)
        self.sizes.append(entry.size)
        self._end += len(entry.line)
        self.chunks += entry.size

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        self._file.seek(0)
        return map(spooled, self._file)

    def close(self) -> None:
        """Close the file. A temporary file is deleted."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _values(record: object, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a record; ``asdict`` would copy them, which takes a fifth of the time of reading a table."""
    return {name: getattr(record, name) for name in names}


def spooled(line: str | bytes) -> tuple[SourceRecord, list[Chunk]]:
    """Return the file and its chunks from a line of a spool's file."""
    source, chunks = json.loads(line)
    return SourceRecord(**source), [Chunk(**{**chunk, "headings": tuple(chunk["headings"])}) for chunk in chunks]
