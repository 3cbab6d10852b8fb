"""``ragembed files``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import PlacePath, discovery_options, format_option, store_option
from ragembed.cli.output import print_record, print_records, say, shown_path
from ragembed.cli.requests import indexing_options, paths_or_stored
from ragembed.documents.discovery import FileCandidate, discover, why
from ragembed.documents.places import Place
from ragembed.indexes.indexing.request import open_existing
from ragembed.indexes.storage.layout import choose_store


@click.command(name="files")
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@click.option(
    "--why", "explained", type=PlacePath(), metavar="PATH", help="Show which rule includes or excludes PATH, and stop."
)
@click.option("--skipped", is_flag=True, help="List the files that would be skipped, with the reason for each.")
@store_option
@discovery_options
@format_option
def command(
    paths: tuple[Place, ...], explained: Place | None, skipped: bool, store: Path | None, output: str, **reading: Any
) -> None:
    """List the files that indexing would read.

    \b
    ragembed files docs/ --exclude 'tmp*'
    ragembed files docs/ --why docs/notes.tmp

    Without PATH, lists the paths that the store was made from, or the working directory if there is no store. Rules in
    .gitignore and .ragembedignore files apply; those in a subfolder override those above it. The contents of files are
    not read.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    where = choose_store(store)
    with open_existing(where) as opened:
        options = indexing_options(opened, reading).discovery()
        roots = paths_or_stored(opened, paths)
    if explained is not None:
        reason = why(explained, roots, options)
        if not print_record({"path": shown_path(explained), "why": reason}, output):
            say(reason)
        return
    found = discover(roots, options, pruned=skipped)
    entries = [_as_dict(candidate) for candidate in found if (candidate.skipped is not None) == skipped]
    if not print_records({"files": entries}, "files", output):
        for entry in entries:
            say(f"{entry['path']}: {entry['reason']}" if skipped else entry["path"])


def _as_dict(candidate: FileCandidate) -> dict[str, Any]:
    path = shown_path(candidate.path) + ("/" if candidate.is_dir else "")
    return {"path": path, "size": candidate.size, "reason": candidate.skipped}
