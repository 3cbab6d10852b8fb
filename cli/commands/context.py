"""``ragembed context``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import FilterOptions, query_text, shared, takes
from ragembed.cli.output import say, say_weak
from ragembed.cli.searched import ask, open_searched, searched_options
from ragembed.indexes.search.context import CONTEXT_FORMATS, ContextFormat, renderer_of
from ragembed.indexes.search.pipeline import Mode
from ragembed.printable import printable


@click.command(name="context")
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@click.option(
    "--budget",
    type=click.IntRange(1),
    metavar="TOKENS",
    default=4000,
    show_default=True,
    help="Largest number of tokens of the whole output.",
)
@click.option(
    "--tokenizer",
    metavar="PATH",
    help="Tokenizer of the model that reads the output: a file tokenizer.json, or a folder with this file.  [default: "
    "an estimate]",
)
@shared("mode", "min_relevance", "refresh")
@click.option(
    "--format",
    "output",
    type=click.Choice(CONTEXT_FORMATS),
    default="text",
    show_default=True,
    help="Output format: text (fenced), markdown (fenced), json (one object), xml (tags for prompts).",
)
@click.option("--json", "output", flag_value="json", help="Same as --format json.")
@takes(FilterOptions, "selection")
@searched_options
def command(
    query: tuple[str, ...],
    budget: int,
    tokenizer: str | None,
    mode: Mode,
    min_relevance: float | None,
    refresh: bool,
    output: ContextFormat,
    store: Path | None,
    collections: str | None,
    selection: FilterOptions,
) -> None:
    """Pack the best text for a query into a budget of tokens.

    \b
    ragembed context how are stores locked --budget 2000
    ragembed context release notes --format xml --where "ext = 'md'"

    Prints blocks of text for the prompt of a model, each with its file and lines: sed -n 'START,ENDp' FILE prints the
    same lines. The best hits come first, near-duplicates are left out, and hits are widened to their sections while the
    budget lasts. Hits that do not fit are listed at the end if there is room.

    Exit status: 0 with text, 1 without, 2 for an error.
    """
    asked, where = query_text(query), selection.condition
    settings: dict[str, Any] = {"format": output, "tokenizer": tokenizer, "min_relevance": min_relevance}
    with open_searched(store, collections, refresh=refresh) as opened:
        context, notes = ask(opened, mode, where, lambda: opened.context(asked, budget, mode, where=where, **settings))
    text = context.text
    if notes and output == "json":
        whole = json.loads(text or renderer_of(output).render(asked, (), ()))
        text = json.dumps({**whole, **notes}, ensure_ascii=False) + "\n"
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
    say_weak(block.relevance for block in context.blocks)
    if not context.blocks:
        best = f": the best hit is {context.left_out[0]}" if context.left_out else ""
        say(f"no text fits into {budget:,} tokens{best}" if best else "no results", err=True)
        raise click.exceptions.Exit(1)
