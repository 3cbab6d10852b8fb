"""``ragembed papers reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click

from ragembed.cli.options import LocalPath, shared, takes
from ragembed.cli.output import say, terminal_width
from ragembed.config.fields import one_of, setting
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ConfigError
from ragembed.evaluation.table import wrapped
from ragembed.extractors.kept_states import kept_states
from ragembed.papers.reproduction import find_item, items
from ragembed.papers.reproduction.data import COLLECTIONS
from ragembed.papers.reproduction.figures import write
from ragembed.papers.reproduction.reproduction_report import described, text
from ragembed.papers.reproduction.reproduction_run import Inputs, Item, reproduce
from ragembed.papers.sentences.plots import new_figure
from ragembed.printable import printable
from ragembed.progress import StderrProgress

_PAPERS = ("stankevicius2024", "sbert-wk", "defsent-plus")


@dataclass(frozen=True, slots=True)
class _ReproductionOptions:
    """The options of ``ragembed papers reproduce``."""

    listed: bool = setting(
        False, "List tables and figures with their data and splits, and what differs from the papers.", "--list"
    )
    tables: tuple[str, ...] = setting((), "Table to run, such as 4 or A1.", "--table", "N")
    figures: tuple[str, ...] = setting((), "Figure to run, such as 5.", "--figure", "N")
    data: Path | None = setting(
        None,
        "Folder with the collections. The list says which ones are missing.",
        "--data",
        type=LocalPath(exists=True, file_okay=False),
    )
    model: str = setting(DEFAULT_MODEL, "Model to measure.", "--model", "ID|PATH")
    out: Path | None = setting(
        None,
        "Folder for the CSV files, the pictures and the measurements, which a later run reuses.",
        "--out",
        default="reproduced/PAPER",
        type=LocalPath(file_okay=False),
    )
    word_vectors: tuple[Path, ...] = setting(
        (), "File with word vectors; SBERT-WK takes several, for GloVe, FastText and p-mean.", "--word-vectors", "FILE"
    )
    runs: int = setting(
        10, "Number of k-means runs to average, and of trainings of each DefSent+ model.", "--runs", "N", least=1
    )
    collections: tuple[str, ...] = setting((), "Measure only this collection.", "--collection", "NAME")
    columns: tuple[str, ...] = setting((), "Measure only this column.", "--column", "NAME")
    head_from: str | None = setting(
        None, "Model whose head the trainings of DefSent+ use.", "--head-from", "ID|PATH", default="--model"
    )
    measured_only: bool = setting(
        False, "Show only what earlier runs left in the output folder; measure nothing.", "--measured-only"
    )
    device: str | None = setting(
        None, "Device: cpu, gpu:1, or auto (a GPU, else the CPU).", "--device", "DEVICE", default="auto"
    )


@click.command(name="reproduce")
@click.argument("paper", type=click.Choice(_PAPERS), required=False)
@takes(_ReproductionOptions)
@shared("quiet")
def command(paper: str | None, quiet: bool, options: _ReproductionOptions) -> None:
    """Run a table or figure of a paper beside the published numbers.

    \b
    ragembed papers reproduce stankevicius2024 --table A2 --column RE --data collections/
    ragembed papers reproduce --list --data collections/

    The list says for each table and figure which data and which split it needs, and what differs from the paper. Each
    result is kept in the output folder as soon as it is measured: run an interrupted command again, and it continues.
    """
    names = [*(f"table {number}" for number in options.tables), *(f"figure {number}" for number in options.figures)]
    if (names and paper is None) or not (names or options.listed):
        raise ConfigError("no table or figure of a paper: give both, such as sbert-wk --table III; --list shows all")
    papers = _PAPERS if paper is None else (paper,)
    chosen = [find_item(one, name) for one in papers for name in names or items(one)]
    if options.listed:
        _list(chosen, options.data)
        return
    if options.data is None:
        raise ConfigError("no folder with collections: give it with --data")
    for name in options.collections:
        one_of("collection", name, tuple(COLLECTIONS))
    inputs = Inputs(
        options.data,
        options.out or Path("reproduced") / chosen[0].paper,
        options.model,
        options.word_vectors,
        options.runs,
        options.collections,
        options.columns,
        options.device,
        options.head_from,
        not options.measured_only,
    )
    new_figure()  # raises an error without matplotlib
    with kept_states():
        for number, item in enumerate(chosen):
            if number:
                click.echo()
            outcome = reproduce(item, inputs, StderrProgress(quiet=quiet))
            click.echo(printable(text(outcome, terminal_width())))
            for file in write(outcome, inputs.out):
                say(f"written: {file}")


def _list(items: Sequence[Item], data: Path | None) -> None:
    """Print what each table and figure needs, and where the collections that are missing are published."""
    lines: list[str] = []
    for paper, of_paper in groupby(items, key=lambda item: item.paper):
        lines += [paper, *described(of_paper), ""]
    used = dict.fromkeys(name for item in items for name in item.collections)
    missing = [COLLECTIONS[name] for name in used if data is None or COLLECTIONS[name].find(data) is None]
    lines += ["collections:" if data is None else "missing collections:"] if missing else []
    lines += [
        f"{collection.name}: expected {collection.expected}; published at {collection.source}" for collection in missing
    ]
    click.echo("\n".join(part for line in lines for part in wrapped(line, terminal_width())))
