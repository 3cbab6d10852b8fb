"""The process of ``ragembed serve``: where it listens, and how it ends."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from ragembed.errors import ConfigError
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_metrics import ACCESS_LOG
from ragembed.serving.http_security import LOOPBACK_NAMES

_DRAIN_SECONDS = 4
"""Seconds that requests have to end after SIGTERM. The process ends less than a second later."""
_SOCKET_MODE = 0o660


@contextmanager
def tcp_listener(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on ``host:port`` during the ``with`` block; port 0 takes a free port."""
    family, address = _resolved(host, port)
    # With the protocol named, asyncio turns Nagle's algorithm off, which would delay each answer by 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
        listener.listen()
        yield listener


@contextmanager
def unix_listener(path: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket, which the owner and the group may use, during the ``with`` block."""
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("this system has no Unix sockets: use --host and --port")
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o777 & ~_SOCKET_MODE)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ConfigError(f"cannot make the socket {path}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        made = path.lstat()
        listener.listen()
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == made.st_ino:
                    path.unlink()


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address; raise :class:`ConfigError` for no address."""
    return ipaddress.ip_address(_resolved(host, 0)[1][0].partition("%")[0]).is_loopback


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the address and the port of a listener, as they are written in URLs."""
    host, port = listener.getsockname()[:2]
    return (f"[{host}]" if ":" in host else host), port


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


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigError(f"unknown host {host!r}: expected an address of this machine, such as 127.0.0.1") from None
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))


def _remove_stale(path: Path) -> None:
    """Remove a socket on which nobody listens any more; raise :class:`ConfigError` for anything else at its place."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is no socket: choose another path for --uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise ConfigError(f"cannot use the socket {path}: {error.strerror or error}") from None
    raise ConfigError(f"another server listens on {path}: stop it, or choose another path for --uds")
