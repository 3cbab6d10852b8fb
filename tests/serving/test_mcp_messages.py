"""Messages of MCP as lines and as bodies: each request is answered under its id, in every revision of the protocol."""

from __future__ import annotations

import json
import shutil
import subprocess

import httpx
import pytest
from mcp import Client

from ragembed.serving.mcp_server import make_server
from ragembed.serving.tool_schemas import TOOLS, parsed, repaired
from tests.serving.processes import COMMAND, ApiServer, StdioServer, http_server, message

HALF = "lock \ud83d"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
CALLS = [
    *(
        ("tools/call", {"name": name, "arguments": {**dict.fromkeys(tool.required, "lock"), argument: HALF}})
        for name, tool in TOOLS.items()
        for argument in [*tool.arguments, "store", "unknown"]
    ),
    ("tools/call", {"name": HALF, "arguments": {}}),
    ("tools/call", {"name": "search", "arguments": {HALF: "lock", "query": "lock"}}),
    ("resources/read", {"uri": f"ragembed://docs/{HALF}"}),
    ("resources/read", {"uri": "ragembed://docs/docs/\0"}),
    ("none", {"a": HALF}),
    (HALF, {}),
]
BROKEN = {
    "{oops": (None, -32700),
    "null,": (None, -32700),
    '"lock \\ud83d': (None, -32700),
    "[" * 100_000: (None, -32700),
    '{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": {"a": NaN}}': (None, -32700),
    "[]": (None, -32600),
    "5": (None, -32600),
    '{"jsonrpc": "2.0", "id": 2, "method": 7}': (2, -32600),
    '{"jsonrpc": "1.0", "id": "a", "method": "ping"}': ("a", -32600),
    '{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": []}': (4, -32600),
    '{"jsonrpc": "2.0", "id": [1], "method": "ping"}': (None, -32600),
}
VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]
BOTH = [("mcp --http", "2026-07-28"), ("serve", "2025-11-25")]
"""Both ways to serve, and both generations of the protocol."""


def initialize(version):
    about = {"name": "test", "version": "1"}
    return message("initialize", 0, protocolVersion=version, capabilities={}, clientInfo=about)


