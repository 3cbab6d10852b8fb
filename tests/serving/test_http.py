"""The HTTP API: answers, checks of requests, limits, and the process."""

from __future__ import annotations

import json

import httpx
import pytest

from ragembed import Store
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_security import AllowedHosts

PORT = 8765
URL = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def client(store):
    """``client(**settings)``: a client of an application that serves ``store`` as ``docs``."""
    made = []

    def make(stores=None, headers=(), **settings):
        app = make_app(stores or {"docs": store}, ServerSettings(AllowedHosts(PORT), **settings))
        made.append(httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL, headers=dict(headers)))
        return made[-1]

    return make


async def get(client, url, status=200, **params):
    answer = await client.get(url, params=params)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]["message"]


async def test_search_answers_what_the_command_line_prints(client, folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    api = client()
    for query, mode in [("writer lock", "hybrid"), ("supersonic wing", "dense"), ("reader", "lexical")]:
        printed = json.loads(cli("query", query, "--mode", mode, "--json").stdout)
        found = await get(api, "/v1/search", q=query, mode=mode)
        for result in found["results"]:
            marked = {result["snippet"][start:end].lower() for start, end in result.pop("highlights")}
            assert marked <= {"writer", "lock", "locks", "supersonic", "wing", "reader", "readers"}
            assert marked or mode == "dense"
            assert result.pop("stale") is False
        assert {name: found[name] for name in printed} == printed
        assert found["store"] == "docs"
        posted = await api.post("/v1/search", json={"q": query, "mode": mode, "k": 2})
        assert [each["id"] for each in posted.json()["results"]] == [each["id"] for each in printed["results"][:2]]
    assert found["generation"] == Store.open(folder / ".ragembed").generation


async def test_every_operation_answers(client):
    api = client()
    [first] = (await get(api, "/v1/search", q="writer lock", k=1, facets="folder,type,date"))["results"]
    second = (await get(api, "/v1/search", q="writer lock", k=1, offset=1))["results"][0]
    assert second["rank"] == 2
    assert second["id"] != first["id"]

    packed = await get(api, "/v1/context", q="writer lock", budget=300)
    assert packed["blocks"][0]["path"] == "docs/locks.md"
    assert packed["blocks"][0]["text"] in packed["text"]

    read = await get(api, f"/v1/chunks/{first['id']}", after=3, q="lock")
    assert read["chunk"]["text"] == first["text"]
    assert [each["start_line"] for each in (read["chunk"], *read["after"])] == [1, 5]
    assert read["chunk"]["highlights"]

    explained = await get(api, "/v1/explain", q="writer lock", id=first["id"])
    assert explained["result"]["score"] == first["score"]
    assert sum(term["value"] for term in explained["explanation"]["terms"]) == pytest.approx(first["score"])
    lost = await get(api, "/v1/why-not", q="writer lock", path="docs/wings.txt", k=1)
    assert lost["standings"][0]["mode"] == "hybrid"

    assert first["id"] not in [each["id"] for each in (await get(api, "/v1/similar", id=first["id"]))["results"]]
    files = await get(api, "/v1/files", path="docs", k=2)
    assert (files["total"], [each["path"] for each in files["files"]]) == (3, ["docs/forged.md", "docs/locks.md"])
    assert (await get(api, "/v1/status"))["stores"][0]["files"] == 3
    assert await get(api, "/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/", "/v1/search?q=lock", "/v1/status", "/healthz", "/none")),
        *(("POST", path) for path in ("/v1/search", "/mcp", "/none")),
    ],
)
async def test_every_path_refuses_wrong_hosts_origins_and_forms(client, method, path):
    api = client()
    body = {"json": {"q": "lock"}} if method == "POST" else {}

    async def status(**headers):
        answer = await api.request(method, path, headers=headers, **body)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        return answer.status_code

    fine = None if path == "/mcp" else await status()  # its session manager does not run here
    for host in ("evil.example", f"evil.example:{PORT}", f"127.0.0.1.evil.example:{PORT}", "localhost:1", "[::2]", ""):
        assert await status(Host=host) == 421
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost:1",
        f"http://127.0.0.1:{PORT}.evil.example",
        "file://",
    ):
        assert await status(Origin=origin) == 403
    assert await status(**{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}) == 403
    if method == "POST":
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""):
            assert await status(**{"Content-Type": kind}) == 415
    for host in ("localhost", "[::1]", "127.0.0.1"):
        if fine is not None:
            assert await status(Host=f"{host}:{PORT}", Origin=f"http://localhost:{PORT}") == fine
