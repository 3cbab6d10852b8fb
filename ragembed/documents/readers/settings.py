"""Read settings: YAML by keys and records, TOML and INI by sections, Dockerfiles by stages. The text is unchanged.

The files are split by their lines and not parsed, so anchors, tags and includes have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, one_line

LARGE_ENTRY = 20
"""A YAML entry with more lines is split into the entries below it."""
DEEPEST = 8
YAML_KEY = re.compile(r"""(?P<key>"[^"\n]*"|'[^'\n]*'|[^\s#\-\[{&*!|>%@`"'][^#:\n]*|-[^\s:][^:\n]*):(?=\s|$)""")
YAML_ITEM = re.compile(r"-(?:\s|$)")
YAML_TEXT = re.compile(r":\s+(?:[&!]\S+\s+)*[|>][-+\d]*\s*(?:#.*)?$")
YAML_MARK = re.compile(r"(?:---|\.\.\.)(?:\s|$)")
YAML_NAME = re.compile(r"""\s*(?:-\s+)?(?:title|name|id|key):\s+["']?(?P<name>[^\s"'#&*|>{\[][^"'#]*)""")
SECTION = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<name>[^\[\]\n]+?)\s*\]\]?\s*(?:[#;].*)?$")
STAGE = re.compile(r"\s*FROM\s+\S", re.IGNORECASE)


def parse_yaml(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a YAML file: a block per top-level key or record. Large entries are split into the entries below them."""
    file_text = FileText(file.text)
    start = 0
    for number, line in enumerate(file_text.lines):
        if YAML_MARK.match(line):
            _add_entries(file_text, start, number, ())
            file_text.add(number, number + 1, "code")
            start = number + 1
    _add_entries(file_text, start, len(file_text.lines), ())
    yield file_text.document()


def parse_sections(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a TOML or INI file. The names of sections are headings; in TOML, dots separate their levels."""
    is_toml = file.suffix == ".toml"
    file_text, quotes = FileText(file.text), ""
    starts: list[tuple[int, tuple[str, ...]]] = []
    for number, line in enumerate(file_text.lines):
        if not quotes and (match := SECTION.match(line)):
            parts = match["name"].split(".") if is_toml and not set("\"'") & set(match["name"]) else [match["name"]]
            starts.append((number, tuple(part.strip() for part in parts)))
        for mark in ('"""', "'''"):
            if quotes in ("", mark) and line.count(mark) % 2:
                quotes = "" if quotes else mark
    yield _sections(file_text, starts)


def parse_dockerfile(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a Dockerfile. The ``FROM`` lines of the stages are headings."""
    file_text = FileText(file.text)
    yield _sections(file_text, [(n, (one_line(line),)) for n, line in enumerate(file_text.lines) if STAGE.match(line)])


def _sections(file_text: FileText, starts: Iterable[tuple[int, tuple[str, ...]]]) -> ParsedDocument:
    """Return the document whose sections start at some lines with their headings, or at the comments above."""
    start: int = 0
    headings: tuple[str, ...] = ()
    for number, below in starts:
        stop = _comments_above(file_text.lines, number, start)
        file_text.add_paragraphs(start, stop, "code", headings)
        start, headings = stop, below
    file_text.add_paragraphs(start, len(file_text.lines), "code", headings)
    return file_text.document()


def _comments_above(lines: list[str], number: int, first: int) -> int:
    """Return the first line of the comments directly above line ``number``, not before line ``first``."""
    while number > first and lines[number - 1].lstrip().startswith(("#", ";")):
        number -= 1
    return number


@dataclass
class _YamlEntry:
    """A key or a list item with the lines below it: ``start`` to ``stop``, and ``first`` without its comments."""

    start: int
    first: int
    stop: int
    key: str | None


def _add_entries(file_text: FileText, first: int, stop: int, headings: tuple[str, ...]) -> None:
    """Add the blocks of the lines ``first`` to ``stop``, which are below ``headings``."""
    lines = file_text.lines
    entries = _yaml_entries(lines, first, stop)
    done = first
    for entry in entries:
        if entry.key is not None and not any(map(_is_content, lines[entry.first + 1 : entry.stop])):
            continue  # consecutive plain values share a block
        file_text.add(done, entry.start, "code", headings)
        done = entry.stop
        name = entry.key if entry.key is not None else _record_name(lines, entry)
        path = (*headings, name) if name else headings
        is_small = entry.stop - entry.start <= LARGE_ENTRY
        is_text = entry.key is None or YAML_TEXT.search(lines[entry.first])
        if is_text or (is_small and not _has_records(lines, entry)) or len(path) > DEEPEST:
            file_text.add(entry.start, entry.stop, "code", path)
        else:
            file_text.add(entry.start, entry.first + 1, "code", path)
            _add_entries(file_text, entry.first + 1, entry.stop, path)
    file_text.add(done, stop, "code", headings)


def _yaml_entries(lines: list[str], first: int, stop: int) -> list[_YamlEntry]:
    """Return the keys, or else the list items, at the indentation of the first line that is not a comment."""
    top = next((n for n in range(first, stop) if _is_content(lines[n])), stop)
    if top == stop:
        return []
    margin = _margin(lines[top])
    starts = YAML_ITEM if YAML_ITEM.match(lines[top], margin) else YAML_KEY
    entries: list[_YamlEntry] = []
    for number in range(top, stop):
        line = lines[number]
        if not _is_content(line) or _margin(line) != margin or not (match := starts.match(line, margin)):
            continue
        start = _comments_above(lines, number, entries[-1].first + 1 if entries else first)
        if entries:
            entries[-1].stop = start
        key = match["key"].strip("\"' ") if starts is YAML_KEY else None
        entries.append(_YamlEntry(start, number, stop, key))
    return entries


def _has_records(lines: list[str], entry: _YamlEntry) -> bool:
    """Return whether the entry is a list of mappings."""
    below = next((lines[n] for n in range(entry.first + 1, entry.stop) if _is_content(lines[n])), "")
    item = YAML_ITEM.match(below, _margin(below))
    return bool(item and YAML_KEY.match(below.lstrip()[1:].lstrip()))


def _record_name(lines: list[str], entry: _YamlEntry) -> str | None:
    inner = _margin(lines[entry.first]) + 2
    for number in range(entry.first, entry.stop):
        match = YAML_NAME.match(lines[number])
        if match and (number == entry.first or _margin(lines[number]) <= inner):
            return one_line(match["name"])
    return None


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
