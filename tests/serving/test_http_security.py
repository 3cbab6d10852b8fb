"""Attacks on the HTTP API, one test for each class that other servers fell to, and how the process listens and ends."""

from __future__ import annotations

import base64
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from ragembed import Store
from ragembed.errors import ConfigError
from ragembed.serving import http_sockets
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_security import AllowedHosts, BearerAuth, checked_tokens, origin_of
from tests.serving.processes import ApiServer

PORT = 8765
TOKEN, OTHER = "0123456789abcdef" * 2, "another-token-of-32-characters!!"
PROXIED = AllowedHosts(PORT, names=frozenset({"docs.example.com"}))
PATHS = [
    *(
        ("GET", path)
        for path in ("/", "/docs", "/page.css", "/openapi.json", "/metrics", "/v1/models", "/healthz", "/none")
    ),
    *(("GET", path) for path in ("/v1/search?q=lock", "/v1/status", "/v1/chunks/x")),
    *(("POST", path) for path in ("/v1/search", "/v1/embeddings", "/v1/documents", "/mcp", "/none")),
    ("PUT", "/v1/documents/a"),
    ("DELETE", "/v1/documents/a"),
]

HOSTS = [
    *(f"evil.example:{PORT}", "localhost:1", "evil.example", f"127.0.0.1.evil.example:{PORT}"),
    *(f"localhost.evil.example:{PORT}", "localhost", "127.0.0.1", "[::2]", f"[::1]:{PORT}x", f"@127.0.0.1:{PORT}", ""),
]
ORIGINS = [
    *("http://evil.example", "null", "http://localhost:1", f"http://127.0.0.1:{PORT}.evil.example", "file://"),
    *(f"ftp://localhost:{PORT}", f"http://localhost:{PORT}/", f"http://a@localhost:{PORT}", ""),
]
"""What a request may not name; the first path gets all of them, the others the first two."""


@pytest.fixture
def client(store):
    """``client(**settings)``: a client of an application that serves ``store`` as ``docs``."""

    def make(hosts=None, **settings):
        app = make_app({"docs": store}, ServerSettings(hosts or AllowedHosts(PORT), **settings))
        url = f"http://127.0.0.1:{PORT}"
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url, timeout=60)

    return make


@pytest.fixture
def handlers(monkeypatch):
    """The names of the operations whose handlers ran."""
    ran = []
    for name in ("answer",):
        monkeypatch.setattr(
            f"ragembed.serving.http_answers.StoreAnswers.{name}", lambda *given: ran.append(given) or {}
        )
    for name in ("put_document", "delete_document", "write_documents"):
        monkeypatch.setattr(f"ragembed.serving.pushed_documents.{name}", lambda *given: ran.append(given) or {})
    monkeypatch.setattr("ragembed.serving.http_answers.embeddings", lambda *given: ran.append(given) or {})
    return ran


async def status(api, method, path, body=None, **headers):
    answer = await api.request(method, path, headers=headers, json={} if method in ("POST", "PUT") else None)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not [name for name in answer.headers if name.startswith("access-control")]
    return answer.status_code


# DNS rebinding: CVE-2024-28224, CVE-2025-66414, CVE-2025-66416, CVE-2026-42559, CVE-2026-34742; and no Host check
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_names_that_resolve_to_this_machine_reach_no_handler(client, handlers, method, path):
    api = client(writable=True)
    for host in HOSTS if (method, path) == PATHS[0] else HOSTS[:2]:
        assert await status(api, method, path, Host=host) == 421
    assert handlers == []


