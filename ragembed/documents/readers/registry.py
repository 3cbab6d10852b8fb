"""The table of readers, and the choice of the reader for a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from ragembed import extras
from ragembed.documents.decoding import is_binary
from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers.members import MemberReader
from ragembed.documents.readers.reader import DEFAULT_OPTIONS, Parse, RawFile, Reader, ReadOptions
from ragembed.documents.unread import unread_reason
from ragembed.errors import DocumentError
from ragembed.files import open_regular


def _in(module: str, function: str = "parse") -> Parse:
    """Return a function of a reader's module, which is imported when the function reads its first file."""
    return partial(_parse_with, module, function)


def _parse_with(module: str, function: str, file: RawFile) -> Iterator[ParsedDocument | Member]:
    parse: Parse = getattr(import_module(f"ragembed.documents.readers.{module}"), function)
    return parse(file)


PLAIN = Reader("text", 1, (".txt", ".text"), _in("source", "parse_plain"))
SOURCE_SUFFIXES = (
    ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".vue", ".c", ".h", ".cc", ".cpp",
    ".cxx", ".hpp", ".hh", ".java", ".go", ".rs", ".rb", ".php", ".sh", ".bash", ".zsh", ".fish", ".ps1",
    ".bat", ".swift", ".kt", ".kts", ".cs", ".fs", ".scala", ".clj", ".lua", ".pl", ".pm", ".r",
    ".jl", ".hs", ".ml", ".ex", ".exs", ".erl", ".dart", ".groovy", ".gradle", ".m", ".mm", ".zig",
    ".proto", ".graphql", ".tf", ".cmake", ".mk", ".css", ".scss", ".less", ".json5",
)  # fmt: skip
SOURCE_VERSION = 3 if extras.is_installed("semble_grammars") else 2
"""Installing semble-grammars (the extra ``documents``) raises the version, so that files are read again."""
SOURCE = Reader("source", SOURCE_VERSION, SOURCE_SUFFIXES, _in("source"))
TAR_SUFFIXES = (".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz")
XML_SUFFIXES = (
    ".xml", ".docbook", ".dbk", ".jats", ".nxml", ".tei", ".dita", ".xsd", ".xsl", ".xslt", ".rng", ".rss", ".atom",
    ".rdf", ".owl", ".svg", ".page", ".plist", ".xlf", ".xliff", ".wsdl", ".gpx", ".kml",
)  # fmt: skip
MAN = Reader("man", 1, (".man", ".mdoc"), _in("man"))
MAN_SECTION = re.compile(r"\.[1-9][a-z]*", re.IGNORECASE)
"""The suffixes of installed manual pages, such as .1, .3pm and .9freebsd. A file without macros is plain text."""
DOCKERFILE = Reader("dockerfile", 1, (".dockerfile",), _in("settings", "parse_dockerfile"))
MAIL = Reader("mail", 1, (".eml",), _in("mail"), contains_files=True)
READERS = (
    Reader("markdown", 1, (".md", ".markdown", ".mdown", ".mkd", ".mdx"), _in("markdown")),
    Reader("rst", 1, (".rst", ".rest"), _in("rst")),
    Reader("html", 1, (".html", ".htm", ".xhtml"), _in("html")),
    Reader("csv", 1, (".csv", ".tsv", ".tab"), _in("table", "parse_delimited")),
    Reader("jsonl", 1, (".jsonl", ".ndjson"), _in("table", "parse_json_lines")),
    Reader("notebook", 2, (".ipynb",), _in("notebook")),
    Reader("pdf", 2, (".pdf",), _in("pdf")),
    Reader("docx", 2, (".docx", ".docm"), _in("office", "parse_docx")),
    Reader("pptx", 2, (".pptx", ".pptm", ".ppsx"), _in("office", "parse_pptx")),
    Reader("xlsx", 2, (".xlsx", ".xlsm"), _in("excel", "parse_xlsx")),
    Reader("xls", 2, (".xls",), _in("excel", "parse_xls"), package="xlrd"),
    Reader("doc", 1, (".doc",), _in("converted", "parse_doc")),
    Reader("ppt", 1, (".ppt",), _in("converted", "parse_ppt")),
    Reader("rtf", 1, (".rtf",), _in("rtf")),
    Reader("odt", 1, (".odt", ".ott"), _in("opendocument", "parse_odt")),
    Reader("odp", 1, (".odp", ".otp"), _in("opendocument", "parse_odp")),
    Reader("ods", 2, (".ods", ".ots"), _in("opendocument", "parse_ods")),
    Reader("epub", 1, (".epub",), _in("epub")),
    Reader("xml", 1, XML_SUFFIXES, _in("xml")),
    Reader("json", 1, (".json", ".geojson", ".jsonld", ".webmanifest"), _in("records", "parse_json")),
    Reader("yaml", 1, (".yaml", ".yml"), _in("settings", "parse_yaml")),
    Reader(
        "settings", 1, (".toml", ".ini", ".cfg", ".conf", ".properties", ".desktop"), _in("settings", "parse_sections")
    ),
    DOCKERFILE,
    Reader("org", 1, (".org",), _in("markup", "parse_org")),
    Reader("asciidoc", 1, (".adoc", ".asciidoc"), _in("markup", "parse_asciidoc")),
    Reader("latex", 1, (".tex", ".ltx", ".latex"), _in("latex")),
    MAN,
    Reader("bibtex", 1, (".bib",), _in("bibtex")),
    Reader("subtitles", 1, (".srt", ".vtt"), _in("timed", "parse_subtitles")),
    Reader("log", 1, (".log",), _in("timed", "parse_log")),
    Reader("sql", 1, (".sql", ".ddl"), _in("sql")),
    MAIL,
    Reader("mbox", 1, (".mbox",), _in("mail", "parse_mailbox"), contains_files=True),
    Reader("outlook", 2, (".msg",), _in("outlook"), package="olefile", contains_files=True),
    Reader("zip", 1, (".zip",), _in("archive", "parse_zip"), contains_files=True),
    Reader("tar", 1, TAR_SUFFIXES, _in("archive", "parse_tar"), contains_files=True),
    SOURCE,
    PLAIN,
)
BY_SUFFIX = {suffix: reader for reader in READERS for suffix in reader.suffixes}
CODE_NAMES = (
    "makefile", "gnumakefile", "jenkinsfile", "vagrantfile", "gemfile", "rakefile",
    "cmakelists.txt",
)  # fmt: skip
TEXT_NAMES = (
    "license", "licence", "copying", "notice", "authors", "contributors", "readme", "changelog",
    "changes", "news", "history", "todo", "install",
)  # fmt: skip
BY_NAME = {
    **dict.fromkeys(CODE_NAMES, SOURCE),
    **dict.fromkeys(("dockerfile", "containerfile"), DOCKERFILE),
    **dict.fromkeys(TEXT_NAMES, PLAIN),
}
MAILDIR_NAME = re.compile(r"\d{9,}\w*\.(?:.+:2,[A-Za-z]*|M\d+P\d+\w*\..+)")
"""Names of mails in a Maildir, such as ``1204680122.M37P1.host:2,S``. They have no suffix."""
HEAD_BYTES = 8192


