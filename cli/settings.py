"""``ragembed status --settings``: the effective settings and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.output import print_records, say
from ragembed.cli.project import (
    NEVER_SET,
    choose_store_with_origin,
    collections_files,
    option_defaults,
    option_values,
    parameters,
    project,
)
from ragembed.cli.searched import chosen_collections
from ragembed.config.collections import registry_file

_DEFAULT = "default"


def print_settings(context: click.Context, store: Path | None, output: str, *, only_set: bool) -> None:
    """Print the settings and where they come from; with ``only_set``, without those that are the defaults."""
    known = project()
    files = {"project": None if known is None else str(known.path), "collections": str(registry_file())}
    settings = [setting for setting in _settings(context, store) if setting["origin"] != _DEFAULT or not only_set]
    if print_records({"files": files, "settings": settings}, "settings", output):
        return
    for name, file in files.items():
        say(f"{name:<12} {file or 'none'}")
    for setting in settings:
        name = f"{setting['command']}.{setting['name']}" if setting["command"] else setting["name"]
        value = "–" if setting["value"] is None else setting["value"]
        say(f"{name:<28} {_shown(value)}  ({setting['origin']})")


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "–" if isinstance(value, (list, tuple)) else str(value)


def _settings(context: click.Context, given: Path | None) -> list[dict[str, Any]]:
    store, origin = choose_store_with_origin(given)
    names = chosen_collections(given, None)
    found = [_setting(None, "store", str(store), origin)]
    if names is not None:
        default_of = [str(file.path) for file in collections_files() if file.default == names[0]]
        found.append(_setting(None, "collection", names[0], default_of[0]))
    group = context.find_root().command
    for name in ("index", "query"):
        of_command = group.get_command(context, name) if isinstance(group, click.Group) else None
        if of_command is not None:
            found += _options(of_command, names)
    return found


def _options(command: click.Command, collections: list[str] | None) -> list[dict[str, Any]]:
    """Return the options of a command, as they would be without any on the command line."""
    known = project()
    from_project = option_defaults(command)
    from_collection: dict[str, tuple[Any, str]] = {}
    if command.name == "query" and collections is not None:
        for file in reversed([each for each in collections_files() if collections[0] in each.collections]):
            values = option_values(command, file.collections[collections[0]].query, f"{file.path}: {{}}")
            from_collection = {name: (value, str(file.path)) for name, value in values.items()}
    defaults = command.make_context(str(command.name), [], resilient_parsing=True).params
    found = []
    for key, parameter in parameters(command).items():
        name = str(parameter.name)
        if name in NEVER_SET:
            continue
        value, origin = defaults.get(name), _DEFAULT
        if name in from_project and known is not None:
            value, origin = from_project[name], str(known.path)
        elif name in from_collection:
            value, origin = from_collection[name]
        found.append(_setting(command.name, key, value, origin))
    return found


def _setting(command: str | None, name: str, value: Any, origin: str) -> dict[str, Any]:
    return {"command": command, "name": name, "value": value, "origin": origin}
