"""Metrics of the requests in the text format of Prometheus, and the access log.

The log has one JSON object per line. It never contains tokens, headers or bodies, and query strings only on request,
because they hold what people search for.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
