"""The findings of a diagnosis, and the examination that all checks share."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import RagembedError
from ragembed.indexes.indexing.commands import Commands
from ragembed.indexes.indexing.request import IndexingOptions
from ragembed.indexes.integrity import Part
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord, VectorEncoder
from ragembed.progress import Progress

Severity = Literal["damage", "problem", "hint"]
SEVERITIES: tuple[Severity, ...] = ("damage", "problem", "hint")
"""From worst to best."""

EXAMPLES = 5
"""Maximum number of examples of a finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a store that you can improve, and the command for it.

    Attributes
    ----------
    id : str
        Name of the kind of finding, such as ``"stale"``; the page "Check a store" lists all of them.
    severity : {"damage", "problem", "hint"}
        ``"damage"`` if the store is not as it was committed or cannot be used, ``"problem"`` if results are wrong,
        missing or worse than they could be, ``"hint"`` if you may leave it as it is.
    title : str
        The finding in one line.
    detail : str
        Why it matters, and what to do.
    command : str
        The command that fixes it, for a shell in the present working directory.
    count : int
        Number of files, chunks, languages or reasons that the finding is about; ``examples`` lists the first.
    share : float
        Share of the store that the finding affects, from 0 to 1; estimated if the check reads a sample.
    examples : tuple of str
        Up to five of them; empty if they have no names.

    Examples
    --------
    >>> import ragembed
    >>> finding = ragembed.diagnose(".ragembed").findings[0]  # doctest: +SKIP
    >>> finding.id, finding.severity, finding.command  # doctest: +SKIP
    ('stale', 'problem', 'ragembed index')
    """

    id: str
    severity: Severity
    title: str
    detail: str
    command: str
    count: int = 1
    share: float = 1.0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check that could not run, and the reason.

    Attributes
    ----------
    check : str
        Name of the check, such as ``"drift"``.
    reason : str
        Why it could not run.

    Examples
    --------
    >>> import ragembed
    >>> [skipped.check for skipped in ragembed.diagnose(".ragembed").not_run]  # doctest: +SKIP
    ['drift']
    """

    check: str
    reason: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings on one generation of a store.

    Attributes
    ----------
    path : str
        Folder of the store.
    generation : int or None
        The generation that was examined; None if the store cannot be opened.
    version : str
        Version of ragembed that examined it.
    findings : tuple of Finding
        The findings: damage first, then problems, then hints, and within each those that affect most of the store.
    not_run : tuple of SkippedCheck
        The checks that could not run.
    notes : tuple of str
        What was examined in part only, and why.

    Examples
    --------
    >>> import ragembed
    >>> diagnosis = ragembed.diagnose(".ragembed")  # doctest: +SKIP
    >>> diagnosis.severity, len(diagnosis.findings)  # doctest: +SKIP
    ('problem', 2)
    """

    path: str
    generation: int | None
    version: str
    findings: tuple[Finding, ...]
    not_run: tuple[SkippedCheck, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity | None:
        """Severity of the worst finding, or None if there is no finding."""
        return self.findings[0].severity if self.findings else None

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values.

        Returns
        -------
        dict
            The fields, with an object for each finding and each check that could not run, and ``severity``.
        """
        fields = asdict(self)
        lists = {name: list(value) for name, value in fields.items() if isinstance(value, tuple)}
        return {"severity": self.severity, **fields, **lists}

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [(finding.title, finding.severity, finding.command) for finding in self.findings]
        return notebook_table(f"{len(rows):,} findings", ("Finding", "Severity", "Command"), rows)


class CannotCheckError(RagembedError):
    """A check cannot run on this store; the message is the reason."""


@dataclass(slots=True)
class Examination:
    """One generation of a store. ``embedder`` is None if it cannot be loaded; ``notes`` collects notes of checks."""

    store: Store
    snapshot: Snapshot
    damaged: set[Part]
    embedder: VectorEncoder | None
    commands: Commands
    sources: Mapping[str, SourceRecord]
    progress: Progress
    notes: list[str] = field(default_factory=list)

    @property
    def options(self) -> IndexingOptions | None:
        """The options of the last run of ``ragembed index``; None if the chunks were added as texts."""
        return self.commands.options

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of the snapshot."""
        return self.snapshot.connection

    @property
    def chunks(self) -> int:
        """Number of chunks in the store."""
        return catalog.count(self.connection, "chunks")

    def any_embedder(self) -> VectorEncoder:
        """Return the embedder; raise :class:`CannotCheckError` if it cannot be loaded."""
        if self.embedder is None:
            raise CannotCheckError("the embedder of the store cannot be loaded")
        return self.embedder

    def own_embedder(self) -> Embedder:
        """Return the embedder; raise :class:`CannotCheckError` if it is missing or another program's."""
        if (own := self.any_embedder().refittable) is None:
            raise CannotCheckError("the vectors were not made by ragembed")
        return own

    def require_no_server(self, command: str) -> None:
        """Raise :class:`CannotCheckError` if the embedder sends texts to a server; ``command`` is how to allow that."""
        if self.embedder is not None and self.embedder.is_remote:
            raise CannotCheckError(f"it would send texts to the server of the model: run {command!r} for it")

    def spread_keys(self, count: int) -> list[int]:
        """Return the keys of up to ``count`` chunks, spread evenly over the store."""
        keys, _ = catalog.chunk_rows(self.connection)
        if len(keys) > count:
            keys = keys[np.linspace(0, len(keys) - 1, count).astype(np.int64)]
        return list(keys.tolist())


def examples(names: Sequence[str]) -> tuple[str, ...]:
    """Return the first names, as many as a finding has."""
    return tuple(names[:EXAMPLES])
