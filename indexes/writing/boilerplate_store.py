"""Boilerplate in a store: what the database keeps, and what a run over files changes.

The store keeps the keys of the lines of every file (see :mod:`ragembed.documents.boilerplate`). So boilerplate depends
on the files in the store, and not on the order in which they came. Chunks of unchanged files are looked at again only
if one of their lines became boilerplate, or no longer is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ragembed.documents.boilerplate import (
    BoilerplateCounts,
    FileLines,
    LineKeys,
    Stripper,
    find,
    kind_of,
    line_key,
    line_keys,
)
from ragembed.documents.model import Chunk
from ragembed.errors import StoreDamagedError
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import ChunkRecord, SourceRecord

STRIP, KEEP = MODES = ("strip", "keep")
"""What is done with boilerplate: take it out of what is searched, or not."""

_KEY_TYPE = np.dtype("<u8")


class BoilerplateLine(NamedTuple):
    """A line that is boilerplate, as it stands in one of the ``files`` of its ``kind`` that repeat it."""

    kind: str
    line: str
    files: int


class _CountedFile(NamedTuple):
    """What is kept of a file: the hash of its content, and the keys of its lines, None where nobody counted."""

    content: str
    keys: LineKeys | None


def stored(connection: sqlite3.Connection) -> list[BoilerplateLine]:
    """Return the lines that are boilerplate, those in most files first."""
    rows = connection.execute("SELECT kind, line, files FROM boilerplate ORDER BY files DESC, kind, line")
    return [BoilerplateLine(*row) for row in rows]


def status(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return how many lines are boilerplate, from how many chunks they were taken, and how many have nothing else."""
    chunks, alone = connection.execute(
        "SELECT count(*), total(searched = '') FROM chunks WHERE searched IS NOT NULL"
    ).fetchone()
    lines = connection.execute("SELECT count(*) FROM boilerplate").fetchone()[0]
    return {"lines": lines, "chunks": chunks, "chunks_of_nothing_else": int(alone)}


def lines_as_bytes(keys: LineKeys) -> bytes:
    """Return keys as they are kept in the database."""
    return keys.astype(_KEY_TYPE).tobytes()


def strip_all(stripper: Stripper, source: SourceRecord, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks of a file with the text in which they are searched."""
    kind = kind_of(source.path)
    return [stripper.strip(chunk, kind) for chunk in chunks]


def lines_of(path: str, chunks: Sequence[Chunk]) -> LineKeys:
    """Return the keys of the lines of a file, from all of its chunks."""
    return line_keys((chunk.text for chunk in chunks), kind_of(path))


def found_in(files: Mapping[str, tuple[str, LineKeys]]) -> BoilerplateCounts:
    """Return what is boilerplate in files, by name, each with the hash of its content and the keys of its lines."""
    kinds = {path: kind_of(path) for path in files}
    return find(FileLines(kind, *files[path]) for path, kind in kinds.items() if kind is not None)


@dataclass(slots=True)
class StrippingPlan:
    """What a run does about boilerplate.

    ``stripper`` takes it out of chunks. ``again`` are the files in the store whose chunks are to be looked at again,
    ``uncounted`` those of which no lines were kept, with their lines. ``before`` are the lines that were boilerplate;
    they still are where nothing ``changes``.
    """

    stripper: Stripper
    again: list[str]
    uncounted: dict[str, LineKeys]
    before: list[BoilerplateLine]
    changes: bool = True

    def lines(self) -> list[BoilerplateLine]:
        """Return the lines that are boilerplate after the run; ones that no chunk has in a long enough run are none."""
        if not self.changes:
            return self.before
        shown = {(line.kind, line_key(line.line)): line.line for line in self.before}
        shown |= self.stripper.seen
        lines = [
            BoilerplateLine(kind, shown[kind, key], files)
            for kind, counts in self.stripper.found.items()
            for key, files in counts.items()
            if (kind, key) in shown
        ]
        return sorted(lines, key=lambda line: (-line.files, line.kind, line.line))


def plan(
    connection: sqlite3.Connection,
    coming: Mapping[str, tuple[str, LineKeys]],
    removed: Collection[str],
    mode: str,
) -> StrippingPlan:
    """Return what is to be done where the files ``coming`` come and ``removed`` go.

    ``coming`` are the hash of the content and the keys of the lines of each file by name.
    """
    unfinished = bool(catalog.meta(connection, "unfinished", False))
    before = stored(connection)
    if not (coming or removed or unfinished) and catalog.meta(connection, "boilerplate") == done(connection, mode):
        return StrippingPlan(Stripper({}), [], {}, before, changes=False)
    staying = {path: kept for path, kept in _kept(connection) if path not in coming and path not in set(removed)}
    uncounted = {
        path: lines_of(path, [record.chunk for record in catalog.iterate_chunks(connection, path)])
        for path, kept in staying.items()
        if kept.keys is None
    }
    there = {
        path: (kept.content, uncounted[path] if kept.keys is None else kept.keys) for path, kept in staying.items()
    }
    stripper = Stripper(found_in({**there, **coming}) if mode == STRIP else {})
    # Chunks may have been made with what was boilerplate in a run that was interrupted.
    again = there if unfinished else _touched(there, _changed(before, stripper.found))
    return StrippingPlan(stripper, list(again), uncounted, before)


def done(connection: sqlite3.Connection, mode: str) -> dict[str, Any]:
    """Return what to keep of a run that is done, so that the next knows whether there is anything to do."""
    return {"mode": mode, "files": catalog.count(connection, "sources")}


def _kept(connection: sqlite3.Connection) -> Iterator[tuple[str, _CountedFile]]:
    rows = connection.execute(
        "SELECT s.path, s.sha256, l.keys FROM sources s LEFT JOIN source_lines l ON l.source = s.id ORDER BY s.path"
    )
    for path, content, keys in rows:
        if keys is not None and len(keys) % _KEY_TYPE.itemsize:
            raise StoreDamagedError(f"the store's database holds {len(keys):,} bytes for the lines of {path!r}")
        yield path, _CountedFile(content, None if keys is None else np.frombuffer(keys, _KEY_TYPE).astype(np.uint64))


def _changed(before: Sequence[BoilerplateLine], found: BoilerplateCounts) -> dict[str, LineKeys]:
    """Return the keys of the lines of each kind that became boilerplate, or no longer are."""
    former: dict[str, set[int]] = {}
    for line in before:
        former.setdefault(line.kind, set()).add(line_key(line.line))
    return {
        kind: np.array(sorted(former.get(kind, set()) ^ set(found.get(kind, {}))), dtype=np.uint64)
        for kind in {*former, *found}
    }


def _touched(files: Mapping[str, tuple[str, LineKeys]], changed: Mapping[str, LineKeys]) -> Iterator[str]:
    for path, (_, keys) in files.items():
        of_kind = changed.get(kind_of(path) or "")
        if of_kind is not None and len(of_kind) and np.isin(keys, of_kind).any():
            yield path


def restripped(stripper: Stripper, records: Sequence[ChunkRecord]) -> list[ChunkRecord]:
    """Return the chunks of files whose searched text changed, with the new one."""
    pairs = [(record, stripper.strip(record.chunk, kind_of(record.source or ""))) for record in records]
    return [ChunkRecord(record.id, chunk, record.source) for record, chunk in pairs if chunk is not record.chunk]
