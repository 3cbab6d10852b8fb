"""``ragembed files``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import click

from ragembed.cli.options import PlacePath, format_option, settings, shared
from ragembed.cli.output import print_record, say, shown_path
from ragembed.cli.project import choose_store
from ragembed.cli.requests import indexing_options
from ragembed.documents.discovery import FileCandidate, discover, why
from ragembed.documents.places import Place
from ragembed.documents.readers.converted import missing_converter
from ragembed.documents.readers.registry import format_of, named_reader
from ragembed.extras import extra_of, is_installed
from ragembed.indexes import IndexingOptions
from ragembed.indexes.indexing.request import open_existing, stored_request
from ragembed.indexes.storage.layout import file_path
from ragembed.printable import readable_bytes
from ragembed.version import install_command

_SIZE = re.compile(r"^[\d.,]+ (?:MB|bytes) is (?=over the limit)")


@click.command(name="files")
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@click.option(
    "--why", "explained", type=PlacePath(), metavar="PATH", help="Show which rule includes or excludes PATH, and stop."
)
@click.option("--skipped", is_flag=True, help="List the files that would be skipped, with the reason for each.")
@click.option("--summary", is_flag=True, help="Count the files by format, by what happens to them, and by reason.")
@shared("store")
@settings(IndexingOptions, "exclude", "include", "max_bytes", "hidden")
@format_option
def command(
    paths: tuple[Place, ...],
    explained: Place | None,
    skipped: bool,
    summary: bool,
    store: Path | None,
    output: str,
    **reading: Any,
) -> None:
    """List the files that indexing would read.

    \b
    ragembed files docs/ --exclude 'tmp*'
    ragembed files docs/ --why docs/notes.tmp
    ragembed files docs/ --summary

    Without PATH, lists the paths that the store was made from, or the working directory if there is no store. Rules in
    .gitignore and .ragembedignore files apply; those in a subfolder override those above it. The contents of files are
    not read; --summary names files of the store that have hardly any words.
    """
    if sum((skipped, summary, explained is not None)) > 1:
        raise click.UsageError("got more than one of --skipped, --summary and --why: give one of them")
    where = choose_store(store)
    with open_existing(where) as opened:
        options = indexing_options(opened, reading)
        stored = stored_request(opened)
        roots = paths or (stored[0] if stored else (Path(),))
    if explained is not None:
        reason = why(explained, roots, options)
        if not print_record({"path": shown_path(explained), "why": reason}, output):
            say(reason)
        return
    if summary:
        from ragembed.indexes.doctor.text_checks import files_without_words

        with open_existing(where) as opened:
            wordless = {} if opened is None else opened.read_database(files_without_words)
        names = {shown_path(file_path(name, where)): share for name, share in wordless.items()}
        _print_summary(discover(roots, options, pruned=True), names, output)
        return
    entries: list[dict[str, Any]] = [
        {"path": shown_path(file.path) + ("/" if file.is_dir else ""), "size": file.size, "reason": file.skipped}
        for file in discover(roots, options, pruned=skipped)
        if (file.skipped is not None) == skipped
    ]
    if not print_record({"files": entries}, output, "files"):
        for entry in entries:
            say(f"{entry['path']}: {entry['reason']}" if skipped else entry["path"])


def _print_summary(candidates: Iterable[FileCandidate], wordless: Mapping[str, float], output: str) -> None:
    """Print the number and size of the files of each format with the same outcome, and the files without words."""
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for candidate in candidates:
        key = _format(candidate), *_outcome(candidate)
        counts[key] += 1
        sizes[key] += candidate.size
    keys = sorted(counts, key=lambda key: (key[1], -counts[key], key))
    rows = [
        {"format": kind, "files": counts[key], "bytes": sizes[key], "outcome": outcome, "reason": reason}
        for key in keys
        for kind, outcome, reason in [key]
    ]
    named = [{"path": name, "share": round(share, 3)} for name, share in wordless.items()]
    if print_record({"summary": rows, **({"without_words": named} if named else {})}, output, "summary"):
        return
    cells = [("format", "files", "size", "outcome", "reason")]
    cells += [(key[0], f"{counts[key]:,}", readable_bytes(sizes[key]), *key[1:]) for key in keys]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for kind, number, size, outcome, reason in cells:
        line = f"{kind:<{widths[0]}}  {number:>{widths[1]}}  {size:>{widths[2]}}  {outcome:<{widths[3]}}  {reason}"
        say(line.rstrip())
    for name, share in wordless.items():
        say(f"{name}: {share:.0%} of its chunks have hardly any words; leave it out with --exclude")


def _format(candidate: FileCandidate) -> str:
    """Return the format of a file that is read, otherwise its extension."""
    if candidate.is_dir:
        return "folder"
    if known := format_of(candidate.path.name):
        return known
    suffix = PurePosixPath(candidate.path.name).suffix.lower().removeprefix(".")
    return suffix or ("text" if candidate.skipped is None else "no extension")


def _outcome(candidate: FileCandidate) -> tuple[str, str]:
    """Return what happens to a file or folder, and why, without the sizes of single files."""
    if candidate.skipped is not None:
        return "ignored" if candidate.ignored else "skipped", _SIZE.sub("", candidate.skipped)
    reader = named_reader(candidate.path.name)
    if reader is not None and reader.package is not None and not is_installed(reader.package):
        return "skipped", install_command(extra_of(reader.package))
    missing = None if reader is None else missing_converter(reader.name)
    return ("read", "") if missing is None else ("skipped", missing)
