"""HTML as a tree of elements, written by the standard library: no text can become markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from ragembed.printable import printable

Child = Element | str | None

OWN_PAGE = b"<!doctype html>\n<!-- made by ragembed -->\n"
"""The first bytes of each page that ragembed writes to a file: it overwrites no other, and indexes none of them."""


def element(tag: str, *children: Child, **attributes: str | bool | None) -> Element:
    """Return an element. Attributes that are None or False are left out; ``class_`` stands for ``class``."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None and value is not False:
            made.set(name.rstrip("_").replace("_", "-"), "" if value is True else printable(value))
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif child and last is None:
            made.text = (made.text or "") + printable(child)
        elif child and last is not None:
            last.tail = (last.tail or "") + printable(child)
    return made


def table(head: Sequence[str], rows: Iterable[Sequence[Child]], caption: str | None = None) -> Element:
    """Return a table whose first column names the rows."""
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    names = (element("th", name, scope="col") if name else element("td") for name in head)
    top = element("thead", element("tr", *names)) if any(head) else None
    return element("table", element("caption", caption) if caption else None, top, element("tbody", *lines))


def as_html(made: Element) -> bytes:
    """Return an element as HTML, in UTF-8."""
    text: bytes = tostring(made, "utf-8", method="html")
    return text


def notebook_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Child]]) -> str:
    """Return a table as HTML, for the method ``_repr_html_`` by which notebooks show an object."""
    return as_html(table(head, rows, caption)).decode("utf-8")
