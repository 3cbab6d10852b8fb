"""Read BibTeX: each entry is a document with lines ``field: value``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.latex import Macros, plain
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import has_too_many

ENTRY = re.compile(r"^[ \t]*@[ \t]*(?P<type>[A-Za-z]+)[ \t\n]*[{(]", re.MULTILINE)
KEY = re.compile(r"\s*(?P<key>[^\s,{}=]+)\s*,")
FIELD = re.compile(r"[\s,]*(?P<name>[A-Za-z][\w.:+-]*)\s*=\s*")
PART = re.compile(r"\s*(?:\#\s*)?(?:(?P<quote>\")|(?P<brace>\{)|(?P<word>[^\s,#{}\"=()]+))")
EDGE = re.compile(r"\\.|[{}\"]", re.DOTALL)
JOINED = re.compile(r"\s*#")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a BibTeX file. A file without entries, or with too many fields, is read as plain text."""
    text = file.text
    strings = Macros()
    line, counted, found = 1, 0, False
    entries = [] if has_too_many("@=\\{$~'`&%", text) else [*ENTRY.finditer(text)]
    for entry, end in zip(entries, [*(entry.start() for entry in entries[1:]), len(text)], strict=False):
        line += text.count("\n", counted, entry.start())
        counted = entry.start()
        kind = entry["type"].lower()
        if kind == "string":
            fields = _fields(text[entry.start() : end], entry.end() - entry.start(), line, strings)
            for name, value, _ in fields:
                strings.define(name.lower(), value)
        elif kind not in ("comment", "preamble"):
            found = True
            yield _document(kind, text[entry.start() : end], entry.end() - entry.start(), line, strings)
    if not found:
        yield from source.parse_plain(file)


def _document(kind: str, text: str, done: int, line: int, strings: Macros) -> ParsedDocument:
    """Return the document of the entry ``text``, which starts at ``line``. Its key starts at position ``done``."""
    key = KEY.match(text, done)
    lines = [(f"{kind} {key['key']}" if key else kind, line)]
    title = None
    for name, value, at in _fields(text, key.end() if key else done, line, strings):
        if written := plain(value):
            lines.append((f"{name.lower()}: {written}", at))
            title = written if name.lower() == "title" else title
    written = "\n".join(text for text, _ in lines)
    metadata = {"entry": key["key"], "type": kind} if key else {"type": kind}
    return ParsedDocument(written, [Block(0, len(written))], title, [at for _, at in lines], metadata=metadata)


def _fields(text: str, done: int, line: int, strings: Macros) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the value and the line of each field of the entry ``text`` from position ``done`` on."""
    counted = 0
    while match := FIELD.match(text, done):
        line += text.count("\n", counted, match.start("name"))
        counted = match.start("name")
        parts: list[str] = []
        done = match.end()
        while part := PART.match(text, done):
            if part["word"]:
                parts.append(strings.text(part["word"].lower()) or part["word"])
                done = part.end()
            else:
                stop = _value_end(text, part.end(), '"' if part["quote"] else "}")
                parts.append(text[part.end() : stop])
                done = stop + 1
            if not JOINED.match(text, done):
                break
        yield match["name"], "".join(parts), line


def _value_end(text: str, start: int, closing: str) -> int:
    """Return the position of the mark that closes the value that starts at ``start``."""
    depth = 0
    for match in EDGE.finditer(text, start):
        if match[0] == closing and not depth:
            return match.start()
        depth += {"{": 1, "}": -1}.get(match[0], 0)
    return len(text)
