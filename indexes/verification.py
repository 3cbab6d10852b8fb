"""Verification of a store, from the bytes of its files to the texts of its vectors, and repair of what is damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np

from ragembed.corpus import Reservoir
from ragembed.embedder import FIT_LIMIT
from ragembed.errors import ConfigError, IncompatibleStoreError, RagembedError
from ragembed.files import open_regular, publish, replace_file
from ragembed.indexes import integrity
from ragembed.indexes.integrity import Part, Problem, Report
from ragembed.indexes.storage import catalog, compaction, derived, schema
from ragembed.indexes.storage.embedders import embedder_record, load_embedder, unfitted_embedder
from ragembed.indexes.storage.folders import has_application_id, temporary_folder
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
from ragembed.indexes.storage.posting_files import update_postings
from ragembed.indexes.storage.segments import RAW_TYPE, SegmentFiles, SegmentRecord, same_kind, to_raw, write_segment
from ragembed.indexes.storage.transactions import (
    DATABASE_REMEDIES,
    Database,
    committed_file,
    open_for_writing,
    write_errors,
)
from ragembed.indexes.types import VectorEncoder
from ragembed.progress import Progress, progress_for

_BATCH = 1024


def repair_store(
    store: Path, report: Report, given: VectorEncoder | None, progress: Progress, *, trust_database: bool
) -> list[str]:
    """Rebuild the damaged parts in ``report``; return notes on those that could not be rebuilt.

    The caller must hold the writer lock.
    """
    lost = f"{DATABASE} holds the texts and cannot be rebuilt"
    if Part.DATABASE in report.parts():
        return [f"{lost}: restore a copy, or delete {store} and index again"]
    if report.parts() & {Part.ROWS, Part.LOG} and not trust_database:
        return [f"{lost}: {DATABASE_REMEDIES}"]
    try:
        with write_errors(store):
            _Repair(store, report, given, progress).run()
    except RagembedError as error:
        return [f"cannot rebuild everything: {error}"]
    return []


class _Repair:
    def __init__(self, store: Path, report: Report, given: VectorEncoder | None, progress: Progress) -> None:
        self._store = store
        self._report = report
        self._given = given
        self._progress = progress
        self._parts = report.parts()

    def run(self) -> None:
        if Part.FOLDER in self._parts:
            replace_file(self._store / GITIGNORE, GITIGNORE_TEXT)
        if Part.LOG in self._parts:
            committed_file(self._store / DATABASE).unlink()
        with open_for_writing(self._store / DATABASE) as database:
            if Part.ROWS in self._parts:
                with database.transaction():
                    schema.renew(database.connection)
            if Part.WORDS in self._parts:
                with database.transaction():
                    database.rebuild_words()
            damaged = [name for name in derived.NAMES if Part(name) in self._parts]
            with database.transaction() if damaged else nullcontext():
                for name in damaged:
                    derived.forget(database.connection, name)
            if Part.REWRITTEN in self._parts:
                with database.transaction():
                    database.connection.execute("DELETE FROM rewritten")
            record = catalog.embedder(database.connection)
            is_given = self._given is not None and self._given.fingerprint == record["fingerprint"]
            if Part.EMBEDDER in self._parts and not is_given:
                self._fit_again(database)
            else:
                if Part.EMBEDDER in self._parts:
                    self._save(database, self._embedder(database), [])
                if self._parts & {Part.RAW, Part.INDEX}:
                    self._restore_segments(database, self._embedder(database))
            if self._parts & {Part.WORDS, Part.POSTINGS}:
                update_postings(self._store, database, self._progress)
            compaction.sweep_unnamed(self._store, database.connection)

    # Segments

    def _restore_segments(self, database: Database, embedder: VectorEncoder) -> None:
        damaged = {(problem.part, problem.segment) for problem in self._report.problems}
        for record in catalog.segments(database.connection):
            if (Part.RAW, record.key) in damaged:
                self._encode_again(database, record, embedder)
            elif (Part.INDEX, record.key) in damaged:
                files = self._reindexed(database, record, embedder)
                with database.transaction():
                    compaction.replace_files(database.connection, record.key, files)

    def _reindexed(self, database: Database, record: SegmentRecord, embedder: VectorEncoder) -> SegmentFiles:
        blocks = compaction.segment_raw(self._store, database.connection, record)
        make = same_kind(record.files)
        return write_segment(self._store, blocks, embedder.postprocess_documents, make)[0]

    def _encode_again(self, database: Database, record: SegmentRecord, embedder: VectorEncoder) -> None:
        """Rebuild a segment's raw vectors from the texts of its chunks; drop vectors that no chunk uses."""
        connection = database.connection
        dead = set(catalog.dead_rows(connection).tolist())
        rows = [row for row in catalog.rows_of_segment(connection, record.key).tolist() if row not in dead]
        blocks = [np.zeros((0, catalog.meta(connection, "dim")), dtype=np.float16)]
        self._progress.start("embedding", "chunks", len(rows))
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            texts = catalog.texts_of_rows(connection, batch)
            blocks.append(to_raw(embedder.raw_documents([texts[row] for row in batch], self._progress.advance)))
        self._progress.finish()
        new = []
        if rows:
            whole = [(np.array(rows, dtype=np.int64), np.concatenate(blocks))]
            new = [write_segment(self._store, whole, embedder.postprocess_documents, same_kind(record.files))]
        with database.transaction():
            compaction.swap(connection, compaction.Rewritten([record], new))

    # Embedder

    def _embedder(self, database: Database) -> VectorEncoder:
        record = catalog.embedder(database.connection)
        if self._given is not None and self._given.fingerprint == record["fingerprint"]:
            return self._given
        if record["kind"] != "ragembed":
            raise RagembedError(f"the vectors were made by {record['model']}: open the store with it to rebuild them")
        return load_embedder(self._store, record)

    def _save(self, database: Database, embedder: VectorEncoder, segments: Sequence[SegmentRecord]) -> None:
        """Write the embedder's files again, and rebuild the indexes of ``segments`` with its vectors."""
        final = self._store / EMBEDDERS / embedder.fingerprint
        temporary = temporary_folder(final)
        embedder.save(str(temporary))
        record = embedder_record(self._store, embedder, temporary)
        rewritten = {segment.key: self._reindexed(database, segment, embedder) for segment in segments}
        damaged = final.exists()
        if not damaged:
            publish(temporary, final)
        with database.transaction():
            for key, files in rewritten.items():
                compaction.replace_files(database.connection, key, files)
            database.connection.execute("DELETE FROM rewritten")
            if embedder.fingerprint != catalog.embedder(database.connection)["fingerprint"]:
                derived.forget(database.connection, derived.QUERIES)
            catalog.set_meta(database.connection, "embedder", record)
            derived.forget(database.connection, derived.HUBNESS)
        # Replace damaged files last. If the process is killed earlier, the next repair finds them damaged again.
        if damaged:
            shutil.rmtree(final)
            publish(temporary, final)

    def _fit_again(self, database: Database) -> None:
        """Fit the embedder again on the texts in the store, after rebuilding damaged raw vectors."""
        connection = database.connection
        record = catalog.embedder(connection)
        if record["kind"] != "ragembed":
            raise RagembedError(f"the vectors were made by {record['model']}: open the store with it to rebuild them")
        embedder = unfitted_embedder(self._store, record).fit_extractor(catalog.embedded_texts(connection))
        if embedder.raw_fingerprint != record["raw_fingerprint"]:
            raise RagembedError(
                "cannot fit the token weights of the damaged embedder again, because the corpus has changed since the "
                f"fit: delete {self._store} and index again"
            )
        provisional = embedder.with_postprocess(("normalize",), "shared")
        self._restore_segments(database, provisional.fit_chain(np.zeros((1, 1), dtype=np.float32), []))
        sample = Reservoir(FIT_LIMIT, embedder.config.seed)
        for _, raw in compaction.live_raw(self._store, connection, catalog.segments(connection)):
            sample.add(raw)
        embedder.fit_chain(sample.rows(), catalog.embedded_texts(connection))
        self._save(database, embedder, catalog.segments(connection))


