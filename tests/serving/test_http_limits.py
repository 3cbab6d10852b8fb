"""Clients that ask for too much, send too slowly, do not read, or hold connections: others are answered."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import anyio
import httpx
import pytest
from mcp import Client

from ragembed import Store
from ragembed.indexes.storage import reader
from ragembed.serving import pushed_documents
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_requests import Limits
from ragembed.serving.http_security import AllowedHosts
from ragembed.serving.mcp_server import make_server
from tests.samples import mostly_slow
from tests.serving.processes import ApiServer, http_server

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000000000) SELECT max(x) FROM n"
"""A statement that runs for many minutes, unless it is stopped."""
SLOW_FILTERS = (
    "import sys\nfrom ragembed.indexes.storage import reader\nfrom ragembed.__main__ import main\n"
    "select = reader.select\n"
    f"reader.select = lambda connection, where: where and connection.execute({ENDLESS!r}).fetchone() "
    "or select(connection, where)\n"
    "sys.argv[0] = 'ragembed'\nmain()"
)
ACCEPT = {"Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
SLOW = {"where": "ext = 'md'"}


def tool_call(arguments, **params):
    params = {"name": "search", "arguments": arguments, **params}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


REQUESTS = {
    "search": ("/v1/search", {"q": "lock", "store": "docs", **SLOW}, {}),
    "several stores": ("/v1/search", {"q": "lock", "store": "all", **SLOW}, {}),
    "MCP 2025-06-18": (
        "/mcp",
        tool_call({"query": "lock", "store": "docs", **SLOW}),
        {"MCP-Protocol-Version": "2025-06-18"},
    ),
    "MCP 2026-07-28": (
        "/mcp",
        tool_call({"query": "lock", "store": "all", **SLOW}, _meta=META),
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "search"},
    ),
}


# Time


@pytest.fixture(scope="module")
def slow_server(_documents, tmp_path_factory):
    """A server with two threads, in which every search with a filter is endless."""
    folder = tmp_path_factory.mktemp("slow")
    for name in ("docs", "code"):
        shutil.copytree(_documents, folder / name)
    options = ["docs=docs/.ragembed", "code=code/.ragembed", "--threads", "2", "--timeout", "2", "--no-access-log"]
    with ApiServer(folder, *options, code=SLOW_FILTERS) as running:
        while httpx.get(f"{running.url}/readyz").status_code != 200:
            time.sleep(0.05)
        yield running


@pytest.mark.parametrize("kind", mostly_slow(REQUESTS, 1))
def test_the_thread_of_a_late_request_is_free_at_once(slow_server, kind):
    path, body, headers = REQUESTS[kind]
    statuses = []

    def ask():
        answer = httpx.post(f"{slow_server.url}{path}", json=body, headers=ACCEPT | headers, timeout=60)
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [504] * 6
    for store in ("docs", "all"):
        answer = httpx.get(f"{slow_server.url}/v1/search", params={"q": "lock", "store": store}, timeout=60)
        assert (answer.status_code, len(answer.json()["results"]) > 1) == (200, True)


@pytest.fixture
def endless(monkeypatch):
    """Make every search with a filter endless; the names of the events so far, ``"begun"`` and ``"ended"``."""
    events = Counter()

    def select(connection, where, select=reader.select):
        if where is not None:
            events["begun"] += 1
            try:
                connection.execute(ENDLESS).fetchone()
            finally:
                events["ended"] += 1
        return select(connection, where)

    monkeypatch.setattr(reader, "select", select)
    return events


async def ended(events):
    while events["ended"] < events["begun"]:
        await anyio.sleep(0.01)


async def test_tool_calls_of_agents_have_a_limit(store, endless):
    async with Client(make_server({"docs": store}, seconds=1)) as client:
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(slow_call, client)
        await ended(endless)
        assert not (await client.call_tool("search", {"query": "lock"})).is_error


async def slow_call(client):
    result = await client.call_tool("search", {"query": "lock", **SLOW})
    assert (result.is_error, result.content[0].text) == (
        True,
        "the call took longer than 1 seconds: ask for less",
    )


async def test_a_tool_call_that_the_client_cancels_ends(store, endless):
    async with Client(make_server({"docs": store})) as client:
        with anyio.move_on_after(0.5):
            await client.call_tool("search", {"query": "lock", **SLOW})
        await ended(endless)
        assert endless["begun"] == 1
        assert not (await client.call_tool("search", {"query": "lock"})).is_error


async def test_a_late_write_ends_with_nothing_written(store, monkeypatch):
    read, names = pushed_documents.read, []

    def slow_read(name, *arguments):
        names.append(name)
        time.sleep(0.2)
        return read(name, *arguments)

    monkeypatch.setattr(pushed_documents, "read", slow_read)
    settings = ServerSettings(AllowedHosts(8765), writable=True, limits=Limits(seconds=2))
    transport = httpx.ASGITransport(make_app({"docs": store}, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765", timeout=60) as api:
        documents = [{"id": f"d{i}", "text": f"zebra {i}"} for i in range(100)]
        assert (await api.post("/v1/documents", json={"documents": documents})).status_code == 504
        monkeypatch.undo()
        assert (await api.put("/v1/documents/last", json={"text": "giraffe"})).status_code == 200
    assert len(names) < 20
    with Store.open(store) as opened:
        assert [name for name in opened.sources() if name.startswith("documents:")] == ["documents://last"]
        assert not opened.verify().problems


# Connections


FAST = (
    "import sys\nfrom ragembed.serving import http_requests\nfrom ragembed.__main__ import main\n"
    "http_requests.Limits.__init__.__defaults__ = (*http_requests.Limits.__init__.__defaults__[:4], 5, 1.0)\n"
    "sys.argv[0] = 'ragembed'\nmain()"
)
"""A server that has five connections at most, and gives clients one second instead of ten."""
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\nContent-Length: 14\r\n"
UNFINISHED = {
    "headers without an end": HEAD,
    "a body without an end": HEAD + b'\r\n{"q": "lo',
    "a second request": HEAD + b'\r\n{"q": "lock"}\n' + HEAD + b"\r\n{",
}


@pytest.fixture(scope="module")
def fast_server(_documents, tmp_path_factory):
    folder = shutil.copytree(_documents, tmp_path_factory.mktemp("fast") / "served")
    (folder / "token").write_text("0123456789abcdef\n")
    with ApiServer(folder, "docs=.ragembed", "--no-access-log", code=FAST) as running:
        yield int(running.url.rpartition(":")[2])


def rest_of(connection):
    """Return what arrives until the server closes the connection; fail if it does not."""
    connection.settimeout(30)
    parts = []
    with contextlib.suppress(ConnectionResetError):  # A reset ends the connection too.
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("kind", mostly_slow(UNFINISHED, 1))
def test_a_request_has_to_arrive_in_time(fast_server, kind):
    with socket.create_connection(("127.0.0.1", fast_server)) as connection:
        sent = UNFINISHED[kind]
        connection.sendall(sent.replace(b"%d", str(fast_server).encode()))
        rest = rest_of(connection)
    assert rest.count(b"HTTP/1.1 200") == (kind == "a second request")
    assert rest.count(b"HTTP/1.1 408") == 1
    assert b"the request did not arrive within 1 seconds" in rest


def test_single_bytes_do_not_extend_the_time(fast_server):
    with socket.create_connection(("127.0.0.1", fast_server)) as connection:
        connection.settimeout(0.2)
        found, sent = b"", 0
        while b"408" not in found and sent < 200:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "[sent : sent + 1] or b"x")
            sent += 1
            try:
                found += connection.recv(2**16)
            except TimeoutError:
                continue
    assert sent < 20


def test_a_refused_request_with_an_endless_body_ends(fast_server):
    head = HEAD.replace(b"localhost:%d", b"evil.example").replace(b": 14", b": 100000000")
    with socket.create_connection(("127.0.0.1", fast_server)) as connection:
        connection.sendall(head + b"\r\n{")
        assert rest_of(connection).startswith(b"HTTP/1.1 421")


def test_a_client_that_does_not_read_is_dropped(fast_server):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", fast_server))
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % fast_server
        connection.setblocking(False)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_for_ever(connection, request)


def send_for_ever(connection, request):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            connection.send(request)
        time.sleep(0.001)


def test_connections_are_limited_before_anything_is_read(fast_server):
    held = [socket.create_connection(("127.0.0.1", fast_server)) for _ in range(5)]
    try:
        with socket.create_connection(("127.0.0.1", fast_server)) as refused:
            assert rest_of(refused).startswith(b"HTTP/1.1 503")
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if httpx.get(f"http://127.0.0.1:{fast_server}/healthz").status_code == 200:
            break
    assert httpx.get(f"http://127.0.0.1:{fast_server}/healthz").json() == {"status": "ok"}


def test_connections_of_agents_have_the_same_limits(folder):
    with http_server(folder, code=FAST) as url:
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"POST /mcp HTTP/1.1\r\n")
            assert rest_of(connection).startswith(b"HTTP/1.1 408")


def test_ten_seconds_and_256_connections_are_documented():
    page = Path(__file__).parents[2].joinpath("docs/how-to/serve.md").read_text(encoding="utf-8")
    assert f"{Limits().connections} connections" in page
    assert f"{Limits().transfer:g} seconds" in page
