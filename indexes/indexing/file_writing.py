"""Write the chunked files of a run into a store: encode, commit batch by batch, and remove files that are gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ragembed.corpus import grouped
from ragembed.documents.model import Chunk
from ragembed.embedder import Embedder
from ragembed.extras import is_installed
from ragembed.indexes.faiss_index.records import IndexConfig
from ragembed.indexes.indexing.calibration import calibrate
from ragembed.indexes.indexing.run_encoder import RunEncoder
from ragembed.indexes.indexing.scan import Scan
from ragembed.indexes.indexing.spool import ChunkedFiles
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Progress, SourceRecord, chunk_ids
from ragembed.indexes.writing.boilerplate_store import StrippingPlan, restripped, strip_all
from ragembed.indexes.writing.writer import BATCH, StoreWriter

MANY_TEXTS = 128
"""Number of encoded texts from which a run recommends to install PyTorch."""


class Written(NamedTuple):
    """The number of texts that the model encoded, and PyTorch's names of the devices that did."""

    encoded: int
    devices: tuple[str, ...]


def write_files(
    store: Store,
    writer: StoreWriter,
    files: ChunkedFiles,
    scan: Scan,
    plan: StrippingPlan,
    progress: Progress,
    written: Mapping[str, SourceRecord] = MappingProxyType({}),
) -> Written:
    """Encode and commit ``files`` in batches, and make the other changes of ``scan`` and ``plan``.

    Batches of files that are ``written`` already, by name, are left out.
    """
    if files.files or plan.again:
        writer.set_meta({"unfinished": True})
    writer.keep_lines(plan.uncounted)
    encoder = RunEncoder(store.embedder)
    encoded = 0
    progress.start("embedding", "chunks", files.chunks)
    stripped = ((source, strip_all(plan.stripper, source, chunks)) for source, chunks in files)
    for batch in grouped(stripped, lambda file: len(file[1]), BATCH):
        texts = [chunk.embedded_text for _, chunks in batch for chunk in chunks]
        if all(written.get(source.path) == source for source, _ in batch):
            progress.keep(len(texts))
            continue
        commit, before = _FileCommits(writer, progress, files, batch), writer.last_segment()
        new = writer.stage(texts, progress.advance, encode=encoder.parts, saved=commit)
        progress.advance(len(texts) - new)
        encoded += new
        writer.merge_since(before, BATCH)
        writer.merge()
    # Remove files last: a moved file is searchable at any moment.
    writer.commit(removed_sources=scan.removed)
    progress.finish()
    writer.touch_sources(scan.touched)
    writer.set_skipped(scan.skipped, scan.roots)
    encoded += _write_stripped(store, writer, plan, encoder, progress)
    return Written(encoded, encoder.devices if encoded else ())


def _write_stripped(
    store: Store, writer: StoreWriter, plan: StrippingPlan, encoder: RunEncoder, progress: Progress
) -> int:
    """Update the searchable text in unchanged files if boilerplate changed; return the number of encoded texts."""
    encoded = 0
    progress.start("embedding", "chunks", None)
    files = (restripped(plan.stripper, list(store.chunks(path))) for path in plan.again)
    for group in grouped(files, len, BATCH):
        batch = [record for records in group for record in records]
        texts = [record.chunk.embedded_text for record in batch]
        encoded += writer.stage(texts, progress.advance, encode=encoder.parts)
        writer.search_by(batch)
        writer.merge()
    progress.finish()
    if (lines := plan.lines()) != plan.before:
        writer.keep_boilerplate(lines)
    return encoded


def finish_store(
    store: Store,
    writer: StoreWriter,
    boilerplate: str,
    index: IndexConfig | None,
    progress: Progress,
    *,
    for_collection: bool = False,
) -> list[str]:
    """Finish a store whose files are written and whose post-processors are fitted; return warnings.

    ``boilerplate`` is the mode of the run, and ``index`` are new requirements for the index, if any. ``for_collection``
    is that of :meth:`StoreWriter.refresh_index`.
    """
    done = writer.done_stripping(boilerplate)
    if writer.meta("unfinished") or writer.meta("boilerplate") != done:
        writer.set_meta({"unfinished": False, "boilerplate": done})
    writer.merge()
    warnings = writer.refresh_index(index, progress, for_collection=for_collection)
    return [*warnings, *calibrate(store, writer, progress)]


def slow_model(store: Store, encoded: int, *, fitted: bool) -> list[str]:
    """Return a note if NumPy, not PyTorch, computed the model for many texts; ``fitted`` says if the run has fitted."""
    embedder = store.embedder
    if encoded < MANY_TEXTS or not isinstance(embedder, Embedder) or is_installed("torch"):
        return []
    if not (embedder._encodes_with_model or (fitted and embedder._fits_with_model)):
        return []
    return ["the model ran with NumPy; PyTorch is faster: pip install 'ragembed[torch]'"]


class _FileCommits:
    """Commits the files of a batch as soon as all of their chunks have vectors."""

    def __init__(
        self,
        writer: StoreWriter,
        progress: Progress,
        files: ChunkedFiles,
        batch: Sequence[tuple[SourceRecord, Sequence[Chunk]]],
    ) -> None:
        self._writer = writer
        self._progress = progress
        self._lines = files.lines
        self._waiting = deque(batch)
        self._saved = self._committed = 0

    def __call__(self, saved: int) -> None:
        """Commit the files whose chunks are among the first ``saved`` chunks of the batch."""
        self._progress.keep(saved - self._saved)
        self._saved = saved
        files = []
        while self._waiting and self._committed + len(self._waiting[0][1]) <= saved:
            files.append(self._waiting.popleft())
            self._committed += len(files[-1][1])
        records = [
            ChunkRecord(chunk_id, chunk, source.path)
            for source, chunks in files
            for chunk_id, chunk in zip(chunk_ids(source.path, chunks), chunks, strict=True)
        ]
        lines = {source.path: self._lines[source.path][1] for source, _ in files}
        self._writer.commit(chunks=records, sources=[source for source, _ in files], lines=lines)
