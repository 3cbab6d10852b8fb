"""``ragembed serve``."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragembed.cli.options import LocalPath, serve_in_option, served_stores, size_in_bytes
from ragembed.cli.output import say
from ragembed.errors import ConfigError
from ragembed.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_VARIABLE = "RAGEMBED_SERVE_TOKEN"  # noqa: S105  the name of a variable
EDITOR = "vscode://file{path}:{line}"
_HOST, _PORT = "127.0.0.1", 8765


@click.command(name="serve")
@click.argument("stores", nargs=-1, metavar="[[NAME=]STORE]...")
@serve_in_option
@click.option("--host", metavar="HOST", default=_HOST, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=_PORT,
    show_default=True,
    help="Port to listen on; 0 takes a free port.",
)
@click.option("--uds", type=LocalPath(dir_okay=False), metavar="PATH", help="Listen on a Unix socket instead.")
@click.option(
    "--token-file",
    type=LocalPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="File with a bearer token that clients must send, or several, one per line.  [default: "
    f"${TOKEN_VARIABLE}, else no token]",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name too, such as that of a reverse proxy. Can be repeated.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin, such as https://app.example.com, send requests (CORS). Can be repeated.",
)
@click.option(
    "--editor",
    metavar="ADDRESS",
    help="Address of the link on the search page that opens a file, with {path} and {line}; an empty one removes the "
    f"link.  [default: {EDITOR}, and none for other machines]",
)
@click.option(
    "--watch", is_flag=True, help="Update the stores whenever their files change, like ragembed index --watch."
)
@click.option("--writable", is_flag=True, help="Let clients add and delete documents.")
@click.option(
    "--max-body", type=size_in_bytes, metavar="SIZE", default="4M", show_default=True, help="Largest request body."
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Number of requests that are answered at the same time.  [default: the number of cores, at most 4]",
)
@click.option(
    "--queue",
    type=click.IntRange(0),
    metavar="N",
    default=64,
    show_default=True,
    help="Number of requests that may wait. Further ones get status 429.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600.0),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="Longest time for a request.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    show_default=True,
    help="Write a line of JSON to stderr for each request, without what it searches for.",
)
@click.option("--log-queries", is_flag=True, help="Write what requests search for to the access log, too.")
def command(
    stores: tuple[str, ...],
    collections: str | None,
    host: str,
    port: int,
    uds: Path | None,
    token_file: Path | None,
    names: tuple[str, ...],
    origins: tuple[str, ...],
    editor: str | None,
    watch: bool,
    writable: bool,
    max_body: int,
    threads: int | None,
    queue: int,
    timeout: float,
    access_log: bool,
    log_queries: bool,
) -> None:
    """Serve stores over HTTP, with a search page at /.

    \b
    ragembed serve
    ragembed serve docs=docs/.ragembed code=src/.ragembed --port 8000
    ragembed serve --host 0.0.0.0 --token-file token.txt --allow-host search.example.com

    STORE is the folder of a store, by default $RAGEMBED_STORE, else the nearest .ragembed here or in a parent folder.
    /docs describes the API. Only programs on this machine can connect, unless you set --host, which needs a token.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    named = served_stores(stores, collections, "STORE")
    for module in ("mcp", "starlette", "uvicorn", *(["watchfiles"] if watch else [])):
        require(module, "ragembed serve")
    from ragembed.serving import http_app, http_sockets
    from ragembed.serving.http_requests import Limits
    from ragembed.serving.http_security import AllowedHosts, origin_of

    tokens = _tokens(token_file)
    if uds is None and not tokens and not http_sockets.is_loopback(host):
        raise ConfigError(
            f"--host {host} lets other machines connect, and there is no token: set --token-file or ${TOKEN_VARIABLE}"
        )
    limits = Limits(max_body, threads or min(4, os.cpu_count() or 1), queue, timeout)
    with ExitStack() as stack:
        if uds is not None:
            listener = stack.enter_context(http_sockets.unix_listener(uds))
            hosts = AllowedHosts(None, names=frozenset(map(str.lower, names)))
            url = f"unix:{uds}"
        else:
            listener = stack.enter_context(http_sockets.tcp_listener(host, port))
            address, port = http_sockets.address_of(listener)
            hosts = AllowedHosts(port, http_app.own_addresses(address), frozenset(map(str.lower, names)))
            url = f"http://{address}:{port}"
        if editor is None and uds is None and not names and http_sockets.is_loopback(host):
            editor = EDITOR
        allowed = tuple(map(origin_of, origins))
        settings = http_app.ServerSettings(
            hosts, tuple(tokens), allowed, writable, limits, log_queries, editor or None, watch
        )
        say(f"serving {', '.join(named)} at {url}", err=True)
        http_app.run(named, settings, listener, access_log=access_log)
    http_app.end_process()


def _tokens(file: Path | None) -> Sequence[str]:
    from ragembed.serving.http_security import checked_tokens

    if file is not None:
        try:
            return checked_tokens(file.read_text(encoding="utf-8").splitlines(), f"the token file {file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"the token file {file} cannot be read: {reason}") from None
    value = os.environ.get(TOKEN_VARIABLE)
    return () if value is None else checked_tokens([value], f"${TOKEN_VARIABLE}")
