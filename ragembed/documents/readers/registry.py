"""The table of readers, and the choice of the reader for a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from ragembed import extras
from ragembed.documents.decoding import is_binary
from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers.reader import DEFAULT_OPTIONS, MemberReader, Parse, RawFile, Reader, ReadOptions
from ragembed.errors import DocumentError


def _in(module: str, function: str = "parse") -> Parse:
    """Return a function of a reader's module, which is imported when the function reads its first file."""
    return partial(_parse_with, module, function)


def _parse_with(module: str, function: str, file: RawFile) -> Iterator[ParsedDocument | Member]:
    parse: Parse = getattr(import_module(f"ragembed.documents.readers.{module}"), function)
    return parse(file)


PLAIN = Reader("text", 2, (".txt", ".text"), _in("source", "parse_plain"))
SOURCE_SUFFIXES = (
    ".py", ".pyi", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".vue", ".c", ".h", ".cc", ".cpp",
    ".cxx", ".hpp", ".hh", ".java", ".go", ".rs", ".rb", ".php", ".sh", ".bash", ".zsh", ".fish", ".ps1",
    ".bat", ".swift", ".kt", ".kts", ".cs", ".fs", ".scala", ".clj", ".lua", ".pl", ".pm", ".r",
    ".jl", ".hs", ".ml", ".ex", ".exs", ".erl", ".dart", ".groovy", ".gradle", ".m", ".mm", ".zig",
    ".proto", ".graphql", ".tf", ".cmake", ".mk", ".css", ".scss", ".less", ".json5", ".svelte", ".astro",
    ".jinja", ".jinja2", ".j2", ".hbs", ".handlebars", ".mustache", ".ejs", ".erb", ".njk", ".liquid", ".twig", ".tmpl",
)  # fmt: skip
SOURCE_VERSION = 5 if extras.is_installed("semble_grammars") else 4
"""Installing semble-grammars (the extra ``documents``) raises the version, so that files are read again."""
SOURCE = Reader("source", SOURCE_VERSION, SOURCE_SUFFIXES, _in("source"))
PACKED_SUFFIXES = (".gz", ".bz2", ".xz")
TAR_SUFFIXES = (".tar", ".tgz", ".tbz2", ".txz", *PACKED_SUFFIXES)
XML_SUFFIXES = (
    ".xml", ".docbook", ".dbk", ".jats", ".nxml", ".tei", ".dita", ".xsd", ".xsl", ".xslt", ".rng", ".rss", ".atom",
    ".rdf", ".owl", ".svg", ".page", ".plist", ".xlf", ".xliff", ".wsdl", ".gpx", ".kml",
)  # fmt: skip
MAN = Reader("man", 3, (".man", ".mdoc"), _in("man"))
MAN_SECTION = re.compile(r"\.[1-9][a-z]*", re.IGNORECASE)
"""The suffixes of installed manual pages, such as .1, .3pm and .9freebsd. A file without macros is plain text."""
DOCKERFILE = Reader("dockerfile", 1, (".dockerfile",), _in("settings", "parse_dockerfile"))
MAIL = Reader("mail", 2, (".eml",), _in("mail"), contains_files=True)
READERS = (
    Reader("markdown", 3, (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"), _in("markdown")),
    Reader("rst", 2, (".rst", ".rest"), _in("markup", "parse_rst")),
    Reader("html", 4, (".html", ".htm", ".xhtml"), _in("html")),
    Reader("csv", 3, (".csv", ".tsv", ".tab"), _in("table", "parse_delimited")),
    Reader("jsonl", 2, (".jsonl", ".ndjson"), _in("table", "parse_json_lines")),
    Reader("notebook", 3, (".ipynb",), _in("notebook")),
    Reader("pdf", 4, (".pdf",), _in("pdf")),
    Reader("docx", 6, (".docx", ".docm"), _in("word", "parse_docx")),
    Reader("pptx", 5, (".pptx", ".pptm", ".ppsx"), _in("slides", "parse_pptx")),
    Reader("xlsx", 5, (".xlsx", ".xlsm"), _in("excel", "parse_xlsx")),
    Reader("xls", 5, (".xls",), _in("excel", "parse_xls"), package="xlrd"),
    Reader("doc", 3, (".doc",), _in("converted", "parse_doc")),
    Reader("ppt", 3, (".ppt",), _in("converted", "parse_ppt")),
    Reader("rtf", 4, (".rtf",), _in("rtf")),
    Reader("odt", 4, (".odt", ".ott"), _in("opendocument", "parse_odt")),
    Reader("odp", 4, (".odp", ".otp"), _in("opendocument", "parse_odp")),
    Reader("ods", 5, (".ods", ".ots"), _in("opendocument", "parse_ods")),
    Reader("epub", 3, (".epub",), _in("epub")),
    Reader("xml", 3, XML_SUFFIXES, _in("xml")),
    Reader("json", 1, (".json", ".geojson", ".jsonld", ".webmanifest"), _in("records", "parse_json")),
    Reader("yaml", 1, (".yaml", ".yml"), _in("settings", "parse_yaml")),
    Reader(
        "settings", 1, (".toml", ".ini", ".cfg", ".conf", ".properties", ".desktop"), _in("settings", "parse_sections")
    ),
    DOCKERFILE,
    Reader("org", 3, (".org",), _in("markup", "parse_org")),
    Reader("asciidoc", 3, (".adoc", ".asciidoc"), _in("markup", "parse_asciidoc")),
    Reader("latex", 2, (".tex", ".ltx", ".latex"), _in("latex")),
    MAN,
    Reader("bibtex", 1, (".bib",), _in("latex", "parse_bibtex")),
    Reader("subtitles", 1, (".srt", ".vtt"), _in("timed", "parse_subtitles")),
    Reader("log", 1, (".log",), _in("timed", "parse_log")),
    Reader("sql", 1, (".sql", ".ddl"), _in("source", "parse_sql")),
    MAIL,
    Reader("mhtml", 1, (".mht", ".mhtml"), _in("mail", "parse_web_archive")),
    Reader("calendar", 2, (".ics", ".ical", ".vcs", ".vcf", ".vcard"), _in("calendars")),
    Reader("mbox", 2, (".mbox",), _in("mail", "parse_mailbox"), contains_files=True),
    Reader("outlook", 3, (".msg",), _in("outlook"), package="olefile", contains_files=True),
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


def format_of(name: str) -> str | None:
    """Return the format of a file by its name: its reader, ``gz``, ``bz2`` or ``xz`` for one packed file; or None."""
    reader, path = named_reader(name), PurePosixPath(name.lower())
    if reader is None:
        return None
    is_packed = path.suffix in PACKED_SUFFIXES and ".tar" not in path.suffixes
    return path.suffix.removeprefix(".") if is_packed else reader.name


def member_of(name: str | None, metadata: Mapping[str, Any]) -> str | None:
    """Return the path of the member of the file ``name`` from which a chunk with ``metadata`` comes, or None."""
    reader = named_reader(PurePosixPath(name).name) if name else None
    return metadata.get("member") if reader is not None and reader.contains_files else None


_SPREADSHEETS = ("xlsx", "xls", "ods")
_PLACES = {
    **dict.fromkeys(("pptx", "ppt", "odp"), ("line", "slide")),
    **dict.fromkeys(_SPREADSHEETS, ("row", "page")),
}
"""What the lines and pages of some formats are called, by the names of their readers."""


def sheet_of(name: str | None, headings: Sequence[str]) -> str | None:
    """Return the sheet of the file ``name`` from which a chunk with ``headings`` comes, or None."""
    reader = named_reader(PurePosixPath(name).name) if name and headings else None
    return headings[0] if reader is not None and reader.name in _SPREADSHEETS else None


def places_in(path: str, start_line: int | None, end_line: int | None, page: int | None, end_page: int | None) -> str:
    """Return lines, rows, pages or slides of a file, such as ``lines 3-9`` or ``row 7``; nothing if it has none."""
    reader = named_reader(PurePosixPath(path).name)
    line_name, page_name = _PLACES.get(reader.name, ("line", "page")) if reader else ("line", "page")
    name, first, last = (page_name, page, end_page) if start_line is None else (line_name, start_line, end_line)
    if first is None:
        return ""
    return f"{name} {first}" if last in (None, first) else f"{name}s {first}-{last}"


def location_of(
    path: str,
    start_line: int | None,
    end_line: int | None,
    page: int | None,
    end_page: int | None,
    sheet: str | None = None,
) -> str:
    """Return a path with lines or pages, such as ``a.md:3-9``, ``a.pdf, pages 3-4`` or ``a.xlsx, Prices, row 7``."""
    places = places_in(path, start_line, end_line, page, end_page)
    if places.startswith("line"):
        return f"{path}:{start_line}-{end_line}"
    return ", ".join(filter(None, (path, sheet, places)))


def reader_for(name: str, data: bytes) -> Reader | None:
    """Return the reader for a file by its name, else that of plain text if its content is text, or None."""
    return named_reader(name) or (None if is_binary(data[:HEAD_BYTES]) else PLAIN)


def read(name: str, data: bytes, options: ReadOptions = DEFAULT_OPTIONS) -> Iterator[ParsedDocument]:
    """Yield the documents of a file: one per row of a table, mail of a mailbox or member of an archive, otherwise one.

    Raises :class:`DocumentError`, :class:`ConfigError` for an unknown column, and :class:`MissingExtraError`.
    """
    yield from MemberReader(_parse, options).documents(_parse(RawFile(name, data, options)))


def _parse(file: RawFile) -> Iterator[ParsedDocument | Member]:
    """Yield the documents and members of a file."""
    name = PurePosixPath(file.name).name
    if (reader := reader_for(name, file.data)) is None:
        raise DocumentError(unread_reason(name))
    return reader.parse(file)


_OFFICE = "convert it, for example with 'soffice --headless --convert-to {} FILE'"
_UNREAD = {
    "dot fodt wpd wps pages": f"a word processor file; {_OFFICE.format('docx')}",
    "pps key": f"a presentation; {_OFFICE.format('pptx')}",
    "xlsb numbers": f"a spreadsheet; {_OFFICE.format('xlsx')}",
    "mobi azw azw3 lit fb2": "an electronic book; convert it to epub, for example with Calibre",
    "djvu djv ps eps xps oxps vsd vsdx indd ai": "a drawing or print file; convert it to pdf",
    "png jpg jpeg gif bmp tif tiff webp heic heif avif ico psd xcf": (
        "an image; for its text use an OCR program such as tesseract, and index the result"
    ),
    "mp3 wav flac ogg opus m4a aac mp4 mkv mov avi webm wmv mpg mpeg": (
        "a recording; write down its speech with a program such as whisper, and index the result"
    ),
    "gz bz2 xz zst 7z rar jar iso whl": "an archive or compressed file; unpack it and index the folder",
    "sqlite sqlite3 db mdb accdb dbf": "a database; export its tables as csv",
    "parquet arrow feather orc avro sav dta sas7bdat": "a table; convert it to csv or jsonl",
    "pst ost": "a mailbox of Outlook; export its mails as msg or eml",
    "chm hlp one": "notes or help; export it as html or pdf",
    "exe dll so dylib o a lib pyc pyd class wasm bin apk": (
        "a program or compiled code, which has no text to search; exclude it with --exclude"
    ),
    "npy npz pkl pickle pt pth onnx safetensors h5 hdf5 gguf mat": (
        "a model or numbers, which have no text to search; exclude it with --exclude"
    ),
    "ttf otf woff woff2 eot": "a font, which has no text to search; exclude it with --exclude",
}
_UNREAD_SUFFIXES = {suffix: remedy for suffixes, remedy in _UNREAD.items() for suffix in suffixes.split()}


def unread_reason(name: str) -> str:
    """Return why a file called ``name`` that is not text is not read: its format, and what to do."""
    suffix = PurePosixPath(name).suffix.lower().removeprefix(".")
    reason = "neither text nor a known format; convert it to text, html or pdf, or exclude it with --exclude"
    reason = _UNREAD_SUFFIXES.get(suffix, reason)
    return f"{suffix}: {reason}" if suffix else reason
