"""Options that say what becomes of the chunks that were found, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ragembed.cli.optional_number import with_number
from ragembed.cli.options import Command, with_options
from ragembed.indexes import Arrangement
from ragembed.reranking import CrossEncoderReranker

_MMR, _MMR_LAMBDA = "--mmr", 0.5
_MOST_PLACES = 5


class ArrangingCommand(click.Command):
    """A command that takes ``--mmr`` alone and ``--mmr LAMBDA``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give ``--mmr`` its number where it has none, and parse."""
        return super().parse_args(ctx, with_number(args, _MMR, _MMR_LAMBDA))


def arranging_options(command: Command) -> Command:
    """Add the options of which :func:`arrangement` makes an arrangement."""
    return with_options(
        command,
        click.option(
            "--dedupe/--no-dedupe",
            default=True,
            show_default=True,
            help="Fold chunks that say what a better one says, word by word, into that.",
        ),
        click.option("--per-file", type=click.IntRange(1), metavar="N", help="At most N chunks of one file."),
        click.option(
            _MMR,
            type=click.FloatRange(0.0, 1.0),
            metavar="[LAMBDA]",
            help="Results unlike each other (maximal marginal relevance): 0 the most, 1 not at all; alone "
            f"{_MMR_LAMBDA:g}.",
        ),
        click.option(
            "--rerank",
            metavar="ID|PATH",
            help="Cross-encoder that reads the best with the question and orders them anew.",
        ),
        click.option(
            "--rerank-depth",
            type=click.IntRange(1),
            default=Arrangement().rerank_depth,
            show_default=True,
            help="How many it reads.",
        ),
    )


def arrangement(options: Mapping[str, Any]) -> Arrangement:
    """Return what the options ask for; raises as :class:`ragembed.reranking.CrossEncoderReranker` does."""
    model = options["rerank"]
    return Arrangement(
        dedupe=options["dedupe"],
        reranker=None if model is None else CrossEncoderReranker(model),
        rerank_depth=options["rerank_depth"],
        per_file=options["per_file"],
        mmr=options["mmr"],
    )


def near_duplicates_line(places: Sequence[str]) -> str:
    """Return ``and 2 near-duplicates: docs/a.md:3-9, docs/b.md:1-7``, a few of the places where there are many."""
    shown = ", ".join([*places[:_MOST_PLACES], *(["…"] if len(places) > _MOST_PLACES else [])])
    return f"and {len(places):,} near-duplicate{'s' if len(places) > 1 else ''}: {shown}"
