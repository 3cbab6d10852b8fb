"""``ragembed papers``."""

from __future__ import annotations

import click

from ragembed.cli import HelpfulGroup
from ragembed.cli.papers import reproduce, tasks, train


@click.group(name="papers", cls=HelpfulGroup)
def command() -> None:
    """Train models, evaluate embeddings and reproduce tables, as in the papers that the methods come from.

    \b
    ragembed papers train defsent-plus --dictionary glossary.tsv --model bert-base-uncased --out trained
    ragembed papers eval sts pairs.tsv --model trained
    """


for subcommand in (reproduce.command, train.command, tasks.command, train.reverse_dictionary):
    command.add_command(subcommand)
