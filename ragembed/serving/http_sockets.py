"""Sockets that the servers listen on, and their connections: how many, and how long a client may keep one waiting.

uvicorn limits only the time between two requests. Without more limits, a client holds a connection for ever with half
of a request, or with an answer that it does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragembed.errors import ConfigError
from ragembed.serving.http_requests import Limits, problem

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
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from None
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
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigError(f"unknown host {host!r}: expected an address of this machine, such as 127.0.0.1") from None
    family, _, _, _, address = addresses[0]
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


# Connections


def connections(limits: Limits) -> type[H11Protocol]:
    """Return the protocol of connections within ``limits``, for ``uvicorn.Config(http=…)``."""

    class BoundedConnection(_LimitedConnection):
        most = limits.connections
        seconds = limits.transfer

    return BoundedConnection


class _LimitedConnection(H11Protocol):
    """A connection whose client can neither send nor read too slowly.

    The client has ``seconds`` for each request, from its first byte to the end of its body; the first request counts
    from the start of the connection. While an answer waits to be read, the client must read some of it in each
    ``seconds``. Of ``most`` connections, the next one is refused.
    """

    most: int
    seconds: float

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._request_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch the connection, or refuse it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that any part of an answer that waits is reported
        self._watch_request()
        if len(self.connections) > self.most:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        super().connection_lost(exc)
        for timer in (self._request_timer, self._answer_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Watch the request until it is complete."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Watch the next request if a part of it came with the last one."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._watch_request()

    def pause_writing(self) -> None:
        """Watch whether the client reads."""
        super().pause_writing()
        if self._answer_timer is None:
            self._watch_answer()

    def resume_writing(self) -> None:
        """Stop watching: the client has read all, as far as this process can see."""
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _watch_request(self) -> None:
        is_complete = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if is_complete and self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None
        elif self._is_arriving and self._request_timer is None:
            self._request_timer = self.loop.call_later(self.seconds, self._end_late_request)

    @property
    def _is_arriving(self) -> bool:
        """Whether the client has begun a request, or has just connected, and has not sent all of the request."""
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY

    def _end_late_request(self) -> None:
        if self._is_arriving and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request did not arrive within {self.seconds:g} seconds")
        else:  # it was answered before its end
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = bytes(problem(status, message).body)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def _watch_answer(self) -> None:
        waiting = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() < waiting:
                self._watch_answer()
            else:
                self.transport.abort()

        self._answer_timer = self.loop.call_later(self.seconds, check)
