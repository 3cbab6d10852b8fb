"""Limits of HTTP requests: size of the body, requests at the same time, and time; and the threads that answer them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragembed.serving.http_security import problem
from ragembed.stopping import run_until

Result = TypeVar("Result")
_RETRY_SECONDS = "1"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server.

    ``body`` is the largest body in bytes, ``threads`` are the threads that search, ``queue`` is the number of requests
    that may wait for one, and ``seconds`` the longest time for a request. ``connections`` may be open at once. A client
    has ``transfer`` seconds to send a request, and to go on reading its answer.
    """

    body: int = 4 * 2**20
    threads: int = 4
    queue: int = 64
    seconds: float = 30.0
    connections: int = 256
    transfer: float = 10.0


class WorkerThreads:
    """Runs functions in a fixed number of threads; a cancelled call is not begun, or stopped."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ragembed-http")

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Return ``function(*arguments)``."""
        stop = threading.Event()
        try:
            return await asyncio.wrap_future(self._pool.submit(run_until, stop, function, *arguments))
        finally:
            stop.set()

    def start(self, function: Callable[[], None]) -> None:
        """Run ``function``, and do not wait for it."""
        self._pool.submit(function)

    def close(self) -> None:
        """Take no more calls, and do not wait for those that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class RequestLimits:
    """Refuses requests beyond the limits: 413 for a large body, 429 if too many wait, 504 if one takes too long.

    Paths in ``free`` are answered even if too many requests wait. A request whose client leaves during the upload is
    dropped.
    """

    def __init__(self, app: ASGIApp, limits: Limits, free: Collection[str] = ()) -> None:
        self._app = app
        self._limits = limits
        self._free = frozenset(free)
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] in self._free:
            await self._app(scope, receive, send)
            return
        if self.running >= self._limits.threads + self._limits.queue:
            refused = problem(429, "too many requests are waiting: try again later", Retry_After=_RETRY_SECONDS)
            await refused(scope, receive, send)
            return
        self.running += 1
        try:
            await self._within_time(scope, receive, send)
        finally:
            self.running -= 1

    async def _within_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with anyio.move_on_after(self._limits.seconds) as time:
            try:
                body = await read_body(receive, self._limits.body)
            except ClientDisconnect:
                return
            if body is None:
                refused = problem(413, f"the body is too large: expected at most {self._limits.body:,} bytes")
                await refused(scope, receive, watched)
            else:
                await self._app(scope, replayed(body, receive), watched)
        if time.cancelled_caught and not started:
            late = problem(504, f"the answer took longer than {self._limits.seconds:g} seconds: ask for less")
            await late(scope, receive, send)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body, or None if it has more than ``most`` bytes.

    Raises ``ClientDisconnect`` if the client leaves before the end of the body.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives ``body`` first."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
