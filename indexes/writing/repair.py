"""Repair: rebuild an index from the raw vectors, raw vectors and postings from the texts, and the embedder.

Damaged derived files are dropped. Postings are made again at once, hubness by the next run, queries by the next fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from ragembed.corpus import Reservoir
from ragembed.embedder import FIT_LIMIT
from ragembed.errors import RagembedError
from ragembed.files import publish, replace_file
from ragembed.indexes.storage import catalog, compaction, derived, digests
from ragembed.indexes.storage.embedders import embedder_record, load_embedder, unfitted_embedder
from ragembed.indexes.storage.folders import temporary_folder
from ragembed.indexes.storage.layout import DATABASE, EMBEDDERS, GITIGNORE, GITIGNORE_TEXT
from ragembed.indexes.storage.posting_files import update_postings
from ragembed.indexes.storage.segments import SegmentFiles, SegmentRecord, same_kind, to_raw, write_segment
from ragembed.indexes.storage.transactions import (
    DATABASE_REMEDIES,
    Database,
    committed_file,
    open_for_writing,
    write_errors,
)
from ragembed.indexes.types import VectorEncoder
from ragembed.indexes.writing.integrity import Part, Report
from ragembed.progress import Progress

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
                    digests.renew(database.connection)
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
            given = self._given is not None and self._given.fingerprint == record["fingerprint"]
            if Part.EMBEDDER in self._parts and not given:
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
            texts = catalog.texts_of_rows(connection, rows[start : start + _BATCH])
            blocks.append(to_raw(embedder.raw_documents(texts, self._progress.advance)))
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
