"""Read plain text, source code and SQL: blocks start at blank lines, definitions or statements. No text is changed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import definitions
from ragembed.documents.readers.definitions import Definition
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, one_line
from ragembed.errors import DocumentError

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PYTHON_SUFFIXES = (".py", ".pyi")
SHIPPED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
MINIFIED_LINE, LONG_LINE, FEWEST_BLANKS = 200, 300, 12
"""Average length of lines of minified JavaScript and CSS; in all languages, length of long lines that are most of the
file, and number of their characters for each blank. Text has a blank for about six."""
CLOSERS = ("}", ")", "]", "end", "</")
CLOSING_LINE = re.compile(r"\W*(end\b\W*|endif\b\W*)?")
"""A line that only ends what was begun above, such as ``});`` and ``#endif``."""


def parse_plain(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a plain text file. Blank lines separate its blocks."""
    file_text = FileText(file.text)
    file_text.add_paragraphs(0, len(file_text.lines))
    yield file_text.document()


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a source file. It is split at its definitions if its language can be parsed, otherwise by its layout."""
    file_text = FileText(file.text)
    suffix, text = file.suffix, file_text.text
    long = "".join(line for line in file_text.lines if len(line) > LONG_LINE)
    is_dense = 2 * len(long) > len(text) and FEWEST_BLANKS * (long.count(" ") + long.count("\t")) < len(long)
    if is_dense or (suffix in SHIPPED_SUFFIXES and len(text) > MINIFIED_LINE * len(file_text.lines)):
        average = len(text) // len(file_text.lines)
        raise DocumentError(f"minified: its lines are {average:,} characters long on average")
    outline = definitions.find(text, suffix, file.options.warn) if definitions.is_available(suffix) else None
    is_source = outline is not None
    if outline is None:
        outline = _python_outline(file_text) if suffix in PYTHON_SUFFIXES else []
    _add_definitions(file_text, outline, 0, len(file_text.lines), ())
    yield ParsedDocument(file_text.text, file_text.blocks, is_source=is_source)


def _add_definitions(
    file_text: FileText, outline: Sequence[Definition], first: int, stop: int, headings: tuple[str, ...]
) -> None:
    """Add a block for each definition in lines ``first`` to ``stop``, and blocks for the code between them."""
    done = first
    for number, definition in enumerate(outline):
        start = max(definition.first, done)
        end = min(definition.stop, stop)
        if start >= end:
            continue
        _add_by_layout(file_text, done, start, headings)
        following = next((later.first for later in outline[number + 1 :] if later.stop > end), stop)
        # Lines that only close brackets belong to the definition.
        done = following if all(map(CLOSING_LINE.fullmatch, file_text.lines[end:following])) else end
        path = (*headings, definition.heading)
        if definition.inner:
            _add_definitions(file_text, definition.inner, start, done, path)
        else:
            file_text.add(start, done, "code", path)
    _add_by_layout(file_text, done, stop, headings)


def _python_outline(file_text: FileText) -> list[Definition]:
    with warnings.catch_warnings(), suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        warnings.simplefilter("ignore")
        return _python_definitions(file_text.lines, ast.parse(file_text.text).body, 0)
    return []


def _python_definitions(lines: Sequence[str], body: Sequence[ast.stmt], done: int) -> list[Definition]:
    """Return the functions and classes of ``body`` with the comments above them, from line ``done`` on."""
    outline = []
    for node in body:
        if not isinstance(node, DEFINITIONS):
            continue
        start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        while start > done and lines[start - 1].lstrip().startswith("#"):
            start -= 1
        start = max(start, done)
        done = max(done, node.end_lineno or start + 1)
        if isinstance(node, ast.ClassDef):
            inner = _python_definitions(lines, node.body, start)
            outline.append(Definition(start, done, f"class {node.name}", inner))
        else:
            outline.append(Definition(start, done, f"def {node.name}"))
    return outline


def _add_by_layout(file_text: FileText, first: int, stop: int, headings: tuple[str, ...] = ()) -> None:
    """Start a block at each unindented line that follows a blank line, except lines that only close a bracket."""
    start = first
    for number in range(first + 1, stop):
        line = file_text.lines[number]
        unindented = line.strip() and not line[0].isspace() and not line.startswith(CLOSERS)
        if unindented and not file_text.lines[number - 1].strip():
            file_text.add(start, number, "code", headings)
            start = number
    file_text.add(start, stop, "code", headings)


STATEMENT = re.compile(
    r"(?:create|alter|drop|insert|update|delete|merge|select|with|grant|revoke|comment|truncate|copy|set|use|begin|start|"
    r"commit|rollback|explain|analyze|vacuum|pragma|call|exec|execute|do|load|lock|show|if|print|go|\\|--|/\*)(?:\b|$|\W)",
    re.IGNORECASE,
)
STATEMENT_END = re.compile(r"(?:;|^\\\.|^go|^/)\s*(?:--.*)?$", re.IGNORECASE)
STATEMENT_OBJECT = re.compile(
    r"(?P<verb>create|alter|drop|insert|comment|copy)\s+(?P<what>[^('=;]*?)(?:\s*\(|\s+(?:as|values|on|add|from|is|set|"
    r"select|returns|using|for)\b|\s*;|\s*$)",
    re.IGNORECASE | re.MULTILINE,
)
NOISE_WORDS = re.compile(
    r"\b(?:or\s+replace|if\s+not\s+exists|if\s+exists|temporary|temp|unlogged|global|local|only|definer\s*=\s*\S+)\s+",
    re.IGNORECASE,
)
LONGEST_NAME = 120


def parse_sql(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a SQL file. A statement starts at an unindented keyword or comment, after a line that ends a statement."""
    file_text = FileText(file.text)
    lines = file_text.lines
    start, ended, in_comment = 0, True, False
    code: int | None = None
    for number, line in enumerate(lines):
        if ended and code is not None and not in_comment and STATEMENT.match(line):
            _add_statement(file_text, start, code, number)
            start, code = number, None
        is_comment = in_comment or line.lstrip().startswith(("--", "/*"))
        in_comment = (in_comment or line.lstrip().startswith("/*")) and "*/" not in line
        if line.strip() and not is_comment:
            ended, code = bool(STATEMENT_END.search(line)), number if code is None else code
    _add_statement(file_text, start, start if code is None else code, len(lines))
    yield file_text.document()


def _add_statement(file_text: FileText, start: int, code: int, stop: int) -> None:
    """Add the statement in the lines ``start`` to ``stop``. ``code`` is its first line that is not a comment."""
    match = STATEMENT_OBJECT.match("\n".join(file_text.lines[code : min(code + 3, stop)]))
    name = one_line(NOISE_WORDS.sub("", f"{match['verb'].upper()} {match['what']}")) if match else ""
    file_text.add(start, stop, "code", (name,) if 0 < len(name) <= LONGEST_NAME else ())
