"""One verification of a store, from its bytes to the texts that its vectors were made from."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from ragembed.errors import ConfigError, IncompatibleStoreError, MissingExtraError, RagembedError
from ragembed.indexes.storage import catalog, schema
from ragembed.indexes.storage.embedders import load_embedder
from ragembed.indexes.storage.folders import has_application_id
from ragembed.indexes.storage.layout import (
    DATABASE,
    EMBEDDERS,
    GITIGNORE,
    GITIGNORE_TEXT,
    POSTINGS,
    RAW,
    SEGMENTS,
    require_store,
)
from ragembed.indexes.storage.lock import writer_lock
from ragembed.indexes.storage.named_postings import named_postings
from ragembed.indexes.storage.segments import RAW_TYPE, SegmentRecord
from ragembed.indexes.types import Progress, SilentProgress, VectorEncoder
from ragembed.indexes.verify import database, files
from ragembed.indexes.verify.repair import repair_store
from ragembed.indexes.verify.report import Part, Problem, Report


def verify_store(
    store: str | Path,
    embedder: VectorEncoder | None = None,
    progress: Progress | None = None,
    *,
    repair: bool = False,
    trust_database: bool = False,
    wait_seconds: float = 0.0,
) -> Report:
    """Read the whole store and report everything that could change an answer.

    Parameters
    ----------
    store
        Folder of the store.
    embedder
        Needed only if the store was made with an embedder that is not ragembed's own.
    progress
        Where progress is shown.
    repair
        Rebuild what can be rebuilt: indexes from raw vectors, raw vectors from texts. The report then says what was
        repaired and what is left.
    trust_database
        Take the rows of the database as they are if they agree with one another but not with their digests, or if
        commits are lost. Without it, both are damage that cannot be repaired.
    wait_seconds
        How long to wait for another process that writes to the store; nobody writes to it during the verification.

    Raises
    ------
    StoreLockedError
        Another process writes to the store for longer than ``wait_seconds``.
    StoreNotFoundError, IncompatibleStoreError
        There is no store, or it has another format.
    """
    path = require_store(Path(store))
    progress = progress or SilentProgress()
    with _alone(path, wait_seconds):
        report = _Verification(path, embedder, progress).run()
        if not repair or not (report.problems or report.leftovers) or not has_application_id(path / DATABASE):
            return report
        notes = repair_store(path, report, embedder, progress, trust_database=trust_database)
        after = _Verification(path, embedder, progress).run()
    after.repaired = [problem for problem in report.problems if problem not in after.problems]
    after.notes += notes
    return after


@contextmanager
def _alone(store: Path, wait_seconds: float) -> Iterator[None]:
    if not os.access(store, os.W_OK) or not has_application_id(store / DATABASE):
        yield  # nobody writes to a folder that cannot be written, nor to a database of another program
        return
    with writer_lock(store, wait_seconds):
        yield


class _Verification:
    """Checks in order; what is damaged is not read any further."""

    def __init__(self, store: Path, given: VectorEncoder | None, progress: Progress) -> None:
        self._store = store
        self._given = given
        self._progress = progress
        self._report = Report()

    def run(self) -> Report:
        self._check_folder()
        try:
            with closing(schema.connect(self._store / DATABASE, writable=False)) as connection:
                connection.execute("BEGIN")
                self._report.problems += database.check_rows(self._store, connection)
                self._report.problems += database.check_structure(connection)
                self._check_words()
                if not self._report.parts() & {Part.DATABASE, Part.ROWS}:
                    self._report.problems += files.check_postings(self._store, connection)
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
        held = ignore.read_bytes() if ignore.is_file() and not ignore.is_symlink() else b""
        if held != GITIGNORE_TEXT and GITIGNORE_TEXT.startswith(held):
            self._add(Part.FOLDER, GITIGNORE, f"it does not hold {GITIGNORE_TEXT.decode().strip()!r}")
        elif held != GITIGNORE_TEXT:
            self._note(f"{GITIGNORE} was changed: the store may come under version control")
        for name in (SEGMENTS, EMBEDDERS, POSTINGS):
            if (self._store / name).is_symlink():
                self._add(Part.DATABASE, name, "it is a symbolic link, which no store has")

    def _check_words(self) -> None:
        if not os.access(self._store, os.W_OK):
            self._note("the full-text index was not checked: the folder cannot be written")
            return
        try:
            self._report.problems += database.check_words(self._store)
        except (ConfigError, MissingExtraError) as error:  # its language cannot be stemmed here
            self._note(f"the full-text index was not checked: {error}")

    def _check_vectors(self, connection: sqlite3.Connection) -> None:
        report = self._report
        embedder = self._embedder(connection)
        report.problems += files.check_baseline(self._store, connection)
        records = catalog.segments(connection)
        report.chunks, report.segments = catalog.count(connection, "chunks"), len(records)
        self._progress.start("verifying", "vectors", sum(record.files.rows for record in records))
        for record in records:
            wrong = list(files.check_files(self._store, record.files, Part.RAW, Part.INDEX, record.key))
            wrong += files.check_contents(self._store, connection, record, embedder) if not wrong else ()
            report.problems += wrong
            report.vectors += record.files.rows
            self._progress.advance(record.files.rows)
        for taking_over in catalog.rewritten(connection):
            report.problems += files.check_files(
                self._store, taking_over.files, Part.REWRITTEN, Part.REWRITTEN, taking_over.key
            )
        self._progress.finish()
        self._note_leftovers(SEGMENTS, [record.files.folder for record in (*records, *catalog.rewritten(connection))])
        self._note_leftovers(POSTINGS, [record.files.folder for record in named_postings(connection)])
        if embedder is not None and Part.RAW not in report.parts():
            self._check_canaries(connection, records, embedder)

    def _embedder(self, connection: sqlite3.Connection) -> VectorEncoder | None:
        record = catalog.embedder(connection)
        wrong = list(files.check_embedder_files(self._store, record))
        self._report.problems += wrong
        if self._given is not None and self._given.fingerprint == record["fingerprint"]:
            return self._given
        if wrong:
            return None
        if record["kind"] != "ragembed":
            self._note(
                f"vectors were not compared with texts: they were made by {record['model']}, and the store was not "
                "opened with it"
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
            self._note(f"{len(left)} folders below {name} belong to no commit: the next run removes them")

    def _add(self, part: Part, file: str, message: str) -> None:
        self._report.problems.append(Problem(part, file, message))

    def _note(self, message: str) -> None:
        self._report.notes.append(message)
