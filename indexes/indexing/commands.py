"""The commands that messages suggest for a store; they work as written in the present working directory."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ragembed.config.fields import from_json, settings_of
from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.documents.places import is_url, shown_path
from ragembed.embedder import Embedder
from ragembed.errors import RagembedError, StoreError
from ragembed.extractors.build import is_external
from ragembed.extras import has_extra
from ragembed.indexes.indexing.request import IndexingOptions, stored_config
from ragembed.indexes.lexical.analyzer import ENGLISH
from ragembed.indexes.storage.layout import choose_store, file_path, is_below, root_of
from ragembed.indexes.store import Store
from ragembed.printable import printable_line
from ragembed.version import install_command

MOST_EXCLUDED = 10
"""Maximum number of patterns in one command."""

_LEFT_OPEN = (
    *("template", "query_template", "pooling", "modules", "normalize", "special_tokens", "truncate_dim", "weighting"),
    *("max_tokens", "dtype"),
)
"""Settings that the model decides if they have their default value. A store keeps the decision."""
NEW_STORE = (
    "The command makes a new store beside this one: compare both, then delete the old one and rename the new one."
)
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


class Commands:
    """Builds commands for the store at ``store``.

    ``roots`` are the indexed paths, by name in the store, ``options`` the options of the last run, ``config`` the
    settings of the embedder, and ``language`` the language of lexical search; each as far as it is known. ``stores`` is
    the number of stores in the folder of this one that hold the files together.
    """

    def __init__(
        self,
        store: Path,
        roots: Sequence[str] = (),
        options: IndexingOptions | None = None,
        config: EmbedderConfig | None = None,
        language: str = ENGLISH,
        stores: int | None = None,
    ) -> None:
        self._store = store
        self.roots = roots
        self.options = options
        self._config = config
        self._language = language
        self._stores = stores
        self._changes: dict[str, Any] = {}

    @classmethod
    def of(cls, store: Store) -> Commands:
        """Return the commands for an open store, whose settings may be damaged."""
        part = store.part_record
        request = store.last_request() if part is None else part.indexing
        options = from_json(IndexingOptions, request["options"]) if request else None
        try:
            config = stored_config(store)
        except (RagembedError, OSError):
            config = None
        stores = None if part is None else part.stores
        return cls(store.path, request["paths"] if request else (), options, config, store.language, stores)

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

        ``changes`` replace settings of the embedder, or ``language``; a new ``model`` keeps none of the others. They
        add to those of earlier calls: a new store has one model, so one command does all that the calls ask for.
        """
        self._changes |= changes
        changes = dict(self._changes)
        paths = [shown_path(file_path(root, self._store)) for root in self.roots] or [shown_path(root_of(self._store))]
        language = changes.pop("language", self._language)
        config = EmbedderConfig(**changes) if "model" in changes else self._requested()
        old = self._store.absolute() if self._stores is None else self._store.absolute().parent
        stores = (Path(f"{old}-new{'' if number == 1 else f'-{number}'}") for number in count(1))
        new = next(store for store in stores if not store.exists())
        words = ["ragembed", "index", *paths, "--store", shown_path(new)]
        words += [] if self._stores is None else ["--workers", str(self._stores)]
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
