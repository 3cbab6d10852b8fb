"""``ragembed eval``."""

from __future__ import annotations

import click

from ragembed.cli.evaluation import retrieval


@click.group(name="eval")
def command() -> None:
    """Evaluate search on test collections.

    \b
    ragembed eval retrieval queries.jsonl --compare dense hybrid

    Embedders are fitted on the texts of the collection, without its judgements. ragembed papers eval evaluates
    embeddings on sentence tasks.
    """  # noqa: D301  click reads the backspace character as "do not wrap"


command.add_command(retrieval.command)
