"""``ragembed status --settings``: the values that the options of ``ragembed index`` and ``query`` have here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


def print_settings(context: click.Context, store: Path | None, output: str, *, only_set: bool) -> None:
    """Print the settings and where they come from; with ``only_set``, without those that are the defaults."""
    here = project()
    files = {"project": None if here is None else str(here.path), "collections": str(registry_file())}
    rows = [row for row in _settings(context, store) if row[0]["origin"] != _DEFAULT or not only_set]
    if print_records({"files": files, "settings": [record for record, _ in rows]}, "settings", output):
        return
    for name, file in files.items():
        say(f"{name:<12} {file or 'none'}")
    for record, otherwise in rows:
        name = f"{record['command']}.{record['name']}" if record["command"] else record["name"]
        value = record["value"]
        shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        if isinstance(value, bool):
            shown = shown.lower()
        say(f"{name:<28} {otherwise if value in (None, '', [], ()) else shown}  ({record['origin']})")


def _settings(context: click.Context, given: Path | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the store, the default collection, and each option of index and query, as without a command line.

    Each comes with what the option does without a value.
    """
    store, origin = choose_store_with_origin(given)
    collections = chosen_collections(given, None) or []
    yield {"command": None, "name": "store", "value": str(store), "origin": origin}, ""
    files = collections_files() if collections else []
    for name in collections:
        default_of = next(str(file.path) for file in files if file.default == name)
        yield {"command": None, "name": "collection", "value": name, "origin": default_of}, ""
    group, here = context.find_root().command, project()
    usual, kept = _values_of(None), _kept(store)
    for command in [group.get_command(context, name) for name in _COMMANDS] if isinstance(group, click.Group) else ():
        if command is None:
            continue
        defaults = command.make_context(str(command.name), [], resilient_parsing=True).params
        values = {name: (value, _DEFAULT) for name, value in defaults.items() if value not in (None, ())}
        for name in kept.keys() - values.keys():
            values[name] = kept[name], _DEFAULT if kept[name] == usual.get(name) else _STORE
        for file in reversed(files if command.name == "query" else []):
            for collection in (file.collections[name] for name in collections if name in file.collections):
                settings = option_values(command, collection.query, f"{file.path}: {{}}")
                values |= {name: (value, str(file.path)) for name, value in settings.items()}
        if here is not None:
            values |= {name: (value, str(here.path)) for name, value in option_defaults(command).items()}
        for key, parameter in parameters(command).items():
            if parameter.name not in NEVER_SET:
                value, origin = values.get(str(parameter.name), (None, _DEFAULT))
                stated = _STATED_DEFAULT.search(getattr(parameter, "help", None) or "")
                record = {"command": command.name, "name": key, "value": value, "origin": origin}
                yield record, stated[1] if stated else "none"


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
        settings = (EmbedderConfig(), IndexingOptions(), IndexConfig(), Fusion())
        return {name: value for each in settings for name, value in each.to_dict().items()} | {"language": ENGLISH}
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
