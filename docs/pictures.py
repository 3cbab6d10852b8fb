"""Make the pictures of the documentation.

``make pictures`` takes pictures of the search page, ``docs/_static/page.png``, and of a report on the documentation,
``docs/_static/report-*.png``, and draws the recorded ratios of the benchmarks, ``docs/_static/speed.png``. With
``--site FOLDER``, the folder of the built site, it also takes screenshots of four pages, each light and dark, 400 and
1,400 pixels wide, as ``docs/screenshots/*.png``. It needs Chromium; ``--speed`` does not, and only draws the ratios.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGES = ("explanation/reliability.md", "explanation/how-search-works.md", "how-to/search.md")
SEARCHED = "is a change atomic"
REPORTED = ("Which file of a store is the only commit point?", "the price of bananas")
SCREENSHOTS = ("index", "tutorials/first-store", "reference/api/store", "explanation/how-search-works")
"""Pages whose look is checked."""
FASTER = {
    "one query as a process: LangChain": "cold query, minilm: time beside LangChain",
    "words in 500,000 chunks: bm25s": "lexical query: median beside bm25s",
    "meaning in 100,000 chunks: LangChain": "warm query, dense: median beside LangChain's dense",
    "hybrid in 100,000 chunks: LangChain, dense": "warm query, hybrid: median beside LangChain's dense",
    "encode abstracts: sentence-transformers": "encode cran: tokens/s beside sentence-transformers",
    "index abstracts: LangChain": "index cran: time beside LangChain",
    "index abstracts: txtai": "index cran: time beside txtai",
    "index without bfloat16: LangChain": "index cran without bfloat16: time beside LangChain",
    "index without bfloat16: FastEmbed": "index cran without bfloat16: time beside LangChain with FastEmbed",
    "index without bfloat16: Chroma": "index cran without bfloat16: time beside Chroma",
    "index without bfloat16: txtai": "index cran without bfloat16: time beside txtai",
    "static vectors: model2vec": "static: Avg. beside model2vec",
}
"""The task and the peer of recorded ratios."""
WIDTHS = (400, 1400)
HEIGHT = 900


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--site", type=Path, help="folder of the built site, for screenshots")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser that takes the screenshots")
    parser.add_argument("--speed", action="store_true", help="only draw the ratios of the benchmarks")
    given = parser.parse_args()
    draw_speed()
    if given.speed:
        return
    with tempfile.TemporaryDirectory() as folder:
        photograph_search(Path(folder), given.chromium)
        photograph_report(Path(folder), given.chromium)
    if given.site:
        take_screenshots(given.site.resolve(), given.chromium)


def draw_speed() -> None:
    """Draw how many times as fast as its peers ragembed is, on a logarithmic scale."""
    from matplotlib.figure import Figure
    from PIL import Image

    recorded = json.loads((DOCS.parent / "benchmarks" / "speed_ratios.json").read_text(encoding="utf-8"))
    ratios = [recorded[path]["ratio"] for path in FASTER.values()]
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(list(FASTER), [ratio - 1 for ratio in ratios], left=1, color="#2b6cb0", height=0.7)
    axes.bar_label(bars, [f"{ratio:.1f} ×" for ratio in ratios], padding=3, fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.95, 24)
    axes.set_xticks([1, 2, 4, 8, 16], ["1 ×", "2 ×", "4 ×", "8 ×", "16 ×"])
    axes.set_xlabel("times as fast as the other program")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    picture = DOCS / "_static" / "speed.png"
    figure.savefig(picture, dpi=110)
    Image.open(picture).convert("RGB").quantize(32).save(picture, optimize=True)


def take_screenshots(site: Path, chromium: str) -> None:
    """Photograph the first screen of some pages of the built site."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    folder = DOCS / "screenshots"
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                viewport = {"width": width, "height": HEIGHT}
                page = browser.new_page(viewport=viewport, color_scheme=scheme)
                for name in SCREENSHOTS:
                    page.goto((site / f"{name}.html").as_uri())
                    file = folder / f"{name.replace('/', '-')}-{scheme}-{width}.png"
                    page.screenshot(path=file)
                    Image.open(file).quantize(64).save(file, optimize=True)  # a third of the size
                    overflow = page.evaluate(
                        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                    )
                    if overflow > 0:
                        raise SystemExit(f"{name} is {overflow} pixels wider than the window of {width} pixels")
        browser.close()


def photograph_search(folder: Path, chromium: str) -> None:
    """Index and serve some pages, and photograph the search page with an open result."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    picture = DOCS / "_static" / "page.png"
    (folder / "notes").mkdir()
    for name in PAGES:
        shutil.copy(DOCS / name, folder / "notes")
    program = Path(sys.executable).with_name("ragembed")
    subprocess.run([program, "index", "notes", "--quiet"], cwd=folder, check=True)  # noqa: S603
    command = [program, "serve", "notes=.ragembed", "--port", "0", "--no-access-log"]
    with (
        subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server,  # noqa: S603
        sync_playwright() as playwright,
    ):
        url = server.stderr.readline().rstrip().rpartition(" ")[2]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(url)
        page.locator("input[name=q]").fill(SEARCHED)
        page.wait_for_selector("#hit")
        page.screenshot(path=picture)
        browser.close()
        server.terminate()
    Image.open(picture).quantize(64).save(picture, optimize=True)


def photograph_report(folder: Path, chromium: str) -> None:
    """Make a report on the documentation with two queries, and photograph it: light and dark, wide and narrow."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    for file in DOCS.rglob("*.md"):
        copy = folder / "documentation" / "docs" / file.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    program = Path(sys.executable).with_name("ragembed")
    asked = [word for query in REPORTED for word in ("--query", query)]
    for command in (("index", "docs"), ("report", *asked)):
        subprocess.run([program, *command, "--quiet"], cwd=folder / "documentation", check=True)  # noqa: S603
    page_file = (folder / "documentation" / "report.html").as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        )
        for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 400, "light")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(page_file)
            page.locator("#marks").scroll_into_view_if_needed()
            if name == "dark":
                page.locator("#colour").select_option("Folder")
            page.wait_for_timeout(500)
            file = DOCS / "_static" / f"report-{name}.png"
            page.locator("#map").screenshot(path=file)
            Image.open(file).quantize(128).save(file, optimize=True)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(page_file)
        page.screenshot(
            path=DOCS / "_static" / "report-overview.png", clip={"x": 0, "y": 0, "width": 1280, "height": 420}
        )
        Image.open(DOCS / "_static" / "report-overview.png").quantize(64).save(
            DOCS / "_static" / "report-overview.png", optimize=True
        )
        browser.close()


if __name__ == "__main__":
    main()
