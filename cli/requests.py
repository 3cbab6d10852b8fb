"""Convert command line options to the configuration objects of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ragembed.cli.options import EMBEDDING_OPTIONS, INDEX_OPTIONS, NO_LIMIT
from ragembed.config.fields import settings_of
from ragembed.config.settings import DEFAULT_MODEL, DEFAULT_PRESET, EmbedderConfig
from ragembed.config.specs import PLAIN, TEXT
from ragembed.errors import ConfigError
from ragembed.indexes import Budget, IndexConfig, IndexingOptions, Store
from ragembed.indexes.indexing.request import stored_config, stored_request
from ragembed.models.files import find_model, model_shape

_READING_OPTIONS = tuple(settings_of(IndexingOptions))


class NamedConfig(NamedTuple):
    """A configuration, with the name of its preset or file."""

    name: str
    config: EmbedderConfig


def indexing_options(store: Store | None, given: Mapping[str, Any], *, reset: bool = False) -> IndexingOptions:
    """Return the options of the store's last run, or the defaults, updated with ``given``.

    Values of None and () count as not given. With ``reset``, start from the defaults even if there is a store.
    """
    stored = None if reset else stored_request(store)
    options = stored[1] if stored else IndexingOptions()
    changes = {name: given[name] for name in _READING_OPTIONS if given.get(name) not in (None, ())}
    return replace(options, **changes)


def postprocess_steps(text: str) -> tuple[str, ...]:
    """Parse a list of post-processors such as ``abtt:2,normalize``; ``none`` is an empty list."""
    return () if text == "none" else tuple(step.strip() for step in text.split(","))


def index_config(options: Mapping[str, Any], store: Store | None, *, reset: bool = False) -> IndexConfig | None:
    """Return the index configuration: that of ``store`` updated with ``options``, or None if no option is given.

    A new kind of index removes the limits that were set for the old kind. With ``reset``, start from the defaults.
    """
    changes = {name: options[name] for name in INDEX_OPTIONS if options[name] is not None}
    if not changes and not reset:
        return None
    stored = IndexConfig() if reset or store is None else store.wanted_index
    kind = changes.pop("kind", stored.kind)
    budget = stored.budget if kind == stored.kind else Budget()
    limits = {name: None if value is NO_LIMIT else value for name, value in changes.items()}
    return IndexConfig(kind, replace(budget, **limits))


def embedder_config(options: Mapping[str, Any], store: Store | None = None) -> EmbedderConfig | None:
    """Return the embedder configuration, or None if no embedding option is given.

    ``options`` may contain other options, which are ignored.
    """
    settings = _given(options)
    if not settings:
        return None
    base = None if "preset" in settings or "config_file" in settings else stored_config(store)
    if base is not None and "prompt_name" in settings:
        base = base.replace(template=PLAIN, query_template=None)
    elif base is not None:  # The store has prompts as templates.
        for name, template in (("document_prompt", "template"), ("query_prompt", "query_template")):
            if name in settings:
                settings[template] = settings.pop(name) + TEXT
    return _configuration(settings, base)


def embedder_configs(options: Mapping[str, Any], *, query_fit: str | None) -> list[NamedConfig]:
    """Return one configuration for each combination of values; ``query_fit`` None keeps the preset's value.

    The layer ``each`` stands for every single layer of the model.
    """
    settings = _given(options)
    if "each" in settings.get("layers", ()):
        named = embedder_config({name: options[name] for name in ("config_file", "model")})
        _, count = model_shape(find_model(DEFAULT_MODEL if named is None else named.model).folder)
        every = [str(layer) for layer in range(-1, count + 1)]
        layers = (layer for name in settings["layers"] for layer in (every if name == "each" else [name]))
        settings["layers"] = tuple(dict.fromkeys(layers))
    if query_fit is not None:
        settings.setdefault("query_fit", (query_fit,))
    several = {name: value for name, value in settings.items() if isinstance(value, tuple)}
    single = {name: value for name, value in settings.items() if name not in several}
    return [
        NamedConfig(
            Path(single["config_file"]).stem
            if "config_file" in single and "preset" not in choice
            else str(choice.get("preset", DEFAULT_PRESET)),
            _configuration({**single, **choice}),
        )
        for values in product(*several.values())
        for choice in [dict(zip(several, values, strict=True))]
    ]


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in EMBEDDING_OPTIONS if options.get(name) not in (None, ())}


def _configuration(settings: Mapping[str, Any], base: EmbedderConfig | None = None) -> EmbedderConfig:
    changes = dict(settings)
    name, file = changes.pop("preset", None), changes.pop("config_file", None)
    if name is not None and file is not None:
        raise ConfigError(f"got both the preset {name!r} and the file {file}: give one of them")
    config = (base or EmbedderConfig.from_preset(name or DEFAULT_PRESET)) if file is None else _read_config(file)
    if "postprocess" in changes:
        changes["postprocess"] = postprocess_steps(changes["postprocess"])
    values = {field: str(value) if isinstance(value, Path) else value for field, value in changes.items()}
    try:
        return config.replace(**values)
    except ConfigError as error:
        if name is None and file is None:
            raise
        raise ConfigError(f"{file or f'preset {name!r}'}: {error}") from None


def _read_config(file: Path) -> EmbedderConfig:
    try:
        text = file.read_text(encoding="utf-8")
    except ValueError as error:
        raise ConfigError(f"the configuration file {file} is not UTF-8: {error}") from None
    try:
        return EmbedderConfig.from_json(text) if file.suffix == ".json" else EmbedderConfig.from_toml(text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
