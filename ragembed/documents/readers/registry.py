"""The table of readers, and the choice of the reader for a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ragembed.documents.decoding import is_binary
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import (
    epub,
    html,
    markdown,
    notebook,
    office,
    pdf,
    rst,
    source,
    table,
)
from ragembed.documents.readers.reader import DEFAULT_OPTIONS, Reader, ReadOptions
from ragembed.documents.unread import unread_reason
from ragembed.errors import DocumentError
from ragembed.files import open_regular

PLAIN = Reader("text", 1, (".txt", ".text", ".log"), source.parse_plain)
SOURCE_SUFFIXES = (
    ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".vue", ".c", ".h", ".cc", ".cpp",
    ".cxx", ".hpp", ".hh", ".java", ".go", ".rs", ".rb", ".php", ".sh", ".bash", ".zsh", ".fish", ".ps1",
    ".bat", ".sql", ".swift", ".kt", ".kts", ".cs", ".fs", ".scala", ".clj", ".lua", ".pl", ".pm", ".r",
    ".jl", ".hs", ".ml", ".ex", ".exs", ".erl", ".dart", ".groovy", ".gradle", ".m", ".mm", ".zig",
    ".proto", ".graphql", ".tf", ".cmake", ".mk", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf",
    ".properties", ".xml", ".css", ".scss", ".less", ".json", ".json5",
)  # fmt: skip
SOURCE = Reader("source", 1, SOURCE_SUFFIXES, source.parse)
READERS = (
    Reader("markdown", 1, (".md", ".markdown", ".mdown", ".mkd", ".mdx"), markdown.parse),
    Reader("rst", 1, (".rst", ".rest"), rst.parse),
    Reader("html", 1, (".html", ".htm", ".xhtml"), html.parse),
    Reader("csv", 1, (".csv", ".tsv", ".tab"), table.parse_delimited),
    Reader("jsonl", 1, (".jsonl", ".ndjson"), table.parse_json_lines),
    Reader("notebook", 1, (".ipynb",), notebook.parse),
    Reader("pdf", 1, (".pdf",), pdf.parse, extra="pdf"),
    Reader("docx", 1, (".docx",), office.parse_docx, extra="office"),
    Reader("pptx", 1, (".pptx",), office.parse_pptx, extra="office"),
    Reader("epub", 1, (".epub",), epub.parse),
    SOURCE,
    PLAIN,
)
BY_SUFFIX = {suffix: reader for reader in READERS for suffix in reader.suffixes}
CODE_NAMES = (
    "makefile", "gnumakefile", "dockerfile", "jenkinsfile", "vagrantfile", "gemfile", "rakefile",
    "cmakelists.txt",
)  # fmt: skip
TEXT_NAMES = (
    "license", "licence", "copying", "notice", "authors", "contributors", "readme", "changelog",
    "changes", "news", "history", "todo", "install",
)  # fmt: skip
BY_NAME = {**dict.fromkeys(CODE_NAMES, SOURCE), **dict.fromkeys(TEXT_NAMES, PLAIN)}
HEAD_BYTES = 8192


def named_reader(name: str) -> Reader | None:
    """Return the reader for a file name, or None if neither the name nor its suffix is in the table."""
    return BY_NAME.get(name.lower()) or BY_SUFFIX.get(PurePosixPath(name).suffix.lower())


def reader_for(path: Path, data: bytes | None = None) -> Reader | None:
    """Return the reader for ``path``: by its name or suffix, or the plain-text reader if the content is text.

    The content is needed only if neither the name nor the suffix is in the table. Pass ``data`` if you have it;
    otherwise it is read from ``path``. Return None if no reader supports the file, or if it cannot be opened.
    """
    known = named_reader(path.name)
    if known is not None:
        return known
    try:
        head = _head(path) if data is None else data[:HEAD_BYTES]
    except OSError:
        return None
    return None if is_binary(head) else PLAIN


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, data: bytes | None = None) -> Iterator[ParsedDocument]:
    """Yield the documents of a file: one per row for tables, otherwise one.

    The file is opened when you request the first document. Pass ``data`` if you already have the content of the file.

    Raises
    ------
    ConfigError
        If a column named in the options is not in the file.
    DocumentError
        If the file cannot be opened, is broken or binary, or contains no text.
    MissingExtraError
        If the package for the format is not installed.
    """
    if data is None:
        try:
            with open_regular(path) as file:
                data = file.read()
        except OSError as error:
            raise DocumentError(f"cannot be opened: {error.strerror or error}") from error
    reader = reader_for(path, data)
    if reader is None:
        raise DocumentError(unread_reason(path.name))
    empty = True
    for document in reader.parse(path, data, options):
        if document.blocks:
            empty = False
            yield document
    if empty:
        raise DocumentError("contains no text")


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(HEAD_BYTES)
