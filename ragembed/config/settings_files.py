"""The files of settings: ``collections.toml`` and ``models`` of the user, and ``ragembed.toml`` of a project.

A collection is a named set of stores, ``[collections.NAME.stores]``, with values for options of ``ragembed query``,
``[collections.NAME.query]``. Relative paths are relative to the folder of the file. A project file may come from
somebody else. So it can only name what is in its own folder: a path or a store elsewhere, a URL, and a model that the
user has not named before are errors. The file ``models`` has the names of these, one JSON string a line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragembed.errors import ConfigError, RagembedError
from ragembed.files import NO_LINK, is_own, make_folders, parse_toml, read_regular, replace_file, sync, user_folder

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

EVERY = "all"
"""The name that stands for all collections."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""A valid name of a collection or store."""

PROJECT_FILE = "ragembed.toml"
_COMMANDS = ("index", "query")
_PROJECT_KEYS = ("store", "default", "collections", *_COMMANDS)
_MODELS = "models"
_LOCK_SECONDS = 10.0
_MOST_BYTES = 1_000_000
_MOST_DOTS = 500
"""Maximum number of dots in a line: the time for a dotted key is quadratic."""


@dataclass(frozen=True, slots=True)
class NamedCollection:
    """A collection in a file: the folder of each store by name, and values for options of ``ragembed query``."""

    name: str
    stores: Mapping[str, Path]
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectionsFile:
    """The collections of a file by name. ``default`` is the collection to search if no store is found."""

    path: Path
    collections: Mapping[str, NamedCollection] = field(default_factory=dict)
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """The contents of the project file at ``path``; ``options`` has the tables ``index`` and ``query`` as they are."""

    path: Path
    store: Path | None = None
    collections: CollectionsFile = field(default_factory=lambda: CollectionsFile(Path()))
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def inside(self, value: str, what: str) -> Path:
        """Return the absolute path of a file or folder that the project names; it must be below the file's folder."""
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


def find_project() -> tuple[Path | None, Path | None]:
    """Return the nearest ``ragembed.toml`` in the working directory or above, and one that is not trusted.

    A file of another user is not trusted: its settings could be a trap in a shared folder. It ends the search.
    """
    start = Path.cwd().resolve()
    for folder in (start, *start.parents):
        path = folder / PROJECT_FILE
        if os.path.lexists(path):
            return (path, None) if is_own(path.lstat()) else (None, path)
    return None, None


def read_project(path: Path) -> Project:
    """Return the contents of a ``ragembed.toml``; raise :class:`ConfigError` if it is invalid or a symbolic link."""
    values = _read_toml(path, path.parent)
    if unknown := values.keys() - set(_PROJECT_KEYS):
        raise ConfigError(f"{path}: unknown key {min(unknown)!r}: expected one of {', '.join(_PROJECT_KEYS)}")
    bare = Project(path)
    store = values.get("store")
    if store is not None and not isinstance(store, str):
        raise ConfigError(f"{path}: store is {store!r}: expected the path of a folder in quotes")
    for command in _COMMANDS:
        if not isinstance(values.get(command, {}), dict):
            raise ConfigError(f"{path}: {command} is {values[command]!r}: expected a table, [{command}]")
    collections = _parse_collections(path, values)
    for collection in collections.collections.values():
        for name, folder in collection.stores.items():
            bare.inside(str(folder), f"the store {name} in [collections.{collection.name}.stores]")
    if collections.default is not None and collections.default not in collections.collections:
        raise ConfigError(
            f"{path}: default is {collections.default!r}: expected a collection of this file, [collections.NAME.stores]"
        )
    options = {command: values.get(command, {}) for command in _COMMANDS}
    return Project(path, None if store is None else bare.inside(store, "store"), collections, options)


def registry_file() -> Path:
    """Return the user's file of collections, which may not exist yet."""
    return user_folder() / "collections.toml"


def read_registry() -> CollectionsFile:
    """Return the user's collections, none if the file does not exist; raise :class:`ConfigError` if it is invalid."""
    path = registry_file()
    values = _read_toml(path)
    if unknown := values.keys() - {"default", "collections"}:
        raise ConfigError(f"{path}: unknown key {min(unknown)!r}: expected 'default' or [collections.NAME.stores]")
    return _parse_collections(path, values)


def _read_toml(path: Path, root: Path | None = None) -> dict[str, Any]:
    """Return the values of a TOML file, none if it does not exist.

    It must be a regular file of at most 1 MB. Below ``root``, symbolic links are not followed.
    """
    try:
        text = read_regular(path, _MOST_BYTES, root).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"cannot read {path}: {reason}; correct or remove it") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MOST_DOTS:
            raise ConfigError(f"{path}:{number} has more than {_MOST_DOTS} dots: divide the line, or remove the file")
    try:
        return parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; correct or remove it") from error


def _parse_collections(path: Path, values: Mapping[str, Any]) -> CollectionsFile:
    """Return the collections and the default in the values of the file at ``path``."""
    default = values.get("default")
    if default is not None and not isinstance(default, str):
        raise ConfigError(f"{path}: default is {default!r}: expected the name of a collection in quotes")
    collections = {}
    for name, value in _table(path, "collections", values.get("collections", {})).items():
        require_name(name, f"{path}: ")
        table = _table(path, f"collections.{name}", value)
        if unknown := table.keys() - {"stores", "query"}:
            raise ConfigError(f"{path}: unknown key {min(unknown)!r} in [collections.{name}]: expected stores or query")
        stores = {}
        for store, folder in _table(path, f"collections.{name}.stores", table.get("stores", {})).items():
            if NAME.fullmatch(store) is None or not isinstance(folder, str) or not folder or "\0" in folder:
                raise ConfigError(
                    f"{path}: {store} = {folder!r} in [collections.{name}.stores]: expected a name and the path of a "
                    "store's folder in quotes"
                )
            stores[store] = Path(os.path.abspath(path.parent / Path(folder).expanduser()))  # noqa: PTH100  keeps links
        query = _table(path, f"collections.{name}.query", table.get("query", {}))
        collections[name] = NamedCollection(name, stores, query)
    return CollectionsFile(path, collections, default)


