"""The command line: one module of :mod:`ragembed.cli.commands` for each command.

Commands are loaded when they are called, so that ``--help`` is quick; errors are translated here, in one place.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import click

from ragembed.cli.output import printable
from ragembed.errors import RagembedError
from ragembed.version import __version__

COMMANDS: Mapping[str, str] = {
    "index": "Index files and folders, or bring a store up to date.",
    "query": "Ask a store a question.",
    "why-not": "Tell why a file is not among the results of a question.",
    "status": "Show what is in a store, and what made it.",
    "files": "List the files that indexing would read.",
    "chunks": "Show how a file is split into chunks.",
    "delete": "Delete files or chunks from a store.",
    "refit": "Fit post-processors again, or others, without the model.",
    "tune": "Choose settings that search better, without labels.",
    "optimize": "Join small segments and give unused space back.",
    "verify": "Check a whole store, and rebuild what is damaged.",
    "eval": "Measure embeddings on test collections.",
    "train": "Train a model on a dictionary, without labels.",
    "reverse-dictionary": "Find the words that a description defines.",
}
"""Each command's module below ``ragembed.cli.commands``, and its line in the help, shown without loading it."""

ERROR_EXIT, INTERRUPTED_EXIT = 2, 130


class CommandError(click.ClickException):
    """An error of ragembed's, printed as one line; exit status 2."""

    exit_code = ERROR_EXIT

    def format_message(self) -> str:
        """Return the message without what could command a terminal."""
        return printable(self.message)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  as above
        """Import the command called ``cmd_name``."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = _imported(f"ragembed.cli.commands.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  as above
        """Write the list of commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is an error that names those there are."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}: expected one of {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and translate errors to exit statuses."""
        try:
            return super().invoke(ctx)
        except RagembedError as error:
            raise CommandError(str(error)) from error
        except BrokenPipeError:
            # The reader of stdout has seen enough, as head does.
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  until the process ends
            ctx.exit(0)
        except OSError as error:
            raise CommandError(f"{error.filename or 'input or output'}: {error.strerror or error}") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED_EXIT)


def _imported(name: str) -> ModuleType:
    """Import a module; what that leaves is not searched for garbage, which takes an eighth of a short command."""
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        module = import_module(name)
        gc.freeze()
    finally:
        gc.enable()
    return module


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ragembed")
def main() -> None:
    """Search your own documents by meaning: embeddings fitted to them, without training, labels or network.

    \b
    ragembed index docs/
    ragembed query "how are stores locked?"
    """  # noqa: D301  the escape is the character that keeps click from wrapping lines


__all__ = ["COMMANDS", "CommandError", "main"]
