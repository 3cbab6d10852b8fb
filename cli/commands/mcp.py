"""``ragembed mcp``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ragembed.cli.options import in_option, served_stores
from ragembed.cli.output import say
from ragembed.extras import require
from ragembed.indexes.storage.layout import is_store
from ragembed.printable import printable
from ragembed.serving.client_config import CLIENTS, changes, client_config, server_entry

_SECONDS = 10.0


@click.command(name="mcp")
@click.option(
    "--store",
    "stores",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Folder of a store, and the name that agents use for it. Repeat it to serve several stores.  [default: "
    "$RAGEMBED_STORE, else the nearest .ragembed here or in a parent folder]",
)
@in_option("Serve the stores of these collections")
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve http://127.0.0.1:PORT/mcp to clients on this machine; 0 takes a free port.  [default: stdio]",
)
@click.option(
    "--auto-index",
    is_flag=False,
    flag_value=_SECONDS,
    type=click.FloatRange(0.0, 3600.0),
    metavar="[SECONDS]",
    help="Index files that changed before each answer, for at most this time; a longer run continues in the "
    f"background. SECONDS is {_SECONDS:g} if you leave it out.  [default: off]",
)
@click.option(
    "--install",
    "installed",
    type=click.Choice(list(CLIENTS)),
    help="Show how the configuration of a client changes so that it starts this server, and write it; also a skill "
    "file (SKILL.md) if the client reads those.",
)
@click.option("--remove", "removed", type=click.Choice(list(CLIENTS)), help="Undo --install.")
@click.option(
    "--print-config",
    "printed",
    type=click.Choice(list(CLIENTS)),
    help="Print the configuration for a client, and exit.",
)
def command(
    stores: tuple[str, ...],
    collections: str | None,
    port: int | None,
    auto_index: float | None,
    installed: str | None,
    removed: str | None,
    printed: str | None,
) -> None:
    """Serve stores to agents over the Model Context Protocol (MCP).

    \b
    ragembed mcp --install claude
    ragembed mcp --store docs=docs/.ragembed --store code=src/.ragembed --auto-index
    ragembed mcp --http 8765

    Agents can search, read the indexed text, and ask why a file is not found. They cannot change a store or read other
    files. The server ends when its input ends.
    """
    if client := installed or removed or printed:
        if port is not None or [installed, removed, printed].count(None) < 2:
            raise click.UsageError(
                "--install, --remove, --print-config and --http exclude each other: give one of them"
            )
        if removed:
            _change(removed, None)
            return
        named = served_stores(stores, collections, "--store")
        entry = server_entry(client, named, auto_index)
        if installed:
            require("mcp", "ragembed mcp")
            _change(installed, entry)
            for path in (path for path in named.values() if not is_store(path)):
                say(f"note: there is no store at {path} yet: make one with ragembed index", err=True)
            return
        click.echo(client_config(client, entry), nl=False)
        say(f"put this into {CLIENTS[client].file}", err=True)
        return
    named = served_stores(stores, collections, "--store")
    require("mcp", "ragembed mcp")
    from ragembed.serving.mcp_server import make_server, run_stdio

    server = make_server(named, auto_index)
    if port is None:
        if sys.stdin.isatty():
            say("note: waiting for a client on stdin; to set one up, run 'ragembed mcp --install CLIENT'", err=True)
        run_stdio(server)
    else:
        from ragembed.serving.mcp_over_http import run_http

        run_http(server, port)


def _change(client: str, entry: Mapping[str, Any] | None) -> None:
    """Show the changes of the files of a client, and write them, in a terminal after a question."""
    made = changes(client, entry)
    for change in made:
        click.echo(printable(change.diff), nl=False)
    if not made:
        say(f"nothing to {'remove' if entry is None else 'change'}: {client} is up to date", err=True)
        return
    if sys.stdin.isatty() and not click.confirm("Write these changes?", default=True, err=True):
        raise click.Abort
    for change in made:
        change.apply()
        say(f"{'deleted' if change.after is None else 'wrote'} {change.path}", err=True)
    say(f"start {client} again to apply them", err=True)
