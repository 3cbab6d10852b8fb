"""``ragembed papers eval describe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragembed.cli.evaluation.results import CSV, print_csv, print_objects
from ragembed.cli.options import EXISTING_PATH, format_option
from ragembed.cli.output import terminal_width
from ragembed.printable import printable

if TYPE_CHECKING:
    from ragembed.papers.sentences.description import Description

_HEADS = ("", "split", "N", "C", "L/S", "V W", "B", "Len W", "B", "Alpha W", "B", "overlap")


@click.command(name="describe", short_help="Describe a collection: sizes, vocabulary, lengths.")
@click.argument("paths", nargs=-1, required=True, type=EXISTING_PATH, metavar="PATH...")
@click.option(
    "--model",
    metavar="ID|PATH",
    help="Model whose tokens are counted; only its tokenizer is read.  "
    "[default: sentence-transformers/all-MiniLM-L6-v2]",
)
@partial(format_option, more=CSV)
def command(paths: tuple[Path, ...], model: str | None, output: str) -> None:
    """Describe a collection: size, classes, vocabulary, lengths, alphabetic tokens.

    \b
    ragembed papers eval describe topics.tsv pairs.tsv

    PATH is a file or folder as for "ragembed papers eval classification". N is the number of texts or pairs, C of
    classes, L/S the size of the largest class divided by that of the smallest. V is the size of the vocabulary, Len the
    mean number of tokens, and Alpha the share of tokens with letters only: W for words that spaces separate, B for the
    tokens of the model. The overlap is the share of words that both texts of a pair have. Shares are in per cent.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    from ragembed.config.settings import DEFAULT_MODEL
    from ragembed.models.files import find_tokenizer
    from ragembed.models.tokenizer import TextTokenizer
    from ragembed.papers.sentences.description import describe

    tokenizer = TextTokenizer(find_tokenizer(DEFAULT_MODEL if model is None else model)[0])
    found = [each for path in paths for each in describe(path, tokenizer)]
    objects = [{"task": "describe", **asdict(each)} for each in found]
    if output == "text":
        click.echo(printable("\n".join(_table(found))))
    elif output == "csv":
        print_csv([_flat(each) for each in objects])
    else:
        print_objects("describe", objects, output)


def _table(found: Sequence[Description]) -> list[str]:
    from ragembed.evaluation.table import folded

    lines = [list(_HEADS)]
    for each in found:
        both = each.words, each.tokens
        lines.append(
            [
                each.collection,
                each.split or "",
                f"{each.texts:,}",
                "" if each.classes is None else str(each.classes),
                "" if each.imbalance is None else f"{each.imbalance:.1f}",
                *(f"{one.vocabulary:,}" for one in both),
                *(f"{one.length:.1f}" for one in both),
                *(f"{one.alphabetic:.0f}" for one in both),
                "" if each.overlap is None else f"{each.overlap:.0f}",
            ]
        )
    return folded(lines, 1, terminal_width())


def _flat(found: dict[str, object]) -> dict[str, object]:
    """Return one level of columns, such as ``words.vocabulary``."""
    flat: dict[str, object] = {}
    for name, value in found.items():
        flat |= (
            {f"{name}.{part}": number for part, number in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat
