"""Messages of MCP over HTTP before the SDK reads them, as :mod:`ragembed.serving.mcp_messages` does over stdio."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ragembed.serving.http_limits import read_body, replayed
from ragembed.serving.http_security import encoding_problem, problem
from ragembed.serving.json_text import repaired
from ragembed.serving.mcp_messages import refusal

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
            await Response(content, 400, media_type="application/json")(scope, receive, send)
            return
        await self._app(scope, replayed(text.encode(), receive), send)
