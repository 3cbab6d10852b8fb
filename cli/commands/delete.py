"""``ragembed delete``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import FilterOptions, PlacePath, WritingCommand, format_option, shared, takes
from ragembed.cli.output import counted, print_record, say, warnings_as_notes
from ragembed.cli.project import choose_store
from ragembed.cli.searched import say_notes
from ragembed.documents.places import Place, exists, is_url
from ragembed.errors import ConfigError
from ragembed.indexes import Store
from ragembed.indexes.storage.layout import file_path, is_below, source_path


@click.command(name="delete", cls=WritingCommand)
@click.argument("files", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Delete the chunk with this id. Can be repeated.")
@takes(FilterOptions, "selection")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@shared("store")
@format_option
def command(
    files: tuple[Place, ...],
    ids: tuple[str, ...],
    dry_run: bool,
    store: Path | None,
    wait_seconds: float,
    output: str,
    selection: FilterOptions,
) -> None:
    """Delete files or chunks from a store. Your own files are not touched.

    \b
    ragembed delete docs/old/
    ragembed delete --where "ext = 'pdf'" --dry-run
    ragembed delete --path 'docs/draft*'

    PATH is a file, or a folder for all files in it. If a file still exists, the next run of ragembed index adds it
    again, unless you exclude it (--exclude). Chunks that you delete with --id, --where or --path come back only when
    their file changes.

    Exit status: 0 if something was deleted, 1 if nothing matched, 2 for an error.
    """
    condition = selection.condition
    if not files and not ids and condition is None:
        raise ConfigError("nothing to delete: give a file or folder, or --id, --path, --match or --where")
    chosen = choose_store(store)
    names = [source_path(file, chosen) for file in files]
    with Store.open(chosen) as opened:
        gone = [name for name in opened.sources() if any(is_below(name, root) for root in names)]
        notes = say_notes([] if condition is None else opened.filter_notes(condition))
        if dry_run:
            deleted = opened.count_selected(ids, paths=names, where=condition)
        else:
            with warnings_as_notes():
                deleted = opened.delete(ids, paths=names, where=condition, wait_seconds=wait_seconds)
    if not print_record({"chunks": deleted, "files": gone, "dry_run": dry_run, **notes}, output):
        say(f"{'would delete' if dry_run else 'deleted'} {counted(deleted, 'chunk')} and {counted(len(gone), 'file')}")
    if not dry_run and any(is_url(name) or exists(file_path(name, chosen)) for name in gone):
        say(
            "note: if a file still exists, the next run of ragembed index adds it again, unless you exclude it with "
            "--exclude",
            err=True,
        )
    if not deleted and not gone:
        raise click.exceptions.Exit(1)
