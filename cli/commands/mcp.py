"""``ragembed mcp``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from ragembed.extras import require
from ragembed.indexes.storage.layout import STORE_FOLDER, choose_store

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,39})=(.+)", re.DOTALL)


@click.command(name="mcp")
@click.option(
    "--store",
    "stores",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Folder of a store, and the name that agents see. Repeat it to serve several stores.  [default: "
    "$RAGEMBED_STORE, else the nearest .ragembed here or in a parent folder]",
)
@click.option("--http", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve HTTP on 127.0.0.1:PORT.")
def command(stores: tuple[str, ...], port: int | None) -> None:
    """Serve stores to agents over the Model Context Protocol (MCP)."""
    require("mcp", "ragembed mcp")
    from ragembed.serving.mcp_server import make_server, run_http, run_stdio

    server = make_server(_named(stores))
    if port is None:
        run_stdio(server)
    else:
        run_http(server, port)


def _named(stores: tuple[str, ...]) -> dict[str, Path]:
    """Return the stores by name: the given one, else that of the folder."""
    named: dict[str, Path] = {}
    for given in stores or (str(choose_store(None)),):
        match = _NAMED.fullmatch(given)
        path = Path(match[2] if match else given)
        if not given or not str(path):
            raise click.BadParameter("the path is empty: expected the name of a folder", param_hint="--store")
        name = match[1] if match else _name_of(path)
        if name in named:
            raise click.BadParameter(
                f"two stores have the name {name!r}: give each its own name with --store NAME=PATH",
                param_hint="--store",
            )
        named[name] = path
    return named


def _name_of(store: Path) -> str:
    """Return the name of a store's folder, or of the folder above it for ``.ragembed``, in letters that URLs allow."""
    absolute = Path(os.path.abspath(store))  # noqa: PTH100  resolve() would follow symbolic links
    folder = absolute.parent if absolute.name == STORE_FOLDER else absolute
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-.")[:40] or "documents"
