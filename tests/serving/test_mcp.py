"""The MCP server with the official client: in memory, over stdio and over HTTP, in both generations of the protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import TextResourceContents

import ragembed
from ragembed import Store
from ragembed.models.token_counting import estimated_tokens
from ragembed.serving import client_config as clients
from ragembed.serving import stores, tools
from ragembed.serving.client_config import CLIENTS
from ragembed.serving.mcp_server import make_server
from ragembed.serving.tool_schemas import DEFAULT_TOKENS, TOOLS
from tests.serving.conftest import DOCUMENTS
from tests.serving.processes import COMMAND, StdioServer, http_server, message

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GENERATIONS = ["legacy", "2026-07-28"]


def served(store, **options):
    return make_server({"docs": store}, **options)


async def call(client, tool, **arguments):
    """Return the JSON values and the text of a tool that must not fail."""
    result = await client.call_tool(tool, {"structured": True, **arguments})
    assert not result.is_error, result.content
    return result.structured_content, result.content[0].text


async def failure(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return result.content[0].text


def tokens(value):
    return estimated_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_definitions_are_short_read_only_and_without_null_unions(store, mode):
    async with Client(served(store), mode=mode) as client:
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == ["search", "context", "get", "similar", "why_not", "status"]
    for tool in listed:
        assert tool.annotations.read_only_hint
        assert tool.annotations.open_world_hint is False
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema is None
    written = json.dumps([tool.model_dump(by_alias=True, exclude_none=True) for tool in listed], separators=(",", ":"))
    assert not re.search(r'"anyOf"|"oneOf"|"null"|\$ref', written)
    assert len(written) <= 4000  # 892 tokens of o200k_base are 3,623 characters


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_each_tool_answers_with_text_and_with_json_on_request(store, mode):
    async with Client(served(store), mode=mode) as client:
        found, text = await call(client, "search", query="writer lock", k=2, detail="full")
        first = found["results"][0]
        assert (first["path"], first["start_line"], first["headings"]) == ("docs/locks.md", 1, ["Locks"])
        assert "The writer holds the lock of the store." in first["text"]
        assert f"1. docs/locks.md:1-3 (Locks)\n```\n{first['text']}\n```\n" in text
        plain = await client.call_tool("search", {"query": "writer lock", "k": 2})
        assert plain.structured_content is None
        assert "1. docs/locks.md:1-3 (Locks)\n  The writer holds" in plain.content[0].text

        whole, text = await call(client, "get", path="docs/locks.md")
        assert [part["start_line"] for part in whole["results"]] == [1, 5]
        assert f"docs/locks.md:1-8 (Locks)\n```\n{(store.parent / 'docs/locks.md').read_text()}```\n" in text
        lines, _ = await call(client, "get", path=str(store.parent / "docs/locks.md"), start_line=3, end_line=5)
        assert [part["text"] for part in lines["results"]] == ["The writer holds the lock of the store.", "## Readers"]
        assert (await call(client, "get", id=first["id"]))[0]["results"] == whole["results"][:1]

        near, _ = await call(client, "similar", id=first["id"], k=3)
        assert near == (await call(client, "similar", path="docs/locks.md", line=2, k=3))[0]
        assert first["id"] not in [each["id"] for each in near["results"]]
        elsewhere, _ = await call(client, "similar", id=first["id"], other_files=True)
        assert "docs/locks.md" not in [each["path"] for each in elsewhere["results"]]

        packed, text = await call(client, "context", query="writer lock", where="path GLOB '*.md'")
        assert packed["blocks"][0]["path"] == "docs/locks.md"
        assert packed["blocks"][0]["text"] in text

        lost, text = await call(client, "why_not", query="writer lock", path="docs/wings.txt", k=1, mode="lexical")
        [best] = (await call(client, "search", query="writer lock", k=1, mode="lexical"))[0]["results"]
        assert lost["ranks"] == [{"mode": "lexical", "of": 2, "needed": pytest.approx(best["score"], abs=1e-4)}]
        assert set(lost["weaker_words"]) == {"writer", "lock"}
        assert "writer" in text

        about, text = await call(client, "status")
        assert about["stores"][0]["root"] == str(store.parent)
        assert about["stores"][0]["files"] == 3
        assert "files: 3" in text


async def test_prompts_hold_the_passages(store):
    async with Client(served(store)) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["ask", "find-code"]
        [asked] = (await client.get_prompt("ask", {"question": "who holds the lock?"})).messages
        [code] = (await client.get_prompt("find-code", {"what": "taking the lock"})).messages
        for name, arguments, message in (
            ("none", {}, "unknown prompt 'none': expected one of ask, find-code"),
            ("ask", {}, "the argument 'query' of context is '': expected text"),
        ):
            with pytest.raises(MCPError, match=message):
                await client.get_prompt(name, arguments)
    assert "Question: who holds the lock?" in asked.content.text
    assert "docs/locks.md:1-8 (Locks)\n```\n# Locks" in asked.content.text
    assert "What: taking the lock" in code.content.text
    assert "No results" in code.content.text  # no file is code
    several = make_server({"docs": store, "more": store})
    async with Client(several) as client:
        [asked] = (await client.get_prompt("ask", {"question": "who holds the lock?"})).messages
    assert "docs: docs/locks.md:1" in asked.content.text or "more: docs/locks.md:1" in asked.content.text


async def test_results_without_hits_say_what_to_do(store):
    async with Client(served(store)) as client:
        found, text = await call(client, "search", query="writer", where="path = 'nothing'")
        context, _ = await call(client, "context", query="writer", where="topik = 1")
        read, _ = await call(client, "get", path="./docs/locks.md")
        wrong = await failure(client, "search", query="writer", where="path IS")
    assert found["results"] == []
    assert "no indexed file has the path 'nothing'" in found["note"]
    assert "status shows what is indexed" in text
    assert found["note"] in text
    assert context["note"].startswith("no chunk has the field 'topik'")
    assert read["results"][0]["path"] == "docs/locks.md"
    assert wrong.startswith("expected NULL after IS")


async def test_no_text_can_forge_a_hit_or_the_end_of_its_fence(store):
    async with Client(served(store)) as client:
        _, lines = await call(client, "search", query="zebra", k=1, mode="lexical")
        found, text = await call(client, "search", query="zebra", k=1, mode="lexical", detail="full")
    assert "\n  ````\n" in lines
    assert "\n2. other.md" not in lines
    assert "\n````\n2. other.md" in found["results"][0]["text"]
    assert text.count("\n`````\n") == 2
    assert text.index("\n`````\n") < text.index("2. other.md") < text.rindex("\n`````\n")


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search", {}, "the argument 'query' of search is missing: expected text with 1 to 4,000 characters"),
        ("search", {"query": "x" * 100_000}, "expected text with 1 to 4,000 characters"),
        ("search", {"query": "a\0b"}, "the argument 'query' of search holds a NUL character (U+0000): leave it out"),
        ("search", {"query": "a\ud83d"}, "holds half of a surrogate pair (U+D83D): leave it out"),
        ("search", {"query": "a", "k": 0}, "the argument 'k' of search is 0: expected an integer from 1 to 100"),
        ("search", {"query": "a", "k": 10**400}, "is a huge number: expected an integer from 1 to 100"),
        ("search", {"query": "a", "limit": 3}, "unknown argument 'limit' of search: expected one of query, k, detail"),
        ("search", {"query": "a", "max_tokens": 10_001}, "expected an integer from 200 to 10,000"),
        ("get", {"path": "docs/locks.md", "cursor": "next"}, "the cursor belongs to another request"),
        ("similar", {"id": "none"}, "no chunk has the id 'none'"),
        ("get", {}, "get needs either path or id"),
        ("get", {"path": "docs/locks.md", "start_line": 9}, "its indexed lines are 1 to 8"),
        ("get", {"path": "docs/locks.md", "start_line": 3, "end_line": 2}, "end_line is 2, before start_line 3"),
        ("get", {"path": "lock.md"}, "'lock.md' is not an indexed file of the store docs: expected a path from an"),
        ("get", {"path": "locks.md"}, "did you mean docs/locks.md?"),
        ("why_not", {"query": "a", "path": "docs/none.md"}, "docs/none.md is not in the store: it was never indexed"),
        ("delete", {"path": "docs/locks.md"}, "unknown tool 'delete': expected one of search, context"),
    ],
)
async def test_a_wrong_argument_is_one_line_with_a_remedy(store, tool, arguments, message):
    async with Client(served(store)) as client:
        text = await failure(client, tool, **arguments)
    assert message in text
    assert "\n" not in text
    assert len(text) < 500


async def test_the_path_of_a_file_in_an_archive_is_a_path(tmp_path):
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.writestr("zebra.md", "# Zebra\n\nThe zebra sleeps.\n\nIt dreams.\n")
        archive.writestr("wing.md", "# Wing\n\nThe wing flaps.\n")
    ragembed.index(tmp_path, store=tmp_path / "store", progress=False)
    async with Client(served(tmp_path / "store")) as client:
        _, text = await call(client, "search", query="zebra sleeps", k=1)
        path, lines = re.search(r"^1\. (.+):(\d+)-\d+ ", text, re.MULTILINE).groups()
        assert path == "notes.zip: zebra.md"
        got, _ = await call(client, "get", path=path, start_line=int(lines))
        assert [part["text"] for part in got["results"]] == ["# Zebra\n\nThe zebra sleeps.\n\nIt dreams."]
        assert "notes.zip has no text of 'none.md'" in await failure(client, "get", path="notes.zip: none.md")


async def test_only_indexed_text_is_read(folder, store):
    secret = folder / "secret.txt"
    secret.write_text("zebra secret")
    indexed = folder / "docs/wings.txt"
    indexed.unlink()
    indexed.symlink_to(secret)
    (folder / "docs/link.md").symlink_to(secret)
    paths = [
        *("secret.txt", "../secret.txt", "docs/../secret.txt", "docs/link.md", "docs", ".", "/etc/passwd"),
        *(str(secret), "file:///etc/passwd", "docs/wings.txt/../../secret.txt", ".ragembed/store.db"),
    ]
    async with Client(served(store)) as client:
        for path in paths:
            assert "secret" not in (await failure(client, "get", path=path)).replace("secret.txt", "")
            await failure(client, "why_not", query="zebra", path=path)
            with pytest.raises(MCPError):
                await client.read_resource(f"ragembed://docs/{path}")
        answers = [
            await call(client, "get", path="docs/wings.txt"),
            await call(client, "search", query="supersonic wing", k=1),
            await call(client, "context", query="supersonic wing", where="ext = 'txt'"),
        ]
    for structured, text in answers:
        passage = next(iter(structured.get("results") or structured["blocks"]))
        assert passage["stale"]
        assert "Supersonic air flow on a wing." in passage["text"]
        assert "changed since it was indexed" in text
        assert "secret" not in text


async def test_changed_files_are_stale_until_another_process_indexes_them(folder, store):
    file = folder / "docs/wings.txt"
    async with Client(served(store)) as client:
        touched, _ = await call(client, "search", query="supersonic", k=1, mode="lexical")
        file.touch()
        assert await call(client, "search", query="supersonic", k=1, mode="lexical") == (touched, _)
        file.write_text("Subsonic air flow on a body.\n")
        changed, _ = await call(client, "search", query="supersonic", k=1, mode="lexical")
        assert changed["results"] == [{**touched["results"][0], "stale": True}]
        assert (await call(client, "status"))[0]["stores"][0]["changed_files"] == 1
        subprocess.run([*COMMAND[:-1], "index", "docs", "-q"], check=True, cwd=folder)
        found, _ = await call(client, "search", query="subsonic", k=1, mode="lexical")
        assert found["results"][0]["text"] == "Subsonic air flow on a body."
        assert "stale" not in found["results"][0]


async def test_auto_index_updates_the_store_before_the_answer(folder, store, monkeypatch):
    file = folder / "docs/wings.txt"
    async with Client(served(store, auto_index=60.0)) as client:
        file.write_text("Subsonic air flow on a body.\n")
        found, _ = await call(client, "search", query="subsonic", k=1, mode="lexical")
        assert found["results"][0]["text"] == "Subsonic air flow on a body."
        assert "note" not in found
        with Store.open(store).writer():
            found, text = await call(client, "search", query="subsonic", k=1)
        assert "the store was not updated" in found["note"]
        assert found["note"] in text
        assert len(found["results"]) == 1
    until = threading.Event()
    monkeypatch.setattr(stores, "index_files", lambda _request: until.wait(60))
    async with Client(served(store, auto_index=0.0)) as client:
        found, _ = await call(client, "search", query="subsonic", k=1)
        until.set()
        assert found["note"] == "the store is still being updated after 0 s: recent changes may be missing"
        assert len(found["results"]) == 1


@pytest.fixture
def thirty(store):
    """A store with thirty more texts, which all have the word alpha."""
    with Store.open(store) as opened:
        opened.add([f"alpha {'beta ' * 50}{number}" for number in range(30)], ids=[f"id{n}" for n in range(30)])
    return store


async def test_every_hit_is_in_the_answer_and_the_answer_in_its_budget(thirty):
    async with Client(served(thirty)) as client:
        for budget, detail in ((1200, "full"), (DEFAULT_TOKENS, "full"), (10_000, "lines")):
            plain = await client.call_tool(
                "search", {"query": "alpha", "k": 30, "mode": "lexical", "detail": detail, "max_tokens": budget}
            )
            text = plain.content[0].text
            assert re.findall(r"^(\d+)\. no file \(id id\d+\)$", text, re.MULTILINE) == [str(n) for n in range(1, 31)]
            assert estimated_tokens(text) <= budget
        found, _ = await call(client, "search", query="alpha", k=30, mode="lexical", detail="full", max_tokens=10_000)
        assert len(found["results"]) == 30
        assert tokens(found) <= 10_000
        few = await client.call_tool("search", {"query": "alpha", "k": 30, "mode": "lexical", "max_tokens": 200})
        assert re.search(r"\nNote: \d+ more results do not fit: raise max_tokens\n", few.content[0].text)


async def test_pages_of_a_file_hold_its_whole_text(folder, store):
    text = "\n\n".join(f"## Part {number}\n\nalpha {'beta ' * 50}{number}" for number in range(40))
    (folder / "docs/long.md").write_text(text)
    ragembed.index(store=store)
    async with Client(served(store)) as client:
        first, rendered = await call(client, "get", path="docs/long.md")
        assert max(tokens(first), estimated_tokens(rendered)) <= DEFAULT_TOKENS
        assert first["cursor"] in rendered
        wrong = await failure(client, "get", path="docs/locks.md", cursor=first["cursor"])
        assert wrong == "the cursor belongs to another request: pass the same arguments as before, or no cursor"
        pages = [first]
        while cursor := pages[-1].get("cursor"):
            pages.append((await call(client, "get", path="docs/long.md", cursor=cursor))[0])
        joined = [part["text"] for page in pages for part in page["results"]]
        assert "".join("".join(joined).split()) == "".join(text.split())
        with Store.open(store) as opened:
            opened.add(["more"])
        changed = await failure(client, "get", path="docs/long.md", cursor=first["cursor"])
        assert changed == "the store changed since the cursor was made: call again without cursor"


async def test_search_returns_the_relevance_and_leaves_out_less(folder):
    async with Client(served(folder / ".ragembed")) as client:
        unknown, text = await call(client, "search", query="lock", min_relevance=0.5)
        plain, answer = await call(client, "search", query="lock")
        assert unknown["results"] == plain["results"]
        assert not re.search("strong|possible|weak", answer)
        assert "the threshold 0.5 was not applied: it is fitted for 20 chunks or more" in unknown["note"]
        assert unknown["note"] in text
    for number in range(20):
        (folder / "docs" / f"{number}.txt").write_text(f"The writer of file {number} holds the lock {number * 7}.\n")
    ragembed.index(store=folder / ".ragembed")
    async with Client(served(folder / ".ragembed")) as client:
        found, text = await call(client, "search", query="lock of file 3", k=20)
        values = [each["relevance"] for each in found["results"]]
        words = re.findall(r"^\d+\. .*\((strong|possible|weak)\b", text, re.MULTILINE)
        assert words == ["strong" if value >= 0.8 else "possible" if value >= 0.5 else "weak" for value in values]
        least = sorted(values)[len(values) // 2]
        kept, _ = await call(client, "search", query="lock of file 3", k=20, min_relevance=least - 1e-4)
        assert 0 < len(kept["results"]) < len(values)
        refused = await failure(client, "search", query="lock", min_relevance=2)
        assert "is 2: expected a number from 0 to 1" in refused
        weak, text = await call(client, "search", query="the unheard aardvark beside a lock", mode="lexical")
        assert "weak matches" in weak["note"]
        assert "weak matches" in text


@given(st.lists(st.text(max_size=400) | st.sampled_from(["`" * 300, "a b\n" * 300, "\u4e2d" * 500]), max_size=8))
def test_pages_fit_the_budget_and_join_to_the_whole_text(texts):
    passages = [{"id": f"{number}", "text": text} for number, text in enumerate(texts)]
    position, pages = tools._Position(), []
    while position is not None:
        page, position = tools._page(passages, position, 300, structured=True)
        assert tokens({"results": page, "cursor": "9" * 40}) <= 300
        assert estimated_tokens("\n".join(tools._whole([passage]) for passage in page)) <= 300
        pages += page
    joined = {}
    for passage in pages:
        joined[passage["id"]] = joined.get(passage["id"], "") + passage["text"]
    assert list(joined.values()) == texts


async def test_a_long_context_stays_within_its_budget(folder, store):
    (folder / "docs/long.md").write_text("\n\n".join(f'## Part {n}\n\nalpha "beta" \\gamma\\ {n}' for n in range(300)))
    ragembed.index(store=store)
    async with Client(served(store)) as client:
        for budget in (200, DEFAULT_TOKENS):
            packed, text = await call(client, "context", query="alpha beta", max_tokens=budget)
            assert packed["blocks"]
            assert estimated_tokens(text) <= budget


async def test_several_stores_are_named(folder, store, tmp_path):
    missing = tmp_path / "missing" / ".ragembed"
    async with Client(make_server({"docs": store, "code": missing})) as client:
        assert await failure(client, "search", query="lock") == (
            "the argument 'store' of search is missing: expected one of docs, code, all"
        )
        assert await failure(client, "search", query="lock", store="x") == (
            "the argument 'store' of search is 'x': expected one of docs, code, all"
        )
        found, _ = await call(client, "search", query="writer lock", store="docs", k=1)
        assert found["results"][0]["path"] == "docs/locks.md"
        assert "create one with 'ragembed index PATH'" in await failure(client, "search", query="lock", store="code")
        about, text = await call(client, "status")
        assert [entry["name"] for entry in about["stores"]] == ["docs", "code"]
        assert f"no store at {missing}" in about["stores"][1]["problem"]
        assert "problem: no store" in text
        missing.parent.mkdir()
        store.rename(missing)
        found, _ = await call(client, "search", query="writer lock", store="code", k=1)
        assert found["results"][0]["stale"]
        assert "no store at" in await failure(client, "search", query="lock", store="docs")


async def test_all_stores_are_searched_together(store, tmp_path):
    copy = shutil.copytree(store, tmp_path / "copy" / ".ragembed")
    served_stores = {"docs": store, "copy": copy, "gone": tmp_path / "gone" / ".ragembed"}
    async with Client(make_server(served_stores)) as client:
        found, text = await call(client, "search", query="writer lock", store="all", k=20)
        assert {passage["store"] for passage in found["results"]} <= {"docs", "copy"}
        assert "docs: docs/locks.md" in text
        assert found["note"] == "the store gone cannot be read and is left out"
        first = found["results"][0]
        again, _ = await call(client, "get", id=first["id"], store=first["store"])
        assert again["results"][0]["text"].endswith(first["text"])
        packed, text = await call(client, "context", query="writer lock", store="all")
        assert packed["blocks"][0]["path"] == "docs/locks.md"
        assert packed["blocks"][0]["store"] in served_stores
        assert await failure(client, "get", path="docs/locks.md", store="all") == (
            "the argument 'store' of get is 'all': expected one of docs, copy, gone"
        )


async def test_documents_are_resources(store):
    async with Client(served(store)) as client:
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "ragembed://{store}/{+path}"
        [content] = (await client.read_resource("ragembed://docs/docs/locks.md")).contents
        assert isinstance(content, TextResourceContents)
        assert content.text.startswith("# Locks\n\nThe writer holds")
        assert content.text.endswith("It sees one whole store.")
        listed = await client.list_resources()
        assert [resource.name for resource in listed.resources] == sorted(f"docs/{name}" for name in DOCUMENTS)
        assert listed.next_cursor is None
        for resource in listed.resources:
            assert (await client.read_resource(resource.uri)).contents[0].text


async def test_the_list_of_documents_has_pages(folder, store, monkeypatch):
    monkeypatch.setattr(tools, "_RESOURCES", 2)
    (folder / "docs/two words ä.md").write_text("alpha")
    ragembed.index(store=store)
    async with Client(make_server({"docs": store, "gone": folder / "gone"})) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        assert [len(page.resources) for page in (first, second)] == [2, 2]
        assert second.next_cursor is None
        [last] = [each for each in (*first.resources, *second.resources) if each.name == "docs/two words ä.md"]
        assert (await client.read_resource(last.uri)).contents[0].text == "alpha"
        with pytest.raises(MCPError, match="the cursor is 'x': expected that of the previous list"):
            await client.list_resources(cursor="x")


def test_unexpected_errors_are_one_line(store, monkeypatch, caplog):
    import anyio

    async def run():
        async with Client(served(store)) as client:
            monkeypatch.setattr(Store, "search", lambda *_, **__: 1 / 0)
            return await failure(client, "search", query="lock")

    assert anyio.run(run) == (
        "unexpected ZeroDivisionError in 'search': check the store with 'ragembed doctor', and the log of the server"
    )
    assert "division by zero" in caplog.text


# Processes


def test_the_process_ends_with_its_input_while_a_call_runs(folder):
    code = (
        "import time\nfrom pathlib import Path\nfrom ragembed.serving import mcp_server\n"
        "mcp_server._Handlers._call = lambda *_: time.sleep(600)\n"
        "mcp_server.run_stdio(mcp_server.make_server({'docs': Path('.ragembed')}))"
    )
    server = StdioServer(folder, command=[sys.executable, "-c", code])
    server.send(message("tools/call", 1, name="search", arguments={"query": "lock"}).encode())
    server.ask("ping")
    server.end()
    assert server.process.returncode == 0


async def test_the_official_client_starts_the_process(folder):
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], cwd=folder, env=dict(os.environ))
    async with Client(parameters) as client:
        found, _ = await call(client, "search", query="writer lock", k=1)
    assert found["results"][0]["path"] == "docs/locks.md"


async def test_http_answers_local_clients_only(folder):
    with http_server(folder) as url:
        for mode in GENERATIONS:
            async with Client(url, mode=mode) as client:
                assert len((await client.list_tools()).tools) == len(TOOLS)
                found, _ = await call(client, "search", query="writer lock", k=1)
                assert found["results"][0]["path"] == "docs/locks.md"
        assert url.startswith("http://127.0.0.1:")
        port = url.split(":")[2].split("/")[0]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        with httpx.Client() as plain:

            def status(**headers):
                answer = plain.post(url, json=body, headers=accept | headers)
                assert not [name for name in answer.headers if name.lower().startswith("access-control")]
                return answer.status_code

            assert status() == 200
            assert status(Origin=f"http://localhost:{port}") == 200
            assert status(Host=f"evil.example:{port}") == 421
            assert status(Origin="http://evil.example") == 403
            typed = {**accept, "Content-Type": "application/json"}
            assert plain.post(url, content=b"x" * 5_000_000, headers=typed).status_code == 413
            assert plain.post(url, content=b"{}", headers=accept).status_code == 415
            assert plain.options(url, headers={"Origin": "http://evil.example"}).status_code in (403, 405)


# Configuration of clients


@pytest.fixture
def home(tmp_path, monkeypatch, folder):
    """The home of a user, whose project is the working directory."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(folder)
    return home


