"""The findings of a diagnosis, the commands that they suggest, and the examination that all checks share."""

from __future__ import annotations

import posixpath
import re
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ragembed.config.fields import from_json, settings_of
from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.documents.places import is_url, shown_path
from ragembed.embedder import Embedder
from ragembed.errors import RagembedError, StoreError
from ragembed.extractors.build import is_external
from ragembed.extras import has_extra
from ragembed.indexes.indexing.request import IndexingOptions, stored_config
from ragembed.indexes.integrity import Part
from ragembed.indexes.lexical.analyzer import ENGLISH
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import choose_store, file_path, is_below, root_of
from ragembed.indexes.store import Store
from ragembed.indexes.types import SourceRecord, VectorEncoder
from ragembed.printable import printable_line
from ragembed.progress import Progress
from ragembed.version import install_command

MOST_EXCLUDED = 10
"""Maximum number of patterns in one command."""

_LEFT_OPEN = (
    *("template", "query_template", "pooling", "modules", "normalize", "special_tokens", "truncate_dim", "weighting"),
    *("max_tokens", "dtype"),
)
"""Settings that the model decides if they have their default value. A store keeps the decision."""
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


class Commands:
    """Builds commands for the store at ``store``.

    ``roots`` are the indexed paths, by name in the store, ``options`` the options of the last run, ``config`` the
    settings of the embedder, and ``language`` the language of lexical search; each as far as it is known.
    """

    def __init__(
        self,
        store: Path,
        roots: Sequence[str] = (),
        options: IndexingOptions | None = None,
        config: EmbedderConfig | None = None,
        language: str = ENGLISH,
    ) -> None:
        self._store = store
        self.roots = roots
        self.options = options
        self._config = config
        self._language = language

    @classmethod
    def of(cls, store: Store) -> Commands:
        """Return the commands for an open store, whose settings may be damaged."""
        request = store.last_request()
        options = from_json(IndexingOptions, request["options"]) if request else None
        try:
            config = stored_config(store)
        except (RagembedError, OSError):
            config = None
        return cls(store.path, request["paths"] if request else (), options, config, store.language)

    def run(self, name: str, *arguments: str) -> str:
        """Return ``ragembed NAME`` with ``arguments``, and with ``--store`` unless the store is found without it."""
        try:
            is_default = choose_store(None).absolute() == self._store.absolute()
        except StoreError:
            is_default = False
        return shlex.join(["ragembed", name, *arguments, *([] if is_default else ["--store", shown_path(self._store)])])

    def install(self, extra: str, then: str) -> str:
        """Return the command that installs an extra, followed by ``then``, or only ``then`` if it is installed."""
        return then if has_extra(extra) else f"{install_command(extra)} && {then}"

    def remove(self, root: str) -> str:
        """Return the command that removes the files of a path that is missing or empty from the store."""
        return self.run("index", shown_path(file_path(root, self._store)), "--allow-empty")

    def excluding(self, names: Sequence[str], sources: Mapping[str, object]) -> str:
        """Return the command that indexes again without the files ``names``, or the first ``MOST_EXCLUDED`` of them.

        A pattern applies to each indexed path.
        """
        patterns = [pattern for name in names for pattern in self._patterns(name, sources)]
        return self.excluding_patterns(patterns[:MOST_EXCLUDED]) if patterns else self.run("status", "--skipped")

    def excluding_patterns(self, patterns: Sequence[str]) -> str:
        """Return the command that indexes again and skips what matches ``patterns``, besides what is skipped now."""
        excluded = [*(self.options.exclude if self.options else ()), *patterns]
        return self.run("index", *(part for pattern in excluded for part in ("--exclude", pattern)))

    def _patterns(self, name: str, sources: Mapping[str, object]) -> list[str]:
        """Return the pattern for a file, or nothing if no pattern matches it alone."""
        above = [root for root in self.roots if root != name and is_below(name, root)]
        if not above or name in self.roots or is_url(name) or printable_line(name) != name:
            return []
        folder, file = (str(file_path(path, self._store)).rstrip("/") for path in (max(above, key=len), name))
        below = Path(file).relative_to(folder).as_posix()
        others = (posixpath.normpath(f"{root}/{below}") for root in self.roots if root not in above)
        return [] if any(path in sources for path in others) else ["/" + _SPECIAL.sub(r"\\\1", below)]

    def again(self, **changes: Any) -> str:
        """Return the command that indexes the same files with the same settings into a new store beside this one.

        ``changes`` replace settings of the embedder, or ``language``; a new ``model`` keeps none of the others.
        """
        paths = [shown_path(file_path(root, self._store)) for root in self.roots] or [shown_path(root_of(self._store))]
        language = changes.pop("language", self._language)
        config = EmbedderConfig(**changes) if "model" in changes else self._requested()
        stores = (Path(f"{self._store.absolute()}-new{'' if number == 1 else f'-{number}'}") for number in count(1))
        new = next(store for store in stores if not store.exists())
        words = ["ragembed", "index", *paths, "--store", shown_path(new)]
        words += [] if language == ENGLISH else ["--language", language]
        words += _words(self.options or IndexingOptions(), IndexingOptions())
        return shlex.join([*words, *_words(config, EmbedderConfig.from_preset(DEFAULT_PRESET), joined=True)])

    def needs_file(self) -> tuple[str, ...]:
        """Return the settings that :meth:`again` cannot repeat, because they have no option."""
        config, default = self._requested(), EmbedderConfig.from_preset(DEFAULT_PRESET)
        without = [name for name, about in settings_of(EmbedderConfig).items() if about.flag is None]
        return tuple(name for name in without if getattr(config, name) != getattr(default, name))

    def _requested(self) -> EmbedderConfig:
        """Return settings that give the same embedder, and leave open as many as possible."""
        config, default = self._config, EmbedderConfig()
        if config is None or is_external(config.model):
            return config or default
        try:
            opened = config.replace(**{name: getattr(default, name) for name in _LEFT_OPEN})
            decided = Embedder(opened, download=False).resolved_config()
            changed = {name: getattr(config, name) for name in _LEFT_OPEN}
            requested = opened.replace(
                **{name: value for name, value in changed.items() if getattr(decided, name) != value}
            )
            return requested if Embedder(requested, download=False).resolved_config() == config else config
        except (RagembedError, OSError):
            return config


def _words(settings: object, default: object, *, joined: bool = False) -> list[str]:
    """Return the options that differ from ``default``; a list is one option, ``joined``, or one option per value."""
    words: list[str] = []
    for name, about in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if about.flag is None or value == getattr(default, name):
            continue
        on, _, off = about.flag.partition("/")
        if isinstance(value, bool):
            words.append(on if value else off)
        elif not isinstance(value, tuple):
            words += [on, str(value)]
        else:
            words += [on, ",".join(value) or "none"] if joined else [word for part in value for word in (on, part)]
    return words


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
