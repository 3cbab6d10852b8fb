"""``ragembed serve``: the ASGI application with its routes and the checks around them, and the process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragembed.errors import ConfigError
from ragembed.serving import http_answers, openapi, page, pushed_documents
from ragembed.serving.http_answers import StoreAnswers
from ragembed.serving.http_requests import JSON, Limits, RequestLimits, WorkerThreads, answering, problem
from ragembed.serving.http_security import AllowedHosts, BearerAuth, RequestGuard
from ragembed.serving.http_sockets import connections
from ragembed.serving.mcp_over_http import make_route
from ragembed.serving.mcp_server import make_server
from ragembed.serving.stores import ServedStores
from ragembed.serving.tool_schemas import ENDPOINTS, TEXT, Endpoint, Schema, as_json, checked, object_schema, read_json
from ragembed.serving.tools import StoreTools

ACCESS_LOG = logging.getLogger("ragembed.access")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NO_ROUTE = "none"
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


class RequestMetrics:
    """Counts of requests and their durations, by operation. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)
        self.running = 0

    def add(self, operation: str, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._counts[operation, method, status] += 1
            self._sums[operation] += seconds
            self._durations.setdefault(operation, [0] * (len(_SECONDS) + 1))[bisect_left(_SECONDS, seconds)] += 1

    def text(self, gauges: Iterable[tuple[str, str, Mapping[str, float]]] = ()) -> str:
        """Return all metrics; ``gauges`` are further ones: a name, a description, and the value of each store."""
        with self._lock:
            counts, sums = dict(self._counts), dict(self._sums)
            durations = {name: list(bins) for name, bins in self._durations.items()}
        lines = _header("ragembed_http_requests_total", "counter", "Requests by operation, method and status")
        for (operation, method, status), count in sorted(counts.items()):
            labels = f'operation="{operation}",method="{method}",status="{status}"'
            lines.append(f"ragembed_http_requests_total{{{labels}}} {count}")
        name = "ragembed_http_request_duration_seconds"
        lines += _header(name, "histogram", "Time from the request to the end of the response")
        for operation, bins in sorted(durations.items()):
            total = 0
            for limit, count in zip((*map(str, _SECONDS), "+Inf"), bins, strict=True):
                total += count
                lines.append(f'{name}_bucket{{operation="{operation}",le="{limit}"}} {total}')
            lines.append(f'{name}_sum{{operation="{operation}"}} {sums[operation]:.6f}')
            lines.append(f'{name}_count{{operation="{operation}"}} {total}')
        lines += _header("ragembed_http_requests_running", "gauge", "Requests that wait or run now")
        lines.append(f"ragembed_http_requests_running {self.running}")
        for name, description, values in gauges:
            lines += _header(name, "gauge", description)
            lines += [f'{name}{{store="{store}"}} {int(value)}' for store, value in values.items()]
        return "\n".join(lines) + "\n"


class RequestObserver:
    """Counts each request and logs it. It surrounds all other parts, so that refused requests are counted too."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, *, log_queries: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._log_queries = log_queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, size, start = 0, 0, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        self._metrics.running += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.running -= 1
            seconds = time.perf_counter() - start
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = scope.get("route")
            self._metrics.add(_NO_ROUTE if route is None else str(route.name), method, status, seconds)
            if ACCESS_LOG.isEnabledFor(logging.INFO):
                ACCESS_LOG.info("%s", self._line(scope, status, size, seconds))

    def _line(self, scope: Scope, status: int, size: int, seconds: float) -> str:
        client = scope.get("client")
        values = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "bytes": size,
            "ms": round(seconds * 1000, 1),
        }
        if self._log_queries:
            values["query"] = scope["query_string"].decode("latin-1")
            values["arguments"] = scope.get("ragembed.arguments")
        return json.dumps({name: value for name, value in values.items() if value is not None})


def _header(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


PROBES = ("/healthz", "/readyz")
_METRICS = "/metrics"
_DRAIN_SECONDS = 4
"""Seconds that requests have to end after SIGTERM. The process ends less than a second later."""
_WRITING = (
    ("/v1/documents", "write_documents", "POST"),
    ("/v1/documents/{id}", "put_document", "PUT"),
    ("/v1/documents/{id}", "delete_document", "DELETE"),
)
"""Paths and methods of the functions of :mod:`ragembed.serving.pushed_documents`."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Who may send requests, and what they may do.

    ``editor`` is the address of the link that opens a file in the editor of a reader, with ``{path}`` and ``{line}``.
    With ``watch``, the stores are updated whenever their files change.
    """

    hosts: AllowedHosts
    tokens: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    writable: bool = False
    limits: Limits = field(default_factory=Limits)
    log_queries: bool = False
    editor: str | None = None
    watch: bool = False


class _HttpHandlers:
    """The handlers. All of them run their work in threads, so that the event loop never waits."""

    def __init__(self, stores: Mapping[str, Path], settings: ServerSettings) -> None:
        self.stores = ServedStores(stores)
        self.workers = WorkerThreads(settings.limits.threads)
        self.answers = StoreAnswers(self.stores, writable=settings.writable)
        self.metrics = RequestMetrics()
        self._probes = WorkerThreads(1)  # probes do not wait behind searches
        self._writer = WorkerThreads(1)  # writes wait for each other here, and not in the threads that search
        self._settings = settings
        self._is_warm = self._is_ready = False
        self._ready_lock, self._ready_until = asyncio.Lock(), 0.0
        self._stop = threading.Event()

    def routes(self) -> list[Route]:
        """Return the routes of the API."""
        settings = self._settings
        api = openapi.description(list(self.stores), writable=settings.writable, has_tokens=bool(settings.tokens))
        return [
            *(self._endpoint(endpoint) for endpoint in ENDPOINTS.values()),
            _route("/v1/embeddings", "embeddings", self._embeddings, "POST"),
            _route("/v1/models", "models", _constant(as_json(http_answers.models(self.stores)), JSON)),
            _route("/v1/models/{id}", "model", self._model),
            *(_route(path, name, self._write, method) for path, name, method in _WRITING if settings.writable),
            _route("/healthz", "healthz", _constant(b'{"status":"ok"}', JSON)),
            _route("/readyz", "readyz", self._ready),
            _route(_METRICS, "metrics", self._metrics),
            _route("/openapi.json", "openapi", _constant(as_json(api), JSON)),
            _route("/docs", "docs", _constant(openapi.as_page(api), "text/html")),
            _route(openapi.STYLE_PATH, "docs", _constant(openapi.STYLE.encode(), "text/css")),
        ]

    def warm_up(self) -> None:
        """Load the models of the stores, so that the first search is as quick as the next."""
        for served in self.stores.values():
            served.warm_up()
        self._is_warm = True

    def watch(self) -> None:
        """Watch the files of the stores, each in a thread that ends with the process."""
        for name, served in self.stores.items():
            threading.Thread(target=served.watch, args=(self._stop,), name=f"watch-{name}", daemon=True).start()

    def close(self) -> None:
        """Start no more work."""
        self._stop.set()
        self.workers.close()
        self._probes.close()
        self._writer.close()

    def _endpoint(self, endpoint: Endpoint) -> Route:
        async def handle(request: Request) -> bytes:
            arguments = _arguments(request, await request.body(), endpoint)
            request.scope["ragembed.arguments"] = arguments
            return await self.workers.run(lambda: as_json(self.answers.answer(endpoint.name, arguments)))

        return _route(endpoint.path, endpoint.name, handle, *endpoint.methods)

    async def _embeddings(self, request: Request) -> bytes:
        body = read_json(await request.body())
        return await self.workers.run(lambda: as_json(http_answers.embeddings(self.stores, body)))

    async def _model(self, request: Request) -> bytes:
        return as_json(http_answers.model(self.stores, request.path_params["id"]))

    async def _write(self, request: Request) -> bytes:
        """Write to the store that the query string names."""
        write: Callable[..., Any] = getattr(pushed_documents, request.scope["route"].name)
        body = [] if request.method == "DELETE" else [read_json(await request.body())]
        names, wait = list(self.stores), self._settings.limits.seconds / 2
        schema = object_schema({"store": {**TEXT, "enum": names}}, ["store"] if len(names) > 1 else [])
        served = self.stores[checked(_query_arguments(request), schema, "documents").get("store", names[0])]
        given = [served, *request.path_params.values(), *body, wait]
        return await self._writer.run(lambda: as_json(write(*given)))

    async def _ready(self, _request: Request) -> Response | bytes:
        async with self._ready_lock:  # anyone may ask: the stores are looked at once a second
            if time.monotonic() >= self._ready_until:
                stores = self.stores.values()
                self._is_ready = await self._probes.run(lambda: self._is_warm and all(one.size() for one in stores))
                self._ready_until = time.monotonic() + 1.0
        return b'{"status":"ready"}' if self._is_ready else problem(503, "a store is not ready")

    async def _metrics(self, _request: Request) -> Response:
        def work() -> str:
            sizes = {name: served.size() for name, served in self.stores.items()}
            readable = {name: size for name, size in sizes.items() if size is not None}
            gauges: list[tuple[str, str, Mapping[str, float]]] = [
                ("ragembed_store_up", "Whether the store can be read", {name: name in readable for name in sizes}),
                ("ragembed_store_generation", "Commits so far", {name: size[0] for name, size in readable.items()}),
                ("ragembed_store_chunks", "Chunks", {name: size[1] for name, size in readable.items()}),
            ]
            return self.metrics.text(gauges)

        return Response(await self._probes.run(work), media_type=CONTENT_TYPE)


def make_app(stores: Mapping[str, Path], settings: ServerSettings) -> ASGIApp:
    """Return the application for stores by name."""
    handlers = _HttpHandlers(stores, settings)
    mcp_route, mcp_lifespan = make_route(
        make_server(stores, tools=StoreTools(handlers.stores), run=handlers.workers.run)
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with mcp_lifespan():
            handlers.workers.start(handlers.warm_up)
            if settings.watch:
                handlers.watch()
            yield
            handlers.close()

    pages = page.endpoints(handlers.answers, handlers.workers.run, handlers.stores, settings.editor)
    page_routes = [_route(path, "page" if path == "/" else "static", endpoint) for path, endpoint in pages.items()]
    inner = Starlette(
        routes=[*handlers.routes(), *page_routes, mcp_route],
        lifespan=lifespan,
        exception_handlers={404: _no_route, 405: _no_route},
    )
    inner.router.redirect_slashes = False
    public = (*PROBES, *page.PUBLIC_PATHS)  # without limits, too: requests without a token must not fill the queue
    app: ASGIApp = RequestLimits(inner, settings.limits, (*public, _METRICS))
    if settings.tokens:
        app = BearerAuth(app, settings.tokens, public)
    if settings.origins:
        methods = ["GET", "POST", *(["PUT", "DELETE"] if settings.writable else [])]
        headers = ["Authorization", "Content-Type", "MCP-Protocol-Version"]
        app = CORSMiddleware(app, allow_origins=settings.origins, allow_methods=methods, allow_headers=headers)
    app = RequestGuard(app, settings.hosts, settings.origins)
    return RequestObserver(app, handlers.metrics, log_queries=settings.log_queries)


def _route(path: str, name: str, handle: Callable[[Request], Awaitable[Response | bytes]], *methods: str) -> Route:
    """Return a route whose id may have slashes, so that the handler says what is wrong with it."""
    return Route(path.replace("{id}", "{id:path}"), answering(handle), methods=methods or ["GET"], name=name)


def _constant(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        return Response(body, media_type=kind)

    return handle


def _arguments(request: Request, body: bytes, endpoint: Endpoint) -> dict[str, Any]:
    """Return the arguments of a request: those in the path, and those in the query string or the body."""
    arguments = _query_arguments(request)
    arguments = {name: _parsed(value, endpoint.arguments.get(name, {})) for name, value in arguments.items()}
    if request.method == "POST":
        if arguments:
            raise ConfigError("a POST request has its arguments in the body: leave the query string out")
        arguments = read_json(body)
    for name, value in request.path_params.items():
        if name in arguments:
            raise ConfigError(f"the argument {name!r} is part of the path: leave it out of the query string")
        arguments[name] = value
    return arguments


def _query_arguments(request: Request) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in arguments:
            raise ConfigError(f"the argument {name[:60]!r} is given twice: give it once")
        arguments[name] = value
    return arguments


def _parsed(text: str, schema: Schema) -> Any:
    """Return a value of a query string as the type of its schema, or unchanged if it has another form."""
    if schema.get("type") == "integer" and re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    if schema.get("type") == "number" and re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", text):
        return float(text)
    if schema.get("type") == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    return text


async def _no_route(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.headers:  # the methods that the path accepts
        return problem(405, "this path does not accept this method: /docs lists the methods", **error.headers)
    return problem(404, "there is nothing at this path: /docs lists the paths")


# The process


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
