"""The search page: as a plain form, and in a browser."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragembed
from ragembed.errors import StoreError
from ragembed.html_elements import as_html
from ragembed.printable import printable
from ragembed.serving import page as page_module
from ragembed.serving.http_app import ServerSettings, make_app
from ragembed.serving.http_security import AllowedHosts
from tests.browser import running_browser
from tests.samples import mostly_slow
from tests.serving.processes import ApiServer

PORT = 8765
HOSTILE = (
    "# <script>window.hacked = 1</script>\n\nlock <img src=x onerror='window.hacked=1'> </pre>"
    "`<script>window.hacked=1</script>` &lt;b&gt; \u202egnihton\u202c \x1b[31m\x07 \"quoted\" 'single'\n"
)
SHOTS = os.environ.get("RAGEMBED_SCREENSHOTS")
"""A folder for pictures of the page, for people to look at."""


@pytest.fixture(scope="module")
def documents(_documents, tmp_path_factory):
    """The documents with a table, a hostile file and a long line."""
    folder = Path(shutil.copytree(_documents, tmp_path_factory.mktemp("page") / "served"))
    docs = folder / "docs"
    (docs / "people").mkdir()
    for number, name in enumerate(("Ann", "Bob", "Bob", "Cid")):
        (docs / "people" / f"{number}.md").write_text(f"# {name}\n\nThe lock {number}.\n")
    books = [{"text": f"About the lock {number}", "author": name} for number, name in enumerate(("Ann", "Bob", "Bob"))]
    (docs / "books.jsonl").write_text("".join(json.dumps(book) + "\n" for book in books))
    (docs / "hostile.md").write_text(HOSTILE)
    (docs / "long.txt").write_text("giant " + "x" * 1_000_000 + "\n")
    ragembed.index(docs, store=folder / ".ragembed")
    return folder


# Without JavaScript


class _Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of each part with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def links(self, text=""):
        return [each["href"] for tag, each in self.elements if tag == "a" and text in each["href"]]


@pytest.fixture
def read(documents):
    """``await read(path)``: the page at an address, without JavaScript."""
    settings = ServerSettings(AllowedHosts(PORT), editor="vscode://file{path}:{line}")
    app = make_app({"docs": documents / ".ragembed", "other": documents / ".ragembed"}, settings)

    async def get(path, status=200):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
            answer = await client.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "unsafe" not in answer.headers["content-security-policy"]
        return _Elements(answer.text)

    return get


async def test_the_page_works_as_a_plain_form(read):
    start = await read("/")
    assert "docs: 10 files" in start.text
    assert start.links("?q=")[:1]  # an example from the headings
    fields = {each["name"] for tag, each in start.elements if tag in ("input", "select")}
    assert fields == {"q", "store", "mode", "where"}
    found = await read("/?q=writer+lock&store=docs&mode=lexical&where=")
    assert "docs/locks.md:1-3" in found.text
    opened = found.links("id=")[0]
    preview = await read(opened)
    assert "Parts of the score" in preview.text
    assert any(tag == "mark" for tag, _ in preview.elements)
    editor = preview.links("vscode:")
    assert re.fullmatch(r"vscode://file/.*/docs/\S+:\d+", editor[0])
    similar = await read(preview.links("like=")[0])
    assert "Passages like docs/" in similar.text


async def test_all_stores_are_searched_together(read):
    start = await read("/")
    options = [each for tag, each in start.elements if tag == "option"]
    assert [each["value"] for each in options][:3] == ["docs", "other", "all"]
    assert "All stores" in start.text
    found = await read("/?q=writer+lock&store=all")
    assert "other: docs/locks.md:1-3" in found.text or "docs: docs/locks.md:1-3" in found.text
    assert any(each.get("name") == "part" for tag, each in found.elements if tag == "select")
    opened = found.links("id=")[0]
    assert parse_qs(urlsplit(opened).query)["part"][0] in ("docs", "other")
    preview = await read(opened)
    assert "Parts of the score" in preview.text
    assert preview.links("vscode:")
    similar = await read(preview.links("like=")[0])
    assert "Passages like docs: docs/" in similar.text
    assert "Why this" not in (await read(similar.links("id=")[0])).text
    explained = await read("/?q=wing&store=all&part=other&file=docs/locks.md&k=1")
    assert "Why not docs/locks.md" in explained.text
    assert "'store' of chunk is 'all': expected one of docs, other" in (await read("/?q=wing&store=all&id=x", 400)).text


async def test_facets_narrow_the_results_and_can_be_removed(read):
    found = await read("/?q=lock&mode=lexical")
    [author] = [link for link in found.links("metadata.author") if "Bob" in link]
    narrowed = await read(author)
    assert set(re.findall(r"docs/[\w/.]+", narrowed.text)) == {"docs/books.jsonl"}
    assert parse_qs(urlsplit(author).query)["f"] == ["metadata.author = 'Bob'"]
    back = [link for link in narrowed.links() if link == "/?q=lock&mode=lexical"]
    assert back
    below = await read(found.links("people")[0])
    assert {"docs/people/0.md", "docs/people/3.md"} <= set(re.findall(r"docs/[\w/.]+", below.text))


async def test_a_missing_file_is_explained(read):
    found = await read("/?q=supersonic+wing&file=docs/locks.md&k=1")
    assert "Why not docs/locks.md" in found.text
    assert re.search(r"Meaning: rank \d+ of", found.text)
    assert "Why not docs/locks.md" in (await read("/?q=wing&file=docs/locks.md&k=30")).text
    problem = await read("/?q=wing&file=docs/none.md", 400)
    assert "docs/none.md is not in the store" in problem.text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/?q=lock&where=path+IS", "expected NULL after IS at character 8"),
        ("/?q=lock&f=)+OR+(1=1", "expected a field at character 1"),
    ],
)
async def test_a_wrong_address_is_one_sentence(read, path, message):
    found = await read(path, 400)
    [alert] = [each for tag, each in found.elements if each.get("role") == "alert"]
    assert alert["class"] == "problem"
    assert message in found.text


async def test_an_unknown_passage_leaves_the_results(read):
    found = await read("/?q=writer+lock&id=none", 404)
    assert "docs/locks.md:1-3" in found.text
    assert "no chunk has the id 'none'" in found.text
    assert "no chunk has the id 'none'" in (await read("/?like=none", 404)).text


async def test_a_store_that_cannot_answer_is_no_wrong_request(read, monkeypatch, caplog):
    def broken(*_):
        raise StoreError("cannot read /srv/secret/.ragembed")

    monkeypatch.setattr("ragembed.serving.http_answers.StoreAnswers.answer", broken)
    found = await read("/?q=lock", 503)
    assert "secret" not in found.text
    assert "secret" in caplog.text


async def test_texts_of_documents_never_become_markup(read):
    found = await read("/?q=quoted+single+nothing&mode=lexical")
    [address] = found.links("id=")[:1]
    for page in (
        found,
        await read(address),
        await read("/?q=%3Cscript%3Ealert(1)%3C/script%3E&where=&f=path%3D'%22%3E'"),
    ):
        scripts = [each for tag, each in page.elements if tag == "script"]
        assert [each["src"].partition("?")[0] for each in scripts] == ["/page.js"]
        assert not any(tag == "img" or name.startswith("on") for tag, each in page.elements for name in each)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.text)
    assert "<script>window." in found.text


async def test_the_page_is_small(documents):
    static = page_module._STATIC.values()
    assert sum(len(gzip.compress(data)) for data in static) < 10_000
    app = make_app({"docs": documents / ".ragembed"}, ServerSettings(AllowedHosts(PORT)))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
        answer = await client.get("/?q=writer+lock&mode=lexical")
    assert len(answer.content) + sum(map(len, static)) < 60_000


# Passages as HTML


def html(text, path="a.md", places=()):
    return b"".join(map(as_html, page_module.rendered(text, path, places))).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## Locks\n\nOne\ntwo **three**", '<p class="heading">Locks</p><p>One\ntwo <strong>three</strong></p>'),
        ("- a `b`\n  - c", '<ul><li class="d0">a <code>b</code></li><li class="d1">c</li></ul>'),
        ("| a | b |\n|---|---|\n| 1 | *2* |", "<tr><th>a</th><th>b</th></tr><tr><td>1</td><td><em>2</em></td></tr>"),
        ("```python\nif 1: # c\n```", '<span class="k">if</span> <span class="n">1</span>: <span class="c"># c</span>'),
        ("4. a\n5. b", '<ol start="4"><li class="d0">a</li><li class="d0">b</li></ol>'),
        ("x = 1\n```\n\ntext", "<p>text</p>"),  # begins in a block of code
        ("[a](https://b.c)", '<a href="https://b.c" rel="noreferrer noopener" target="_blank">a</a>'),
        ("[a](javascript:b)", '<span class="link" title="javascript:b">a</span>'),
        ("![a](https://b.c/d.png)", '<span class="image">a</span>'),
        ("<b onclick=x>", "<p>&lt;b onclick=x&gt;</p>"),
        ("`` | [a](", "`` | [a]("),
    ],
)
def test_markdown_is_rendered(text, expected):
    assert expected in html(text)


def test_code_and_plain_text_are_rendered():
    assert html("    def f():\n        return 'x'", "a.py").startswith(
        '<pre tabindex="0"><span class="i1">    <span class="k">'
    )
    assert '<span class="c">// x</span>' in html("// x", "a.go")
    wrapped = "word " * 13 + "\n" + "word"
    assert html(wrapped, "a.txt") == f"<p>{wrapped}</p>"
    assert html("a\nb\n\nc", "a.txt") == '<p class="lines">a\nb</p><p class="lines">c</p>'
    assert html("a\nb\n\nc", "a.html") == '<p class="lines">a\nb</p><p>c</p>'
    assert html("An example:\n\n>>> x", "a.md").startswith("<p>An example:</p><pre")
    assert html("2\n>>> x", "a.md") == '<pre tabindex="0"><span><span class="n">2</span>\n&gt;&gt;&gt; x</span></pre>'
    assert html(">>> x\n2\n\nc", "a.html").startswith(
        '<pre tabindex="0"><span>&gt;&gt;&gt; x\n<span class="n">2</span>'
    )


@given(
    st.text(max_size=200) | st.text(alphabet="`*_[](){}|#->~:!<&a1 \n\\", max_size=80),
    st.sampled_from(["a.md", "a.py", "a.txt"]),
)
def test_a_passage_is_whole_and_inert(text, path):
    places = [(start, start + 2) for start in range(0, len(text) - 1, 5)]
    shown = _Elements(html(text, path, places))
    if path != "a.md":
        assert "".join(shown.text.split()) == "".join(printable(text).split())
    assert not {tag for tag, _ in shown.elements} & {"script", "img", "iframe"}
    assert all(each.get("href", "http").lower().startswith(("http", "mailto:")) for _, each in shown.elements)


# In a browser


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(documents):
    with ApiServer(documents, "docs=.ragembed", "other=.ragembed") as server:
        yield server.url


@pytest.fixture
def tab(browser, url):
    """``tab(**options)``: a new window at the start of the page, with the requests that it made."""
    opened = []

    def make(path="/", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        opened.append(context)
        page = context.new_page()
        page.requests, page.problems = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda message: page.problems.append(message.text))
        page.on("dialog", lambda dialog: page.problems.append(dialog.message))
        page.goto(f"{url}{path}")
        return page

    yield make
    for context in opened:
        for page in context.pages:
            assert page.problems == []
            assert all(each.startswith((url, "data:")) for each in page.requests)
        context.close()


def places(page):
    return page.locator("#results .place").all_inner_texts()


def test_results_appear_while_typing(tab):
    page = tab()
    before = len(page.requests)
    page.keyboard.type("writer lock", delay=5)
    page.wait_for_selector("#results .place")
    assert "docs: docs/locks.md:1-3" in places(page)
    assert len(page.requests) - before < len("writer lock")
    assert page.title() == "writer lock – ragembed"
    shared = tab(urlsplit(page.url).path + "?" + urlsplit(page.url).query)
    assert places(shared) == places(page)


def test_late_answers_are_dropped(tab):
    page = tab()
    waiting = []
    page.route(re.compile(r"\?q=wing&store=docs$"), lambda route: waiting.append(route))
    page.keyboard.type("wing")
    page.wait_for_selector("main[aria-busy=true]")
    page.locator("input[name=q]").fill("writer lock")
    page.wait_for_selector("#results .place")
    found = places(page)
    for route in waiting:
        route.abort()
    page.wait_for_timeout(50)
    assert places(page) == found
    assert "lock" in page.url


def test_keyboard(tab):
    page = tab("/?q=writer+lock")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    second = places(page)[1]
    assert page.evaluate("document.activeElement.closest('li').querySelector('.place').innerText") == second
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview .close")
    assert page.locator("#preview .place").inner_text() == second
    assert page.evaluate("document.activeElement.closest('li').querySelector('.place').innerText") == second
    page.keyboard.press("Escape")
    page.wait_for_selector("#preview .close", state="detached")
    assert page.evaluate("document.activeElement.name") == "q"
    page.go_back()
    page.wait_for_selector("#preview .close")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.name") == "q"
    page.locator("#results .title").first.focus()
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    assert page.locator("#preview .close").count() == 1


def test_wide_windows_show_the_first_result_and_narrow_ones_fold_the_filters(tab):
    wide = tab("/?q=lock&mode=lexical")
    assert wide.locator("#preview .place").inner_text() == places(wide)[0]
    assert wide.locator("#facets a", has_text="Bob").is_visible()
    narrow = tab("/?q=lock&mode=lexical", viewport={"width": 390, "height": 800})
    assert not narrow.locator("#hit").is_visible()
    assert not narrow.locator("#facets a", has_text="Bob").is_visible()
    narrow.locator("label", has_text="Filters").click()
    narrow.locator("#facets a", has_text="Bob").click()
    narrow.wait_for_selector("#facets .filter")
    narrow.locator("#results .title").first.click()
    narrow.wait_for_selector("#preview .close")
    assert narrow.locator("#hit").is_visible()


def test_facets_preview_and_explanation(tab):
    page = tab("/?q=lock&mode=lexical")
    page.locator("#facets a", has_text="Bob").click()
    page.wait_for_selector("#facets .filter")
    assert {each.partition(":")[0] for each in places(page)} == {"docs/books.jsonl"}
    page.locator("#facets .filter a").click()
    page.wait_for_selector("#facets .filter", state="detached")
    page.locator("#results li", has_text="locks.md:1-3").locator(".title").first.click()
    page.wait_for_selector("#preview .close")
    assert "A reader never waits" in page.locator("#preview").inner_text()
    assert page.locator("#preview svg rect").count() > 0
    page.locator("#preview a", has_text="More like this").click()
    page.wait_for_selector("#results h2")
    assert page.locator("#results h2").inner_text() == "Passages like docs/locks.md:1-3"
    page.go_back()
    page.wait_for_selector("#hit")
    page.locator(".why-not input[name=file]").fill("docs/wings.txt")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Why not docs/wings.txt")


def test_the_store_is_chosen_on_the_page(tab):
    page = tab("/?q=writer+lock")
    page.get_by_label("Store", exact=True).select_option("all")
    page.wait_for_selector("#results .place:has-text('docs: ')")
    assert "store=all" in page.url
    page.locator("#results .title").first.click()
    page.wait_for_selector("#preview .close")
    assert page.locator("#preview .place").inner_text() == places(page)[0]
    assert page.locator("#results .title[aria-current=true]").count() == 1
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/all-stores.png")
    page.get_by_label("Store of the file").select_option("other")
    page.locator(".why-not input[name=file]").fill("docs/wings.txt")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Why not docs/wings.txt")
    assert "part=other" in page.url


def test_copy(tab):
    page = tab("/?q=writer+lock", permissions=["clipboard-read", "clipboard-write"])
    page.locator("#results li", has_text="locks.md:1-3").locator(".title").first.click()
    page.wait_for_selector("#preview .close")
    page.locator("#preview button", has_text="Copy").click()
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "docs/locks.md:1"


def test_problems_are_shown(tab):
    page = tab("/?q=lock&where=path+IS")
    assert page.locator("[role=alert]").inner_text().startswith("expected NULL")
    page.route(re.compile(r"\?q=zebra"), lambda route: route.abort())
    page.locator("input[name=where]").fill("")
    page.locator("input[name=q]").fill("zebra")
    page.wait_for_selector("text=The server does not answer")
    assert {each.partition(":")[0] for each in page.problems} == {"Failed to load resource"}
    page.problems.clear()


def test_hostile_documents_are_inert(tab):
    page = tab("/?q=quoted+single+nothing&mode=lexical")
    page.locator("#results .title").first.click()
    page.wait_for_selector("#preview .close")
    assert "</script>" in page.locator("#preview").inner_text()
    assert page.evaluate("window.hacked") is None
    long = tab("/?q=giant&mode=lexical")
    long.locator("#results li", has_text="long.txt").locator(".title").first.click()
    long.wait_for_selector("#preview .close")
    assert long.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("size", mostly_slow([(320, "dark"), (768, "light"), (1920, "dark"), (1920, "light")], 1))
def test_the_page_is_accessible_at_every_width(tab, size):
    width, scheme = size
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    viewport = {"width": width, "height": 800}
    for name, path in {"start": "/", "results": "/?q=lock", "problem": "/?q=lock&where=path+IS"}.items():
        page = tab(path, viewport=viewport, color_scheme=scheme)
        if name == "results":
            page.locator("#results .title").first.click()
            page.wait_for_selector("#preview .close")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = axe.run(page)
        assert found.violations_count == 0, found.generate_report()
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png")
        page.problems.clear()
