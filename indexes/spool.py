"""A queue of chunked files on disk, so that memory stays flat however large the corpus is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

from ragembed.documents.boilerplate import Keys
from ragembed.documents.model import Chunk
from ragembed.indexes.boilerplate_store import lines_of
from ragembed.indexes.records import SourceRecord


class Spool:
    """Files waiting to be embedded, in a temporary file that goes with the spool, or in one that is to stay.

    ``starts`` and ``sizes`` are for each file where it begins in the spool's file, in bytes, and its number of chunks.
    """

    def __init__(self, file: Path | None = None) -> None:
        opened = tempfile.TemporaryFile("w+b") if file is None else file.open("w+b")  # noqa: SIM115  closed by close()
        # ASCII: a lone surrogate in a text survives the way through the file.
        self._file = TextIOWrapper(opened, encoding="ascii", newline="\n")
        self._end = 0
        self.chunks = 0
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.lines: dict[str, tuple[str, Keys]] = {}
        """Of each file, by name, the hash of its content and the keys of its lines."""

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self.starts)

    def append(self, source: SourceRecord, chunks: Sequence[Chunk]) -> None:
        """Put a file and its chunks at the end."""
        line = json.dumps([asdict(source), [asdict(chunk) for chunk in chunks]]) + "\n"
        self._file.write(line)
        self.lines[source.path] = source.sha256, lines_of(source.path, chunks)
        self.starts.append(self._end)
        self.sizes.append(len(chunks))
        self._end += len(line)
        self.chunks += len(chunks)

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        self._file.seek(0)
        return map(spooled, self._file)

    def close(self) -> None:
        """Close the file; a temporary one is gone then."""
        self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def spooled(line: str | bytes) -> tuple[SourceRecord, list[Chunk]]:
    """Return the file, and its chunks, that a line of a spool's file holds."""
    source, chunks = json.loads(line)
    return SourceRecord(**source), [Chunk(**{**chunk, "headings": tuple(chunk["headings"])}) for chunk in chunks]
