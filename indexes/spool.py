"""A queue of chunked files on disk, so that memory stays flat however large the corpus is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from types import TracebackType

from ragembed.documents.boilerplate import Keys
from ragembed.documents.model import Chunk
from ragembed.indexes.boilerplate import lines_of
from ragembed.indexes.records import SourceRecord


class Spool:
    """Files waiting to be embedded, in a temporary file that is gone when the spool is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115  closed by __exit__
        self.files = 0
        self.chunks = 0
        self.lines: dict[str, tuple[str, Keys]] = {}
        """Of each file, by name, the hash of its content and the keys of its lines."""

    def append(self, source: SourceRecord, chunks: Sequence[Chunk]) -> None:
        """Put a file and its chunks at the end."""
        # ASCII: a lone surrogate in a text survives the way through the file.
        self._file.write(json.dumps([asdict(source), [asdict(chunk) for chunk in chunks]]) + "\n")
        self.lines[source.path] = source.sha256, lines_of(source.path, chunks)
        self.files += 1
        self.chunks += len(chunks)

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        self._file.seek(0)
        for line in self._file:
            source, chunks = json.loads(line)
            yield SourceRecord(**source), [Chunk(**{**chunk, "headings": tuple(chunk["headings"])}) for chunk in chunks]

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
