"""The table of readers, and which of them takes a file."""

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
    """Choose the reader by the name of a file alone, None where it is not in the table."""
    return BY_NAME.get(name.lower()) or BY_SUFFIX.get(PurePosixPath(name).suffix.lower())


def reader_for(path: Path, data: bytes | None = None) -> Reader | None:
    """Choose the reader for ``path``: by suffix, by file name, or plain text if its content looks like text.

    ``data`` is the content, where it is not to be read from ``path``; it is only looked at for a suffix and a
    name that are not in the table. None means that no reader takes the file, or that it cannot be opened.
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
    """Read the documents of a file: one, or as many as it has rows. Nothing is opened before the first is asked for.

    ``data`` is the content, where it is not to be read from ``path``.

    Raises
    ------
    ConfigError
        A column that the options name is not in the file.
    DocumentError
        The file cannot be opened, is broken or binary, or has no text.
    MissingExtraError
        The format's package is not installed.
    """
    if data is None:
        try:
            with open_regular(path) as file:
                data = file.read()
        except OSError as error:
            raise DocumentError(f"cannot be opened: {error.strerror or error}") from error
    reader = reader_for(path, data)
    if reader is None:
        raise DocumentError("neither text nor a format that can be read")
    empty = True
    for document in reader.parse(path, data, options):
        if document.blocks:
            empty = False
            yield document
    if empty:
        raise DocumentError("no text in it")


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(HEAD_BYTES)