MOST_COMPARED = 1_000_000
"""Number of vectors up to which :func:`verify_snapshot` compares texts and indexes with them."""


def verify_store(
    store: str | Path,
    embedder: VectorEncoder | None = None,
    progress: Progress | bool | None = None,
    *,
    repair: bool = False,
    trust_database: bool = False,
    wait_seconds: float = 0.0,
) -> Report:
    """Check every file and row of a store for damage, and ``repair`` it; see :meth:`ragembed.Store.verify`.

    ``embedder`` is only needed for a store that was made with another one than :class:`ragembed.Embedder`.
    """
    path, listener = require_store(Path(store)), progress_for(progress)
    with _without_writers(path, wait_seconds):
        report = _verified(path, embedder, listener)
        if not repair or not (report.problems or report.leftovers) or not has_application_id(path / DATABASE):
            return report
        notes = repair_store(path, report, embedder, listener, trust_database=trust_database)
        after = _verified(path, embedder, listener)
    after.repaired = [problem for problem in report.problems if problem not in after.problems]
    after.notes += notes
    return after


def verify_snapshot(
    store: Path, connection: sqlite3.Connection, embedder: VectorEncoder | None, progress: Progress
) -> Report:
    """Check the snapshot that ``connection`` reads, without the writer lock and without writing anything.

    The checks are those of :func:`verify_store`, with three exceptions. The full-text index is searched for some of the
    chunks. In stores of more than ``MOST_COMPARED`` chunks, hashes and digests stand for comparing texts and indexes
    with vectors. Nothing is sent to the server of a model.

    A writer may remove files of this generation meanwhile. If there are problems, check that the generation of the
    store is still the same.
    """
    return _Verification(store, embedder, progress, locked=False).run(nullcontext(connection))


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
    yield from integrity.check_structure(connection)
    yield from integrity.check_rows(store, connection)
    yield from integrity.check_embedder_files(store, catalog.embedder(connection))
    yield from integrity.check_derived(store, connection)
    for record in catalog.segments(connection):
        damaged = list(integrity.check_files(store, record.files, Part.RAW, Part.INDEX, record.key))
        yield from damaged or integrity.check_contents(store, connection, record, None)


