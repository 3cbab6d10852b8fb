"""``ragembed papers reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragembed.cli.options import EXISTING_FILE, LocalPath, quiet_option
from ragembed.cli.output import say, terminal_width
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ConfigError
from ragembed.printable import printable
from ragembed.progress import StderrProgress

if TYPE_CHECKING:
    from ragembed.papers.reproduction.reproduction_run import Inputs, Item

_PAPERS = ("stankevicius2024", "sbert-wk", "defsent-plus")


@click.command(name="reproduce")
@click.argument("paper", type=click.Choice(_PAPERS))
@click.option("--table", "tables", multiple=True, metavar="N", help="Table to run, such as 4 or A1. Can be repeated.")
@click.option("--figure", "figures", multiple=True, metavar="N", help="Figure to run, such as 5. Can be repeated.")
@click.option(
    "--data",
    type=LocalPath(exists=True, file_okay=False),
    help="Folder with the collections. Without --table and --figure, the list says which ones are missing.",
)
@click.option("--model", metavar="ID|PATH", help=f"Model to measure.  [default: {DEFAULT_MODEL}]")
@click.option(
    "--out",
    type=LocalPath(file_okay=False),
    help="Folder for the CSV files, the pictures and the measurements, which a later run reuses.  [default: "
    "reproduced/PAPER]",
)
@click.option("--word-vectors", type=EXISTING_FILE, help="File with word vectors for the columns B2S and B2S-100.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    metavar="N",
    default=10,
    show_default=True,
    help="Number of k-means runs to average, and of trainings of each DefSent+ model.",
)
@click.option(
    "--collection", "collections", multiple=True, metavar="NAME", help="Measure only this collection. Can be repeated."
)
@click.option("--column", "columns", multiple=True, metavar="NAME", help="Measure only this column. Can be repeated.")
@click.option(
    "--head-from", metavar="ID|PATH", help="Model whose head the trainings of DefSent+ use.  [default: --model]"
)
@click.option(
    "--measured-only", is_flag=True, help="Show only what earlier runs left in the output folder; measure nothing."
)
@click.option("--device", metavar="DEVICE", help="Device: cpu, gpu:1, or auto (a GPU, else the CPU).  [default: auto]")
@quiet_option
def command(
    paper: str,
    tables: tuple[str, ...],
    figures: tuple[str, ...],
    data: Path | None,
    model: str | None,
    out: Path | None,
    word_vectors: Path | None,
    runs: int,
    collections: tuple[str, ...],
    columns: tuple[str, ...],
    head_from: str | None,
    measured_only: bool,
    device: str | None,
    quiet: bool,
) -> None:
    """Run a table or figure of a paper beside the published numbers.

    \b
    ragembed papers reproduce stankevicius2024 --table A2 --column RE --data collections/
    ragembed papers reproduce sbert-wk --data collections/

    Without --table and --figure, the command lists what it can run and which collections are missing. Each result is
    kept in the output folder as soon as it is measured: run an interrupted command again, and it continues.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    from ragembed.extractors.kept_states import kept_states
    from ragembed.papers.reproduction import find_item, items
    from ragembed.papers.reproduction.reproduction_run import Inputs, check_names

    names = [*(f"table {number}" for number in tables), *(f"figure {number}" for number in figures)]
    if not names:
        _list(list(items(paper).values()), data)
        return
    if data is None:
        raise ConfigError("no folder with collections: give it with --data")
    check_names(collections)
    chosen = [find_item(paper, name) for name in names]
    folder = out or Path("reproduced") / paper
    name = model or DEFAULT_MODEL
    measure = not measured_only
    inputs = Inputs(data, folder, name, word_vectors, runs, collections, columns, device, head_from, measure)
    with kept_states():
        for number, item in enumerate(chosen):
            if number:
                click.echo()
            _run(item, inputs, StderrProgress(quiet=quiet))


def _run(item: Item, inputs: Inputs, progress: StderrProgress) -> None:
    from ragembed.papers.reproduction.figures import check_figure, write
    from ragembed.papers.reproduction.reproduction_report import text
    from ragembed.papers.reproduction.reproduction_run import reproduce

    check_figure()
    outcome = reproduce(item, inputs, progress)
    click.echo(printable(text(outcome, terminal_width())))
    for file in write(outcome, inputs.out):
        say(f"written: {file}")


def _list(found: list[Item], data: Path | None) -> None:
    from ragembed.papers.reproduction.data import COLLECTIONS

    click.echo("\n".join(f"{item.name:<11} {item.title}" for item in found))
    used = dict.fromkeys(name for item in found for name in item.collections)
    missing = [name for name in used if data is None or COLLECTIONS[name].find(data) is None]
    if missing:
        click.echo("\nmissing collections:" if data is not None else "\ncollections:")
        rows = [["name", "expected", "published at"]]
        rows += [[name, COLLECTIONS[name].paths[0], COLLECTIONS[name].source] for name in missing]
        click.echo("\n".join(f"{name:<14} {expected:<36} {source}".rstrip() for name, expected, source in rows))
