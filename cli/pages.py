"""The option ``--html`` of the commands that also write their results as a page."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import Command, LocalPath


def html_option(command: Command) -> Command:
    """Add ``--html``."""
    return click.option(
        "--html",
        type=LocalPath(dir_okay=False),
        help="Also write the results as a page to this file. A file that ragembed did not write is not overwritten.",
    )(command)


def check_html(html: Path | None) -> None:
    """Raise the errors of writing the page ``html``, if it is given, before anything is evaluated."""
    if html is not None:
        from ragembed.reports.page import check_output

        check_output(html)
