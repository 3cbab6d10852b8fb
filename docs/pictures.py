"""Make the pictures of the documentation.

``make pictures`` takes pictures of the search page, ``docs/_static/page.png``, and of a report on the documentation,
``docs/_static/report-*.png``. With ``--site FOLDER``, the folder of the built site, it also takes screenshots of four
pages, each light and dark, 400 and 1,400 pixels wide, as ``docs/screenshots/*.png``. It needs Chromium.
"""

from __future__ import annotations

import argparse
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
WIDTHS = (400, 1400)
HEIGHT = 900


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--site", type=Path, help="folder of the built site, for screenshots")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser that takes the screenshots")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photograph_search(Path(folder), given.chromium)
        photograph_report(Path(folder), given.chromium)
    if given.site:
        take_screenshots(given.site.resolve(), given.chromium)


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