@pytest.mark.parametrize("client", CLIENTS)
def test_printed_configurations_start_the_server_from_any_folder(client, folder, cli, home):
    text = cli("mcp", "--print-config", client, "--store", "notes=.ragembed", "--auto-index").stdout
    value = tomllib.loads(text) if client == "codex" else json.loads(text)
    [servers] = value.values()
    entry = servers["ragembed"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-4:] == ["mcp", "--store", f"notes={folder / '.ragembed'}", "--auto-index=10"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_configured_and_unconfigured(client, cli, home):
    before = {path for path in (home, Path()) for path in path.rglob("*")}
    text = cli("mcp", "--print-config", client).stdout
    installed = cli("mcp", "--install", client)
    file = clients._path(CLIENTS[client].file)
    assert file.read_text() == text
    assert all(f"+{line}" in installed.stdout for line in text.splitlines())
    assert f"wrote {file}" in installed.stderr
    if skills := CLIENTS[client].skills:
        skill = (clients._path(skills) / "ragembed/SKILL.md").read_text()
        assert skill.startswith("---\nname: ragembed\ndescription: ")
        assert len(skill.splitlines()) <= 50
    assert "up to date" in cli("mcp", "--install", client).stderr
    cli("mcp", "--remove", client)
    after = {path for path in (home, Path()) for path in path.rglob("*")}
    assert after <= before
    assert "up to date" in cli("mcp", "--remove", client).stderr


OTHERS = {
    "indented": '{\n    "mcpServers": {\n        "other": {\n            "command": "x"\n        }\n    }\n}\n',
    "tabs, Windows": '{\r\n\t"mcpServers": {\r\n\t\t"other": {"command": "x"}\r\n\t}\r\n}',
    "comments": '// mine\n{\n  "a": "// no, ]", /* , } */\n  "mcpServers": { // b\n    "b": {"a": [1],},\n  },\n}',
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_others_wrote_stays_as_it_is(text, cli, home):
    file = home / ".gemini/settings.json"
    file.parent.mkdir()
    file.write_bytes(text.encode())
    cli("mcp", "--install", "gemini")
    plain = clients._JsonText(file, file.read_bytes().decode()).value
    assert list(plain.pop("mcpServers").pop("ragembed")) == ["command", "args"]
    cli("mcp", "--install", "gemini", "--auto-index")
    changed = file.read_bytes().decode()
    assert "--auto-index" in changed
    cli("mcp", "--remove", "gemini")
    assert file.read_bytes().decode() == text


@pytest.mark.parametrize(
    "text",
    [
        '# mine\nmodel = "m"  # fast\n\n[mcp_servers.other]\ncommand = "x"\n\n[tui]\na = 1\n',
        '[mcp_servers.a]\ncommand = "x"\n[tui]\nb = 1\n[mcp_servers.b]\ncommand = "y"\n',
        'mcp_servers.x.command = "y"\n',
        "mcp_servers = {x = {command = 'q'}}\n[tui]\n",
    ],
)
def test_toml_of_others_stays_as_it_is(text, cli, home):
    file = home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text(text)
    cli("mcp", "--install", "codex")
    written = tomllib.loads(file.read_text())
    assert written["mcp_servers"].pop("ragembed")["args"][:1] == ["mcp"]
    assert written == tomllib.loads(text)
    cli("mcp", "--remove", "codex")
    assert file.read_text().rstrip() == text.rstrip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a JSON object: nothing was changed"),
        ("[1]", "is not a JSON object"),
        ('{"mcpServers": 3}', "has no table of servers where one is expected"),
        ('{"mcpServers": {"ragembed": {"command": "other"}}}', "has a server 'ragembed' that is not this program"),
    ],
)
@pytest.mark.parametrize("option", ["--install", "--remove"])
def test_a_file_that_is_not_understood_is_not_touched(text, message, option, cli, home):
    file = Path(".mcp.json")
    file.write_text(text)
    assert message in cli("mcp", option, "claude", exit_code=2).stderr
    assert file.read_text() == text
    assert not Path(".claude").exists()


