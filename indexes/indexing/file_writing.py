"""Write chunked files into a store: commit their words, remove files that are gone, and encode texts without vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ragembed.corpus import blocks, grouped
from ragembed.documents.model import Chunk
from ragembed.extras import is_installed
from ragembed.indexes.indexing.scan import ChunkedFiles, Scan
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, SourceRecord, VectorEncoder, chunk_ids
from ragembed.indexes.writing.boilerplate_store import StrippingPlan, restripped, strip_all
from ragembed.indexes.writing.writer import BATCH, StoreWriter
from ragembed.progress import Progress
from ragembed.resources import give_back
from ragembed.types import Floats
from ragembed.version import install_command

MANY_TEXTS = 128
"""Number of encoded texts from which a run recommends to install PyTorch."""

PART = 1 << 17
"""Number of characters of texts that a model on the CPU encodes at once, about a second of work for a small model.

Smaller parts waste time on batches that are not full. GPUs and other extractors encode a whole batch quickly.
"""

_SERVED_PART = 64
"""Number of texts that a model behind a server encodes at once. Fewer paid vectors are lost in an interruption."""


def write_files(
    store: Store,
    writer: StoreWriter,
    files: ChunkedFiles,
    scan: Scan,
    plan: StrippingPlan,
    progress: Progress,
    written: Mapping[str, SourceRecord] = MappingProxyType({}),
) -> tuple[int, tuple[str, ...]]:
    """Commit the words of ``files``, and the other changes of ``scan`` and ``plan``; then encode what has no vector.

    Batches of files that are ``written`` already, by name, are left out. Return the number of texts that the model
    encoded, also of an interrupted run before, and PyTorch's names of the devices that did.
    """
    if files.lines or plan.again:
        writer.set_meta({"unfinished": True})
    writer.keep_lines(plan.uncounted)
    progress.start("reading words", "chunks", files.chunks)
    stripped = ((source, strip_all(plan.stripper, source, chunks)) for source, chunks in files)
    for batch in grouped(stripped, lambda file: len(file[1]), BATCH):
        if not all(written.get(source.path) == source for source, _ in batch):
            _commit_words(writer, files, batch)
        progress.advance(sum(len(chunks) for _, chunks in batch))
    # Remove files last: a moved file is searchable at any moment.
    writer.commit(removed_sources=scan.removed)
    writer.touch_sources(scan.touched)
    writer.set_skipped(scan.skipped, scan.roots)
    changed = (restripped(plan.stripper, list(store.chunks(path))) for path in plan.again)
    for group in grouped(changed, len, BATCH):
        writer.search_by([record for records in group for record in records])
    if (lines := plan.lines()) != plan.before:
        writer.keep_boilerplate(lines)
    progress.finish()
    writer.refresh_postings(progress)
    encoder = RunEncoder(store.embedder)
    encoded = writer.encode_waiting(encoder.parts, progress)
    writer.merge()
    return encoded, encoder.devices if encoded else ()


def _commit_words(
    writer: StoreWriter, files: ChunkedFiles, batch: Sequence[tuple[SourceRecord, Sequence[Chunk]]]
) -> None:
    records = [
        ChunkRecord(chunk_id, chunk, source.path)
        for source, chunks in batch
        for chunk_id, chunk in zip(chunk_ids(source.path, chunks), chunks, strict=True)
    ]
    lines = {source.path: files.lines[source.path][1] for source, _ in batch}
    writer.commit(chunks=records, sources=[source for source, _ in batch], lines=lines)


class RunEncoder:
    """Encodes the documents of a run with ``embedder``, without PyTorch if importing it would take longer.

    The decision depends only on the number and length of the texts in a batch, and so do the parts in which the batch
    is encoded. ``devices`` are PyTorch's names of the devices that encoded texts, empty for an embedder from outside
    ragembed.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self.devices: tuple[str, ...] = ()

    def parts(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of a batch in order, in parts that can be saved one by one."""
        embedder = self._embedder.refittable
        if embedder is None:
            yield self._embedder.raw_documents(texts, progress)
            return
        if embedder.is_remote:
            for part in blocks(texts, _SERVED_PART):
                yield embedder.raw_documents(part, progress)
            return
        without_torch = embedder.raw_without_framework(texts, progress)
        devices = ("cpu",) if without_torch is not None else embedder.device_names()
        self.devices = tuple(dict.fromkeys([*self.devices, *devices]))
        if without_torch is not None:
            yield without_torch
            return
        parts: Iterable[Sequence[str]] = grouped(texts, len, PART) if set(devices) == {"cpu"} else [texts]
        for some in parts:
            yield embedder.raw_documents(some, progress)
            give_back()


def finish_files(writer: StoreWriter, boilerplate: str) -> None:
    """Record that all files are written, with the treatment of ``boilerplate``, and merge the segments."""
    done = writer.done_stripping(boilerplate)
    if writer.meta("unfinished") or writer.meta("boilerplate") != done:
        writer.set_meta({"unfinished": False, "boilerplate": done})
    writer.merge()


def slow_model(store: Store, encoded: int, *, fitted: bool) -> list[str]:
    """Return a note if NumPy computed the model for many texts; ``fitted`` says if the run has fitted."""
    embedder = store.embedder.refittable
    if encoded < MANY_TEXTS or embedder is None or is_installed("openvino") or is_installed("torch"):
        return []
    if not (embedder.encodes_with_model or (fitted and embedder.fits_with_model)):
        return []
    return [f"the model ran with NumPy; PyTorch is faster: {install_command('torch')}"]
