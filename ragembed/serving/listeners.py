"""Sockets that the servers listen on."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragembed.errors import ConfigError

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
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from None
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
