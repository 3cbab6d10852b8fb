"""The page at ``/``: static files alone, which anyone who reaches the server may load. Data comes from ``/v1``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

PUBLIC_PATHS = ("/",)
"""Paths that need no token, because a browser asks for them before it knows one."""


def routes() -> list[Route]:
    """Return the routes of the page."""
    return [Route("/", _index)]


async def _index(_request: Request) -> Response:
    return RedirectResponse("/docs")
