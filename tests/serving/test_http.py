"""The HTTP API: answers, arguments, embeddings, pushed documents, limits and metrics."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import subprocess
import sys
import threading
from urllib.parse import quote

import httpx
import jsonschema
import numpy as np
import pytest
from mcp import Client

from ragembed import Store
from ragembed.serving import http_answers, http_app, tools
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_requests import Limits, RequestLimits
from ragembed.serving.http_security import AllowedHosts
from ragembed.serving.mcp_server import make_server
from ragembed.serving.tool_schemas import ENDPOINTS, as_json

PORT = 8765
URL = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def client(store):
    """``client(**settings)``: a client of an application that serves ``store`` as ``docs``."""

    def make(stores=None, headers=(), **settings):
        app = make_app(stores or {"docs": store}, ServerSettings(AllowedHosts(PORT), **settings))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL, headers=dict(headers), timeout=60)

    return make


async def get(client, url, status=200, **params):
    answer = await client.get(url, params=params)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]["message"]


async def send(client, method, url, status=200, **body):
    answer = await client.request(method, url, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]["message"]


# Answers


async def test_search_answers_what_the_command_line_prints(client, folder, store, cli, monkeypatch):
    monkeypatch.chdir(folder)
    api = client()
    for query, mode in [("writer lock", "hybrid"), ("supersonic wing", "dense"), ("reader", "lexical")]:
        printed = json.loads(cli("query", query, "--mode", mode, "--json").stdout)
        found = await get(api, "/v1/search", q=query, mode=mode)
        marked = set()
        for result in found["results"]:
            snippet = result.pop("snippet")
            assert result["text"][slice(*result["snippet_at"])] == snippet
            marked |= {snippet[start:end].lower() for start, end in result.pop("highlights")}
            assert result["stale"] is False
        assert {word.removesuffix("s") for word in marked} == set(query.split())
        assert {name: found[name] for name in printed} == printed
        assert found["store"] == "docs"
        posted = await send(api, "POST", "/v1/search", q=query, mode=mode, k=2)
        assert [each["id"] for each in posted["results"]] == [each["id"] for each in printed["results"][:2]]
    with Store.open(store) as opened:
        assert found["generation"] == opened.generation


async def test_filter_that_cannot_match_has_a_note(client):
    api = client()
    [first] = (await get(api, "/v1/search", q="writer lock", k=1))["results"]
    unknown = "topik = 1 OR ext = 'md'"
    for url, arguments in (
        ("/v1/search", {"q": "writer lock"}),
        ("/v1/context", {"q": "writer lock"}),
        ("/v1/explain", {"q": "writer lock", "id": first["id"]}),
    ):
        found = await get(api, url, where=unknown, **arguments)
        assert found["note"].startswith("no chunk has the field 'topik'")
        assert "--where" not in await get(api, url, 400, where="path IS", **arguments)
    for path in ("./docs", "docs/../docs"):
        assert (await get(api, "/v1/files", path=path))["total"] == 3


async def test_every_operation_answers_as_described(client):
    api = client()
    [first] = (await get(api, "/v1/search", q="writer lock", k=1))["results"]
    requests = {
        "search": {"q": "writer lock", "k": 1, "offset": 1, "facets": "folder,type,date"},
        "context": {"q": "writer lock", "budget": 300},
        "chunk": {"id": first["id"], "after": 3, "q": "lock"},
        "similar": {"id": first["id"], "other_files": True},
        "explain": {"q": "writer lock", "id": first["id"], "k": 1},
        "why_not": {"q": "writer lock", "path": "docs/wings.txt", "k": 1},
        "files": {"path": "docs", "k": 2},
        "status": {},
    }
    answers = {}
    for name, endpoint in ENDPOINTS.items():
        if name == "document":  # test_documents_have_any_id_and_can_be_read
            continue
        arguments = dict(requests[name])
        path = endpoint.path.replace("{id}", first["id"])
        if "{id}" in endpoint.path:
            del arguments["id"]
        answers[name] = await get(api, path, **arguments)
        jsonschema.validate(answers[name], endpoint.answer)
        assert answers[name]["schema_version"] == 1
        if "POST" in endpoint.methods:
            assert await send(api, "POST", path, **arguments) == answers[name]
    [second] = answers["search"]["results"]
    assert (second["rank"], second["id"] != first["id"]) == (2, True)
    assert answers["context"]["blocks"][0]["text"] in answers["context"]["text"]
    assert answers["chunk"]["chunk"]["text"] == first["text"]
    assert [each["start_line"] for each in answers["chunk"]["after"]] == [5]
    assert answers["chunk"]["chunk"]["highlights"]
    assert "docs/locks.md" not in [each["path"] for each in answers["similar"]["results"]]
    assert answers["explain"]["result"]["score"] == first["score"]
    assert sum(each["value"] for each in answers["explain"]["explanation"]["terms"]) == pytest.approx(first["score"])
    assert answers["why_not"]["standings"][0]["mode"] == "hybrid"
    assert [each["path"] for each in answers["files"]["files"]] == ["docs/forged.md", "docs/locks.md"]
    assert (answers["files"]["total"], answers["status"]["stores"][0]["files"]) == (3, 3)


async def test_the_least_relevance_reaches_the_search(client):
    api = client()
    [best] = (await get(api, "/v1/search", q="lock", k=1))["results"]
    for path, more in (("/v1/search", {}), ("/v1/context", {}), ("/v1/explain", {"id": best["id"]})):
        found = await get(api, path, q="lock", **more, min_relevance="0.5")
        assert "the threshold 0.5 was not applied: it is fitted for 20 chunks or more" in found.pop("note")
        assert found == await get(api, path, q="lock", **more)
        assert "is 2.0: expected" in await get(api, path, 400, q="lock", **more, min_relevance="2")


async def test_the_filter_of_each_facet_selects_as_many_chunks(client, store):
    with Store.open(store) as opened:
        metadata = [
            {
                "year": 2020 + n % 3,
                "kind": ["it's", "b"][: n % 3],
                "a b": n % 2 == 0,
                "name": ["Ann", "Anna", "Joanne"][n % 3],
                "sizes": [n, n + 1],
                "both": [3] if n % 2 else 3,
            }
            for n in range(9)
        ]
        opened.add([f"zebra number {n}" for n in range(9)], metadata=metadata)
    api = client()
    names = ["folder", "type", "date", "year", "kind", "a b", "name", "sizes", "both"]
    found = await get(api, "/v1/search", q="zebra", mode="dense", dedupe=False, facets=",".join(names))
    assert list(found["facets"]) == names
    assert {each["value"]: each["count"] for each in found["facets"]["kind"]} == {"it's": 6, "b": 3}
    for name in names:
        for value in found["facets"][name]:
            some = await get(api, "/v1/search", q="zebra", k=100, mode="dense", dedupe=False, where=value["where"])
            assert len(some["results"]) == value["count"], value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("a.md", ""),
        ("docs/[x]/a.md", "docs/[x]"),
        ("documents://a", "documents://"),
    ],
)
def test_folders_of_all_kinds_are_facets(source, value):
    from ragembed.indexes.filters import parse
    from ragembed.indexes.filters.globs import path_glob_matches

    class Result:
        pass

    hit = Result()
    hit.source = source
    assert list(http_answers._facet_values(hit, "folder", {})) == [value]
    condition = parse(http_answers._facet_where("folder", value))
    glob = condition if value else condition.operand
    for other, expected in [(source, True), ("x/y.md", False)]:
        assert (path_glob_matches(other, glob.pattern) == bool(value)) is expected


async def test_several_stores_are_named(client, store, tmp_path, caplog):
    api = client({"docs": store, "code": tmp_path / "missing"})
    assert await get(api, "/v1/search", 400, q="lock") == (
        "the argument 'store' of search is missing: expected one of docs, code, all"
    )
    assert await get(api, "/v1/search", 400, q="lock", store="../docs") == (
        "the argument 'store' of search is '../docs': expected one of docs, code, all"
    )
    assert (await get(api, "/v1/search", q="lock", store="docs"))["results"]
    problem = await get(api, "/v1/search", 503, q="lock", store="code")
    assert str(tmp_path) not in problem
    assert f"no store at {tmp_path}" in caplog.text
    together = await get(api, "/v1/search", q="lock", store="all", facets="type,date")
    assert {(each["store"], each["stale"]) for each in together["results"]} == {("docs", False)}
    assert (together["store"], together["note"]) == ("all", "the store code cannot be read and is left out")
    assert together["facets"]["date"]
    assert (await get(api, "/v1/context", q="lock", store="all"))["blocks"][0]["store"] == "docs"
    assert [each["name"] for each in (await get(api, "/v1/status"))["stores"]] == ["docs", "code"]
    assert await get(api, "/readyz", 503) == "a store is not ready"


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("/v1/search", {}, "the argument 'q' of search is missing: expected text"),
        ("/v1/search", {"q": "a", "k": "0"}, "the argument 'k' of search is 0: expected an integer from 1 to 100"),
        ("/v1/search", {"q": "a", "dedupe": "maybe"}, "is 'maybe': expected true or false"),
        ("/v1/search", {"q": "a", "rerank": "/tmp/model"}, "unknown argument 'rerank' of search"),
        ("/v1/search", {"q": "a", "where": "(" * 3000}, "more than 100 levels"),
        ("/v1/search", {"q": "a", "facets": "a,b,c,d,e,f,g,h,i,j,k"}, "facets has 11 names: expected at most 10"),
        ("/v1/search", {"q": ["a", "b"]}, "the argument 'q' is given twice"),
        ("/v1/chunks/x", {"id": "y"}, "is part of the path"),
        ("/v1/why-not", {"q": "a", "path": "docs/none.md"}, "docs/none.md is not in the store: it was never indexed"),
    ],
)
async def test_a_wrong_argument_is_one_sentence(client, path, arguments, message):
    text = await get(client(), path, 400, **arguments)
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"q": NaN}'])
async def test_a_body_that_is_no_json_object_is_refused(client, body):
    answer = await client().post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "JSON object" in answer.text) == (400, True)


async def test_unknown_chunks_and_paths_are_not_found(client):
    api = client()
    assert "no chunk has the id 'none'" in await get(api, "/v1/chunks/none", 404)
    assert "no chunk has the id 'a/b'" in await get(api, "/v1/chunks/a%2Fb", 404)
    assert "no chunk has the id" in await get(api, "/v1/similar", 404, id="none")
    ids = [each["id"] for each in (await get(api, "/v1/search", q="lock"))["results"]]
    assert "not among the best 1 results" in await get(api, "/v1/explain", 404, q="lock", id=ids[-1], k=1)
    assert "there is nothing at this path" in await get(api, "/v1/nothing", 404)
    answer = await api.request("DELETE", "/v1/search")
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "POST"})


async def test_an_unexpected_error_is_one_sentence(client, monkeypatch, caplog):
    monkeypatch.setattr(Store, "search", lambda *_, **__: 1 / 0)
    text = await get(client(), "/v1/search", 500, q="lock")
    assert text == "unexpected ZeroDivisionError: the log of the server says more"
    assert "division by zero" in caplog.text


def test_json_has_no_value_that_other_languages_refuse():
    value = {"a": [float("nan"), float("inf"), 1.5], "b": "\ud800ä"}
    assert as_json(value) == '{"a":[null,null,1.5],"b":"\\ud800ä"}'.encode()


# Embeddings


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_embeddings_equal_those_of_the_embedder(client, store, form):
    texts = ["The writer holds the lock.", "zebra", "中" * 50]
    with Store.open(store) as opened:
        expected = {
            "query": opened.embedder.encode_queries(texts),
            "document": opened.embedder.encode_documents(texts),
        }
    api = client()
    cases = [
        ("docs", {}, "document"),
        ("docs:query", {}, "query"),
        ("docs:document", {}, "document"),
        ("docs", {"input_type": "query"}, "query"),
        ("docs:query", {"input_type": "query"}, "query"),
    ]
    for model, more, side in cases:
        answer = await send(api, "POST", "/v1/embeddings", model=model, input=texts, encoding_format=form, **more)
        rows = [each["embedding"] for each in answer["data"]]
        if form == "base64":
            rows = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in rows]
        np.testing.assert_allclose(np.array(rows), expected[side], atol=1e-6)
        assert [each["index"] for each in answer["data"]] == [0, 1, 2]
        assert answer["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": [1, 2, 3]}, 400, "input holds token numbers, which belong to another tokenizer: send texts"),
        ({"input": []}, 400, "'input' of embeddings is an array: expected an array with 1 to 2,048 items"),
        ({"input": ["a"] * 2049}, 400, "expected an array with 1 to 2,048 items"),
        (
            {"input": ""},
            400,
            "item 1 of the argument 'input' of embeddings is '': expected text with 1 or more characters",
        ),
        ({}, 400, "the argument 'input' of embeddings is missing"),
        ({"input": "a", "model": "text-embedding-3-small"}, 404, "expected one of docs, docs:document, docs:query"),
        ({"input": "a", "model": "docs:query", "input_type": "document"}, 400, "the model is for a query"),
        ({"input": "a", "input_type": "passage"}, 400, "expected one of document, query"),
        ({"input": "a", "encoding_format": "int8"}, 400, "expected one of float, base64"),
        ({"input": "a", "dimensions": 8}, 400, "dimensions is 8: the vectors of docs have 32"),
        ({"input": "a", "trust_remote_code": True}, 400, "unknown argument 'trust_remote_code'"),
    ],
)
async def test_a_wrong_embedding_request_is_one_sentence(client, body, status, message):
    text = await send(client(), "POST", "/v1/embeddings", status, **{"model": "docs", **body})
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["docs", "docs:document", "docs%3Aquery"])
async def test_a_model_has_its_own_path(client, name):
    api = client()
    listed = {each["id"]: each for each in (await get(api, "/v1/models"))["data"]}
    assert await get(api, f"/v1/models/{name}") == listed[name.replace("%3A", ":")]


@pytest.mark.parametrize("name", ["docs:passage", "a%2Fb"])
async def test_an_unknown_model_is_an_error_of_openai(client, name):
    answer = await client().get(f"/v1/models/{name}")
    error = answer.json()["error"]
    assert (answer.status_code, set(error)) == (404, {"message", "type", "param", "code"})
    shown = name.replace("%2F", "/")
    assert error["message"] == f"unknown model {shown!r}: expected one of docs, docs:document, docs:query"


# Texts


ENTRIES = {
    "search": ("POST", "/v1/search", lambda text: {"q": text}),
    "filter": ("POST", "/v1/search", lambda text: {"q": "lock", "where": f"ext = '{text}'"}),
    "context": ("POST", "/v1/context", lambda text: {"q": text}),
    "why not": ("POST", "/v1/why-not", lambda text: {"q": text, "path": "docs/locks.md"}),
    "similar": ("POST", "/v1/similar", lambda text: {"id": text}),
    "embeddings": ("POST", "/v1/embeddings", lambda text: {"model": "docs", "input": ["lock", text]}),
    "document": ("PUT", "/v1/documents/a", lambda text: {"text": text}),
    "metadata": ("PUT", "/v1/documents/a", lambda text: {"text": "lock", "metadata": {"a": [{"b": text}]}}),
    "key": ("PUT", "/v1/documents/a", lambda text: {"text": "lock", "metadata": {text: 1}}),
    "documents": ("POST", "/v1/documents", lambda text: {"documents": [{"id": "a", "text": text}]}),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_half_of_a_surrogate_pair_is_replaced(client, entry):
    method, path, body = ENTRIES[entry]
    api = client(writable=True)
    headers = {"Content-Type": "application/json"}
    for half in ("lock \ud83d", "a \ude80\ud83d lock"):
        content = json.dumps(body(half))
        assert "\\ud83d" in content or "\\ude80" in content
        answers = [
            await api.request(method, path, content=each, headers=headers)
            for each in (content, json.dumps(body(re.sub("[\ud83d\ude80]", "\ufffd", half))))
        ]
        assert answers[0].status_code == answers[1].status_code
        assert answers[0].status_code in ((404,) if entry == "similar" else (200,))
        if entry in ("search", "embedding", "embeddings", "similar"):
            assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_nul_character_is_the_reason(client, entry, store):
    method, path, body = ENTRIES[entry]
    text = await send(client(writable=True), method, path, 400, **body("lock\0"))
    assert "holds a NUL character (U+0000): leave it out" in text
    with Store.open(store) as opened:
        assert len(opened.sources()) == 3


async def test_paths_and_queries_name_the_reason(client):
    api = client(writable=True)
    nul = "holds a NUL character (U+0000): leave it out"
    assert nul in await get(api, "/v1/search", 400, q="lock\0")
    assert nul in await get(api, "/v1/chunks/a%00", 400)
    answer = await api.get("/v1/search?q=lock%ED%A0%BD")
    assert answer.json()["query"] == "lock\ufffd\ufffd\ufffd"
    assert "is '" + "x" * 60 in await get(api, "/v1/search", 400, q="x" * 4001)
    for method in ("PUT", "DELETE"):
        for name in ("a%2F%2E", "a%2F..%2Fb"):
            text = await send(api, method, f"/v1/documents/{name}", 400, text="lock")
            shown = name.replace("%2F", "/").replace("%2E", ".")
            assert text.startswith(f"the id of a document is {shown!r}: expected 1 to 500 characters")


@pytest.mark.parametrize(
    ("path", "encoding"),
    [("/v1/search", "gzip"), ("/v1/embeddings", "br"), ("/v1/documents", "GZIP"), ("/mcp", "gzip, identity")],
)
async def test_a_compressed_body_is_refused_with_the_reason(client, path, encoding):
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    body = gzip.compress(b'{"q": "lock"}')
    answer = await client(writable=True).post(path, content=body, headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert answer.json()["error"]["message"] == "the body is compressed: send it without Content-Encoding"
    plain = await client().post("/v1/search", json={"q": "lock"}, headers={"Content-Encoding": "identity"})
    assert plain.status_code == 200


# Pushed documents


async def test_documents_are_added_replaced_and_deleted(client, folder, store):
    api = client(writable=True)
    text = "# Giraffes\n\nzebra zebra giraffe\n\n# Others\n\n" + "lion tiger bear. " * 400
    put = await send(api, "PUT", "/v1/documents/a.b-1", text=text, format="markdown", metadata={"year": 2026})
    assert put["documents"][0]["status"] == "added"
    assert put["documents"][0]["chunks"] > 1
    assert (await send(api, "PUT", "/v1/documents/a.b-1", text=text, format="markdown", metadata={"year": 2026}))[
        "documents"
    ] == [{"id": "a.b-1", "path": "documents://a.b-1", "status": "unchanged"}]
    best = (await get(api, "/v1/search", q="giraffe zebra", mode="lexical", where="year = 2026"))["results"][0]
    assert (best["path"], best["headings"], best["metadata"]) == ("documents://a.b-1", ["Giraffes"], {"year": 2026})

    put = await send(api, "PUT", "/v1/documents/a.b-1", text="okapi", title="Short")
    assert put["documents"] == [{"id": "a.b-1", "path": "documents://a.b-1", "status": "changed", "chunks": 1}]
    assert (await get(api, "/v1/search", q="giraffe", mode="lexical"))["results"] == []
    [best] = (await get(api, "/v1/search", q="okapi", mode="lexical"))["results"]
    assert (best["title"], best["stale"]) == ("Short", False)

    batch = [{"id": "x", "text": "one okapi"}, {"id": "y", "text": "two okapis"}]
    answer = await send(api, "POST", "/v1/documents", documents=batch, delete=["a.b-1", "unknown"])
    assert [(each["id"], each["status"]) for each in answer["documents"]] == [
        *(("x", "added"), ("y", "added")),
        ("a.b-1", "deleted"),
    ]
    found = await get(api, "/v1/search", q="okapi", mode="lexical")
    assert sorted(each["path"] for each in found["results"]) == ["documents://x", "documents://y"]
    assert found["generation"] == answer["generation"]

    subprocess.run([sys.executable, "-m", "ragembed", "index", "docs", "-q"], check=True, cwd=folder)
    assert (await get(api, "/v1/files", path="documents://x"))["total"] == 1
    assert (await send(api, "DELETE", "/v1/documents/x"))["documents"][0]["status"] == "deleted"
    assert "no document has the id x" in await send(api, "DELETE", "/v1/documents/x", 404)
    assert (await send(api, "POST", "/v1/documents", delete=["x"]))["documents"] == []
    with Store.open(store) as opened:
        assert not opened.verify().problems
        assert len(opened.sources()) == 4


@pytest.mark.parametrize("name", ["ä/ö.md", "https://example.org/x?y=1#z", "x" * 500])
async def test_documents_have_any_id_and_can_be_read(client, name):
    api = client(writable=True)
    path, text = f"/v1/documents/{quote(name, safe='')}", "# Okapis\n\nStripes on the legs.\n\n\n## More\n\nLeaves."
    assert "no document has the id" in await get(api, path, 404)
    await send(api, "PUT", path, text=text, format="markdown", title="About", metadata={"year": 2026})
    answer = await get(api, path)
    jsonschema.validate(answer, ENDPOINTS["document"].answer)
    document = answer["document"]
    assert (document["id"], document["path"], document["text"]) == (name, f"documents://{name}", text)
    assert (document["title"], document["metadata"]) == ("About", {"year": 2026})
    chunk = (await get(api, f"/v1/chunks/{document['chunks'][0]}"))["chunk"]
    assert chunk["text"] in text
    assert (await get(client(), path))["document"] == document
    assert (await send(api, "DELETE", path))["documents"][0]["status"] == "deleted"


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("PUT", "a", {}, "the argument 'text' of the document a is missing: expected text with 1 or more characters"),
        ("PUT", "a", {"text": " "}, "the argument 'text' of the document a is ' ': expected text"),
        ("PUT", "a", {"text": "b", "path": "/etc/passwd"}, "unknown argument 'path' of the document a"),
        ("PUT", "a", {"text": "b", "format": "html"}, "is 'html': expected one of text, markdown"),
        ("PUT", "a", {"text": "b", "metadata": []}, "is an array: expected an object"),
        ("PUT", "..", {"text": "b"}, "the id of a document is '..'"),
        ("PUT", "a%07b", {"text": "b"}, "the id of a document is 'a\\x07b'"),
        ("PUT", "a?store=other", {"text": "b"}, "is 'other': expected one of docs"),
        ("POST", "", {}, "the batch is empty"),
        (
            "POST",
            "",
            {"documents": {}},
            "the argument 'documents' of the batch is an object: expected an array with 0 to 1,000 items",
        ),
        (
            "POST",
            "",
            {"documents": [{"id": "a"}]},
            "'text' of item 1 of the argument 'documents' of the batch is missing",
        ),
        ("POST", "", {"documents": [{"id": "a", "text": "b"}], "delete": ["a"]}, "the document a occurs twice"),
    ],
)
async def test_a_wrong_document_changes_nothing(client, store, method, path, body, message):
    api = client(writable=True)
    path = path.replace("..", "%2E%2E")
    assert message in await send(api, method, f"/v1/documents/{path}".rstrip("/"), 400, **body)
    with Store.open(store) as opened:
        assert len(opened.sources()) == 3


async def test_nothing_is_written_without_leave(client, store):
    api = client()
    assert "nothing at this path" in await send(api, "POST", "/v1/documents", 404, text="a")
    for method in ("PUT", "DELETE"):
        assert "does not accept this method" in await send(api, method, "/v1/documents/a", 405, text="a")
    api = client(writable=True, limits=Limits(seconds=0.2))
    with Store.open(store).writer():
        answer = await api.put("/v1/documents/a", json={"text": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "/v1/documents" in (await get(api, "/openapi.json"))["paths"]
    assert "/v1/documents" not in (await get(client(), "/openapi.json"))["paths"]


# Limits and metrics


async def test_large_bodies_are_refused(client):
    api = client(limits=Limits(body=1000))
    headers = {"Content-Type": "application/json"}

    async def parts():
        for _ in range(20):
            yield b" " * 100

    for content in (b" " * 1001, parts()):
        answer = await api.post("/v1/search", content=content, headers=headers)
        assert (answer.status_code, "at most 1,000 bytes" in answer.text) == (413, True)
    assert (await api.post("/v1/search", json={"q": "lock"})).status_code == 200


async def test_requests_beyond_the_queue_are_refused_and_slow_ones_end(client, monkeypatch):
    api, free = client(limits=Limits(threads=1, queue=1, seconds=0.3)), threading.Event()
    monkeypatch.setattr(Store, "search", lambda *_, **__: free.wait(60) and [])
    paths = ["/v1/search?q=lock"] * 4 + ["/healthz", "/page.css", "/metrics", "/readyz"]
    *answers, health, style, metrics, ready = await asyncio.gather(*map(api.get, paths))
    assert (health.status_code, style.status_code, metrics.status_code) == (200, 200, 200)
    assert ready.json()["error"]["message"] == "a store is not ready"  # because nothing warmed it up
    assert sorted(answer.status_code for answer in answers) == [429, 429, 504, 504]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    free.set()
    assert (await api.get("/v1/search", params={"q": "lock"})).status_code == 200


async def test_metrics_count_requests(client):
    api = client()
    await get(api, "/v1/search", q="lock")
    await get(api, "/v1/search", 400, q="")
    await api.get("/healthz", headers={"Host": "evil.example"})
    answer = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in (
        'ragembed_http_requests_total{operation="search",method="GET",status="200"} 1',
        'ragembed_http_requests_total{operation="search",method="GET",status="400"} 1',
        'ragembed_http_requests_total{operation="none",method="GET",status="421"} 1',
        'ragembed_http_request_duration_seconds_count{operation="search"} 2',
        'ragembed_http_request_duration_seconds_bucket{operation="search",le="+Inf"} 2',
        'ragembed_store_up{store="docs"} 1',
        'ragembed_store_chunks{store="docs"} 4',
    ):
        assert line in lines, answer.text


async def test_the_description_names_every_path(client):
    api = client()
    described = await get(api, "/openapi.json")
    models = {"/v1/models", "/v1/models/{id}"}
    assert set(described["paths"]) == {"/v1/embeddings", *models, *(each.path for each in ENDPOINTS.values())}
    page = await api.get("/docs")
    assert all(path in page.text for path in described["paths"])
    assert "<script" not in page.text
    assert (await api.get("/docs/style.css")).headers["content-type"].startswith("text/css")


async def test_a_request_whose_upload_ends_early_is_dropped():
    called = []

    async def app(*_):
        called.append("app")

    async def send(message):
        called.append(message)

    messages = [{"type": "http.request", "body": b'{"q": "lo', "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    await RequestLimits(app, Limits())({"type": "http", "path": "/v1/search"}, receive, send)
    assert called == []


async def test_tool_calls_share_the_threads_of_the_server(store, monkeypatch):
    made, free, calls = [], threading.Event(), []

    def make(*arguments, **options):
        made.append(options["run"])
        return make_server(*arguments, **options)

    monkeypatch.setattr(http_app, "make_server", make)
    make_app({"docs": store}, ServerSettings(AllowedHosts(PORT), limits=Limits(threads=1)))
    monkeypatch.setattr(tools.StoreTools, "call", lambda *_: calls.append(free.wait(60)) or tools.ToolAnswer("text"))
    async with Client(make_server({"docs": store}, run=made[0])) as client:
        first, waiting = (asyncio.create_task(client.call_tool("status", {})) for _ in range(2))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(0.1)
        free.set()
        assert not (await first).is_error
    await made[0](lambda: None)
    assert calls == [True]
