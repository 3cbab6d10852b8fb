"""One HTML file that needs nothing else: styles, script and data are inside, and it may load nothing.

The script can run only because the file names its hash, so no text of a document can become a program. Data for the
script is in a block that browsers do not execute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from ragembed.errors import ConfigError
from ragembed.files import NotRegularFileError, open_regular, replace_file
from ragembed.html_elements import Child, as_html, element, table
from ragembed.printable import printable

_BEGINNING = b"<!doctype html>\n<!-- made by ragembed -->\n"
"""The first bytes of each file, by which ragembed knows its own."""

_STATIC = files("ragembed.reports").joinpath("static")


def check_output(file: Path) -> None:
    """Raise :class:`ConfigError` if ``file`` cannot be written, or if it exists and ragembed did not write it."""
    if file.is_symlink():
        raise ConfigError(f"the page {file} is a symbolic link: expected a new file, or a page that ragembed wrote")
    if not file.parent.is_dir():
        raise ConfigError(f"no folder at {file.parent}: create it first, or write the page to another folder")
    try:
        with open_regular(file) as stream:
            is_own = stream.read(len(_BEGINNING)) == _BEGINNING
    except FileNotFoundError:
        if not os.access(file.parent, os.W_OK):
            raise ConfigError(f"the folder {file.parent} is not writable: write the page to another folder") from None
        return
    except (NotRegularFileError, OSError) as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}; write the page to another file") from error
    if not is_own:
        raise ConfigError(f"{file} exists, and ragembed did not write it: move it away, or name another file")


def write_page(file: Path, page: bytes) -> None:
    """Write a page that :func:`page` returned, atomically; raises as :func:`check_output` does."""
    check_output(file)
    replace_file(file, page)


def page(title: str, about: str, sections: Sequence[Element], data: Any = None) -> bytes:
    """Return a page with a title, a line about it, sections with ids, and JSON ``data`` for the script, or None."""
    _distinguish(sections)
    style = static_file("report.css")
    script = None if data is None else static_file("report.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    policy += "" if script is None else f"; script-src '{_hash(script)}'"
    links = [element("a", _heading(each), href=f"#{each.get('id')}") for each in sections]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style),
    )
    nav = element("nav", *links, aria_label="Sections") if len(links) > 1 else None
    body = element(
        "body",
        element("header", element("h1", title), element("p", about), nav),
        element("main", *sections),
        None if data is None else element("script", _inert(data), type="application/json", id="map-data"),
        None if script is None else element("script", script),
    )
    return _BEGINNING + as_html(element("html", head, body, lang="en")) + b"\n"


def _distinguish(sections: Sequence[Element]) -> None:
    """Give sections with the same id, such as those of two evaluations, different ones."""
    seen: Counter[str] = Counter()
    for made in sections:
        name = str(made.get("id"))
        seen[name] += 1
        if seen[name] > 1:
            made.set("id", f"{name}-{seen[name]}")
            made.set("aria-labelledby", f"{name}-{seen[name]}-heading")
            made[0].set("id", f"{name}-{seen[name]}-heading")


def section(name: str, heading: str, *children: Child) -> Element:
    """Return a section whose id is ``name``."""
    return element(
        "section", element("h2", heading, id=f"{name}-heading"), *children, id=name, aria_labelledby=f"{name}-heading"
    )


def data_table(label: str, head: Sequence[str], rows: Iterable[Sequence[Child]], caption: str | None = None) -> Element:
    """Return a table that :func:`scrolled` wraps."""
    return scrolled(table(head, rows, caption), label)


def scrolled(wide: Element, label: str) -> Element:
    """Return a table that scrolls sideways in a narrow window, with the keyboard too."""
    return element("div", wide, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {label}")


def bar(share: float, most: float = 1.0) -> Element:
    """Return a bar for a value beside its number, which is the text alternative."""
    width = f"{max(0.0, min(100.0 * share / most, 100.0)) if most > 0 else 0.0:.1f}"
    drawn = element("rect", x="0", y="1", width=width, height="8", class_="more")
    return element("svg", drawn, viewBox="0 0 100 10", width="100", height="10", aria_hidden="true")


def encoded(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text, of at most ``most`` characters."""
    text = printable(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _heading(made: Element) -> str:
    return next((child.text or "" for child in made if child.tag == "h2"), "")


def static_file(name: str) -> str:
    """Return a file of the package: a style, a script, or markup without texts of documents."""
    return _STATIC.joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _inert(data: Any) -> str:
    """Return JSON that contains no ``<``, so that nothing in it can end its element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
