"""``ragembed status --settings``: the values that the options of ``ragembed index`` and ``query`` have here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ragembed.cli.output import print_records, say
from ragembed.cli.project import (
    NEVER_SET,
    choose_store_with_origin,
    chosen_collections,
    collections_files,
    option_defaults,
    option_values,
    parameters,
    project,
)
from ragembed.config.settings import EmbedderConfig
from ragembed.config.settings_files import registry_file
from ragembed.documents.places import shown_path
from ragembed.errors import RagembedError
from ragembed.indexes import Fusion, IndexConfig, IndexingOptions
from ragembed.indexes.indexing.request import open_existing, stored_config, stored_request
from ragembed.indexes.lexical.analyzer import ENGLISH
from ragembed.indexes.storage.layout import is_store

_COMMANDS = ("index", "query")
"""The commands whose options files can set."""
_DEFAULT, _STORE = "default", "store"
_STATED_DEFAULT = re.compile(r"\[default: (.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _InUse:
    """An option, its value, where it comes from, and what the option does without a value."""

    command: str | None
    name: str
    value: Any
    origin: str
    otherwise: str = "none"

    def text(self) -> str:
        """Return the value for people."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        several = isinstance(self.value, (list, tuple))
        return ", ".join(map(str, self.value)) if several else str(self.value)


def print_settings(context: click.Context, store: Path | None, output: str, *, only_set: bool) -> None:
    """Print the settings and where they come from; with ``only_set``, without those that are the defaults."""
    here = project()
    files = {"project": None if here is None else str(here.path), "collections": str(registry_file())}
    settings = [setting for setting in _settings(context, store) if setting.origin != _DEFAULT or not only_set]
    fields = ("command", "name", "value", "origin")
    records = [{name: getattr(setting, name) for name in fields} for setting in settings]
    if print_records({"files": files, "settings": records}, "settings", output):
        return
    for name, file in files.items():
        say(f"{name:<12} {file or 'none'}")
    for setting in settings:
        name = f"{setting.command}.{setting.name}" if setting.command else setting.name
        shown = setting.otherwise if setting.value in (None, "", [], ()) else setting.text()
        say(f"{name:<28} {shown}  ({setting.origin})")


def _settings(context: click.Context, given: Path | None) -> list[_InUse]:
    """Return the store, the default collection and the options of index and query, as without a command line."""
    store, origin = choose_store_with_origin(given)
    collections = chosen_collections(given, None)
    rows = [_InUse(None, "store", str(store), origin)]
    files = [] if collections is None else collections_files()
    if collections is not None:
        default_of = next(str(file.path) for file in files if file.default == collections[0])
        rows.append(_InUse(None, "collection", collections[0], default_of))
    group, here = context.find_root().command, project()
    usual, kept = _values_of(None), _kept(store)
    for command in [group.get_command(context, name) for name in _COMMANDS] if isinstance(group, click.Group) else ():
        if command is None:
            continue
        defaults = command.make_context(str(command.name), [], resilient_parsing=True).params
        values = {name: (value, _DEFAULT) for name, value in defaults.items() if value not in (None, ())}
        for name in kept.keys() - values.keys():
            values[name] = kept[name], _DEFAULT if kept[name] == usual.get(name) else _STORE
        for file in reversed([file for file in files if collections and collections[0] in file.collections]):
            if command.name == "query" and collections:
                settings = option_values(command, file.collections[collections[0]].query, f"{file.path}: {{}}")
                values |= {name: (value, str(file.path)) for name, value in settings.items()}
        if here is not None:
            values |= {name: (value, str(here.path)) for name, value in option_defaults(command).items()}
        rows += [
            _InUse(command.name, key, *values.get(str(parameter.name), (None, _DEFAULT)), _otherwise(parameter))
            for key, parameter in parameters(command).items()
            if parameter.name not in NEVER_SET
        ]
    return rows


def _kept(store: Path) -> Mapping[str, Any]:
    """Return the values that the store keeps, or those of a new store if there is none or it cannot be read."""
    try:
        return _values_of(store)
    except (RagembedError, OSError) as error:
        say(f"note: the settings that the store keeps cannot be read: {error}", err=True)
        return _values_of(None)


def _values_of(path: Path | None) -> dict[str, Any]:
    """Return the settings of a store, or of a new one, by the names of their options."""
    if path is None or not is_store(path):
        options = {**EmbedderConfig().to_dict(), **IndexingOptions().to_dict(), **IndexConfig().to_dict()}
        return {**options, **Fusion().to_dict(), "language": ENGLISH}
    with open_existing(path) as store:
        config, request = stored_config(store), stored_request(store)
        if store is None:
            return _values_of(None)
        roots, options = ((), IndexingOptions()) if request is None else request
        return {
            **({} if config is None else config.to_dict()),
            **options.to_dict(),
            **store.wanted_index.to_dict(),
            **store.fusion.to_dict(),
            "preset": "the settings of the store",
            "language": store.language,
            "paths": [shown_path(root) for root in roots],
        }


def _otherwise(parameter: click.Parameter) -> str:
    stated = _STATED_DEFAULT.search((parameter.help or "") if isinstance(parameter, click.Option) else "")
    return stated[1] if stated else "none"
