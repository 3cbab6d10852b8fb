"""``ragembed report``: the page as a file, and in a browser."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from collections import Counter
from copy import copy
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest

from ragembed.html_elements import OWN_PAGE
from ragembed.indexes import Store
from ragembed.reports import collect
from ragembed.reports.collect import QueryResult, ShownChunk
from ragembed.reports.store_report import page_of, report
from tests.browser import running_browser
from tests.reports.conftest import TOPICS
from tests.samples import mostly_slow

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
def made(store):
    """The page, and the data that it shows."""
    with Store.open(store) as opened:
        return report(opened, QUERIES)


@pytest.fixture(scope="module")
def page(made):
    return made[0]


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
    assert first.startswith(OWN_PAGE)
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
    for text in (
        "tool.bin",
        "a program or compiled code",
        "English",
        "German",
        "nearly repeat others",
        "The largest topics are ",
    ):
        assert text in found.text
    assert " # " not in found.text  # passages have no marks of headings
    assert {f"docs/copy{n}.txt" for n in range(3)} <= set(re.findall(r"docs/copy\d.txt", found.text))
    assert "wing" in found.text
    words = json.loads(found.data)["colourings"][0]["values"]
    assert any({"holds", "segment", "reader", "writer"} & {*each.replace(",", "").split()} for each in words), words


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
    unknown, asked = data["queries"]  # the weakest first
    assert data["files"][data["chunks"][asked["hits"][0]][1]].startswith("docs/locks/")
    assert 0 <= min(asked["place"]) <= max(asked["place"]) <= 65_535
    assert unknown["weak"] or unknown["hits"]


@pytest.mark.parametrize(("count", "most"), [(10_000, 2_000_000), (500_000, 10_000_000)])
def test_the_page_of_a_large_store_is_small(made, store, count, most):
    """All points are in the page; of many texts, evenly spread ones and those of the hits."""
    texts = tuple(
        ShownChunk(
            n * (count // 10_000), f"docs/folder-{n % 97}/file-{n // 3}.md", f":{n}-{n + 9}", TOPICS["wings"] * 20
        )
        for n in range(10_000)
    )
    codes = np.zeros(count, dtype=np.uint8)
    large = copy(made[1])
    large.points, large.cluster, large.chunks = np.zeros((count, 2), dtype=np.uint16), codes, texts
    large.colourings = tuple(each._replace(codes=codes) for each in large.colourings)
    large.queries = (QueryResult("q", (texts[-1].number,), texts[-1], 0.9, False, (1, 1)),)
    page = page_of(large, store)
    assert count < len(page) < most
    shown = json.loads(Elements(page).data)["chunks"]
    assert shown[0][0] == 0
    assert shown[-1][0] == texts[-1].number
    assert len({len(each[3]) for each in shown}) < 3


def test_stores_without_files_or_chunks(tmp_path, make_encoder):
    encoder = make_encoder()
    with Store.create(tmp_path / "few", encoder) as few:
        empty, data = report(few, ["lock"])
        assert "nothing to draw" in Elements(empty).text
        assert (data.queries[0].hits, data.weak) == ((), 1)
        few.add(["the lock", "a wing", "a wing"], ids=["a", "b", "c"])
        page, data = report(few, ["lock", "wing"])
    assert data.vector_map.kept is None
    assert data.duplicate_chunks == 1
    assert "(no file)" in Elements(page).text
    assert [each.file for each in data.chunks] == ["a", "b", "c"]


def test_of_many_queries_the_weakest_are_shown(monkeypatch, store):
    monkeypatch.setattr(collect, "_QUERIES", 2)
    with Store.open(store) as opened:
        _, data = report(opened, [*TOPICS.values(), "price of bananas"])
    assert data.asked == 4
    assert data.queries[0].query == "price of bananas"
    assert len(data.queries) == 2


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


@pytest.fixture(scope="module")
def browser():
    with running_browser("--use-angle=swiftshader", "--enable-unsafe-swiftshader") as running:
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


def until(page, condition):
    """Wait for a condition. The page does not allow Playwright's own way, which evaluates a text."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(10)
    pytest.fail(f"{condition} did not become true")


def assert_drawn(page, way):
    """The points have the colours of three groups, and pressing a value of the legend leaves its points."""
    assert page.locator("#view").get_attribute("data-drawn") == way
    page.locator("#names").uncheck()
    page.wait_for_timeout(100)
    assert len(colours_of(page)) >= 3
    page.locator("#colour").select_option("Type")
    counts = [re.fullmatch(r"(md|txt) \((\d+)\)", each) for each in page.locator("#legend button").all_inner_texts()]
    page.locator("#legend button", has_text="txt").click()
    assert page.evaluate("codes.filter((code) => code !== OTHER).length") == int(counts[1][2])
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_points_are_drawn_and_follow_the_colour(tab):
    assert_drawn(tab(), "webgl")


