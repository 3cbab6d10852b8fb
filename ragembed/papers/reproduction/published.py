"""The numbers that the papers print, from the tables in the folder ``published``.

A file has one block per table of its paper. The first line of a block has the name of the table and its columns, the
other lines a row each. Means are without their deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Numbers = Mapping[str, Mapping[str, float]]
"""Numbers by row and column."""


@cache
def published(paper: str, table: str) -> Numbers:
    """Return the numbers of a table, such as ``published("stankevicius2024", "table A1")["avg."]["RE"]``."""
    for name, columns, rows in _blocks(paper):
        if name == table:
            return {
                row: {column: float(cell) for column, cell in zip(columns, cells, strict=False) if cell}
                for row, *cells in rows
            }
    raise KeyError(f"no table {table!r} of {paper!r}")


@cache
def _blocks(paper: str) -> tuple[tuple[str, list[str], list[list[str]]], ...]:
    text = (files("ragembed.papers.reproduction") / "published" / f"{paper}.tsv").read_text(encoding="utf-8")
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        (name, *columns), *rows = (line.split("\t") for line in block.split("\n"))
        blocks.append((name, columns, rows))
    return tuple(blocks)