# Loopback API with permissive CORS: CVE-2026-2611
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_pages_of_other_origins_reach_no_handler(client, handlers, method, path):
    api = client(writable=True)
    for origin in ORIGINS if (method, path) == PATHS[0] else ORIGINS[:2]:
        assert await status(api, method, path, Origin=origin) == 403
    for site in ("cross-site", "same-site"):
        assert await status(api, method, path, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}) == 403
    if method in ("POST", "PUT"):
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
            assert await status(api, method, path, **{"Content-Type": kind}) == 415
    assert handlers == []
    answer = await api.options(path, headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"})
    assert answer.status_code == 403


async def test_cors_is_only_for_the_origins_that_are_named(client):
    api = client(origins=("https://app.example.com",), tokens=(TOKEN,))
    asked = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    answer = await api.options("/v1/search", headers={**asked, "Access-Control-Request-Headers": "authorization"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    assert "PUT" not in answer.headers["access-control-allow-methods"]
    found = {"Origin": "https://app.example.com", "Authorization": f"Bearer {TOKEN}"}
    answer = await api.get("/v1/search?q=lock", headers=found)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example.com")
    assert await status(api, "GET", "/v1/search?q=lock", **{**found, "Origin": "https://b.example.com"}) == 403


# A request that names a model or code to load, before or after authentication: CVE-2026-45829
async def test_no_request_names_a_model_or_a_path_outside_the_store(client, folder, monkeypatch):
    secret = folder / "secret.txt"
    secret.write_text("zebra secret")
    (folder / "docs/link.md").symlink_to(secret)
    api = client(tokens=(TOKEN,), writable=True)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    names = [str(secret), "secret.txt", "../secret.txt", "docs/../secret.txt", "docs/link.md", "file:///etc/passwd"]
    for name in (*names, "http://evil.example/model", "hub/model", "docs:/etc/passwd", "\u202e", "."):
        bodies = [
            *(("POST", "/v1/search", {"q": "zebra", key: name}) for key in ("model", "store", "rerank", "embedder")),
            ("POST", "/v1/embeddings", {"model": name, "input": "a"}),
            ("POST", "/v1/embeddings", {"model": "docs", "input": "a", "revision": name}),
            ("POST", "/v1/why-not", {"q": "zebra", "path": name}),
            ("POST", "/v1/context", {"q": "zebra", "tokenizer": name}),
            ("PUT", "/v1/documents/a", {"text": "a", "path": name}),
        ]
        for method, path, body in bodies:
            assert await status(api, method, path) == 401
            answer = await api.request(method, path, json=body, headers=headers)
            assert answer.status_code in (400, 404), (method, path, body, answer.text)
            assert "zebra secret" not in answer.text
        listed = await api.get("/v1/files", params={"path": name}, headers=headers)
        assert [
            each["path"]
            for each in listed.json()["files"]
            if each["path"] not in ("docs/forged.md", "docs/locks.md", "docs/wings.txt")
        ] == []
    assert not [path for path in folder.rglob("*") if "evil" in path.name]


# Unauthenticated embedding endpoint: CVE-2026-45667
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_with_a_token_only_probes_and_static_files_are_public(client, handlers, method, path):
    api = client(tokens=(TOKEN, OTHER), writable=True)
    public = path in ("/page.css", "/page.js", "/healthz")
    refused = (200, 307) if public else (401,)
    wrong = [
        *("", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0", "Bearer", "Bearer "),
        *(f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN},{OTHER}", TOKEN, "Bearer \u00e4"),
    ]
    for value in wrong if (method, path) in (PATHS[0], ("GET", "/v1/status")) else wrong[:3]:
        assert await status(api, method, path, Authorization=value.encode("latin-1")) in refused
    assert await status(api, method, f"{path}{'&' if '?' in path else '?'}token={TOKEN}") in refused
    assert handlers == []
    for token in (TOKEN, OTHER):
        if path != "/mcp":  # its session manager does not run here
            assert await status(api, method, path, Authorization=f"Bearer {token}") not in (401, 403)
            basic = base64.b64encode(f"anyone:{token}".encode()).decode()
            assert await status(api, method, path, Authorization=f"Basic {basic}") not in (401, 403)


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    auth = BearerAuth(None, [TOKEN, OTHER])
    from starlette.datastructures import Headers

    for token in (TOKEN, "x", TOKEN[:-1] + "0"):
        compared.clear()
        auth._is_known(Headers({"Authorization": f"Bearer {token}"}))
        assert [(len(a), len(b)) for a, b in compared] == [(32, 32)] * 2  # hashes, and all tokens each time


@pytest.mark.parametrize("lines", [[], ["secret1"], [TOKEN, "with a space in the middle"], ["ä" * 32]])
def test_weak_tokens_are_refused_and_not_shown(lines):
    with pytest.raises(ConfigError) as refused:
        checked_tokens(lines, "the token file")
    assert not [line for line in lines if line and line in str(refused.value)]


@pytest.mark.parametrize("text", ["*", "app.example.com", "https://a/b", "https://a@b"])
def test_only_origins_can_be_allowed(text):
    with pytest.raises(ConfigError, match="is not an origin"):
        origin_of(text)
    assert origin_of("https://App.example.com/") == "https://app.example.com"


@given(st.text(max_size=30) | st.from_regex(r"(localhost|127\.0\.0\.1|\[::1\])[:.@/#?\\]?.{0,8}", fullmatch=True))
def test_no_other_text_is_an_allowed_host(text):
    own = {f"{name}:{PORT}" for name in ("localhost", "127.0.0.1", "[::1]")}
    if AllowedHosts(PORT).allow(text):
        name, _, port = text.rpartition(":")
        assert f"{name.lower()}:{int(port)}" in own


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "expected"),
    [
        (AllowedHosts(80), "localhost", "http://localhost", True),
        (AllowedHosts(PORT, ("0.0.0.0",)), f"192.168.1.5:{PORT}", f"http://192.168.1.5:{PORT}", True),
        (AllowedHosts(PORT, ("0.0.0.0",)), f"rebound.example:{PORT}", None, False),
        (AllowedHosts(PORT, ("192.168.1.5",)), f"192.168.1.6:{PORT}", None, False),
        (
            PROXIED,
            "docs.example.com",
            "https://docs.example.com",
            True,
        ),
        (PROXIED, "docs.example.com", "https://example.com", False),
        (
            PROXIED,
            "docs.example.com",
            "http://docs.example.com:1",
            False,
        ),
        (
            PROXIED,
            f"127.0.0.1:{PORT}",
            "https://docs.example.com",
            True,
        ),
        (AllowedHosts(None), "localhost", None, True),
        (AllowedHosts(None), "evil.example", None, False),
    ],
)
async def test_hosts_of_other_ways_to_listen(client, hosts, host, origin, expected):
    headers = {"Host": host, **({} if origin is None else {"Origin": origin})}
    assert (await status(client(hosts), "GET", "/healthz", **headers) == 200) is expected


# Says localhost, binds all interfaces: SeaGOAT
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_means_loopback(host):
    assert http_sockets.is_loopback(host)
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with http_sockets.tcp_listener(host, 0) as listener:
        address, port = http_sockets.address_of(listener)
        assert address in ("127.0.0.1", "[::1]")
        with pytest.raises(OSError, match="refused"), socket.create_connection((_other_address(), port), timeout=5):
            pass


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _other_address() -> str:
    """Return an address of this machine that is not 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        found = probe.getsockname()[0]
    return found if found != "127.0.0.1" else "127.0.0.2"


def test_other_machines_may_only_connect_with_a_token(cli, store, tmp_path, monkeypatch):
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        refused = cli("serve", store, "--host", host, "--port", "0", exit_code=2)
        assert "lets other machines connect, and there is no token: set --token-file" in refused.output
    assert "unknown host 'no such host'" in cli("serve", store, "--host", "no such host", exit_code=2).output
    (tmp_path / "token").write_text("short\n")
    refused = cli("serve", store, "--host", "0.0.0.0", "--token-file", tmp_path / "token", exit_code=2)
    assert "holds a token that is too short" in refused.output
    monkeypatch.setenv("RAGEMBED_SERVE_TOKEN", "")
    assert "$RAGEMBED_SERVE_TOKEN holds no token" in cli("serve", store, exit_code=2).output


# The process


@pytest.fixture(scope="module")
def server(_documents, tmp_path_factory):
    """A server with a token, and the folder of its documents."""
    import shutil

    folder = Path(shutil.copytree(_documents, tmp_path_factory.mktemp("http") / "served"))
    (folder / "token").write_text(f"{TOKEN}\n")
    with ApiServer(folder, "docs=.ragembed", "--token-file", "token", "--writable") as running:
        yield running, folder


def test_the_openai_client_gets_the_vectors_of_the_embedder(server):
    openai = pytest.importorskip("openai")
    running, folder = server
    texts = ["The writer holds the lock.", "zebra"]
    with Store.open(folder / ".ragembed") as opened:
        queries, documents = opened.embedder.encode_queries(texts), opened.embedder.encode_documents(texts)
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=TOKEN) as client:
        for form in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            found = client.embeddings.create(model="docs:query", input=texts, **form)
            vectors = [each.embedding for each in found.data]
            if form.get("encoding_format") == "base64":
                import base64

                vectors = [np.frombuffer(base64.b64decode(each), dtype="<f4") for each in vectors]
            np.testing.assert_allclose(np.array(vectors), queries, atol=1e-6)
        found = client.embeddings.create(model="docs", input=texts[0], extra_body={"input_type": "document"})
        np.testing.assert_allclose(found.data[0].embedding, documents[0], atol=1e-6)
        assert [each.id for each in client.models.list()] == ["docs", "docs:document", "docs:query"]
        with pytest.raises(
            openai.BadRequestError, match="token numbers, which belong to another tokenizer: send texts"
        ):
            client.embeddings.create(model="docs", input=[[1, 2, 3]])
    with (
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.embeddings.create(model="docs", input="a")


async def test_agents_use_the_same_server(server):
    running, _ = server
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    web = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    async with web, Client(streamable_http_client(f"{running.url}/mcp", http_client=web)) as agent:
        found = await agent.call_tool("search", {"query": "writer lock", "k": 1})
    assert "1. docs/locks.md:1-3" in found.content[0].text
    assert httpx.post(f"{running.url}/mcp", json={}).status_code == 401


def test_a_commit_of_another_process_is_served_at_once(server):
    running, folder = server
    wings, stop, failures = folder / "docs/wings.txt", threading.Event(), []
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def search() -> None:
        with httpx.Client(base_url=running.url, headers=headers, timeout=60) as client:
            while not stop.is_set():
                answer = client.get("/v1/search", params={"q": "flow on a wing"})
                if answer.status_code != 200 or not answer.json()["results"]:
                    failures.append(answer.text)

    thread = threading.Thread(target=search)
    thread.start()
    with httpx.Client(base_url=running.url, headers=headers, timeout=60) as client:
        before = client.get("/v1/search", params={"q": "okapi", "mode": "lexical"}).json()
        assert before["results"] == []
        wings.write_text("An okapi walks, and air flows on a wing.\n")
        subprocess.run([sys.executable, "-m", "ragembed", "index", "docs", "-q"], check=True, cwd=folder)
        after = client.get("/v1/search", params={"q": "okapi", "mode": "lexical"}).json()
    stop.set()
    thread.join()
    assert [each["path"] for each in after["results"]] == ["docs/wings.txt"]
    assert after["generation"] > before["generation"]
    assert failures == []


def test_the_access_log_has_neither_queries_nor_tokens(server):
    running, _ = server
    headers = {"Authorization": f"Bearer {TOKEN}"}
    httpx.get(f"{running.url}/v1/search", params={"q": "secretquery"}, headers=headers)
    httpx.post(f"{running.url}/v1/search", json={"q": "secretquery"}, headers=headers)
    httpx.get(f"{running.url}/v1/files", params={"token": TOKEN}, headers={"Authorization": f"Bearer {TOKEN}x"})
    line = json.loads(running.wait('"path": "/v1/files"'))
    assert {"time", "client", "method", "path", "status", "bytes", "ms"} == line.keys()
    assert (line["method"], line["status"], line["client"]) == ("GET", 401, "127.0.0.1")
    assert not [each for each in running.log if "secretquery" in each or TOKEN in each]


SLOW = (
    "import sys, time\nfrom ragembed.serving import http_answers\nfrom ragembed.__main__ import main\n"
    "def slow(*_):\n    print('slow', file=sys.stderr, flush=True)\n    time.sleep({seconds})\n    return {{}}\n"
    "http_answers.StoreAnswers.answer = slow\nsys.argv[0] = 'ragembed'\nmain()"
)


@pytest.mark.parametrize(("seconds", "status"), [(1, 200), pytest.param(600, None, marks=pytest.mark.slow)])
def test_a_signal_lets_requests_end_and_then_the_process(folder, seconds, status):
    answers = []

    def search(url: str) -> None:
        try:
            answers.append(httpx.get(f"{url}/v1/search", params={"q": "lock"}, timeout=60).status_code)
        except httpx.HTTPError:
            answers.append(None)

    with ApiServer(folder, "--log-queries", code=SLOW.format(seconds=seconds)) as running:
        thread = threading.Thread(target=search, args=[running.url])
        thread.start()
        running.wait("slow")
        assert running.end() == 0
        thread.join()
    assert answers[0] in (status, 500)
    if status == 200:
        assert answers == [200]
        assert "lock" in json.loads(running.wait('"path": "/v1/search"'))["query"]


def test_a_signal_while_the_server_starts_ends_it(folder):
    code = (
        "import signal, sys\nfrom ragembed.serving import http_app\nfrom ragembed.__main__ import main\n"
        "http_app.uvicorn.Config.load = lambda self, load=http_app.uvicorn.Config.load: "
        "(signal.raise_signal(signal.SIGTERM), load(self))\n"
        "sys.argv[0] = 'ragembed'\nmain()"
    )
    with ApiServer(folder, code=code) as running:
        assert running.process.wait(timeout=60) == 0


def test_a_unix_socket_serves_its_owner_and_group(folder, tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:  # a socket that a killed server left
        left.bind(str(path))
    with ApiServer(folder, "--uds", str(path), "--no-access-log") as running:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
        with pytest.raises(ConfigError, match="another server listens"), http_sockets.unix_listener(path):
            pass
        assert running.end(signal.SIGINT) == 0
    assert not path.exists()
    assert len(running.log) == 1
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is no socket"), http_sockets.unix_listener(path):
        pass
    assert path.read_text() == "mine"


def test_files_are_watched(folder):
    pytest.importorskip("watchfiles")
    with ApiServer(folder, ".ragembed", "--watch") as running, httpx.Client(base_url=running.url, timeout=60) as client:
        running.wait("watching")
        (folder / "docs" / "new.md").write_text("The hedgehog is new.\n")
        deadline = time.monotonic() + 60
        found: list[dict[str, object]] = []
        while not found and time.monotonic() < deadline:
            time.sleep(0.05)
            answer = client.get("/v1/search", params={"q": "hedgehog", "mode": "lexical"})
            assert answer.status_code == 200
            found = answer.json()["results"]
        assert found[0]["path"] == "docs/new.md"
        assert running.end() == 0