def _table(path: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {name} is {str(value)[:60]!r}: expected a table, [{name}]")
    return value


def require_name(name: str, before: str = "") -> None:
    """Raise :class:`ConfigError` unless ``name`` can be the name of a collection or store."""
    if NAME.fullmatch(name) is None or name == EVERY:
        raise ConfigError(
            f"{before}{name[:60]!r} is not a name for a collection or store: expected letters, digits, '.', '_' or "
            f"'-', at most 40, and not {EVERY!r}"
        )


def chosen_stores(names: Sequence[str], files: Sequence[CollectionsFile]) -> dict[str, Path]:
    """Return the stores of collections by name; a collection in an earlier file hides one of the same name in a later.

    ``all`` stands for every collection.
    """
    collections: dict[str, NamedCollection] = {}
    for file in reversed(files):
        collections |= file.collections
    chosen = list(dict.fromkeys(key for name in names for key in (collections if name == EVERY else [name])))
    stores: dict[str, Path] = {}
    for name in chosen:
        if name not in collections:
            expected = f"expected one of {', '.join([*collections, EVERY])}"
            raise ConfigError(
                f"no collection is called {name[:60]!r}: {expected if collections else 'there are no collections yet'}"
                "; add one with 'ragembed collection add NAME FOLDER'"
            )
        for store, folder in collections[name].stores.items():
            if folder not in stores.values():
                stores[store if store not in stores else f"{name}/{store}"] = folder
    if not stores:
        raise ConfigError(
            f"the collection {', '.join(chosen) or EVERY} has no stores: add one with 'ragembed collection add NAME "
            "FOLDER'"
        )
    return stores


def add_stores(name: str, stores: Mapping[str, Path]) -> None:
    """Add stores to a collection of the user, which is created if it does not exist."""
    require_name(name)
    with _edited() as document:
        table: Any = document
        for part in ("collections", name, "stores"):
            table = _subtable(table, part)
        present = read_registry().collections.get(name, NamedCollection(name, {})).stores
        for store, folder in stores.items():
            require_name(store)
            if present.get(store, folder) != folder:
                raise ConfigError(
                    f"the collection {name} has another store called {store!r}, {present[store]}: give the new one "
                    f"another name, --store NAME={folder}"
                )
            if folder not in present.values():
                table[store] = str(folder)


def remove_stores(name: str, stores: Sequence[str] = ()) -> None:
    """Remove stores from a collection of the user, or the whole collection; the stores themselves are not touched."""
    collections = read_registry().collections
    if name not in collections:
        raise ConfigError(
            f"no collection is called {name[:60]!r}: expected one of {', '.join(collections) or 'none yet'}"
        )
    for store in stores:
        if store not in collections[name].stores:
            expected = ", ".join(collections[name].stores)
            raise ConfigError(f"the collection {name} has no store called {store[:60]!r}: expected one of {expected}")
    with _edited() as document:
        table = document["collections"][name]
        for store in stores:
            table["stores"].remove(store)
        if not stores or not table["stores"]:
            document["collections"].remove(name)
            if document.get("default") == name:
                document.remove("default")


def set_default(name: str | None) -> None:
    """Set or remove the collection that is searched if no store is found."""
    if name is not None:
        chosen_stores([name], [read_registry()])
    with _edited() as document:
        if name is None:
            document.pop("default", None)
        else:
            document["default"] = name


@contextmanager
def _edited() -> Iterator[TOMLDocument]:
    """Read the user's file of collections, and replace it by the document after the block; comments are kept."""
    import tomlkit
    from filelock import FileLock, Timeout

    path = registry_file()
    try:
        make_folders(path.parent)
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=_LOCK_SECONDS):
            read_registry()
            text = read_regular(path, _MOST_BYTES).decode() if path.exists() else ""
            document = tomlkit.parse(text)
            yield document
            replace_file(path.resolve(), tomlkit.dumps(document).encode())
    except Timeout as error:
        raise ConfigError(f"another process changes {path}: try again") from error
    except OSError as error:
        raise RagembedError(f"cannot write {path}: {error.strerror or error}") from error


def _subtable(table: Any, name: str) -> Any:
    """Return a table in a document, adding it if needed."""
    import tomlkit

    if name not in table:
        table.add(name, tomlkit.table(is_super_table=name != "stores"))
    return table[name]


def confirm_model(name: str) -> None:
    """Remember that the user named a model: a folder, a file or a server; if the configuration folder can be written.

    A store may come from somebody else, who must not choose a folder that is loaded or a server that gets the queries.
    """
    if is_confirmed(name):
        return
    file = user_folder() / _MODELS
    with suppress(OSError):
        make_folders(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123  a descriptor, for the flags
            stream.write(json.dumps(name).encode() + b"\n")
        sync(file)  # A store that is committed later needs the name.
        sync(file.parent)


def is_confirmed(name: str) -> bool:
    """Return whether the user has named a model before."""
    try:
        confirmed = read_regular(user_folder() / _MODELS, _MOST_BYTES).split(b"\n")
    except OSError:
        return False
    return json.dumps(name).encode() in confirmed
