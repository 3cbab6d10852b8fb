"""``ragembed collection``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ragembed.cli.commands.refit import print_fit, refit_options
from ragembed.cli.options import LocalPath, WritingCommand, format_option, named_stores
from ragembed.cli.output import counted, print_records, say, shown_path, warnings_as_notes
from ragembed.cli.progress import StderrProgress
from ragembed.cli.project import collections_files, project
from ragembed.cli.requests import postprocess_steps
from ragembed.config.collections import (
    add_stores,
    chosen_stores,
    read_registry,
    registry_file,
    remove_stores,
    replace_stores,
    require_new_names,
    set_default,
)
from ragembed.config.settings import QueryFit
from ragembed.errors import ConfigError, RagembedError
from ragembed.indexes import Store, merge_stores, refit_together, split_store
from ragembed.indexes.indexing.rebalancing import Switch, size_of
from ragembed.indexes.storage.layout import STORE_FOLDER, is_store, require_store
from ragembed.printable import readable_bytes


@click.group(name="collection")
def command() -> None:
    """Name sets of stores, to search them as one.

    \b
    ragembed collection add notes ~/notes ~/letters
    ragembed query "who fixed the boiler?" --in notes

    The names are kept in the file collections.toml in your configuration folder. You can edit it. Stores are not
    copied or changed.
    """  # noqa: D301  click reads the backspace character as "do not wrap"


@command.command(name="add")
@click.argument("name")
@click.argument("folders", metavar="[FOLDER]...", nargs=-1, type=LocalPath(exists=True, file_okay=False))
@click.option(
    "--store",
    "stores",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Folder of a store, and a name for it. Can be repeated.",
)
def add(name: str, folders: tuple[Path, ...], stores: tuple[str, ...]) -> None:
    """Add stores to the collection NAME, which is created if it does not exist.

    \b
    ragembed collection add notes ~/notes
    ragembed collection add work --store api=api/.ragembed --store web=web/.ragembed

    FOLDER is an indexed folder, which contains .ragembed, or the folder of a store. Results show the name of the store
    that they come from: that of the folder, unless you give another with --store.
    """  # noqa: D301  as above
    if not folders and not stores:
        raise click.UsageError("there is nothing to add: give a FOLDER or --store PATH")
    given = [str(folder if is_store(folder) else folder / STORE_FOLDER) for folder in folders]
    named = {each: path.absolute() for each, path in named_stores((*given, *stores), "FOLDER").items()}
    for path in named.values():
        require_store(path)
    add_stores(name, named)
    say(f"{name}: {counted(len(read_registry().collections[name].stores), 'store')}, in {shown_path(registry_file())}")


@command.command(name="list")
@format_option
def list_collections(output: str) -> None:
    """List the collections, with the folder and the number of chunks of each store."""
    registry = read_registry()
    found: list[dict[str, Any]] = [
        {
            "name": each.name,
            "default": each.name == registry.default,
            "stores": [_described(name, path) for name, path in each.stores.items()],
            "query": dict(each.query),
        }
        for each in registry.collections.values()
    ]
    if print_records({"path": str(registry.path), "collections": found}, "collections", output):
        return
    for entry in found:
        say(entry["name"] + (" (default)" if entry["default"] else ""))
        for store in entry["stores"]:
            about = store["problem"] or counted(store["chunks"], "chunk")
            say(f"  {store['name']:<15} {shown_path(Path(store['path']))}: {about}")
        if entry["query"]:
            say("  options of query: " + ", ".join(f"{key} = {value}" for key, value in entry["query"].items()))
    if not found:
        say("no collections: add one with 'ragembed collection add NAME FOLDER'", err=True)


def _described(name: str, path: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "path": str(path), "chunks": None, "problem": None}
    try:
        with Store.open(path) as store:
            about["chunks"] = len(store)
    except (RagembedError, OSError) as error:
        about["problem"] = str(error)
    return about


@command.command(name="remove")
@click.argument("name")
@click.argument("stores", metavar="[STORE]...", nargs=-1)
def remove(name: str, stores: tuple[str, ...]) -> None:
    """Remove the collection NAME, or some of its stores by their names. The stores themselves are kept."""
    remove_stores(name, stores)
    say(f"removed {', '.join(stores) or 'all stores'} from {name}; the stores themselves are kept")


_remove_option = click.option(
    "--remove", is_flag=True, help="Remove the old stores at the end. Not possible if another collection has them."
)


@command.command(name="split", cls=WritingCommand)
@click.argument("name")
@click.argument("member")
@click.option(
    "--into", "count", type=click.IntRange(2, 1000), default=2, show_default=True, help="Number of new stores."
)
@_remove_option
def split(name: str, member: str, count: int, remove: bool, wait_seconds: float) -> None:
    """Split the store MEMBER of the collection NAME into several with a similar number of chunks.

    \b
    ragembed collection split notes diary
    ragembed collection split notes diary --into 4 --remove

    The new stores are called diary-1, diary-2 and so on, and replace diary in the collection. Each file is in one of
    them. Nothing is encoded, and the results of the collection stay the same. The new stores need as much disk space as
    the old one, which is kept unless you give --remove. If the command is interrupted, run it again.

    A part has only some of the files, so ragembed index refuses it. If the collection has all parts and no other
    stores, ragembed index --collection NAME updates them. Otherwise merge the parts first.
    """  # noqa: D301  as above
    file, stores = _collection(name)
    old = _chosen(name, stores, [member])
    names = [f"{member}-{number}" for number in range(1, count + 1)]
    require_new_names(name, stores, old, names)
    with _replaced(file, name, old, remove=remove) as switch:
        new = split_store(
            old[member], names, switch, progress=StderrProgress(), wait_seconds=wait_seconds, remove=remove
        )
    _say_new(name, old, new, removed=remove)


@command.command(name="merge", cls=WritingCommand)
@click.argument("name")
@click.argument("members", metavar="MEMBER MEMBER...", nargs=-1, required=True)
@click.option("--as", "new_name", metavar="NEW", help="Name of the new store.  [default: that of the first member]")
@_remove_option
def merge(name: str, members: tuple[str, ...], new_name: str | None, remove: bool, wait_seconds: float) -> None:
    """Merge stores of the collection NAME into one.

    \b
    ragembed collection merge notes diary-1 diary-2 --as diary

    The stores need the same embedder and language, no file in common, and folders beside each other, as ragembed
    collection split makes them. Nothing is encoded, and the results of the collection stay the same. The new store
    needs as much disk space as the old ones, which are kept unless you give --remove. If the command is interrupted,
    run it again.
    """  # noqa: D301  as above
    if len(set(members)) < len(members) or len(members) < 2:
        raise click.UsageError(f"cannot merge {', '.join(members)}: name two different stores or more")
    file, stores = _collection(name)
    old = _chosen(name, stores, members)
    new_name = new_name or members[0]
    require_new_names(name, stores, old, [new_name])
    with _replaced(file, name, old, remove=remove) as switch:
        folder = merge_stores(
            list(old.values()), new_name, switch, progress=StderrProgress(), wait_seconds=wait_seconds, remove=remove
        )
    _say_new(name, old, {new_name: folder}, removed=remove)


def _collection(name: str) -> tuple[Path, Mapping[str, Path]]:
    """Return the file that defines a collection, and its stores."""
    for file in collections_files():
        if name in file.collections:
            return file.path, file.collections[name].stores
    chosen_stores([name], collections_files())  # Raises the error that other commands do.
    raise AssertionError(name)


def _chosen(name: str, stores: Mapping[str, Path], members: Sequence[str]) -> dict[str, Path]:
    for member in members:
        if member not in stores:
            raise ConfigError(
                f"the collection {name} has no store called {member[:60]!r}: expected one of {', '.join(stores)}"
            )
    return {member: stores[member] for member in members}


@contextmanager
def _replaced(file: Path, name: str, old: Mapping[str, Path], *, remove: bool) -> Iterator[Switch]:
    """Give the function that replaces the stores ``old`` of a collection, and say how much space the new ones need."""
    if remove:
        _require_unused(file, name, old)
    bytes_needed = sum(size_of(require_store(path)) for path in old.values())
    say(f"copying {readable_bytes(bytes_needed)}", err=True)
    with warnings_as_notes():
        yield lambda new: replace_stores(file, name, old, new)


def _require_unused(file: Path, name: str, old: Mapping[str, Path]) -> None:
    """Raise :class:`ConfigError` if something else names a store that is to be removed."""
    uses = {
        folder: f"the collection {each.name} of {other.path}"
        for other in collections_files()
        for each in other.collections.values()
        for folder in each.stores.values()
        if (other.path, each.name) != (file, name)
    }
    project_store = None if (known := project()) is None else known.store
    if project_store is not None:
        uses[project_store] = str(known and known.path)
    for member, folder in old.items():
        for used, by in uses.items():
            if used.resolve() == folder.resolve():
                raise ConfigError(f"the store {member} is not removed: {by} names it, too; leave out --remove")


def _say_new(name: str, old: Mapping[str, Path], new: Mapping[str, Path], *, removed: bool) -> None:
    for each, folder in new.items():
        say(f"{each:<15} {shown_path(folder)}: {_described(each, folder)['chunks']:,} chunks")
    say(f"{name}: {', '.join(old)} replaced by {', '.join(new)}")
    if not removed:
        say(f"note: kept on disk: {', '.join(shown_path(folder) for folder in old.values())}", err=True)


@command.command(name="refit", cls=WritingCommand)
@click.argument("name")
@refit_options
@format_option
def refit(name: str, postprocess: str | None, query_fit: QueryFit | None, wait_seconds: float, output: str) -> None:
    """Fit one embedder on all stores of the collection NAME, so that their scores can be compared.

    
    ragembed collection refit notes
    ragembed collection refit notes --postprocess center,normalize --query-fit shared

    The stores need the same model and the same settings. The fit uses the stored vectors and texts. Texts are encoded
    again only if token weights or static vectors were fitted on each store. If a run is interrupted, run it again.
    """
    steps = None if postprocess is None else postprocess_steps(postprocess)
    stores = chosen_stores([name], collections_files())
    with warnings_as_notes():
        fitted = refit_together(stores, steps, query_fit, StderrProgress(), wait_seconds)
    print_fit(fitted, output)


@command.command(name="default")
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Have no default collection.")
def default(name: str | None, is_none: bool) -> None:
    """Show or set the collection that is searched if there is no store here or in a parent folder."""
    if name is not None and is_none:
        raise click.UsageError("got both NAME and --none: give one of them")
    if name is not None or is_none:
        set_default(name)
    say(read_registry().default or "none")
