"""``ragembed context``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ragembed.cli.options import (
    filter_options,
    min_relevance_option,
    mode_option,
    refresh_option,
    search_filter,
    store_option,
)
from ragembed.cli.output import say, say_unfinished, say_weak
from ragembed.cli.searched import filter_notes, in_option, open_searched, say_left_out, say_notes
from ragembed.indexes import Context
from ragembed.indexes.search.context import CONTEXT_FORMATS, ContextFormat, renderer_of
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import collected_notes
from ragembed.printable import printable

_NO_CONTEXT_EXIT = 1


@click.command(name="context")
@click.argument("query")
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
@mode_option
@min_relevance_option
@refresh_option
@click.option(
    "--format",
    "output",
    type=click.Choice(CONTEXT_FORMATS),
    default="text",
    show_default=True,
    help="Output format: text (fenced), markdown (fenced), json (one object), xml (tags for prompts).",
)
@click.option("--json", "output", flag_value="json", help="Same as --format json.")
@filter_options
@store_option
@in_option
def command(
    query: str,
    budget: int,
    tokenizer: str | None,
    mode: Mode,
    min_relevance: float | None,
    refresh: bool,
    output: ContextFormat,
    where: str | None,
    globs: tuple[str, ...],
    store: Path | None,
    collections: str | None,
) -> None:
    """Pack the best text for a query into a budget of tokens.

    \b
    ragembed context "how are stores locked?" --budget 2000
    ragembed context "release notes" --format xml --where "ext = 'md'"

    Prints blocks of text for the prompt of a model, each with its file and lines: sed -n 'START,ENDp' FILE prints the
    same lines. The best hits come first, near-duplicates are left out, and hits are widened to their sections while the
    budget lasts. Hits that do not fit are listed at the end if there is room.

    Exit status: 0 with text, 1 without, 2 for an error.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    if not query.strip():
        raise click.BadParameter("the query is empty: expected at least one word", param_hint="QUERY")
    condition = search_filter(where, globs)
    with open_searched(store, collections, refresh=refresh) as opened:

        def run_query() -> tuple[Context, list[str], bool]:
            context = opened.context(
                query,
                budget,
                mode,
                where=condition,
                format=output,
                tokenizer=tokenizer,
                min_relevance=min_relevance,
            )
            return context, filter_notes(opened, condition), opened.unfinished

        with collected_notes() as collected:
            context, noted, unfinished = opened.read(run_query)
        being_written = unfinished and opened.being_written
        notes = say_notes([*noted, *collected])
        say_left_out(opened, mode)
    text = context.text
    if notes and output == "json":
        whole = json.loads(text or renderer_of(output).render(query, (), ()))
        text = json.dumps({**whole, **notes}, ensure_ascii=False) + "\n"
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
    if unfinished:
        say_unfinished(being_written=being_written)
    say_weak(block.relevance for block in context.blocks)
    if not context.blocks:
        best = f": the best hit is {context.left_out[0]}" if context.left_out else ""
        say(f"no text fits into {budget:,} tokens{best}" if best else "no results", err=True)
        raise click.exceptions.Exit(_NO_CONTEXT_EXIT)
