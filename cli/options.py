"""Options that several commands share, as decorators."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ragembed.indexes.layout import STORE_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("text", "json", "jsonl")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def size_in_bytes(value: str) -> int:
    """Turn ``20M`` into 20,971,520; raises a usage error for what is not a size."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", value.strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a size: expected a number above 0 with K, M or G, as in 20M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def store_option(command: Command) -> Command:
    """Add ``--store``."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"Folder of the store. Default: ${STORE_VARIABLE}, else .ragembed here or in a folder above.",
    )(command)


def format_option(command: Command) -> Command:
    """Add ``--format`` and its short form ``--json``."""
    command = click.option("--json", "output", flag_value="json", help="The same as --format json.")(command)
    return click.option(
        "--format",
        "output",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="text for people, json (one object) or jsonl (an object a line) for programs.",
    )(command)


def discovery_options(command: Command) -> Command:
    """Add the options that decide which files are read; each is None or empty where it is not given."""
    return _with_options(
        command,
        click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated."),
        click.option("--include", multiple=True, metavar="GLOB", help="Read only matching files; may be repeated."),
        click.option("--max-size", type=size_in_bytes, metavar="SIZE", help="Skip larger files.  [default: 20M]"),
        click.option("--hidden/--no-hidden", default=None, help="Read files and folders that begin with a dot."),
    )


def reading_options(command: Command) -> Command:
    """Add the options that decide how a file is read and split; each is None or empty where it is not given."""
    return _with_options(
        command,
        click.option(
            "--text-column",
            "text_columns",
            multiple=True,
            metavar="NAME",
            help="Column of csv, tsv and jsonl files that makes the text; may be repeated.",
        ),
        click.option("--title-column", metavar="NAME", help="Column that gives the title."),
        click.option("--chunk-tokens", type=click.IntRange(16), help="Longest chunk.  [default: what the model takes]"),
        click.option("--overlap", type=click.IntRange(0), help="Tokens that neighbouring chunks share.  [default: 0]"),
    )


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