def talk(folder, lines):
    """Return the answers of a new process to ``lines``. Those with an id are requests."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder) as process:
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for line in lines if "id" in json.loads(line)]
        process.stdin.close()
    assert process.returncode == 0
    return answers


@pytest.fixture(scope="module")
def served(_documents, tmp_path_factory):
    """The addresses of MCP in ``ragembed mcp --http`` and in ``ragembed serve``."""
    folder = shutil.copytree(_documents, tmp_path_factory.mktemp("messages") / "served")
    with ApiServer(folder, "docs=.ragembed", "--no-access-log") as running, http_server(folder) as url:
        yield {"mcp --http": url, "serve": f"{running.url}/mcp"}


# Half of a surrogate pair


@pytest.fixture(scope="module")
def stdio(_documents, tmp_path_factory):
    server = StdioServer(shutil.copytree(_documents, tmp_path_factory.mktemp("stdio") / "served"))
    yield server
    server.end()


def test_half_of_a_surrogate_pair_is_answered_under_its_id(stdio):
    for number, (method, params) in enumerate(CALLS):
        stdio.send(message(method, f"call {number}", **params).encode())
    found = {}
    while len(found) < len(CALLS):
        answer = json.loads(stdio.process.stdout.readline())
        found[answer["id"]] = answer
    assert set(found) == {f"call {number}" for number in range(len(CALLS))}
    plain = stdio.call("search", query="lock \ufffd")
    assert stdio.call("search", query=HALF) == plain
    assert "docs/locks.md" in plain["content"][0]["text"]


@pytest.mark.parametrize(("place", "version"), BOTH)
def test_half_of_a_surrogate_pair_is_answered_over_http(served, place, version):
    with httpx.Client(headers=ACCEPT | {"MCP-Protocol-Version": version}, timeout=60) as client:
        for number, (method, params) in enumerate(CALLS):
            new = {"_meta": META} if version == "2026-07-28" else {}
            name = params.get("uri" if method == "resources/read" else "name", "")
            headers = {"Mcp-Method": method, "Mcp-Name": name} if new and f"{method}{name}".isascii() else {}
            if "\0" in name:
                headers = {}
            answer = client.post(served[place], content=message(method, number, **params, **new), headers=headers)
            assert answer.json()["id"] == number, (method, params, answer.text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"\ud83d"', "\ufffd"),
        (r'"\uD83D\uDE80"', "\U0001f680"),
        (r'"\ud83d\ud83d\ude80"', "\ufffd\U0001f680"),
        (r'"\ude80\ud83d"', "\ufffd\ufffd"),
        (r'"\\ud83d \\\ud83d"', "\\ud83d \\\ufffd"),
        (r'"\u00e4\n\"\ud83dx"', 'ä\n"\ufffdx'),
    ],
)
def test_only_halves_are_replaced(text, expected):
    assert parsed(repaired(text)) == expected


# Messages that are not valid


@pytest.mark.parametrize("line", BROKEN)
def test_a_line_that_is_no_message_is_answered(stdio, line):
    stdio.send(b"")
    stdio.send(line.encode())
    answer = json.loads(stdio.process.stdout.readline())
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", *BROKEN[line])
    assert stdio.ask("ping")["result"] == {}


def test_answers_that_nobody_reads_yet_do_not_stop_the_server_from_reading(stdio):
    for _ in range(2000):  # more answers than a pipe holds
        stdio.send(b"{oops")
    assert stdio.ask("ping")["result"] == {}


def test_a_first_line_that_is_no_message_is_answered(folder):
    process = subprocess.run(COMMAND, input=b"{oops\n\xff\xfe\n", capture_output=True, cwd=folder)
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert [(each["id"], each["error"]["code"]) for each in answers] == [(None, -32700)] * 2
    assert process.returncode == 0


@pytest.mark.parametrize(("place", "version"), BOTH)
def test_a_body_that_is_no_message_is_answered(served, place, version):
    headers = ACCEPT | {"MCP-Protocol-Version": version}
    for body, expected in BROKEN.items():
        answer = httpx.post(served[place], content=body, headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, *expected), body


@pytest.mark.parametrize("place", ["mcp --http", "serve"])
def test_compressed_and_large_bodies_are_refused_with_the_reason(served, place):
    answer = httpx.post(served[place], content=b"\x1f\x8b", headers=ACCEPT | {"Content-Encoding": "gzip"})
    assert (answer.status_code, "without Content-Encoding" in answer.text) == (415, True)
    answer = httpx.post(served[place], content=b" " * (4 * 2**20 + 1), headers=ACCEPT)
    assert (answer.status_code, "too large" in answer.text) == (413, True)


# Revisions of the protocol


@pytest.mark.parametrize(("place", "version"), [("serve", VERSIONS[0]), *(("mcp --http", each) for each in VERSIONS)])
def test_older_clients_shake_hands_over_http(served, place, version):
    with httpx.Client(headers=ACCEPT, timeout=60) as client:
        hello = client.post(served[place], content=initialize(version))
        assert hello.json()["result"]["protocolVersion"] == version
        assert "mcp-session-id" not in hello.headers
        client.headers["MCP-Protocol-Version"] = version
        assert client.post(served[place], content=message("notifications/initialized")).status_code == 202
        call = message("tools/call", 1, name="search", arguments={"query": "lock"})
        assert client.post(served[place], content=call).json()["result"]["content"][0]["text"].startswith("Retrieved")


def test_new_clients_discover_the_server(folder):
    answers = talk(folder, [message("server/discover", 0, _meta=META), message("tools/list", 1, _meta=META)])
    check_new([answer["result"] for answer in answers])


@pytest.mark.parametrize("place", ["mcp --http", "serve"])
def test_new_clients_discover_the_server_over_http(served, place):
    with httpx.Client(headers=ACCEPT | {"MCP-Protocol-Version": "2026-07-28"}, timeout=60) as client:
        found = []
        for method in ("server/discover", "tools/list"):
            answer = client.post(served[place], content=message(method, 1, _meta=META), headers={"Mcp-Method": method})
            assert "mcp-session-id" not in answer.headers
            found.append(answer.json()["result"])
    check_new(found)


def check_new(results):
    about, listed = results
    assert "2026-07-28" in about["supportedVersions"]
    assert set(about["capabilities"]) == {"prompts", "resources", "tools"}
    assert "cite paths and lines" in about["instructions"]
    assert [each["name"] for each in listed["tools"]] == list(TOOLS)
    for result in results:
        assert (result["ttlMs"], result["cacheScope"]) == (300_000, "private")


async def test_only_what_cannot_change_may_be_kept(store):
    async with Client(make_server({"docs": store}), mode="2026-07-28") as client:
        for result in (await client.list_prompts(), await client.list_resource_templates()):
            assert (result.ttl_ms, result.cache_scope) == (300_000, "private")
        for result in (await client.list_resources(), await client.read_resource("ragembed://docs/docs/locks.md")):
            assert (result.ttl_ms, result.cache_scope) == (0, "private")
