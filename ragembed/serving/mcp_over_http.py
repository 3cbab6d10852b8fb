"""MCP over streamable HTTP: whole messages, and the server for ``ragembed mcp --http``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragembed.serving.http_requests import JSON, Limits, problem, read_body, replayed
from ragembed.serving.http_security import encoding_problem
from ragembed.serving.http_sockets import connections, tcp_listener
from ragembed.serving.mcp_server import refusal
from ragembed.serving.tool_schemas import repaired

HTTP_PATH = "/mcp"
_LOOPBACK = "127.0.0.1"
_MOST_BYTES = 4 * 2**20
"""Largest body, as in the SDK."""


class WholeMessages:
    """Passes requests to ``app`` with their whole body, repaired, and answers those that are not valid."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if (refused := encoding_problem(Headers(scope=scope))) is not None:
            await refused(scope, receive, send)
            return
        try:
            body = await read_body(receive, _MOST_BYTES)
        except ClientDisconnect:
            return
        if body is None:
            await problem(413, f"the body is too large: expected at most {_MOST_BYTES:,} bytes")(scope, receive, send)
            return
        text = repaired(body.decode("utf-8", "replace"))
        if (answer := refusal(text)) is not None:
            content = answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(content, 400, media_type=JSON)(scope, receive, send)
            return
        await self._app(scope, replayed(text.encode(), receive), send)


def make_http_app(server: Server[Any], port: int) -> ASGIApp:
    """Return the ASGI application for ``127.0.0.1:port``. It refuses foreign Host and Origin headers."""
    hosts = [f"{name}:{port}" for name in (_LOOPBACK, "localhost")]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    app = server.streamable_http_app(
        streamable_http_path=HTTP_PATH, stateless_http=True, json_response=True, transport_security=security
    )
    return WholeMessages(app)


def make_route(server: Server[Any]) -> tuple[Route, Callable[[], AbstractAsyncContextManager[None]]]:
    """Return the route ``/mcp`` for an application that checks Host and Origin itself, and what has to run with it."""
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        streamable_http_path=HTTP_PATH, stateless_http=True, json_response=True, transport_security=unchecked
    )
    [route] = (route for route in app.routes if isinstance(route, Route))
    return Route(HTTP_PATH, WholeMessages(route.endpoint), name="mcp"), server.session_manager.run


def run_http(server: Server[Any], port: int) -> None:
    """Serve ``http://127.0.0.1:port/mcp`` until interrupted; raises :class:`ConfigError` if the port is in use."""
    with tcp_listener(_LOOPBACK, port) as listener:
        port = listener.getsockname()[1]
        sys.stderr.write(f"serving http://{_LOOPBACK}:{port}{HTTP_PATH}\n")
        sys.stderr.flush()
        app = make_http_app(server, port)
        config = uvicorn.Config(app, http=connections(Limits()), log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
