"""``ragembed collection``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli import HelpfulGroup
from ragembed.cli.commands.refit import print_fit, refit_options
from ragembed.cli.options import LocalPath, WritingCommand, format_option, named_stores
from ragembed.cli.output import counted, print_record, say, shown_path, warnings_as_notes
from ragembed.cli.project import collections_files
from ragembed.cli.requests import postprocess_steps
from ragembed.config.settings import QueryFit
from ragembed.config.settings_files import (
    add_stores,
    chosen_stores,
    read_registry,
    registry_file,
    remove_stores,
    set_default,
)
from ragembed.errors import RagembedError
from ragembed.indexes import Store, refit_together
from ragembed.indexes.storage.layout import STORE_FOLDER, is_store, require_store
from ragembed.progress import StderrProgress


@click.group(name="collection", cls=HelpfulGroup)
def command() -> None:
    """Name sets of stores, to search them as one.

    \b
    ragembed collection add notes ~/notes ~/letters
    ragembed query "who fixed the boiler?" --in notes

    The names are kept in the file collections.toml in your configuration folder. You can edit it. Stores are not
    copied or changed.
    """


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
    """
    if not folders and not stores:
        raise click.UsageError("there is nothing to add: give a FOLDER or --store PATH")
    folder_stores = [str(folder if is_store(folder) else folder / STORE_FOLDER) for folder in folders]
    named = {key: path.absolute() for key, path in named_stores((*folder_stores, *stores), "FOLDER").items()}
    for path in named.values():
        require_store(path)
    add_stores(name, named)
    say(f"{name}: {counted(len(read_registry().collections[name].stores), 'store')}, in {shown_path(registry_file())}")


@command.command(name="list")
@format_option
def list_collections(output: str) -> None:
    """List the collections, with the folder and the number of chunks of each store."""
    registry = read_registry()
    collections: list[dict[str, Any]] = []
    for collection in registry.collections.values():
        stores: list[dict[str, Any]] = []
        for name, path in collection.stores.items():
            stores.append({"name": name, "path": str(path), "chunks": None, "problem": None})
            try:
                with Store.open(path) as store:
                    stores[-1]["chunks"] = len(store)
            except (RagembedError, OSError) as error:
                stores[-1]["problem"] = str(error)
        default = collection.name == registry.default
        collections.append(
            {"name": collection.name, "default": default, "stores": stores, "query": dict(collection.query)}
        )
    if print_record({"path": str(registry.path), "collections": collections}, output, "collections"):
        return
    for entry in collections:
        say(entry["name"] + (" (default)" if entry["default"] else ""))
        for store in entry["stores"]:
            about = store["problem"] or counted(store["chunks"], "chunk")
            say(f"  {store['name']:<15} {shown_path(Path(store['path']))}: {about}")
        if entry["query"]:
            say("  options of query: " + ", ".join(f"{key} = {value}" for key, value in entry["query"].items()))
    if not collections:
        say("no collections: add one with 'ragembed collection add NAME FOLDER'", err=True)


@command.command(name="remove")
@click.argument("name")
@click.argument("stores", metavar="[STORE]...", nargs=-1)
def remove(name: str, stores: tuple[str, ...]) -> None:
    """Remove the collection NAME, or some of its stores by their names. The stores themselves are kept."""
    remove_stores(name, stores)
    say(f"removed {', '.join(stores) or 'all stores'} from {name}; the stores themselves are kept")


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