def test_a_client_can_be_configured_before_the_store_is_made(cli, home):
    assert "there is no store at nowhere yet" in cli("mcp", "--install", "zed", "--store", "nowhere").stderr


def test_skills_and_toml_of_others_are_not_touched(cli, home):
    skill = Path(".claude/skills/ragembed/SKILL.md")
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: mine\n---\n")
    assert "is not a skill of ragembed" in cli("mcp", "--install", "claude", exit_code=2).stderr
    assert not Path(".mcp.json").exists()
    file = home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text("[a")
    assert "is not TOML" in cli("mcp", "--install", "codex", exit_code=2).stderr
    assert "exclude each other" in cli("mcp", "--install", "codex", "--remove", "codex", exit_code=2).stderr


def test_stores_are_named_after_their_folders(cli, tmp_path):
    text = cli("mcp", "--print-config", "claude", "--store", tmp_path / "My Notes" / ".ragembed").stdout
    assert f"My-Notes={tmp_path}" in text
    twice = cli("mcp", "--store", tmp_path / "a" / ".ragembed", "--store", tmp_path / "b" / "a", exit_code=2)
    assert "two stores have the name 'a'" in twice.output
    assert "the path is empty" in cli("mcp", "--store", "", exit_code=2).output


def test_a_port_in_use_is_one_sentence(folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = cli("mcp", "--http", str(port), exit_code=2).stderr
    assert f"cannot listen on 127.0.0.1:{port}: " in text
    assert "choose another with --port" in text