def test_search_shows_the_chunks_with_all_words(tab):
    page = tab()
    page.locator("#find").fill("DOG sleeps")
    page.locator("#found button").first.wait_for()
    shown = page.locator("#found button").all_inner_texts()
    assert {each.partition("/")[2].partition("/")[0] for each in shown} == {"animals"}
    assert page.evaluate("codes.filter((code) => code !== OTHER).length") == len(shown)
    assert f"{len(shown)} of " in page.locator("#map-status").inner_text()
    page.locator("#found button").first.focus()
    page.keyboard.press("Enter")
    assert "dog" in page.locator("#chosen pre").inner_text()
    page.locator("#find").fill("")
    until(page, "codes.every((code) => code !== OTHER)")


def test_the_pointer_shows_zooms_and_moves(tab):
    page = tab()
    page.locator("#marks").scroll_into_view_if_needed()
    view = page.locator("#marks").bounding_box()
    left, top = page.evaluate("toScreen(places[0], places[1])")
    page.mouse.move(view["x"] + left, view["y"] + top)
    assert page.locator("#tip").is_visible()
    assert "cluster: " in page.locator("#tip .note").inner_text()
    page.mouse.wheel(0, -400)
    until(page, "camera.scale > 1.5")
    assert page.evaluate("toScreen(places[0], places[1])") == pytest.approx([left, top], abs=1)
    page.mouse.down()
    page.mouse.move(view["x"] + left + 30, view["y"] + top + 20, steps=3)
    page.mouse.up()
    assert page.evaluate("toScreen(places[0], places[1])") == pytest.approx([left + 30, top + 20], abs=1)
    page.mouse.click(view["x"] + left + 30, view["y"] + top + 20)
    assert page.locator("#chosen").inner_text().startswith("docs/")
    page.locator("#whole").click()
    assert page.evaluate("camera.scale") == 1


def test_the_keyboard_reaches_every_part(tab):
    page = tab()
    page.locator("#marks").focus()
    page.keyboard.press("ArrowRight")
    first = page.evaluate("chosen")
    page.keyboard.press("ArrowDown")
    second = page.evaluate("chosen")
    assert -1 not in (first, second)
    assert first != second
    assert page.evaluate(f"places[{2 * second + 1}] > places[{2 * first + 1}]")
    page.keyboard.press("+")
    before = page.evaluate("[camera.scale, camera.x]")
    assert before[0] > 1
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate("camera.x") > before[1]
    page.keyboard.press("Escape")
    assert page.evaluate("chosen") == -1
    page.keyboard.press("0")
    assert page.evaluate("camera.scale") == 1


def test_queries_lead_to_their_hits(tab):
    page = tab()
    page.get_by_role("button", name=f"Show “{QUERIES[0]}” on the map").click()
    assert page.locator("#map-status").inner_text() == f"Hits of “{QUERIES[0]}”, best first"
    assert page.locator("#found button").first.inner_text().startswith("docs/locks/")
    assert page.evaluate("document.activeElement.id") == "marks"


def test_hostile_texts_are_inert(tab):
    page = tab()
    page.locator("#find").fill("<img src")
    page.locator("#found button").first.wait_for()
    page.locator("#found button").first.click()
    assert "<img src=x" in page.locator("#chosen pre").inner_text()
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("size", mostly_slow([(320, "dark"), (768, "light"), (1920, "dark"), (1920, "light")], 1))
def test_the_report_is_accessible_at_every_width(tab, size):
    width, scheme = size
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = tab(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.locator("#find").fill("lock")
    page.locator("#found button").first.wait_for()
    page.locator("#found button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/report-{width}-{scheme}.png", full_page=True)


def test_without_javascript_the_tables_remain(tab):
    page = tab(java_script_enabled=False)
    assert not page.locator("#map-tools").is_visible()
    assert "The map needs JavaScript" in page.locator("#map").inner_text()
    assert "segment" in page.locator("#clusters").inner_text()


def test_points_are_drawn_without_webgl(browser, file):
    page = browser.new_page()
    page.add_init_script(
        "HTMLCanvasElement.prototype.getContext = ((own) => function (kind, ...rest) {"
        "return kind === 'webgl2' ? null : own.call(this, kind, ...rest); })"
        "(HTMLCanvasElement.prototype.getContext);"
    )
    page.goto(file.as_uri())
    assert_drawn(page, "canvas")
    page.close()