@lru_cache(maxsize=1024)
def named_reader(name: str) -> Reader | None:
    """Return the reader for a file name, or None if neither the name nor its suffix is in the table."""
    if MAILDIR_NAME.fullmatch(name):
        return MAIL
    suffix = PurePosixPath(name).suffix.lower()
    known = BY_NAME.get(name.lower()) or BY_SUFFIX.get(suffix)
    return MAN if known is None and MAN_SECTION.fullmatch(suffix) else known


def member_of(name: str | None, metadata: Mapping[str, Any]) -> str | None:
    """Return the path of the member of the file ``name`` from which a chunk with ``metadata`` comes, or None."""
    reader = named_reader(PurePosixPath(name).name) if name else None
    return metadata.get("member") if reader is not None and reader.contains_files else None


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
    """Yield the documents of a file: one per row of a table, mail of a mailbox or member of an archive, otherwise one.

    The file is opened when you request the first document. Pass ``data`` if you already have the content of the file.
    Raises :class:`DocumentError` if the file cannot be opened, is broken, encrypted or binary, exceeds a limit, or
    contains no text, :class:`ConfigError` if a column named in the options is not in the file, and
    :class:`MissingExtraError` if the package for the format is not installed.
    """
    if data is None:
        try:
            with open_regular(path) as file:
                data = file.read()
        except OSError as error:
            raise DocumentError(f"cannot be opened: {error.strerror or error}") from error
    yield from MemberReader(_parse, options).documents(_parse(RawFile(path.name, data, options)))


def _parse(file: RawFile) -> Iterator[ParsedDocument | Member]:
    """Yield the documents and members of a file."""
    reader = reader_for(Path(file.name), file.data)
    if reader is None:
        raise DocumentError(unread_reason(Path(file.name).name))
    return reader.parse(file)


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(HEAD_BYTES)
