"""Where stores and options come from that the command line does not give: ``ragembed.toml`` and collections."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ragembed.cli.output import say
from ragembed.config.settings import EmbedderConfig
from ragembed.config.settings_files import (
    CollectionsFile,
    Project,
    chosen_stores,
    confirm_model,
    find_project,
    is_confirmed,
    read_project,
    read_registry,
    registry_file,
)
from ragembed.documents.places import absolute, is_url
from ragembed.errors import ConfigError
from ragembed.indexes.storage import layout

NEVER_SET = {
    "trust_remote_code": "code of a model runs only if you say so",
    "address": "it names another machine",
    **dict.fromkeys(("collection", "workers", "engine"), "it adds to your collections"),
    "store": "put it at the top of the file, before [index]",
    "revision": "it could choose another model",
    "config_file": "it could name any model; write its settings as options into [index]",
    "query": "it is what you ask",
    "why": "it asks about one query",
    "watch": "the run would not end",
    "help": "it is no setting",
}
"""Options that no file can set, and why."""

_PATHS = ("paths", "avg_corpus", "weighting_corpus", "postprocess_corpus")
_MODELS = ("model", "rerank")


def project() -> Project | None:
    """Return the project of the working directory, or None; raise :class:`ConfigError` if its file is invalid."""
    path, untrusted = find_project()
    if untrusted is not None:
        _note_untrusted(untrusted)
    return None if path is None else read_project(path)


@cache
def _note_untrusted(path: Path) -> None:
    say(f"note: {path} belongs to another user, so it is not read", err=True)


def choose_store(store: Path | None) -> Path:
    """Return the store to use: the given one, ``$RAGEMBED_STORE``, that of the project, else the nearest one."""
    return choose_store_with_origin(store)[0]


def choose_store_with_origin(store: Path | None) -> tuple[Path, str]:
    """Return the same, and where it comes from."""
    if store is not None:
        return store, "command line"
    if os.environ.get(layout.STORE_VARIABLE):
        return layout.choose_store(None), f"${layout.STORE_VARIABLE}"
    current = project()
    if current is not None and current.store is not None:
        chosen = layout.require_owner(current.store) if layout.is_store(current.store) else current.store
        return chosen, str(current.path)
    return layout.choose_store(None), "default"


def collections_files() -> list[CollectionsFile]:
    """Return the files that define collections; an earlier one hides collections of the same name in a later."""
    current = project()
    return [*([] if current is None else [current.collections]), read_registry()]


def chosen_collections(store: Path | None, collections: str | None) -> list[str] | None:
    """Return the names of the collections to search, or None to search a store.

    Without ``--store`` and ``--in``, this is the default collection of the project, or that of the user if no store is
    found.
    """
    if collections is not None:
        return names_in(collections, store)
    if store is not None or os.environ.get(layout.STORE_VARIABLE):
        return None
    current = project()
    default = None if current is None else current.collections.default
    if default is None and not layout.is_store(choose_store(None)):
        default = read_registry().default
    return None if default is None else [default]


def names_in(collections: str, store: Path | None = None) -> list[str]:
    """Return the names in a value of ``--in``; raise a usage error if there is a value of ``--store``, too."""
    if store is not None:
        raise click.UsageError("got both --store and --in: give one of them")
    return [name.strip() for name in collections.split(",")]


def stores_in(collections: str, store: Path | None = None) -> dict[str, Path]:
    """Return the stores that a value of ``--in`` names, by name; raises as :func:`names_in` does."""
    return chosen_stores(names_in(collections, store), collections_files())


def option_defaults(command: click.Command) -> dict[str, Any]:
    """Return the values that ``ragembed.toml`` has for the options of a command, by the names of their parameters."""
    current = project()
    table = {} if current is None else current.options.get(str(command.name), {})
    if current is None or not table:
        return {}
    where = f"[{command.name}]"
    table = dict(table)
    for key, parameter in parameters(command).items():
        if parameter.name in _PATHS and key in table:  # Paths are relative to the file, not to the working directory.
            table[key] = _inside_all(current, table[key], f"{key} in {where}")
    values = option_values(command, table, f"{current.path}: {{}} in {where}")
    for name in names_in(values["collections"]) if "collections" in values else ():
        if name not in current.collections.collections:
            raise ConfigError(
                f"{current.path}: 'in' in {where} names {name!r}: expected a collection of this file; name your "
                "own collections on the command line"
            )
    return _with_confirmed_models(values, current.path, where)


def option_values(command: click.Command, table: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of a table by the names of their parameters; ``place`` names a key of the table in errors."""
    by_key = parameters(command)
    context = click.Context(command, info_name=command.name)
    values: dict[str, Any] = {}
    for key, value in table.items():
        parameter = by_key.get(key)
        if parameter is None:
            near = get_close_matches(key, by_key, 1)
            hint = f"did you mean {near[0]!r}?" if near else "expected the name of an option without --"
            raise ConfigError(f"{place.format(repr(key))} is unknown: {hint}")
        name = str(parameter.name)
        if name in NEVER_SET:
            raise ConfigError(f"{place.format(repr(key))} cannot be set in a file: {NEVER_SET[name]}")
        values[name] = _checked(parameter, context, value, place.format(repr(key)))
    return values


