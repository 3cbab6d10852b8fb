"""``ragembed serve``."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragembed.cli.options import LocalPath, in_option, served_stores, takes
from ragembed.cli.output import say
from ragembed.config.fields import setting
from ragembed.errors import ConfigError
from ragembed.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_VARIABLE = "RAGEMBED_SERVE_TOKEN"  # noqa: S105  the name of a variable
EDITOR = "vscode://file{path}:{line}"


@dataclass(frozen=True, slots=True)
class _ServeOptions:
    """The options of ``ragembed serve``."""

    host: str = setting("127.0.0.1", "Address to listen on.", "--host", "HOST")
    port: int = setting(8765, "Port to listen on; 0 takes a free port.", "--port", "PORT", least=0, most=65535)
    uds: Path | None = setting(
        None, "Listen on a Unix socket instead.", "--uds", "PATH", type=LocalPath(dir_okay=False)
    )
    token_file: Path | None = setting(
        None,
        "File with a bearer token that clients must send, or several, one per line.",
        *("--token-file", "FILE"),
        default=f"${TOKEN_VARIABLE}, else no token",
    )
    names: tuple[str, ...] = setting(
        (), "Accept requests for this host name too, such as that of a reverse proxy.", *("--allow-host", "NAME")
    )
    origins: tuple[str, ...] = setting(
        (),
        "Let pages of this origin, such as https://app.example.com, send requests (CORS).",
        *("--allow-origin", "ORIGIN"),
    )
    editor: str | None = setting(
        None,
        "Address of the link on the search page that opens a file, with {path} and {line}; an empty one removes the "
        "link.",
        *("--editor", "ADDRESS"),
        default=f"{EDITOR}, and none for other machines",
    )
    watch: bool = setting(
        False, "Update the stores whenever their files change, like ragembed index --watch.", "--watch"
    )
    writable: bool = setting(False, "Let clients add and delete documents.", "--writable")
    max_body: int = setting("4M", "Largest request body.", "--max-body", "SIZE")
    threads: int | None = setting(
        None,
        "Number of requests that are answered at the same time.",
        *("--threads", "N"),
        default="the number of cores, at most 4",
        least=1,
    )
    queue: int = setting(64, "Number of requests that may wait. Further ones get status 429.", "--queue", "N", least=0)
    timeout: float = setting(30.0, "Longest time for a request.", "--timeout", "SECONDS", least=0.1, most=3600.0)
    access_log: bool = setting(
        True,
        "Write a line of JSON to stderr for each request, without what it searches for.",
        "--access-log/--no-access-log",
    )
    log_queries: bool = setting(False, "Write what requests search for to the access log, too.", "--log-queries")


@click.command(name="serve")
@click.argument("stores", nargs=-1, metavar="[[NAME=]STORE]...")
@in_option("Serve the stores of these collections")
@takes(_ServeOptions)
def command(stores: tuple[str, ...], collections: str | None, options: _ServeOptions) -> None:
    """Serve stores over HTTP, with a search page at /.

    \b
    ragembed serve
    ragembed serve docs=docs/.ragembed code=src/.ragembed --port 8000
    ragembed serve --host 0.0.0.0 --token-file token.txt --allow-host search.example.com

    STORE is the folder of a store, by default $RAGEMBED_STORE, else the nearest .ragembed here or in a parent folder.
    /docs describes the API. Only programs on this machine can connect, unless you set --host, which needs a token.
    """
    served = served_stores(stores, collections, "STORE")
    for module in ("mcp", "starlette", "uvicorn", *(["watchfiles"] if options.watch else [])):
        require(module, "ragembed serve")
    from ragembed.serving import http_app, http_sockets
    from ragembed.serving.http_requests import Limits
    from ragembed.serving.http_security import LOOPBACK_NAMES, AllowedHosts, origin_of

    host, uds, names = options.host, options.uds, frozenset(map(str.lower, options.names))
    tokens = _tokens(options.token_file)
    is_local = uds is None and http_sockets.is_loopback(host)
    if uds is None and not tokens and not is_local:
        raise ConfigError(
            f"--host {host} lets other machines connect, and there is no token: set --token-file or ${TOKEN_VARIABLE}"
        )
    threads = options.threads or min(4, os.cpu_count() or 1)
    with ExitStack() as stack:
        if uds is not None:
            listener = stack.enter_context(http_sockets.unix_listener(uds))
            hosts, url = AllowedHosts(None, names=names), f"unix:{uds}"
        else:
            listener = stack.enter_context(http_sockets.tcp_listener(host, options.port))
            address, port = http_sockets.address_of(listener)
            hosts = AllowedHosts(port, (*LOOPBACK_NAMES, address), names)
            url = f"http://{address}:{port}"
        editor = EDITOR if options.editor is None and is_local and not names else options.editor
        settings = http_app.ServerSettings(
            hosts,
            tuple(tokens),
            tuple(map(origin_of, options.origins)),
            options.writable,
            Limits(options.max_body, threads, options.queue, options.timeout),
            options.log_queries,
            editor or None,
            options.watch,
        )
        say(f"serving {', '.join(served)} at {url}", err=True)
        http_app.run(served, settings, listener, access_log=options.access_log)
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
