"""The process of ``ragembed serve``: how it runs, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import uvicorn

from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_connections import connections
from ragembed.serving.http_metrics import ACCESS_LOG
from ragembed.serving.http_security import LOOPBACK_NAMES

_DRAIN_SECONDS = 4
"""Seconds that requests have to end after SIGTERM. The process ends less than a second later."""


def own_addresses(host: str) -> tuple[str, ...]:
    """Return the addresses by which clients may name a server that listens on ``host``."""
    return (*LOOPBACK_NAMES, host)


def run(
    stores: Mapping[str, Path], settings: ServerSettings, listener: socket.socket, *, access_log: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT. Then end the requests that run within 5 seconds."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(message)s"))
    ACCESS_LOG.addHandler(lines)
    ACCESS_LOG.propagate = False
    ACCESS_LOG.setLevel(logging.INFO if access_log else logging.WARNING)
    config = uvicorn.Config(
        make_app(stores, settings),
        http=connections(settings.limits),
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # These handlers work until uvicorn sets its own. It raises a signal again at the end, which is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server.run(sockets=[listener])


def end_process() -> None:
    """End the process without waiting for threads that still search. Stores are safe: writes are transactions."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
