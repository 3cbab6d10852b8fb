"""``ragembed eval``."""

from __future__ import annotations

import click

from ragembed.cli.evaluation import embeddings, retrieval


@click.group(name="eval")
def command() -> None:
    """Measure how well embeddings and searches do on test collections.

    Embedders are fitted on a collection's own texts, without its labels or judgements.
    """


for task in (*embeddings.COMMANDS, retrieval.command):
    command.add_command(task)
