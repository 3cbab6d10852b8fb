"""Read Jupyter notebooks: the sources of the cells. Each line has its line number in the .ipynb file."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragembed.documents.model import BlockKind, ParsedDocument
from ragembed.documents.readers.markdown import first_title, markdown_blocks
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import HeadingPath, TextBuilder, text_of, well_formed
from ragembed.errors import DocumentError

ELEMENT = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]', re.DOTALL)
SOURCE_KEYS = ("source", "input")
"""Keys of a cell's source. Code cells of notebook format 3 use ``input``."""


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a notebook without its outputs. The title is the first level-1 heading.

    Raises
    ------
    DocumentError
        If the file is not valid notebook JSON.
    """
    raw = text_of(data)
    cells = _cells(raw)
    places = _source_lines(raw)
    builder, path_of_headings, title = TextBuilder(), HeadingPath(), None
    for index, cell in enumerate(cells):
        source, numbers = _joined(cell, places.get(index, []))
        if not source.strip():
            continue
        if cell.get("cell_type") == "markdown":
            blocks = markdown_blocks(source, path_of_headings)
            title = title or first_title(source, blocks)
            builder.add_blocks(source, blocks, numbers)
        else:
            kind: BlockKind = "code" if cell.get("cell_type") == "code" else "text"
            lines = zip(source.split("\n"), numbers, strict=True)
            builder.add(lines, kind, path_of_headings.headings, numbers[-1])
    yield ParsedDocument(builder.text, builder.blocks, title, line_numbers=builder.places)


def _cells(raw: str) -> list[dict[str, Any]]:
    try:
        notebook = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"invalid notebook JSON: {error}") from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if cells is None and isinstance(notebook, dict):
        sheets = notebook.get("worksheets")
        first = sheets[0] if isinstance(sheets, list) and sheets else None
        cells = first.get("cells") if isinstance(first, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise DocumentError("invalid notebook: it has no list of cells")
    return cells


def _joined(cell: dict[str, Any], places: list[int]) -> tuple[str, list[int]]:
    """Return the cell's source without trailing line breaks, and the file line of each of its lines."""
    source = next((cell[key] for key in SOURCE_KEYS if key in cell), "")
    strings = source if isinstance(source, list) else [source]
    parts = [part for part in strings if isinstance(part, str)]
    text, numbers = "", [places[0] if places else 1]
    for part, place in zip(parts, places, strict=False):
        if text.endswith("\n") or not text:
            numbers[-1] = place
        text += part
        numbers += [place] * part.count("\n")
    text = well_formed(text)
    lines = text.count("\n") + 1
    stripped = text.rstrip("\n")
    return stripped, numbers[: lines - (len(text) - len(stripped))]


def _source_lines(raw: str) -> dict[int, list[int]]:
    """Return, for each cell, the lines of ``raw`` on which the strings of its source start.

    The function tracks the nesting of brackets, so it never confuses a source with the same text in an output.
    """
    breaks = [match.start() for match in re.finditer("\n", raw)]
    found: dict[int, list[int]] = {}
    nest: list[str | int] = []
    pending = ""
    for match in ELEMENT.finditer(raw):
        mark = match.group()
        if mark == "{":
            nest.append("")
        elif mark == "[":
            nest.append(0)
        elif mark in ("}", "]"):
            del nest[-1:]
        elif mark == ":":
            if nest and isinstance(nest[-1], str):
                nest[-1] = pending
        elif mark == ",":
            if nest:
                nest[-1] = nest[-1] + 1 if isinstance(nest[-1], int) else ""
        else:
            cell = _source_cell(nest)
            if cell is None:
                pending = mark[1:-1]
            else:
                found.setdefault(cell, []).append(bisect_right(breaks, match.start()) + 1)
    return found


def _source_cell(nest: list[str | int]) -> int | None:
    """Return the number of the cell if a string at the position ``nest`` belongs to its source, else None."""
    if nest[:2] == ["worksheets", 0]:
        nest = nest[2:]
    if len(nest) not in (3, 4) or nest[0] != "cells" or nest[2] not in SOURCE_KEYS:
        return None
    return nest[1] if isinstance(nest[1], int) else None
