"""The stages of an indexing run that one process or several workers can run: reading, fitting, encoding.

:mod:`ragembed.indexes.indexing.run` does the rest, in the same order for every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeAlias

from ragembed.corpus import blocks, grouped
from ragembed.documents.boilerplate import LineKeys, Stripper
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place
from ragembed.embedder import Embedder
from ragembed.indexes.indexing.scan import IndexingOptions, Scan, Scanner
from ragembed.indexes.indexing.spool import Spool
from ragembed.indexes.types import Progress, SourceRecord, VectorEncoder
from ragembed.indexes.writing.boilerplate_store import strip_all
from ragembed.resources import give_back
from ragembed.types import Floats

Known: TypeAlias = Callable[[Iterable[bytes]], Collection[bytes]]
"""Returns the hashes of those texts that already have a vector in the store."""


@dataclass(frozen=True, slots=True)
class Present:
    """What exists before a run. ``sources`` are the files of the store, and ``generation`` is that of the store.

    ``embedder`` tokenises texts; it need not be fitted. ``resume_token`` is the token that an interrupted run left in
    the store. Without a store, there are no sources, and ``generation`` is None.
    """

    embedder: Embedder
    sources: Mapping[str, SourceRecord] = field(default_factory=dict)
    generation: int | None = None
    resume_token: str | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """The input of a scan: ``paths`` to read, paths that are ``gone``, and what is ``present`` in the store."""

    store: Path
    options: IndexingOptions
    present: Present
    paths: Sequence[Place]
    gone: Sequence[Place]

    def scanner(self) -> Scanner:
        """Return a scanner that compares the files with the store."""
        embedder = self.present.embedder
        return Scanner(self.store, self.options, self.present.sources, embedder.tokenizer, embedder.text_tokens)


class ChunkedFiles(Protocol):
    """The files to write, in the order of the scan."""

    @property
    def files(self) -> int:
        """Number of files."""
        ...

    @property
    def chunks(self) -> int:
        """Number of chunks in them."""
        ...

    @property
    def lines(self) -> Mapping[str, tuple[str, LineKeys]]:
        """The hash of the content and the keys of the lines of each file, by name."""
        ...

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield each file and its chunks."""
        ...


@dataclass(frozen=True, slots=True)
class StageReport:
    """The work and cost of one stage: the number of tasks, and ``items``, the number of files or chunks processed.

    ``seconds`` is the duration of the stage, ``busy`` the total duration of its tasks, and ``memory`` the peak memory
    of one worker in MiB. Tasks that an earlier run completed are not counted.
    """

    stage: str
    tasks: int
    items: int
    seconds: float
    busy: float
    memory: float


class IndexingBackend(Protocol):
    """Reads, fits and encodes. Call the methods in this order, inside a ``with`` block that releases its resources."""

    writing: str
    """The name of the writing phase in the progress."""

    @property
    def resume_token(self) -> str | None:
        """The token that the store keeps until the run is complete, to resume it; None if it cannot be resumed."""
        ...

    @property
    def reports(self) -> Sequence[StageReport]:
        """The reports of the stages so far."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that encoded texts."""
        ...

    def scan(self, sources: Sources, progress: Progress) -> tuple[ChunkedFiles, Scan]:
        """Read and chunk the files that differ from those in the store."""
        ...

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Fit the token weights and static vectors of ``embedder`` on the chunks."""
        ...

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:
        """Prepare to :meth:`encode` the chunks that are not ``known`` with the fitted ``embedder``."""
        ...

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of ``texts`` in order, in parts that can be saved one by one, float32, ``(n, d)``.

        ``progress`` gets the number of new vectors.
        """
        ...

    def __enter__(self) -> IndexingBackend: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalBackend:
    """Runs all stages in this process."""

    writing = "embedding"
    reports: Sequence[StageReport] = ()

    def __init__(self, resume_token: str | None = None) -> None:
        self.resume_token = resume_token
        self._encoder: RunEncoder | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that encoded texts."""
        return () if self._encoder is None else self._encoder.devices

    def scan(self, sources: Sources, progress: Progress) -> tuple[ChunkedFiles, Scan]:
        """Read and chunk the files that differ from those in the store."""
        return self._spool, sources.scanner().scan(sources.paths, sources.gone, self._spool, progress)

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Fit ``embedder`` in one pass over the spool."""

        def texts() -> Iterator[str]:
            for source, chunks in self._spool:
                yield from (chunk.embedded_text for chunk in strip_all(stripper, source, chunks))
                progress.advance(len(chunks))

        progress.start("fitting", "chunks", self._spool.chunks)
        embedder.fit_extractor(texts())
        progress.finish()

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:  # noqa: ARG002  the protocol's signature
        """Use ``embedder`` in :meth:`encode`."""
        self._encoder = RunEncoder(embedder)

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Iterator[Floats]:
        """Yield the raw vectors of ``texts`` in parts."""
        assert self._encoder is not None, "call prepare before encode"  # noqa: S101  the run keeps this order
        return self._encoder.parts(texts, progress)

    def __enter__(self) -> LocalBackend:
        self._spool = Spool()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()


PART = 1 << 17
"""Number of characters of texts that a model on the CPU encodes at once, about a second of work for a small model.

Smaller parts waste time on batches that are not full. GPUs and other extractors encode a whole batch quickly.
"""

_SERVED_PART = 64
"""Number of texts that a model behind a server encodes at once. Fewer paid vectors are lost in an interruption."""


class RunEncoder:
    """Encodes the documents of a run with ``embedder``, without PyTorch if importing it would take longer.

    The decision depends only on the number and length of the texts in a batch, and so do the parts in which the batch
    is encoded. Runs with workers and plain runs therefore make the same vectors.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self._devices: dict[str, None] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that encoded texts; empty for an embedder from outside ragembed."""
        return tuple(self._devices)

    def parts(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None, *, done: int = 0
    ) -> Iterator[Floats]:
        """Yield the raw vectors of a batch in order, in parts that can be saved one by one.

        The first ``done`` texts are left out. They must be whole parts of the same batch.
        """
        embedder = self._embedder
        if not isinstance(embedder, Embedder):
            yield embedder.raw_documents(texts[done:], progress)
            return
        if embedder._is_external:
            for part in blocks(texts[done:], _SERVED_PART):
                yield embedder.raw_documents(part, progress)
            return
        without_torch = embedder._raw_without_framework(texts, progress)
        if without_torch is not None:
            self._devices["cpu"] = None
            yield without_torch[done:]
            return
        devices = embedder.device_names()
        self._devices.update(dict.fromkeys(devices))
        rest, on_cpu = texts[done:], set(devices) == {"cpu"}
        for part in grouped(rest, len, PART) if on_cpu else blocks(rest, len(texts)):
            yield embedder.raw_documents(part, progress)
            give_back()
