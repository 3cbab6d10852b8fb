"""Boilerplate in a store: what the database keeps, and what an indexing run changes.

The store keeps the keys of the lines of every file (see :mod:`ragembed.documents.boilerplate`). Boilerplate therefore
depends on the files in the store, and not on the order in which they were indexed. Chunks of unchanged files are
examined again only if the status of one of their lines changed.
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
from ragembed.documents.normalisation import line_end_words, normalised
from ragembed.errors import StoreDamagedError
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import ChunkRecord, SourceRecord

STRIP, KEEP = MODES = ("strip", "keep")
"""How to treat boilerplate: remove it from the searched text, or keep it."""

_KEY_TYPE = np.dtype("<u8")


class BoilerplateLine(NamedTuple):
    """A line as one file contains it, the kind of the files that repeat it, and their number."""

    kind: str
    line: str
    files: int


def stored(connection: sqlite3.Connection) -> list[BoilerplateLine]:
    """Return the boilerplate lines, those in most files first."""
    rows = connection.execute("SELECT kind, line, files FROM boilerplate ORDER BY files DESC, kind, line")
    return [BoilerplateLine(*row) for row in rows]


def status(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the numbers of boilerplate lines, of chunks that contained some, and of chunks of nothing else."""
    chunks, alone = connection.execute(
        # A text that is only normalised keeps its line breaks.
        "SELECT count(*), total(searched = '') FROM chunks WHERE searched = ''"
        " OR length(searched) - length(replace(searched, char(10), ''))"
        " < length(text) - length(replace(text, char(10), ''))"
    ).fetchone()
    lines = connection.execute("SELECT count(*) FROM boilerplate").fetchone()[0]
    return {"lines": lines, "chunks": chunks, "chunks_of_nothing_else": int(alone)}


def lines_as_bytes(keys: LineKeys) -> bytes:
    """Return keys in the format of the database."""
    return keys.astype(_KEY_TYPE).tobytes()


def strip_all(stripper: Stripper, source: SourceRecord, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks of a file, all of them, with their searched text: normalised and without boilerplate."""
    return _searched(stripper, source.path, chunks)


def _searched(stripper: Stripper, path: str, chunks: Sequence[Chunk]) -> list[Chunk]:
    kind, words = kind_of(path), line_end_words(chunk.text for chunk in chunks)
    return [normalised(stripper.strip(chunk, kind), words) for chunk in chunks]


def lines_of(path: str, chunks: Sequence[Chunk]) -> LineKeys:
    """Return the keys of the lines of a file from all of its chunks."""
    return line_keys((chunk.text for chunk in chunks), kind_of(path))


def found_in(files: Mapping[str, tuple[str, LineKeys]]) -> BoilerplateCounts:
    """Return the boilerplate of files. ``files`` maps a name to the hash of the content and the keys of the lines."""
    kinds = {path: kind_of(path) for path in files}
    return find(FileLines(kind, *files[path]) for path, kind in kinds.items() if kind is not None)


def files_with_repeated_lines(connection: sqlite3.Connection) -> tuple[int, list[str]]:
    """Return the number of lines in a store that are boilerplate, searched or not, and the files with such lines."""
    files = {path: (content, keys) for path, content, keys in _kept(connection) if keys is not None}
    found = found_in(files)
    keys = {kind: np.array(sorted(counts), dtype=np.uint64) for kind, counts in found.items()}
    return sum(map(len, found.values())), list(_touched(files, keys))


@dataclass(slots=True)
class StrippingPlan:
    """The changes that an indexing run makes because of boilerplate.

    ``stripper`` removes boilerplate from chunks. ``again`` are the stored files whose chunks must be examined again.
    ``uncounted`` are the files without stored line keys, with their keys. ``before`` are the former boilerplate lines,
    which remain so unless ``changes`` is true.
    """

    stripper: Stripper
    again: list[str]
    uncounted: dict[str, LineKeys]
    before: list[BoilerplateLine]
    changes: bool = True

    def lines(self) -> list[BoilerplateLine]:
        """Return the boilerplate lines after the run, without lines that no chunk contains in a long enough run."""
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
    found: BoilerplateCounts | None = None,
) -> StrippingPlan:
    """Return the changes for a run that adds the files ``coming``, as in :func:`found_in`, and removes ``removed``.

    ``found`` is the boilerplate after the run, if the caller has found it in the files of several stores.
    """
    unfinished = bool(catalog.meta(connection, "unfinished", False))
    before = stored(connection)
    unchanged = not (coming or removed or unfinished) and found is None
    if unchanged and catalog.meta(connection, "boilerplate") == done(connection, mode):
        return StrippingPlan(Stripper({}), [], {}, before, changes=False)
    there, uncounted = staying(connection, {*coming, *removed})
    if found is None:
        found = found_in({**there, **coming}) if mode == STRIP else {}
    stripper = Stripper(found)
    # An interrupted run may have made chunks with different boilerplate.
    again = there if unfinished else _touched(there, _changed(before, stripper.found))
    return StrippingPlan(stripper, list(again), uncounted, before)


def staying(
    connection: sqlite3.Connection, leaving: Collection[str]
) -> tuple[dict[str, tuple[str, LineKeys]], dict[str, LineKeys]]:
    """Return the lines of the files that are not ``leaving``, as in :func:`found_in`, and those that were not kept."""
    there: dict[str, tuple[str, LineKeys]] = {}
    uncounted: dict[str, LineKeys] = {}
    for path, content, keys in _kept(connection):
        if path in leaving:
            continue
        if keys is None:
            chunks = [record.chunk for record in catalog.iterate_chunks(connection, path)]
            keys = uncounted[path] = lines_of(path, chunks)
        there[path] = content, keys
    return there, uncounted


def done(connection: sqlite3.Connection, mode: str) -> dict[str, Any]:
    """Return the record of a finished run, from which the next run sees whether anything has changed."""
    return {"mode": mode, "files": catalog.count(connection, "sources")}


def _kept(connection: sqlite3.Connection) -> Iterator[tuple[str, str, LineKeys | None]]:
    """Yield the name of each file, the hash of its content, and the keys of its lines, None if they were not kept."""
    rows = connection.execute(
        "SELECT s.path, s.sha256, l.keys FROM sources s LEFT JOIN source_lines l ON l.source = s.id ORDER BY s.path"
    )
    for path, content, keys in rows:
        if keys is not None and len(keys) % _KEY_TYPE.itemsize:
            raise StoreDamagedError(
                f"the store's database holds {len(keys):,} bytes for the lines of {path!r}: expected a multiple of "
                f"{_KEY_TYPE.itemsize}"
            )
        yield path, content, None if keys is None else np.frombuffer(keys, _KEY_TYPE).astype(np.uint64)


def _changed(before: Sequence[BoilerplateLine], found: BoilerplateCounts) -> dict[str, LineKeys]:
    """Return the keys of the lines of each kind that became boilerplate or no longer are."""
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
    """Return those of the chunks of a file whose searched text changed, with their new text."""
    chunks = _searched(stripper, records[0].source or "", [record.chunk for record in records]) if records else []
    return [
        ChunkRecord(record.id, chunk, record.source)
        for record, chunk in zip(records, chunks, strict=True)
        if chunk.searched != record.chunk.searched
    ]
