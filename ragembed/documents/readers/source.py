"""Read plain text and source code: blocks start at blank lines or definitions. The text of the file is unchanged."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.reader import ReadOptions
from ragembed.documents.readers.structure import FileText, text_of
from ragembed.errors import DocumentError

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PYTHON_SUFFIXES = (".py", ".pyi")
SHIPPED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
MINIFIED_LINE = 200
CLOSERS = ("}", ")", "]", "end", "</")


def parse_plain(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a plain text file. Blank lines separate its blocks."""
    file_text = FileText(text_of(data))
    file_text.add_paragraphs(0, len(file_text.lines))
    yield ParsedDocument(file_text.text, file_text.blocks)


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument]:  # noqa: ARG001
    """Read a source file. Python is split by its syntax tree, other languages by their layout."""
    file_text = FileText(text_of(data))
    if path.suffix.lower() in SHIPPED_SUFFIXES and len(file_text.text) > MINIFIED_LINE * len(file_text.lines):
        raise DocumentError(
            f"minified: its lines are {len(file_text.text) // len(file_text.lines):,} characters long on average"
        )
    tree = _python_tree(file_text.text) if path.suffix.lower() in PYTHON_SUFFIXES else None
    if tree is None:
        _add_by_layout(file_text)
    else:
        _add_definitions(file_text, tree.body, 0, len(file_text.lines), ())
    yield ParsedDocument(file_text.text, file_text.blocks)


def _python_tree(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _add_definitions(
    file_text: FileText, body: Sequence[ast.stmt], first: int, stop: int, headings: tuple[str, ...]
) -> None:
    """Add a block for each function and method in lines ``first`` to ``stop``, and for the code between them."""
    done = first
    for node in body:
        if not isinstance(node, DEFINITIONS):
            continue
        start = max(_first_line(file_text.lines, node, done), done)
        end = min(node.end_lineno or start + 1, stop)
        if start >= end:
            continue
        file_text.add(done, start, "code", headings)
        if isinstance(node, ast.ClassDef):
            _add_definitions(file_text, node.body, start, end, (*headings, f"class {node.name}"))
        else:
            file_text.add(start, end, "code", (*headings, f"def {node.name}"))
        done = end
    file_text.add(done, stop, "code", headings)


def _first_line(lines: list[str], node: Definition, done: int) -> int:
    """Return the 0-based first line of a definition, including its decorators and the comments directly above."""
    line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    while line > done and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def _add_by_layout(file_text: FileText) -> None:
    """Start a block at each unindented line that follows a blank line, except lines that only close a bracket."""
    start = 0
    for number in range(1, len(file_text.lines)):
        line = file_text.lines[number]
        unindented = line.strip() and not line[0].isspace() and not line.startswith(CLOSERS)
        if unindented and not file_text.lines[number - 1].strip():
            file_text.add(start, number, "code")
            start = number
    file_text.add(start, len(file_text.lines), "code")
