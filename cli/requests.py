"""Turning what was given on the command line into what the library takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragembed.config import DEFAULT_PRESET, EmbedderConfig, preset
from ragembed.indexes.indexing import stored_request
from ragembed.indexes.scan import IndexingOptions

_NAMES = {"max_size": "max_bytes"}


def indexing_options(store: Path, given: Mapping[str, Any], *, reset: bool = False) -> IndexingOptions:
    """Return the options of the store's last run, changed by those given (None and () are not given).

    ``reset`` starts from the defaults instead.
    """
    stored = None if reset else stored_request(store)
    options = stored[1] if stored else IndexingOptions()
    changes = {_NAMES.get(name, name): value for name, value in given.items() if value not in (None, ())}
    return replace(options, **changes)


def paths_or_stored(store: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return ``paths``, else those that the store was made from, else the working directory."""
    if paths:
        return paths
    stored = stored_request(store)
    return stored[0] if stored else (Path(),)


def embedder_config(preset_name: str | None, model: str | None) -> EmbedderConfig | None:
    """Return what ``--preset`` and ``--model`` ask for, None where neither is given."""
    if preset_name is None and model is None:
        return None
    config = preset(preset_name or DEFAULT_PRESET)
    return config if model is None else config.replace(model=model)
