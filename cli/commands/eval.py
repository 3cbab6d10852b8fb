"""``ragembed eval``."""

from __future__ import annotations

import click

from ragembed.cli.evaluation import describe, embeddings, retrieval


@click.group(name="eval")
def command() -> None:
    """Evaluate embeddings and search on test collections.

    \b
    ragembed eval sts pairs.tsv --preset minilm --preset t4
    ragembed eval retrieval queries.jsonl --compare dense hybrid

    Embedders are fitted on the texts of the collection, without its labels or judgements.
    """  # noqa: D301  click reads the backspace character as "do not wrap"


for task in (*embeddings.COMMANDS, retrieval.command, describe.command):
    command.add_command(task)
