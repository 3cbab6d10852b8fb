"""Read plain text and source code: blocks start at blank lines or definitions. The text of the file is unchanged."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import OwnText, text_of
from ragembed.errors import DocumentError

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PYTHON_SUFFIXES = (".py", ".pyi")
SHIPPED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
MINIFIED_LINE = 200
CLOSERS = ("}", ")", "]", "end", "</")


def parse_plain(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a plain text file. Blank lines separate its blocks."""
    own = OwnText(text_of(data))
    own.add_paragraphs(0, len(own.lines))
    yield ParsedDocument(own.text, own.blocks)


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a source file. Python is split by its syntax tree, other languages by their layout."""
    own = OwnText(text_of(data))
    if path.suffix.lower() in SHIPPED_SUFFIXES and len(own.text) > MINIFIED_LINE * len(own.lines):
        raise DocumentError(f"minified: its lines are {len(own.text) // len(own.lines):,} characters long on average")
    tree = _python_tree(own.text) if path.suffix.lower() in PYTHON_SUFFIXES else None
    if tree is None:
        _add_by_layout(own)
    else:
        _add_definitions(own, tree.body, 0, len(own.lines), ())
    yield ParsedDocument(own.text, own.blocks)


def _python_tree(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _add_definitions(own: OwnText, body: Sequence[ast.stmt], first: int, stop: int, headings: tuple[str, ...]) -> None:
    """Add a block for each function and method in lines ``first`` to ``stop``, and for the code between them."""
    done = first
    for node in body:
        if not isinstance(node, DEFINITIONS):
            continue
        start = max(_first_line(own.lines, node, done), done)
        end = min(node.end_lineno or start + 1, stop)
        if start >= end:
            continue
        own.add(done, start, "code", headings)
        if isinstance(node, ast.ClassDef):
            _add_definitions(own, node.body, start, end, (*headings, f"class {node.name}"))
        else:
            own.add(start, end, "code", (*headings, f"def {node.name}"))
        done = end
    own.add(done, stop, "code", headings)


def _first_line(lines: list[str], node: Definition, done: int) -> int:
    """Return the 0-based first line of a definition, including its decorators and the comments directly above."""
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    while line > done and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def _add_by_layout(own: OwnText) -> None:
    """Start a block at each unindented line that follows a blank line, except lines that only close a bracket."""
    start = 0
    for number in range(1, len(own.lines)):
        line = own.lines[number]
        unindented = line.strip() and not line[0].isspace() and not line.startswith(CLOSERS)
        if unindented and not own.lines[number - 1].strip():
            own.add(start, number, "code")
            start = number
    own.add(start, len(own.lines), "code")
