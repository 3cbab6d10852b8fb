"""``ragembed report``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import EXISTING_FILE, LocalPath, format_option, shared
from ragembed.cli.output import counted, print_record, say
from ragembed.cli.project import choose_store
from ragembed.indexes import Store
from ragembed.printable import readable_bytes
from ragembed.progress import StderrProgress
from ragembed.reports.page import check_output, read_queries, read_results, write_page
from ragembed.reports.store_report import report


@click.command(name="report")
@click.option(
    "--out",
    "file",
    type=LocalPath(dir_okay=False),
    default="report.html",
    show_default=True,
    help="File to write. A file that ragembed did not write is not overwritten.",
)
@click.option("--query", "asked", multiple=True, metavar="TEXT", help="Mark a query and its hits. Can be repeated.")
@click.option(
    "--queries",
    "queries_file",
    type=EXISTING_FILE,
    help="File with queries, one per line: shows which of them have weak matches. Text after a tab is ignored; a line "
    "may be a JSON object with the key query.",
)
@click.option(
    "--results",
    "results_files",
    type=EXISTING_FILE,
    multiple=True,
    help="Add what ragembed eval or doctor printed to this file with --json. Can be repeated.",
)
@shared("store", "quiet")
@format_option
def command(
    file: Path,
    asked: tuple[str, ...],
    queries_file: Path | None,
    results_files: tuple[Path, ...],
    store: Path | None,
    quiet: bool,
    output: str,
) -> None:
    """Show a store as one HTML file, with a map.

    \b
    ragembed report
    ragembed report --out corpus.html --query "how are stores locked?"

    The file opens in a browser without a network. It shows the files and chunks of the store, a map of all chunks,
    clusters with their words, near-duplicates, token weights, drift, and the index. The file contains
    texts of the documents: share it only with people who may read them. Needs the extra papers.
    """
    check_output(file)
    more = [read_results(results_file) for results_file in results_files]
    queries = [*asked, *([] if queries_file is None else read_queries(queries_file))]
    progress = StderrProgress(quiet=quiet)
    with Store.open(choose_store(store)) as opened:
        page, data = report(opened, queries, more=more, progress=progress)
    write_page(file, page)
    made = data.vector_map
    summary = {
        "file": str(file),
        "bytes": len(page),
        "chunks": len(data.points),
        "texts": len(data.chunks),
        "clusters": len(data.clusters),
        "neighbours_kept": None if made is None else made.kept,
        "queries": data.asked,
        "weak_queries": data.weak,
    }
    if print_record(summary, output) or quiet:
        return
    size, chunks = readable_bytes(len(page)), counted(len(data.points), "chunk")
    say(f"{file}: {size}, {chunks}, {counted(len(data.clusters), 'cluster')}")
    if made is not None and made.kept is not None:
        measured = counted(len(made.laid_out), "vector")
        say(f"the map keeps {made.kept:.0%} of the 10 nearest neighbours, measured for {measured}")
    if data.queries:
        say(f"queries with weak matches: {data.weak:,} of {data.asked:,}")
