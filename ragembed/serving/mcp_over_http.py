"""MCP over streamable HTTP: whole messages, and the server for ``ragembed mcp --http``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ragembed.serving.http_requests import JSON, Limits, RequestLimits, replayed
from ragembed.serving.http_security import AllowedHosts, RequestGuard
from ragembed.serving.http_sockets import connections, tcp_listener
from ragembed.serving.mcp_server import refusal
from ragembed.serving.tool_schemas import repaired

HTTP_PATH = "/mcp"
_LOOPBACK = "127.0.0.1"
_LIMITS = Limits(seconds=math.inf)
"""The server of MCP limits the time for a call itself."""


class _RepairedMessages:
    """Passes requests to ``app`` with their body repaired, and answers those that are not valid."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, whose body has arrived."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        text = repaired((await Request(scope, receive).body()).decode("utf-8", "replace"))
        if (answer := refusal(text)) is not None:
            content = answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(content, 400, media_type=JSON)(scope, receive, send)
            return
        await self._app(scope, replayed(text.encode(), receive), send)


def make_route(server: Server[Any]) -> tuple[Route, Callable[[], AbstractAsyncContextManager[None]]]:
    """Return the route ``/mcp`` for an application that checks requests itself, and what has to run with it."""
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        streamable_http_path=HTTP_PATH, stateless_http=True, json_response=True, transport_security=unchecked
    )
    [route] = (route for route in app.routes if isinstance(route, Route))
    return Route(HTTP_PATH, _RepairedMessages(route.endpoint), name="mcp"), server.session_manager.run


def run_http(server: Server[Any], port: int) -> None:
    """Serve ``http://127.0.0.1:port/mcp`` until interrupted; raises :class:`ConfigError` if the port is in use."""
    with tcp_listener(_LOOPBACK, port) as listener:
        port = listener.getsockname()[1]
        sys.stderr.write(f"serving http://{_LOOPBACK}:{port}{HTTP_PATH}\n")
        sys.stderr.flush()
        route, lifespan = make_route(server)
        app = RequestLimits(Starlette(routes=[route], lifespan=lambda _: lifespan()), _LIMITS)
        guarded = RequestGuard(app, AllowedHosts(port))  # refuses foreign Host and Origin headers
        config = uvicorn.Config(guarded, http=connections(_LIMITS), log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