@contextmanager
def _without_writers(store: Path, wait_seconds: float) -> Iterator[None]:
    if not os.access(store, os.W_OK) or not has_application_id(store / DATABASE):
        yield  # Nobody else can be writing: the folder is read-only, or the database belongs to another program.
        return
    with writer_lock(store, wait_seconds):
        yield


def _verified(store: Path, embedder: VectorEncoder | None, progress: Progress) -> Report:
    return _Verification(store, embedder, progress, locked=True).run(_opened(store))


@contextmanager
def _opened(store: Path) -> Iterator[sqlite3.Connection]:
    with closing(schema.connect(store / DATABASE, writable=False)) as connection:
        connection.execute("BEGIN")
        yield connection


class _Verification:
    """The checks in their order. A part that is damaged is not read any further.

    ``locked`` says that nobody else can write. Without the lock, nothing is written or sent, and large stores are
    checked in part.
    """

    def __init__(self, store: Path, given: VectorEncoder | None, progress: Progress, *, locked: bool) -> None:
        self._store = store
        self._given = given
        self._progress = progress
        self._locked = locked
        self._report = Report()

    def run(self, opened: AbstractContextManager[sqlite3.Connection]) -> Report:
        """Check the store from the connection ``opened``, which is in a transaction."""
        self._check_folder()
        try:
            with opened as connection:
                self._check(connection)
        except IncompatibleStoreError:
            raise
        except (RagembedError, sqlite3.DatabaseError) as error:
            self._add(Part.DATABASE, DATABASE, str(error))
        return self._report

    def _check(self, connection: sqlite3.Connection) -> None:
        report = self._report
        compares = self._locked or catalog.count(connection, "vectors") <= MOST_COMPARED
        if not compares:
            report.notes.append(
                "the store is large, so its texts and indexes were compared with their hashes, but not with the "
                "vectors: 'ragembed doctor --integrity' compares these too"
            )
        report.problems += integrity.check_rows(self._store, connection)
        report.problems += integrity.check_structure(connection, texts=compares)
        if Part.LOG not in report.parts():  # A writable connection would copy a wrong log into the database.
            self._check_words(connection)
        if not report.parts() & {Part.DATABASE, Part.ROWS}:
            report.problems += integrity.check_derived(self._store, connection)
            self._check_vectors(connection, compares=compares)

    def _check_folder(self) -> None:
        files = [file for file in self._store.rglob("*") if file.is_file()]
        self._report.files, self._report.bytes = len(files), sum(file.stat().st_size for file in files)
        text = b""
        with suppress(OSError), open_regular(self._store / GITIGNORE, self._store) as file:
            text = file.read(len(GITIGNORE_TEXT) + 1)
        if text != GITIGNORE_TEXT and GITIGNORE_TEXT.startswith(text):
            self._add(Part.FOLDER, GITIGNORE, f"the file does not contain {GITIGNORE_TEXT.decode().strip()!r}")
        elif text != GITIGNORE_TEXT:
            self._report.notes.append(f"{GITIGNORE} was changed: version control may include the store")
        for name in (SEGMENTS, EMBEDDERS, DERIVED):
            if (self._store / name).is_symlink():
                self._add(Part.DATABASE, name, "the folder is a symbolic link: expected a real folder")

    def _check_words(self, connection: sqlite3.Connection) -> None:
        report, unchecked = self._report, "the full-text index was not checked"
        if not self._locked:
            report.problems += integrity.check_some_words(connection)
            if catalog.count(connection, "chunks") > integrity.SEARCHED:
                report.notes.append(
                    "the full-text index was searched for some of the chunks only: 'ragembed doctor --integrity' "
                    "checks all of it"
                )
        elif not os.access(self._store, os.W_OK):
            report.notes.append(f"{unchecked}: the folder is not writable")
        else:
            try:
                report.problems += integrity.check_words(self._store)
            except ConfigError as error:  # No stemmer for its language is installed.
                report.notes.append(f"{unchecked}: {error}")

    def _check_vectors(self, connection: sqlite3.Connection, *, compares: bool) -> None:
        report, embedder = self._report, self._embedder(connection)
        records, rewritten = catalog.segments(connection), catalog.rewritten(connection)
        report.chunks, report.segments = catalog.count(connection, "chunks"), len(records)
        self._progress.start("verifying", "vectors", sum(record.files.rows for record in records))
        for record in records:
            problems = list(integrity.check_files(self._store, record.files, Part.RAW, Part.INDEX, record.key))
            if compares and not problems:
                problems += integrity.check_contents(self._store, connection, record, embedder)
            report.problems += problems
            report.vectors += record.files.rows
            self._progress.advance(record.files.rows)
        for record in rewritten:
            part = Part.REWRITTEN
            report.problems += integrity.check_files(self._store, record.files, part, part, record.key)
        self._progress.finish()
        self._note_leftovers(SEGMENTS, [record.files.folder for record in (*records, *rewritten)])
        self._note_leftovers(DERIVED, [record.file for record in derived.records(connection)])
        if embedder is not None and Part.RAW not in report.parts():
            self._check_canaries(connection, records, embedder)

    def _embedder(self, connection: sqlite3.Connection) -> VectorEncoder | None:
        record = catalog.embedder(connection)
        problems = list(integrity.check_embedder_files(self._store, record))
        self._report.problems += problems
        if self._given is not None and self._given.fingerprint == record["fingerprint"]:
            return self._given
        if problems:
            return None
        if record["kind"] != "ragembed":
            self._report.notes.append(
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
            self._report.notes.append(f"no text was encoded again, because this would send it to the server of {model}")
            return
        raw_of = {}
        for record in records:
            raw = np.memmap(self._store / SEGMENTS / record.files.folder / RAW, dtype=RAW_TYPE, mode="r")
            raw_of[record.key] = raw.reshape(record.files.rows, -1)
        for message in integrity.check_canaries(connection, embedder, raw_of):
            self._add(Part.CANARY, EMBEDDERS, message)
        self._report.canaries = min(integrity.CANARIES, self._report.chunks)

    def _note_leftovers(self, name: str, named: list[str]) -> None:
        folder = self._store / name
        left = [entry for entry in folder.iterdir() if entry.name not in named] if folder.is_dir() else []
        if left:
            self._report.leftovers += len(left)
            self._report.notes.append(f"{len(left)} entries of {name} belong to no commit: the next run removes them")

    def _add(self, part: Part, file: str, message: str) -> None:
        self._report.problems.append(Problem(part, file, message))
