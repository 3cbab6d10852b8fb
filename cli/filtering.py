"""``--where`` and ``--path``: options that select chunks, and the filter that they make together."""

from __future__ import annotations

import click

from ragembed.cli.options import Command, with_options
from ragembed.indexes.filters import And, Field, Filter, Glob, Or, parse


def filter_options(command: Command) -> Command:
    """Add the options that select chunks."""
    return with_options(
        command,
        click.option("--where", metavar="EXPR", help="Only chunks of which EXPR is true, as in \"ext = 'md'\"."),
        click.option(
            "--path",
            "globs",
            multiple=True,
            metavar="GLOB",
            help="Only matching files, as in 'docs/**'; may be repeated.",
        ),
    )


def search_filter(where: str | None, globs: tuple[str, ...]) -> Filter | None:
    """Return the filter of ``--where`` and of any of the ``--path`` globs together, None where neither is given."""
    parts: list[Filter] = [] if where is None else [parse(where)]
    if globs:
        parts.append(Or(tuple(Glob(Field("path"), glob) for glob in globs)))
    return And(tuple(parts)) if parts else None
