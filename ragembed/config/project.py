"""The file ``ragembed.toml`` of a project: its store, its collections, and values for options.

The file may come with a folder from somebody else. So it can only name what is in its own folder: a path or a store
elsewhere, a URL, and a model that the user has not named before are errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragembed.config.collections import CollectionsFile, parse_collections, read_toml
from ragembed.errors import ConfigError

PROJECT_FILE = "ragembed.toml"
_COMMANDS = ("index", "query")
_KEYS = ("store", "default", "collections", *_COMMANDS)


@dataclass(frozen=True, slots=True)
class Project:
    """The contents of the file at ``path``; ``options`` has the tables ``index`` and ``query`` as they are."""

    path: Path
    store: Path | None = None
    collections: CollectionsFile = field(default_factory=lambda: CollectionsFile(Path()))
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def inside(self, value: str, what: str) -> Path:
        """Return the absolute path of a file or folder that the project names.

        Raises :class:`ConfigError` if it is not below the folder of the file, links included.
        """
        if not value or "\0" in value:
            raise ConfigError(f"{self.path}: {what} is {value!r}: expected a path")
        folder = self.path.parent
        path = Path(os.path.abspath(folder / value))  # noqa: PTH100  keeps links
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"{self.path}: {what} is {value!r}, outside of the folder {folder}: expected a path inside; name other "
                "paths on the command line"
            )
        return path


def find_project(start: Path | None = None) -> tuple[Path | None, Path | None]:
    """Return the nearest ``ragembed.toml`` in ``start`` (the working directory) or above, and one that is not trusted.

    A file that belongs to another user is not trusted, because its settings could be a trap in a shared folder. It ends
    the search.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        path = folder / PROJECT_FILE
        if os.path.lexists(path):
            return (path, None) if _is_own(path) else (None, path)
    return None, None


def _is_own(path: Path) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    users = {os.geteuid()}
    if users == {0} and (caller := os.environ.get("SUDO_UID", "")).isdigit():
        users.add(int(caller))
    return path.lstat().st_uid in users


def read_project(path: Path) -> Project:
    """Return the contents of a ``ragembed.toml``; raise :class:`ConfigError` if it is invalid or a symbolic link."""
    values = read_toml(path, path.parent)
    if unknown := values.keys() - set(_KEYS):
        raise ConfigError(f"{path}: unknown key {min(unknown)!r}: expected one of {', '.join(_KEYS)}")
    bare = Project(path)
    store = values.get("store")
    if store is not None and not isinstance(store, str):
        raise ConfigError(f"{path}: store is {store!r}: expected the path of a folder in quotes")
    for command in _COMMANDS:
        if not isinstance(values.get(command, {}), dict):
            raise ConfigError(f"{path}: {command} is {values[command]!r}: expected a table, [{command}]")
    collections = parse_collections(path, values)
    for each in collections.collections.values():
        for name, folder in each.stores.items():
            bare.inside(str(folder), f"the store {name} in [collections.{each.name}.stores]")
    if collections.default is not None and collections.default not in collections.collections:
        raise ConfigError(
            f"{path}: default is {collections.default!r}: expected a collection of this file, [collections.NAME.stores]"
        )
    return Project(
        path,
        None if store is None else bare.inside(store, "store"),
        collections,
        {command: values.get(command, {}) for command in _COMMANDS},
    )
