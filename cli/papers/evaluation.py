"""``ragembed papers eval``."""

from __future__ import annotations

import click

from ragembed.cli.papers import describe, sentence_tasks


@click.group(name="eval")
def command() -> None:
    """Evaluate embeddings on sentence tasks.

    \b
    ragembed papers eval sts pairs.tsv --preset minilm --preset t4

    Embedders are fitted on the texts of the collection, without its labels. ragembed eval evaluates search.
    """  # noqa: D301  click reads the backspace character as "do not wrap"


for task in (*sentence_tasks.COMMANDS, describe.command):
    command.add_command(task)
