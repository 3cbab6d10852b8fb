"""Verification of a store, from the bytes of its files to the texts that its vectors were made from."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np

from ragembed.errors import ConfigError, IncompatibleStoreError, RagembedError
from ragembed.files import open_regular
from ragembed.indexes.storage import catalog, derived, schema
from ragembed.indexes.storage.embedders import load_embedder
from ragembed.indexes.storage.folders import has_application_id
from ragembed.indexes.storage.layout import (
    DATABASE,
    DERIVED,
    EMBEDDERS,
    GITIGNORE,
    GITIGNORE_TEXT,
    RAW,
    SEGMENTS,
    require_store,
)
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.segments import RAW_TYPE, SegmentRecord
from ragembed.indexes.types import VectorEncoder
from ragembed.indexes.verify import database, files
from ragembed.indexes.verify.repair import repair_store
from ragembed.indexes.verify.report import Part, Problem, Report
from ragembed.progress import Progress, SilentProgress

MOST_COMPARED = 1_000_000
"""Number of vectors up to which :func:`verify_snapshot` compares texts and indexes with them."""


def verify_store(
    store: str | Path,
    embedder: VectorEncoder | None = None,
    progress: Progress | None = None,
    *,
    repair: bool = False,
    trust_database: bool = False,
    wait_seconds: float = 0.0,
) -> Report:
    """Check every file and row of a store for damage.

    Parameters
    ----------
    store
        Folder of the store.
    embedder
        The embedder that the store was created with. You only need it if that is not a :class:`ragembed.Embedder`.
    progress
        Listener that receives the progress.
    repair
        Whether to rebuild damaged parts: indexes from raw vectors, raw vectors from texts. The report then lists the
        repaired problems and the remaining ones.
    trust_database
        Whether a repair accepts database rows that are consistent but do not match their digests, and a database with
        lost commits. Otherwise, neither can be repaired.
    wait_seconds
        Maximum time in seconds to wait for another writer. No process can write during the verification.

    Returns
    -------
    Report
        The problems found, the problems repaired, and notes on what could not be checked.

    Raises
    ------
    StoreLockedError
        If another process writes for longer than ``wait_seconds``.
    StoreNotFoundError
        If ``store`` holds no store.
    IncompatibleStoreError
        If another version of ragembed wrote the store in another format.

    Examples
    --------
    >>> from ragembed.indexes.verify import verify_store
    >>> report = verify_store("notes")
    >>> report.problems, report.chunks
    ([], 3)
    """
    path = require_store(Path(store))
    progress = progress or SilentProgress()
    with _without_writers(path, wait_seconds):
        report = _Verification(path, embedder, progress).run()
        if not repair or not (report.problems or report.leftovers) or not has_application_id(path / DATABASE):
            return report
        notes = repair_store(path, report, embedder, progress, trust_database=trust_database)
        after = _Verification(path, embedder, progress).run()
    after.repaired = [problem for problem in report.problems if problem not in after.problems]
    after.notes += notes
    return after


def verify_snapshot(
    store: Path, connection: sqlite3.Connection, embedder: VectorEncoder | None, progress: Progress
) -> Report:
    """Check the generation that ``connection`` reads, without the writer lock and without writing anything.

    The checks are those of :func:`verify_store`, with three exceptions. The full-text index is searched for some of the
    chunks. In stores of more than ``MOST_COMPARED`` chunks, hashes and digests stand for comparing texts and indexes
    with vectors. Nothing is sent to the server of a model.

    A writer may remove files of this generation meanwhile. If there are problems, check that the generation of the
    store is still the same.
    """
    return _Verification(store, embedder, progress).check(connection)


@contextmanager
def _without_writers(store: Path, wait_seconds: float) -> Iterator[None]:
    if not os.access(store, os.W_OK) or not has_application_id(store / DATABASE):
        yield  # Nobody else can be writing: the folder is read-only, or the database belongs to another program.
        return
    with writer_lock(store, wait_seconds):
        yield


def first_problem(store: Path, connection: sqlite3.Connection) -> str | None:
    """Return a description of the first problem of the snapshot that ``connection`` reads, or None.

    Texts are not encoded again, and the full-text index is not compared with the chunks.
    """
    try:
        problem = next(_problems(store, connection), None)
    except (RagembedError, sqlite3.DatabaseError, OSError) as error:
        return str(error)
    return None if problem is None else f"{problem.file}: {problem.message}"


def _problems(store: Path, connection: sqlite3.Connection) -> Iterator[Problem]:
    yield from database.check_structure(connection)
    yield from database.check_rows(store, connection)
    yield from files.check_embedder_files(store, catalog.embedder(connection))
    yield from files.check_derived(store, connection)
    for record in catalog.segments(connection):
        damaged = list(files.check_files(store, record.files, Part.RAW, Part.INDEX, record.key))
        yield from damaged or files.check_contents(store, connection, record, None)


class _Verification:
    """The checks in their order. A part that is damaged is not read any further."""

    def __init__(self, store: Path, given: VectorEncoder | None, progress: Progress) -> None:
        self._store = store
        self._given = given
        self._progress = progress
        self._report = Report()
        self._locked = self._compares = True

    def run(self) -> Report:
        """Check the store from a connection of its own; the caller holds the writer lock."""
        try:
            with closing(schema.connect(self._store / DATABASE, writable=False)) as connection:
                connection.execute("BEGIN")
                return self.check(connection, locked=True)
        except IncompatibleStoreError:
            raise
        except (RagembedError, sqlite3.DatabaseError) as error:
            self._check_folder()
            self._add(Part.DATABASE, DATABASE, str(error))
        return self._report

    def check(self, connection: sqlite3.Connection, *, locked: bool = False) -> Report:
        """Check the store from ``connection``, which is in a transaction.

        Without the lock, nothing is written or sent, and large stores are checked in part.
        """
        self._locked = locked
        self._check_folder()
        try:
            self._compares = locked or catalog.count(connection, "vectors") <= MOST_COMPARED
            if not self._compares:
                self._note(
                    "the store is large, so its texts and indexes were compared with their hashes, but not with the "
                    "vectors: 'ragembed doctor' compares these too"
                )
            self._report.problems += database.check_rows(self._store, connection)
            self._report.problems += database.check_structure(connection, texts=self._compares)
            if Part.LOG in self._report.parts():
                pass  # A writable connection would copy the log into the database.
            elif locked:
                self._check_words()
            else:
                self._report.problems += database.check_some_words(connection)
                self._note(
                    "the full-text index was searched for some of the chunks only: 'ragembed doctor' checks all of it"
                )
            if not self._report.parts() & {Part.DATABASE, Part.ROWS}:
                self._report.problems += files.check_derived(self._store, connection)
                self._check_vectors(connection)
        except IncompatibleStoreError:
            raise
        except (RagembedError, sqlite3.DatabaseError) as error:
            self._add(Part.DATABASE, DATABASE, str(error))
        return self._report

    def _check_folder(self) -> None:
        files = [file for file in self._store.rglob("*") if file.is_file()]
        self._report.files, self._report.bytes = len(files), sum(file.stat().st_size for file in files)
        ignore = self._store / GITIGNORE
        held = b""
        with suppress(OSError), open_regular(ignore, self._store) as file:
            held = file.read(len(GITIGNORE_TEXT) + 1)
        if held != GITIGNORE_TEXT and GITIGNORE_TEXT.startswith(held):
            self._add(Part.FOLDER, GITIGNORE, f"the file does not contain {GITIGNORE_TEXT.decode().strip()!r}")
        elif held != GITIGNORE_TEXT:
            self._note(f"{GITIGNORE} was changed: version control may include the store")
        for name in (SEGMENTS, EMBEDDERS, DERIVED):
            if (self._store / name).is_symlink():
                self._add(Part.DATABASE, name, "the folder is a symbolic link: expected a real folder")

    def _check_words(self) -> None:
        if not os.access(self._store, os.W_OK):
            self._note("the full-text index was not checked: the folder is not writable")
            return
        try:
            self._report.problems += database.check_words(self._store)
        except ConfigError as error:  # No stemmer for its language is installed.
            self._note(f"the full-text index was not checked: {error}")

    def _check_vectors(self, connection: sqlite3.Connection) -> None:
        report = self._report
        embedder = self._embedder(connection)
        records = catalog.segments(connection)
        report.chunks, report.segments = catalog.count(connection, "chunks"), len(records)
        self._progress.start("verifying", "vectors", sum(record.files.rows for record in records))
        for record in records:
            problems = list(files.check_files(self._store, record.files, Part.RAW, Part.INDEX, record.key))
            if self._compares and not problems:
                problems += files.check_contents(self._store, connection, record, embedder)
            report.problems += problems
            report.vectors += record.files.rows
            self._progress.advance(record.files.rows)
        for rewritten in catalog.rewritten(connection):
            report.problems += files.check_files(
                self._store, rewritten.files, Part.REWRITTEN, Part.REWRITTEN, rewritten.key
            )
        self._progress.finish()
        self._note_leftovers(SEGMENTS, [record.files.folder for record in (*records, *catalog.rewritten(connection))])
        self._note_leftovers(DERIVED, [record.file for record in derived.records(connection)])
        if embedder is not None and Part.RAW not in report.parts():
            self._check_canaries(connection, records, embedder)

    def _embedder(self, connection: sqlite3.Connection) -> VectorEncoder | None:
        record = catalog.embedder(connection)
        problems = list(files.check_embedder_files(self._store, record))
        self._report.problems += problems
        if self._given is not None and self._given.fingerprint == record["fingerprint"]:
            return self._given
        if problems:
            return None
        if record["kind"] != "ragembed":
            self._note(
                f"vectors were not compared with texts: they were made by {record['model']}, which was not passed to "
                "the verification"
            )
            return None
        try:
            return load_embedder(self._store, record)
        except (RagembedError, FileNotFoundError) as error:
            self._add(Part.CANARY, f"{EMBEDDERS}/{record['fingerprint']}", str(error))
            return None

    def _check_canaries(
        self, connection: sqlite3.Connection, records: list[SegmentRecord], embedder: VectorEncoder
    ) -> None:
        if embedder.is_remote and not self._locked:
            model = embedder.describe()["model"]
            self._note(f"no text was encoded again, because this would send it to the server of {model}")
            return
        raw_of = {
            record.key: np.memmap(self._store / SEGMENTS / record.files.folder / RAW, dtype=RAW_TYPE, mode="r").reshape(
                record.files.rows, -1
            )
            for record in records
        }
        for message in files.check_canaries(connection, embedder, raw_of):
            self._add(Part.CANARY, EMBEDDERS, message)
        self._report.canaries = min(files.CANARIES, self._report.chunks)

    def _note_leftovers(self, name: str, named: list[str]) -> None:
        folder = self._store / name
        left = [entry for entry in folder.iterdir() if entry.name not in named] if folder.is_dir() else []
        if left:
            self._report.leftovers += len(left)
            self._note(f"{len(left)} entries of {name} belong to no commit: the next run removes them")

    def _add(self, part: Part, file: str, message: str) -> None:
        self._report.problems.append(Problem(part, file, message))

    def _note(self, message: str) -> None:
        self._report.notes.append(message)
