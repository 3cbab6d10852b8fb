"""HTTP requests: their limits, the threads that answer them, and their answers, also to those that fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragembed.errors import ConfigError, RagembedError, StoreLockedError
from ragembed.progress import run_until
from ragembed.serving.stores import UnknownNameError

Result = TypeVar("Result")
JSON = "application/json"
_LOG = logging.getLogger(__name__)


def problem(status: int, message: str, **headers: str) -> JSONResponse:
    """Return an error in the form that clients of OpenAI expect; ``Retry_After`` stands for ``Retry-After``."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status, named)


def status_and_message(error: RagembedError, place: str) -> tuple[int, str]:
    """Return the status and the sentence for an error; ``place`` is the path of the request.

    What is wrong with a store is in the log alone, because the message may name folders of the server.
    """
    if isinstance(error, UnknownNameError):
        return 404, str(error)
    if isinstance(error, ConfigError):
        return 400, str(error)
    _LOG.error("%s: %s", place, error)
    return 503, f"{type(error).__name__}: the store cannot answer; the log of the server says why"


def answering(handle: Callable[[Request], Awaitable[Response | bytes]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that turns bytes into a response with JSON, and errors into responses with one sentence."""

    async def handler(request: Request) -> Response:
        try:
            answer = await handle(request)
            return Response(answer, media_type=JSON) if isinstance(answer, bytes) else answer
        except StoreLockedError:
            return problem(503, "another process is writing to the store: try again later", Retry_After="1")
        except RecursionError:
            return problem(400, "the request is nested too deeply: expected fewer levels")
        except RagembedError as error:
            return problem(*status_and_message(error, request.url.path))
        except Exception as error:  # noqa: BLE001  the client gets one line, the log the traceback
            _LOG.exception("%s failed", request.url.path)
            return problem(500, f"unexpected {type(error).__name__}: the log of the server says more")

    return handler


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
            refused = problem(429, "too many requests are waiting: try again later", Retry_After="1")
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
                body = await _read_body(receive, self._limits.body)
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


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body, or None if it has more than ``most`` bytes."""
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
