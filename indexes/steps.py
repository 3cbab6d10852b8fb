"""The parts of an indexing run that can be done by one process or by many: reading, fitting, encoding.

What is read before them and written after them is the same, in the same order, whoever does them: see :mod:`indexing`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragembed.documents.boilerplate import Keys, Stripper
from ragembed.documents.model import Chunk
from ragembed.documents.places import Place
from ragembed.embedder import Embedder
from ragembed.indexes.boilerplate_store import strip_all
from ragembed.indexes.progress import Progress
from ragembed.indexes.records import SourceRecord
from ragembed.indexes.run_encoding import RunEncoder
from ragembed.indexes.scan import IndexingOptions, Scan, Scanner
from ragembed.indexes.spool import Spool

Floats = NDArray[np.float32]
Known: TypeAlias = Callable[[Iterable[bytes]], Collection[bytes]]
"""Returns those hashes of texts that the store has a vector for."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is to be compared with the store: ``paths``, those that are ``gone``, and the files it is ``known`` to hold.

    ``embedder`` splits texts into tokens; it need not be fitted. ``generation`` is the store's, None where there is
    none yet, and ``mark`` what it keeps of a run that is to be carried on.
    """

    store: Path
    options: IndexingOptions
    known: Mapping[str, SourceRecord]
    paths: Sequence[Place]
    gone: Sequence[Place]
    embedder: Embedder
    generation: int | None = None
    mark: str | None = None

    def scanner(self) -> Scanner:
        """Return what compares the files."""
        embedder = self.embedder
        return Scanner(self.store, self.options, self.known, embedder.tokenizer, embedder.text_tokens)


class Gathered(Protocol):
    """The files that are to be written, in the order in which they were found."""

    @property
    def files(self) -> int:
        """How many files there are."""
        ...

    @property
    def chunks(self) -> int:
        """How many chunks they have."""
        ...

    @property
    def lines(self) -> Mapping[str, tuple[str, Keys]]:
        """Of each file, by name, the hash of its content and the keys of its lines."""
        ...

    def __iter__(self) -> Iterator[tuple[SourceRecord, list[Chunk]]]:
        """Yield each file and its chunks."""
        ...


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a stage took: its tasks, and the files or chunks that they were about.

    ``seconds`` are those from its beginning to its end, ``busy`` those of all tasks together, and ``memory`` is the
    most that one of its workers had, in MiB. What was done by an earlier run is not counted.
    """

    stage: str
    tasks: int
    items: int
    seconds: float
    busy: float
    memory: float


class Steps(Protocol):
    """Does the parts, in this order; used as a context manager, at whose end what it keeps for itself goes."""

    writing: str
    """What the progress calls the writing of chunks."""

    @property
    def mark(self) -> str | None:
        """What the store keeps until the run is done, by which an interrupted one is known again; None for nothing."""
        ...

    @property
    def reports(self) -> Sequence[StageReport]:
        """The stages so far, where there are any."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """PyTorch's names of the devices that texts were encoded on."""
        ...

    def scan(self, sources: Sources, progress: Progress) -> tuple[Gathered, Scan]:
        """Read and chunk the files that differ from what the store holds."""
        ...

    def fit(self, embedder: Embedder, stripper: Stripper, progress: Progress) -> None:
        """Fit token weights and static vectors of ``embedder`` on the chunks that were gathered."""
        ...

    def prepare(self, embedder: Embedder, stripper: Stripper, known: Known, progress: Progress) -> None:
        """Get ready to :meth:`encode` what is gathered and not ``known``; ``embedder`` is fitted."""
        ...

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the raw vectors of ``texts``, float32, shape ``(n, d)``; ``progress`` is told how many are done."""
        ...

    def __enter__(self) -> Steps: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OneProcess:
    """The parts done here, one after the other."""

    writing = "embedding"
    mark = None
    reports: Sequence[StageReport] = ()

    def __init__(self) -> None:
        self._encoder: RunEncoder | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that texts were encoded on."""
        return () if self._encoder is None else self._encoder.devices

    def scan(self, sources: Sources, progress: Progress) -> tuple[Gathered, Scan]:
        """Read and chunk the files that differ from what the store holds."""
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
        """Take ``embedder`` to encode with."""
        self._encoder = RunEncoder(embedder)

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the raw vectors of ``texts``."""
        assert self._encoder is not None, "prepare comes before encode"  # noqa: S101  an order that the run keeps
        return self._encoder(texts, progress)

    def __enter__(self) -> OneProcess:
        self._spool = Spool()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()
