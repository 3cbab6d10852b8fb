"""Read Jupyter notebooks: the sources and outputs of the cells. Each line has its line number in the .ipynb file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ragembed.documents.model import BlockKind, ParsedDocument
from ragembed.documents.readers.html import parse_page
from ragembed.documents.readers.markdown import MarkdownScanner, first_title
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.records import Members, value_lines
from ragembed.documents.readers.structure import HeadingPath, TextBuilder, well_formed
from ragembed.errors import DocumentError

SOURCE_KEYS = ("source", "input")
"""Keys of a cell's source. Code cells of notebook format 3 use ``input``."""
OUTPUT_KEYS = ("text/markdown", "text/plain", "text/latex", "text", "latex", "text/html", "html", "evalue")
"""Keys of an output's text, best first. Format 3 uses names without a slash. ``evalue`` is the message of an error."""
HTML_KEYS = ("text/html", "html")
LONGEST_OUTPUT = 2_000
"""Maximum length of an output. Of a longer one, the first lines are read."""
LONGEST_HTML = 50_000
REPRESENTATION = re.compile(r"<[^\n]*>$")
TERMINAL_CODE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
Place: TypeAlias = "tuple[int, int, str]"
"""The number of a cell, the number of an output or -1 for the source, and the key of a text."""


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a notebook with the text of its outputs. The title is the first level-1 heading."""
    raw = file.text
    cells = _cells(raw)
    places = _text_lines(raw)
    builder, path_of_headings, title = TextBuilder(), HeadingPath(), None
    for index, cell in enumerate(cells):
        source, numbers = _source(cell, index, places)
        if not source.strip():
            pass
        elif cell.get("cell_type") == "markdown":
            scanner = MarkdownScanner(source, path_of_headings)
            scanner.scan()
            text, blocks = scanner.file_text.text, scanner.file_text.blocks
            title = title or first_title(text, blocks)
            builder.add_blocks(text, blocks, numbers)
        else:
            kind: BlockKind = "code" if cell.get("cell_type") == "code" else "text"
            lines = zip(source.split("\n"), numbers, strict=True)
            builder.add(lines, kind, path_of_headings.headings, numbers[-1])
        for output in _outputs(cell, index, places):
            builder.add(output, "code", path_of_headings.headings)
    yield builder.document(title)


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


def _source(cell: dict[str, Any], index: int, places: Mapping[Place, list[int]]) -> tuple[str, list[int]]:
    key = next((key for key in SOURCE_KEYS if key in cell), "source")
    return _joined(cell.get(key, ""), places.get((index, -1, key), []))


def _outputs(cell: dict[str, Any], index: int, places: Mapping[Place, list[int]]) -> Iterator[list[tuple[str, int]]]:
    """Yield the lines of each output of a cell that has text, up to ``LONGEST_OUTPUT`` characters."""
    outputs = cell.get("outputs")
    for number, output in enumerate(outputs if isinstance(outputs, list) else []):
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        texts = {**output, **data} if isinstance(data, dict) else output
        keys = [key for key in OUTPUT_KEYS if texts.get(key)]
        if (
            keys
            and isinstance(data, dict)
            and len(data) > 1
            and REPRESENTATION.match("".join(_strings(texts[keys[0]])))
        ):
            del keys[0]  # the name of an object, such as <Figure size 640x480 with 1 Axes>, beside its picture
        if keys and (lines := _output_lines(texts[keys[0]], keys[0], places.get((index, number, keys[0]), []))):
            name = texts.get("ename")
            if keys[0] == "evalue" and isinstance(name, str):
                lines[0] = (f"{name}: {lines[0][0]}", lines[0][1])
            yield lines


def _output_lines(value: object, key: str, places: list[int]) -> list[tuple[str, int]]:
    text, numbers = _joined(value, places)
    if key in HTML_KEYS:
        page = parse_page(text[:LONGEST_HTML])
        text, numbers = page.text, [numbers[min(line, len(numbers)) - 1] for line in page.line_numbers or ()]
    text = TERMINAL_CODE.sub("", text)
    lines: list[tuple[str, int]] = []
    room = LONGEST_OUTPUT
    for line, place in zip(text.split("\n"), numbers, strict=False):
        room -= len(line) + 1
        if room < 0:
            lines.append((line[: room + len(line) + 1], place))
            break
        lines.append((line, place))
    return lines if any(line.strip() for line, _ in lines) else []


def _strings(value: object) -> list[str]:
    return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)]


def _joined(value: object, places: list[int]) -> tuple[str, list[int]]:
    """Return a text without trailing line breaks, and the file line of each of its lines."""
    text, numbers = "", [places[0] if places else 1]
    for part, place in zip(_strings(value), places, strict=False):
        if text.endswith("\n") or not text:
            numbers[-1] = place
        text += part
        numbers += [place] * part.count("\n")
    text = well_formed(text)
    lines = text.count("\n") + 1
    stripped = text.rstrip("\n")
    return stripped, numbers[: lines - (len(text) - len(stripped))]


def _text_lines(raw: str) -> dict[Place, list[int]]:
    """Return the lines of ``raw``, which is valid JSON, on which the strings of each source and each output start."""
    found: dict[Place, list[int]] = {}
    lines = value_lines(raw)
    pending: list[tuple[Any, tuple[str | int, ...]]] = [(json.loads(raw, object_pairs_hook=Members), ())]
    while pending:
        value, path = pending.pop()
        line = next(lines)
        if isinstance(value, Members):
            pending += [(inner, (*path, key)) for key, inner in reversed(value)]
        elif isinstance(value, list):
            pending += [(inner, (*path, at)) for at, inner in reversed([*enumerate(value)])]
        elif isinstance(value, str) and (place := _place(path)):
            found.setdefault(place, []).append(line)
    return found


def _place(path: Sequence[str | int]) -> Place | None:
    """Return the place of the string at ``path`` if it belongs to a source or an output, else None."""
    match path:
        case ["worksheets", 0, *below]:
            return _place(below)
        case ["cells", int(cell), ("source" | "input") as key, *below] if len(below) < 2:
            return cell, -1, key
        case ["cells", int(cell), "outputs", int(output), "data", str(key), *below] if len(below) < 2:
            return (cell, output, key) if key in OUTPUT_KEYS else None
        case ["cells", int(cell), "outputs", int(output), str(key), *below] if len(below) < 2 and key in OUTPUT_KEYS:
            return cell, output, key
    return None
