"""Run the tables and figures of the papers that the methods come from, beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from ragembed.errors import ConfigError
from ragembed.papers.reproduction import defsent_plus, sbert_wk, stankevicius
from ragembed.papers.reproduction.reproduction_run import Item

PAPERS: Mapping[str, Callable[[], Iterable[Item]]] = {
    paper.PAPER: paper.items for paper in (stankevicius, sbert_wk, defsent_plus)
}
"""The items of each paper."""


@cache
def items(paper: str) -> Mapping[str, Item]:
    """Return the tables and figures of a paper by name, such as ``"table 4"``."""
    if paper not in PAPERS:
        raise ConfigError(f"unknown paper {paper!r}: expected one of {', '.join(PAPERS)}")
    return {item.name: item for item in PAPERS[paper]()}


def find_item(paper: str, name: str) -> Item:
    """Return a table or figure; raise :class:`ConfigError` for an unknown one."""
    found = items(paper)
    if name not in found:
        raise ConfigError(f"{paper} has no {name!r} to reproduce: expected one of {', '.join(found)}")
    return found[name]
