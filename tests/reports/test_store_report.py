"""``ragembed report``: the page as a file, and in a browser."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from collections import Counter
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.reports.page import _BEGINNING
from ragembed.reports.store_report import report
from tests.browser import running_browser

SHOTS = os.environ.get("RAGEMBED_SCREENSHOTS")
"""A folder for pictures of the page, for people to look at."""
QUERIES = ("the lock of the store", "price of bananas")


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text without styles and scripts."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.data = ""
        self._inside = ""
        self.feed(page.decode())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = dict(attributes).get("id", tag)

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "map-data":
            self.data += data
        elif self._inside not in ("script", "style"):
            self.text += data + " "


@pytest.fixture(scope="module")
def page(store):
    with Store.open(store) as opened:
        return report(opened, QUERIES)[0]


@pytest.fixture(scope="module")
def file(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(page)
    return path


# As a file


def test_the_command_writes_one_file_and_never_another(cli, store, in_folder):
    written = cli("report", "--store", store, "--query", QUERIES[0])
    assert re.search(r"report\.html: [\d.]+ KB, \d+ chunks, \d+ clusters", written.stdout)
    assert re.search(r"keeps \d+% of the 10 nearest neighbours", written.stdout)
    first = (in_folder / "report.html").read_bytes()
    assert first.startswith(_BEGINNING)
    summary = json.loads(cli("report", "--store", store, "--query", QUERIES[0], "--json").stdout)
    assert (in_folder / "report.html").read_bytes() == first
    assert summary["bytes"] == len(first)
    assert (summary["queries"], summary["chunks"]) == (1, summary["texts"])
    assert [each.name for each in in_folder.iterdir()] == ["report.html"]


def test_a_file_of_someone_else_stays(cli, store, in_folder):
    (in_folder / "notes.html").write_text("<!doctype html>\nmine")
    (in_folder / "link.html").symlink_to(in_folder / "notes.html")
    for name, problem in {
        "notes.html": "did not write it",
        "link.html": "symbolic link",
        "no/a.html": "no folder",
    }.items():
        assert problem in cli("report", "--store", store, "--out", name, exit_code=2).output
    assert (in_folder / "notes.html").read_text() == "<!doctype html>\nmine"


def test_the_sections_show_what_the_store_knows(page):
    found = Elements(page)
    ids = [each["id"] for tag, each in found.elements if tag == "section"]
    assert ids == ["overview", "map", "clusters", "queries", "duplicates", "weights", "drift", "index"]
    for text in ("tool.bin", "a program or compiled code", "English", "German", "nearly repeat another one"):
        assert text in found.text
    assert {f"docs/copy{n}.txt" for n in range(3)} <= set(re.findall(r"docs/copy\d.txt", found.text))
    assert "wing" in found.text
    words = json.loads(found.data)["colourings"][0]["values"]
    assert any({"holds", "segment", "reader", "writer"} & {*each.split(", ")} for each in words), words


def test_the_map_has_every_chunk_and_its_properties(page, store):
    data = json.loads(Elements(page).data)
    with Store.open(store) as opened:
        texts = [record.chunk.text for record in opened.chunks()]
    assert [each[0] for each in data["chunks"]] == list(range(len(texts)))
    assert [each[3] for each in data["chunks"]][:5] == texts[:5]
    assert len(b64decode(data["places"])) == 4 * len(texts)
    colours = {each["name"]: each["values"] for each in data["colourings"]}
    assert list(colours) == ["Cluster", "Folder", "Type", "Date", "Drift"]
    assert set(colours["Folder"]) == {"docs", "docs/animals", "docs/locks", "docs/wings"}
    assert colours["Type"] == ["md", "txt"]
    asked, unknown = data["queries"]
    assert data["files"][data["chunks"][asked["hits"][0]][1]].startswith("docs/locks/")
    assert 0 <= min(asked["place"]) <= max(asked["place"]) <= 65_535
    assert unknown["weak"] or unknown["hits"]


def test_texts_of_documents_never_become_markup(page):
    found = Elements(page)
    scripts = [each for tag, each in found.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "map-data"}, {}]
    assert not any(tag == "img" or name.startswith("on") for tag, each in found.elements for name in each)
    assert not any("style" in each or "src" in each for _, each in found.elements)
    text = page.decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "<" not in found.data
    policy = next(
        each["content"] for _, each in found.elements if "content-security" in each.get("http-equiv", "").lower()
    )
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


# In a browser


@pytest.fixture(scope="module", params=["webgl", "canvas"])
def browser(request):
    gl = {
        "webgl": ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
        "canvas": ("--disable-3d-apis",),
    }
    with running_browser(*gl[request.param]) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def tab(browser, file):
    """``tab(**options)``: a new window with the report, without a network."""
    opened = []

    def make(path=file, **options):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 800}, **options})
        opened.append(context)
        tab = context.new_page()
        tab.requests, tab.problems = [], []
        tab.on("request", lambda request: tab.requests.append(request.url))
        tab.on("pageerror", lambda error: tab.problems.append(str(error)))
        tab.on("console", lambda message: tab.problems.append(message.text))
        tab.on("dialog", lambda dialog: tab.problems.append(dialog.message))
        tab.goto(path.as_uri())
        return tab

    yield make
    for context in opened:
        for each in context.pages:
            assert each.problems == []
            assert each.requests == [file.as_uri()]
        context.close()


def colours_of(page):
    """Return the saturated colours of the map, each rounded, that many pixels have."""
    image = pytest.importorskip("PIL.Image").open(BytesIO(page.locator("#view").screenshot())).convert("RGB")
    counts = Counter(
        tuple(value >> 5 for value in pixel)
        for pixel in np.asarray(image).reshape(-1, 3).tolist()
        if max(pixel) - min(pixel) > 80
    )
    return {colour for colour, count in counts.items() if count > 20}


def test_points_are_drawn_and_follow_the_colour(tab, browser):
    page = tab()
    assert page.locator("#view").get_attribute("data-drawn") == browser.kind
    page.locator("#names").uncheck()
    page.wait_for_timeout(100)
    assert len(colours_of(page)) >= 3
    page.locator("#colour").select_option("Type")
    counts = [re.fullmatch(r"(md|txt) \((\d+)\)", each) for each in page.locator("#legend button").all_inner_texts()]
    page.locator("#legend button", has_text="txt").click()
    assert page.evaluate("codes.filter((code) => code !== OTHER).length") == int(counts[1][2])
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
