"""Checks of HTTP requests before any handler runs: Host, Origin, content type and bearer token.

A server on a loopback address can be reached by every web page in a browser of the same machine. The Host check stops
pages whose name resolves to the loopback address (DNS rebinding), the Origin check stops other pages, and the check of
content types stops forms, which browsers send anywhere without asking.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragembed.errors import ConfigError
from ragembed.serving.http_requests import problem

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}
_WITH_BODY = ("POST", "PUT", "PATCH")
_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The values of ``Host`` that name this server.

    ``port`` is the server's own port, None for a Unix socket. ``addresses`` are the addresses it listens on;
    ``0.0.0.0`` and ``::`` stand for every address. ``names`` are further names, such as that of a reverse proxy, on
    any port.
    """

    port: int | None
    addresses: tuple[str, ...] = LOOPBACK_NAMES
    names: frozenset[str] = frozenset()

    def allow(self, host: str, default_port: int = 80) -> bool:
        """Return whether ``host``, such as ``localhost:8765``, is one of them."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name, port = match[1].lower(), int(match[2] or default_port)
        if name in self.names:
            return True
        if self.port is None:
            return name == "localhost"
        return port == self.port and self._is_own(name)

    def _is_own(self, name: str) -> bool:
        """Return whether a name is an address of this server. Only addresses and ``localhost`` cannot be rebound."""
        if name in LOOPBACK_NAMES or name in self.addresses:
            return True
        if not any(address in self.addresses for address in ("0.0.0.0", "[::]")):  # noqa: S104  compared, not bound
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def allow_origin(self, origin: str, host: str) -> bool:
        """Return whether a page from ``origin`` may send a request to ``host``: only pages of this server may."""
        scheme, _, place = origin.partition("://")
        if scheme not in _PORTS or _HOST.fullmatch(place) is None:
            return False
        if place.lower() == host.lower():
            return True
        name, _, port = place.rpartition(":") if re.search(r":[0-9]+$", place) else (place, "", "")
        if name.lower() in self.names:
            return not port or int(port) == _PORTS[scheme]
        return self.allow(place, _PORTS[scheme])


def origin_of(text: str) -> str:
    """Return an origin that may be allowed in normal form; raise :class:`ConfigError` if it is none."""
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or _HOST.fullmatch(parts.netloc) is None or parts.path not in ("", "/"):
        raise ConfigError(f"{text!r} is not an origin: expected one such as https://app.example.com")
    return f"{parts.scheme}://{parts.netloc.lower()}"


class RequestGuard:
    """Refuses requests for other hosts, from pages of other origins, and with the content types of forms."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, origins: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                message = {**message, "headers": headers.raw}
            await send(message)

        refused = self._refused(scope["method"], Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refused(self, method: str, headers: Headers) -> JSONResponse | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._hosts.allow(hosts[0]):
            return problem(421, "the Host header does not name this server: start it with --allow-host NAME")
        others = [origin for origin in origins if origin not in self._origins]
        foreign = not all(self._hosts.allow_origin(origin, hosts[0]) for origin in others)
        # A browser says that a page of another site sends the request. Following a link is no such case.
        site, way = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        is_fetched = not origins and site in ("cross-site", "same-site") and way != "navigate"
        if foreign or len(origins) > 1 or is_fetched:
            return problem(403, "requests from pages of another origin are refused")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method in _WITH_BODY and kind != "application/json":
            return problem(415, "the content type is not application/json: send JSON")
        if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
            return problem(415, "the body is compressed: send it without Content-Encoding", Accept_Encoding="identity")
        return None


class BearerAuth:
    """Refuses requests without a token (bearer, or password of Basic authentication), except for ``public`` paths."""

    def __init__(self, app: ASGIApp, tokens: Iterable[str], public: Collection[str] = ()) -> None:
        self._app = app
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] in self._public or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        challenge = 'Bearer, Basic realm="ragembed", charset="UTF-8"'
        refused = problem(401, "a token is needed: send 'Authorization: Bearer TOKEN'", WWW_Authenticate=challenge)
        await refused(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        """Compare with every token, in a time that does not depend on how many characters agree."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = _password(token) if scheme.lower() == "basic" else token.strip()
        digest = hashlib.sha256(token.encode()).digest()
        agrees = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() in ("bearer", "basic") and any(agrees)


def _password(credentials: str) -> str:
    """Return the password of Basic credentials, with which browsers send a token for the search page."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def checked_tokens(lines: Iterable[str], origin: str) -> Sequence[str]:
    """Return the tokens in ``lines``; raise :class:`ConfigError`, without showing them, if one is too weak."""
    tokens = [line.strip() for line in lines if line.strip()]
    if not tokens:
        raise ConfigError(f"{origin} holds no token: expected one token per line")
    if any(len(token) < _SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", token) for token in tokens):
        raise ConfigError(
            f"{origin} holds a token that is too short or has other characters than ASCII letters, digits and "
            f"punctuation: expected {_SHORTEST_TOKEN} or more, such as the output of 'openssl rand -hex 32'"
        )
    return tokens