def parameters(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters of a command by the key that sets them in a file: the option without ``--``."""
    by_key: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            if parameter.nargs == -1:
                by_key[str(parameter.name)] = parameter
            continue
        longest = max(parameter.opts, key=len)
        is_short_form = isinstance(parameter, click.Option) and parameter.is_flag and not parameter.is_bool_flag
        if not is_short_form:  # such as --json for --format json
            by_key[longest.lstrip("-")] = parameter
    return by_key


def _checked(parameter: click.Parameter, context: click.Context, value: Any, place: str) -> Any:
    """Return a value in the form that click reads; raise :class:`ConfigError` if the option does not accept it."""
    is_several = parameter.multiple if isinstance(parameter, click.Option) else True
    is_flag = isinstance(parameter, click.Option) and parameter.is_bool_flag
    parts = value if isinstance(value, list) else [value]
    expected = "true or false" if is_flag else "a list of texts or numbers" if is_several else "a text or a number"
    if (isinstance(value, list) and not is_several) or not all(
        isinstance(part, bool) if is_flag else isinstance(part, (str, int, float)) and not isinstance(part, bool)
        for part in parts
    ):
        raise ConfigError(f"{place} is {value!r}: expected {expected}")
    texts = value if is_flag else [str(part) for part in parts] if is_several else str(value)
    try:
        parameter.process_value(context, texts)
    except click.BadParameter as error:
        raise ConfigError(f"{place}: {error.message}") from error
    return texts


def _inside_all(current: Project, value: Any, what: str) -> Any:
    """Return a path, or a list of them, as absolute paths; other values stay, and are refused later."""
    if isinstance(value, list):
        return [_inside_all(current, part, what) for part in value]
    if not isinstance(value, str):
        return value
    if is_url(value):
        raise ConfigError(
            f"{current.path}: {what} is the URL {value!r}: expected a path inside the folder; name URLs on the command "
            "line"
        )
    return str(current.inside(value, what))


def _with_confirmed_models(values: Mapping[str, Any], path: Path, where: str) -> dict[str, Any]:
    """Return ``values`` with full paths of models; raise :class:`ConfigError` for a model that the user never named."""
    full = dict(values)
    for name in _MODELS:
        if full.get(name) is not None:
            full[name] = model = _full_name(str(full[name]), path.parent)
            if model != EmbedderConfig().model and not is_confirmed(model):
                command = "query TEXT --rerank" if name == "rerank" else "index --model"
                raise ConfigError(
                    f"{path}: {name} in {where} names the model {model}, which you have not used before: a file from "
                    f"somebody else can name any model; run 'ragembed {command} {model}' once if you trust it"
                )
    return full


def confirm_models(context: click.Context) -> None:
    """Remember the models that are named on the command line, so that ``ragembed.toml`` can name them, too."""
    for name in _MODELS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and context.params[name]:
            confirm_model(_full_name(str(context.params[name]), Path()))


def _full_name(model: str, folder: Path) -> str:
    """Return the absolute path of a model's folder or file, or the name of another model."""
    path = Path(absolute(folder / model))
    return str(path) if os.path.lexists(path) else model


def apply_collection(context: click.Context) -> None:
    """Apply the settings of the collection that a command searches, if it is a single one.

    They are for options that are neither given nor set by ``ragembed.toml``.
    """
    names = chosen_collections(context.params["store"], context.params["collections"])
    if names is None or len(names) > 1:
        return
    file = next((file for file in collections_files() if names[0] in file.collections), None)
    if file is None:
        return
    where = f"[collections.{names[0]}.query]"
    values = option_values(context.command, file.collections[names[0]].query, f"{file.path}: {{}} in {where}")
    if "collections" in values:
        raise ConfigError(f"{file.path}: 'in' in {where} cannot be set: the options are those of this collection")
    if file.path != registry_file():
        values = _with_confirmed_models(values, file.path, where)
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in values and context.get_parameter_source(name) is ParameterSource.DEFAULT:
            context.params[name] = parameter.process_value(context, values[name])
            context.set_parameter_source(name, ParameterSource.DEFAULT_MAP)
