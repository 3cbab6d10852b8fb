"""Write docs/cli.md from the commands themselves; with ``--check``, fail when the page is stale."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ragembed.cli import COMMANDS, main

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 100
INTRODUCTION = """\
# Command line

This page is generated from the commands (`make docs`).

Data goes to stdout, progress and notes to stderr. Exit status: 0 = done, or results were found; 1 = no results; 2 = an
error, told in one sentence; 130 = interrupted; `status --drift` has 3 and 4, see there. JSON objects begin with
`schema_version`, which is raised when a field changes its meaning or goes.
"""


def help_text(command: click.Command, name: str) -> str:
    """Return what ``ragembed NAME --help`` prints, at a fixed width."""
    parent = click.Context(main, info_name="ragembed", **main.context_settings)
    context = click.Context(command, info_name=name, parent=parent) if name != "ragembed" else parent
    context.max_content_width = context.terminal_width = WIDTH
    return command.get_help(context)


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, f"## ragembed\n\n```text\n{help_text(main, 'ragembed')}\n```\n"]
    context = click.Context(main, info_name="ragembed")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        parts.append(f"## ragembed {name}\n\n```text\n{help_text(command, name)}\n```\n")
        for task, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
            parts.append(f"### ragembed {name} {task}\n\n```text\n{help_text(subcommand, f'{name} {task}')}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE.name} is stale: run make docs")
