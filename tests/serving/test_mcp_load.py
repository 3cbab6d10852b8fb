"""The MCP server under malformed requests and many calls."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from ragembed.serving.tool_schemas import TOOLS
from tests.serving.processes import StdioServer, http_server, message

METHODS = ["initialize", "tools/list", "tools/call", "resources/read", "ping", "server/discover", "none", "", "\u0000"]
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def value(draw: random.Random, depth: int = 0):
    """Return a JSON value, often an extreme one."""
    kind = draw.randrange(12 if depth < 3 else 9)
    if kind < 9:
        return draw.choice(
            [
                *(None, True, False, 0, -1, 1.5, 10**400, -(2**63), 1e308),
                *(
                    "",
                    " ",
                    "lock",
                    "\0",
                    "\ud800",
                    "../../etc/passwd",
                    "'; DROP TABLE chunks; --",
                    "{" * 99,
                    "中" * 5000,
                ),
                *([], {}, "x" * 200_000),
            ]
        )
    if kind == 9:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(["query", "k", "id", "path", "x" * 300, ""]): value(draw, depth + 1) for _ in range(3)}


def malformed(draw: random.Random) -> bytes:
    """Return one line that is no valid request, or one with wrong arguments."""
    kind = draw.randrange(6)
    if kind == 0:
        return bytes(draw.choices([each for each in range(256) if each != 10], k=draw.randrange(1, 200)))
    if kind == 1:
        return draw.choice([b"[" * 100_000, b'{"a":' * 50_000, b"", b"null", b"[]", b'{"jsonrpc":"2.0"}', b'"text"'])
    if kind == 2:
        whole = message("tools/call", 1, name="search", arguments={"query": "lock"}).encode()
        return whole[: draw.randrange(len(whole))]
    if kind == 3:
        fields = {"jsonrpc": value(draw), "id": value(draw), "method": value(draw), "params": value(draw)}
        return json.dumps({name: fields[name] for name in fields if draw.random() < 0.8}).encode()
    tool = draw.choice([*TOOLS, "none"])
    names = [*TOOLS[tool].arguments, "store", "none"] if tool in TOOLS else ["query"]
    arguments = {name: value(draw) for name in names if draw.random() < 0.6}
    if kind == 4:
        return message("tools/call", draw.randrange(10**6), name=tool, arguments=arguments).encode()
    return message(draw.choice(METHODS), draw.randrange(10**6), name=tool, uri=value(draw)).encode()


def check_malformed_over_stdio(folder: Path, count: int) -> None:
    draw = random.Random(0)
    server = StdioServer(folder)
    for i in range(count):
        server.send(malformed(draw))
        if i % 10 == 9:
            assert "docs/" in server.call("search", query="writer lock", k=1)["content"][0]["text"]
    rest, errors = server.end()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert server.process.returncode == 0
    assert b"unexpected exception" not in errors
    assert b"The tool" not in errors, errors[-3000:].decode()


def test_malformed_lines_leave_the_server_answering(folder):
    check_malformed_over_stdio(folder, 60)


@pytest.mark.slow
def test_two_thousand_malformed_lines_leave_the_server_answering(folder):
    check_malformed_over_stdio(folder, 2000)


@pytest.mark.slow
def test_two_thousand_malformed_posts_leave_the_server_answering(folder):
    draw = random.Random(1)
    good = message("tools/call", 1, name="search", arguments={"query": "writer lock", "k": 1, "structured": True})
    with http_server(folder) as url, httpx.Client(timeout=60) as client:
        for i in range(2000):
            answer = client.post(url, content=malformed(draw), headers=HEADERS)
            assert "Traceback" not in answer.text
            if i % 10 == 9:
                found = client.post(url, content=good, headers=HEADERS | {"MCP-Protocol-Version": "2025-11-25"}).json()
                assert found["result"]["structuredContent"]["results"]


@pytest.mark.slow
def test_memory_does_not_grow_with_calls(folder):
    server = StdioServer(folder)
    chunk = server.call("search", query="writer lock", k=1, structured=True)["structuredContent"]["results"][0]["id"]
    calls = [
        ("search", {"query": "writer lock {}"}),
        ("context", {"query": "supersonic wing {}"}),
        ("get", {"path": "docs/locks.md"}),
        ("similar", {"id": chunk}),
        ("status", {}),
        ("why_not", {"query": "zebra {}", "path": "docs/locks.md"}),
        ("search", {"query": 5}),
    ]

    def run(first: int, last: int) -> int:
        for i in range(first, last):
            tool, arguments = calls[i % len(calls)]
            # Caches keep the words of queries, up to a limit: after the first calls, no word is new.
            query = {"query": arguments["query"].format(i % 100)} if isinstance(arguments.get("query"), str) else {}
            server.call(tool, **{**arguments, **query})
        return server.memory()

    warm = run(0, 1000)
    assert run(1000, 6000) < warm + 2 * 2**20
    server.end()


@pytest.mark.slow
def test_conformance_suite_has_only_the_expected_failures(folder):
    program = shutil.which("conformance")
    if program is None:
        pytest.skip("no conformance suite: npm install --global @modelcontextprotocol/conformance@0.1.16 (Node.js 22)")
    expected = Path(__file__).parent / "conformance.yml"
    with http_server(folder) as url:
        run = subprocess.run(
            [program, "server", "--url", url, "--expected-failures", expected], capture_output=True, text=True
        )
    assert run.returncode == 0, run.stdout[-3000:]
