"""Read SQL: a block per statement, below the name of the object that it creates or changes. The text is unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, one_line

STATEMENT = re.compile(
    r"(?:create|alter|drop|insert|update|delete|merge|select|with|grant|revoke|comment|truncate|copy|set|use|begin|start|"
    r"commit|rollback|explain|analyze|vacuum|pragma|call|exec|execute|do|load|lock|show|if|print|go|\\|--|/\*)(?:\b|$|\W)",
    re.IGNORECASE,
)
END = re.compile(r"(?:;|^\\\.|^go|^/)\s*(?:--.*)?$", re.IGNORECASE)
OBJECT = re.compile(
    r"(?P<verb>create|alter|drop|insert|comment|copy)\s+(?P<what>[^('=;]*?)(?:\s*\(|\s+(?:as|values|on|add|from|is|set|"
    r"select|returns|using|for)\b|\s*;|\s*$)",
    re.IGNORECASE | re.MULTILINE,
)
NOISE = re.compile(
    r"\b(?:or\s+replace|if\s+not\s+exists|if\s+exists|temporary|temp|unlogged|global|local|only|definer\s*=\s*\S+)\s+",
    re.IGNORECASE,
)
LONGEST_NAME = 120


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a SQL file. A statement starts at an unindented keyword or comment, after a line that ends a statement."""
    file_text = FileText(file.text)
    lines = file_text.lines
    start, ended, in_comment = 0, True, False
    code: int | None = None
    for number, line in enumerate(lines):
        if ended and code is not None and not in_comment and STATEMENT.match(line):
            _add(file_text, start, code, number)
            start, code = number, None
        is_comment = in_comment or line.lstrip().startswith(("--", "/*"))
        in_comment = (in_comment or line.lstrip().startswith("/*")) and "*/" not in line
        if line.strip() and not is_comment:
            ended, code = bool(END.search(line)), number if code is None else code
    _add(file_text, start, start if code is None else code, len(lines))
    yield ParsedDocument(file_text.text, file_text.blocks)


def _add(file_text: FileText, start: int, code: int, stop: int) -> None:
    """Add the statement in the lines ``start`` to ``stop``. ``code`` is its first line that is not a comment."""
    match = OBJECT.match("\n".join(file_text.lines[code : min(code + 3, stop)]))
    name = one_line(NOISE.sub("", f"{match['verb'].upper()} {match['what']}")) if match else ""
    file_text.add(start, stop, "code", (name,) if 0 < len(name) <= LONGEST_NAME else ())
