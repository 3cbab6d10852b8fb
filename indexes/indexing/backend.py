"""The parts of an indexing run that one process or several workers can do: reading, fitting, encoding.

:mod:`indexing` does all else, in the same order whichever backend does these parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeAlias

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
"""Returns those hashes of texts that the store has a vector for."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a run compares with the store: ``paths``, those that are ``gone``, and the files that the store holds.

    ``embedder`` splits texts into tokens and need not be fitted. ``generation`` is the store's, None for a new store.
    ``resume_token`` is the one that an interrupted run has left in the store.
    """

    store: Path
    options: IndexingOptions
    known: Mapping[str, SourceRecord]
    paths: Sequence[Place]
    gone: Sequence[Place]
    embedder: Embedder
    generation: int | None = None
    resume_token: str | None = None

    def scanner(self) -> Scanner:
        """Return what compares the files."""
        embedder = self.embedder
        return Scanner(self.store, self.options, self.known, embedder.tokenizer, embedder.text_tokens)


class ChunkedFiles(Protocol):
    """The files to write, in the order in which they were found."""

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
        """For each file, by name, the hash of its content and the keys of its lines."""
        ...

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield each file and its chunks."""
        ...


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage did and cost: its tasks, and the number of files or chunks that they were about.

    ``seconds`` is the duration of the stage, ``busy`` the sum over its tasks, and ``memory`` the peak of one worker, in
    MiB. Tasks that an earlier run has done are not counted.
    """

    stage: str
    tasks: int
    items: int
    seconds: float
    busy: float
    memory: float


class IndexingBackend(Protocol):
    """Reads, fits and encodes, in the order of these methods; a context manager that releases what it holds."""

    writing: str
    """What the progress calls the writing of chunks."""

    @property
    def resume_token(self) -> str | None:
        """What the store keeps until the run is done, so that the next run can carry on; None if it cannot."""
        ...

    @property
    def reports(self) -> Sequence[StageReport]:
        """The stages so far, if there are any."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that texts were encoded on."""
        ...

    def scan(self, sources: Sources, progress: Progress) -> tuple[ChunkedFiles, Scan]:
        """Read and chunk the files that differ from those in the store."""
        ...

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Fit token weights and static vectors of ``embedder`` on the chunks."""
        ...

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:
        """Get ready to :meth:`encode` the chunks that are not ``known``; ``embedder`` is fitted."""
        ...

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the raw vectors of ``texts``, float32, shape ``(n, d)``; ``progress`` gets the number of new ones."""
        ...

    def __enter__(self) -> IndexingBackend: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalBackend:
    """Does everything in this process."""

    writing = "embedding"
    resume_token = None
    reports: Sequence[StageReport] = ()

    def __init__(self) -> None:
        self._encoder: RunEncoder | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that texts were encoded on."""
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
        """Encode with ``embedder`` from now on."""
        self._encoder = RunEncoder(embedder)

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the raw vectors of ``texts``."""
        assert self._encoder is not None, "prepare comes before encode"  # noqa: S101  an order that the run keeps
        return self._encoder(texts, progress)

    def __enter__(self) -> LocalBackend:
        self._spool = Spool()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()


class RunEncoder:
    """Encodes documents of a run with ``embedder``: without PyTorch if importing it would take longer.

    Only the number and length of texts that are encoded together decide whether PyTorch is used, so that an interrupted
    run, one with workers and an undisturbed one make the same vectors.
    """

    def __init__(self, embedder: VectorEncoder) -> None:
        self._embedder = embedder
        self._devices: dict[str, None] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that texts were encoded on; empty if the embedder is not ragembed's own."""
        return tuple(self._devices)

    def __call__(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; ``progress`` gets the number of new ones now and then."""
        embedder = self._embedder
        if not isinstance(embedder, Embedder):
            return embedder.raw_documents(texts, progress)
        alone = embedder._raw_without_framework(texts, progress)
        if alone is not None:
            self._devices["cpu"] = None
            return alone
        self._devices.update(dict.fromkeys(embedder.device_names()))
        vectors = embedder.raw_documents(texts, progress)
        give_back()
        return vectors
