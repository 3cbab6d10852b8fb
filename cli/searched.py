"""The store, or the stores, that a command reads: ``--store``, ``--in``, or their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.options import in_option, shared, with_options
from ragembed.cli.output import print_record, say, say_incomplete, shown_path
from ragembed.cli.project import choose_store, chosen_collections, collections_files, stores_in
from ragembed.config.settings_files import chosen_stores
from ragembed.documents.places import Place
from ragembed.errors import ConfigError, RagembedError, StoreError
from ragembed.indexes import Collection, Store
from ragembed.indexes.filters import Filter
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest, stored_request
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import collected_notes
from ragembed.indexes.storage.layout import file_path, source_path

Answer = TypeVar("Answer")

searched_options = with_options(
    shared("store"),
    in_option(
        "Collections of stores (see ragembed collection) to search as one",
        "the default collection, if no store is found here",
    ),
)
each_in_option = in_option("Report on each store of these collections")


def open_searched(store: Path | None, collections: str | None, *, refresh: bool = False) -> Store | Collection:
    """Open the store or the collections that the options name, or their defaults; update them if ``refresh``."""
    names = chosen_collections(store, collections)
    opened: Store | Collection
    if names is None:
        opened = Store.open(choose_store(store))
    else:
        opened = Collection.open(chosen_stores(names, collections_files()))
    if refresh:
        for member in [opened] if isinstance(opened, Store) else opened.stores.values():
            if stored_request(member) is not None:  # Otherwise the store has no files, only texts.
                index_files(IndexingRequest(member.path, opened=member))
    return opened


def ask(
    opened: Store | Collection, mode: Mode, condition: Filter | None, question: Callable[[], Answer]
) -> tuple[Answer, dict[str, Any]]:
    """Return the answer to a question, read in one snapshot, with the notes on it as a member of a JSON object.

    The notes are printed, too: parts of the filter that match nothing, stores that are left out, unfinished runs.
    """
    with collected_notes() as collected:
        answer, noted, incomplete = opened.read(
            lambda: (question(), [] if condition is None else opened.filter_notes(condition), opened.incomplete)
        )
    notes = say_notes([*noted, *collected])
    say_left_out(opened, mode)
    say_incomplete(incomplete)
    return answer, notes


def namer(opened: Store | Collection) -> Callable[[str, str | None], str]:
    """Return a function that returns the path to show for the file of a hit."""
    paths: Mapping[Any, Path] = {None: opened.path} if isinstance(opened, Store) else opened.paths
    return lambda source, store: shown_path(file_path(source, paths[store]))


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What a command reports about a store: JSON values, a function that prints them, and the exit status.

    ``lines`` names the member of ``record`` whose objects JSON lines print one by one, instead of the whole.
    """

    record: Mapping[str, Any]
    show: Callable[[], None]
    status: int = 0
    lines: str | None = None


def report_stores(
    store: Path | None,
    collections: str | None,
    output: str,
    examine: Callable[[Mapping[str, Path]], StoreReport],
    *,
    by_embedder: bool = False,
) -> None:
    """Print the report of each chosen store, or that it cannot be read, and exit with the worst status.

    ``examine`` gets one store, or with ``by_embedder`` all those of the collections with the same embedder.
    """
    if collections is None:
        report = examine({"": choose_store(store)})
        if not print_record(report.record, output, report.lines):
            report.show()
        raise click.exceptions.Exit(report.status)
    stores = stores_in(collections, store)
    groups, problems = [[name] for name in stores], dict[str, str]()
    if by_embedder:
        with Collection.open(stores) as opened:
            groups = opened.groups("dense")
            problems = dict(opened.problems)
    entries, worst = [], 0
    for names in [*groups, *([name] for name in problems)]:
        try:
            if problem := problems.get(names[0]):
                raise StoreError(problem)
            report = examine({name: stores[name] for name in names})
        except (RagembedError, OSError) as error:
            report = StoreReport({"problem": str(error)}, partial(say, f"error: {error}"), ERROR_EXIT)
        entries.append({**({"stores": names} if by_embedder else {"name": names[0]}), **report.record})
        worst = max(worst, report.status)
        if output == "text":
            say(f"{', '.join(names)}:")
            report.show()
    member = "groups" if by_embedder else "stores"
    print_record({member: entries}, output, member)
    raise click.exceptions.Exit(worst)


def place_in_store(opened: Store | Collection, file: Place) -> tuple[str | None, str]:
    """Return the store that has a file, None if a single store is searched, and the name of the file there."""
    if isinstance(opened, Store):
        return None, source_path(file, opened.path)
    stores = opened.stores
    for name, member in stores.items():
        source = source_path(file, member.path)
        if member.sources([source]):
            return name, source
    raise ConfigError(f"{file} is in none of the stores {', '.join(stores)}: add it with 'ragembed index PATH'")


def say_notes(notes: Sequence[str]) -> dict[str, Any]:
    """Print notes on a search to stderr, and return them as a member of a JSON object, if there are any."""
    for note in notes:
        say(f"note: {note}", err=True)
    return {"notes": list(notes)} if notes else {}


def say_left_out(opened: Store | Collection, mode: Mode | None = None) -> None:
    """Print to stderr which stores did not answer, and whether the hits were ordered by rank."""
    if isinstance(opened, Store):
        return
    for name, problem in opened.problems.items():
        say(f"note: the store {name} is left out: {problem}", err=True)
    if mode is not None and len(groups := opened.groups(mode)) > 1:
        differ, remedy = ("different embedders", "; to compare scores, run ragembed collection refit NAME")
        if mode == "lexical":
            differ, remedy = "different languages", ""
        listed = "; ".join(", ".join(names) for names in groups)
        say(
            f"note: the stores have {differ}, so results are ordered by their rank among those of {listed}{remedy}",
            err=True,
        )
