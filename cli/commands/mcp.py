"""``ragembed mcp``."""

from __future__ import annotations

import click

from ragembed.cli.options import in_option, served_stores
from ragembed.extras import require
from ragembed.serving.client_config import CLIENTS, client_config

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
    "--print-config",
    "client",
    type=click.Choice(list(CLIENTS)),
    help="Print the configuration that makes a client start this server, and exit.",
)
def command(
    stores: tuple[str, ...], collections: str | None, port: int | None, auto_index: float | None, client: str | None
) -> None:
    """Serve stores to agents over the Model Context Protocol (MCP).

    \b
    ragembed mcp --print-config claude
    ragembed mcp --store docs=docs/.ragembed --store code=src/.ragembed --auto-index
    ragembed mcp --http 8765

    Agents can search, read the indexed text, and ask why a file is not found. They cannot change a store or read other
    files. The server ends when its input ends.
    """
    named = served_stores(stores, collections, "--store")
    if client is not None:
        if port is not None:
            raise click.UsageError("--print-config prints a configuration for stdio: leave --http out")
        click.echo(client_config(client, named, auto_index), nl=False)
        click.echo(f"put this into {CLIENTS[client].file}", err=True)
        return
    require("mcp", "ragembed mcp")
    from ragembed.serving.mcp_server import make_server, run_stdio

    server = make_server(named, auto_index)
    if port is None:
        run_stdio(server)
    else:
        from ragembed.serving.mcp_over_http import run_http

        run_http(server, port)
