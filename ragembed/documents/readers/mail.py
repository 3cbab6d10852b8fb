"""Read mails (.eml) and mailboxes (.mbox): headers become metadata, and attachments are members.

The standard library parses headers and decodes contents. It has no limits for the parts of a mail and does not say on
which lines they are, so this module finds the parts itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timezone
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import Compat32
from email.utils import getaddresses, parsedate_to_datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from ragembed.documents.decoding import declared_text, decode
from ragembed.documents.model import Block, Member, ParsedDocument
from ragembed.documents.readers.html import decode_html, parse_page
from ragembed.documents.readers.mail_text import own_lines, without_data
from ragembed.documents.readers.reader import ReadOptions, only_document_errors
from ragembed.documents.readers.structure import FileText, TextBuilder, one_line, well_formed
from ragembed.errors import DocumentError

MOST_MAILS = 100_000
"""Maximum number of mails of a mailbox."""
MOST_PARTS = 1_000
"""Maximum number of parts of a mail, on all levels together."""
DEEPEST_PART = 20
"""Maximum number of levels of a mail's parts."""
LONGEST_HEADERS, LONGEST_HEADER = 262_144, 20_000
"""Maximum size of the headers of a mail or part together in bytes, and of one header in characters."""
LONGEST_NAME, MOST_ADDRESSES = 200, 100
"""Maximum length of the name of an attachment, and number of addresses of a header."""
NOT_READ = (
    "image/", "audio/", "video/", "application/pgp-", "application/pkcs7-signature", "application/x-pkcs7-signature",
    "message/delivery-status", "message/disposition-notification", "text/rfc822-headers",
)  # fmt: skip
"""Starts of the types of parts that are skipped without a warning: pictures, signatures, reports of mail servers."""
SUFFIXES = {"application/pdf": ".pdf", "message/rfc822": ".eml", "text/csv": ".csv", "text/html": ".html"}
"""The suffixes that choose the reader of parts without a file name. Other types of text are plain text."""
_POSTMARK = re.compile(rb"^From .*\d:\d\d.*\d{4}.*\n", re.MULTILINE)
_ANY_POSTMARK = re.compile(rb"^From .*\n", re.MULTILINE)
_HEADERS = re.compile(rb"(?:[!-9;-~]+[ \t]*:.*\n(?:[ \t].*\n)*)*")
_UNQUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


class _LimitedHeaders(Compat32):
    """The policy that cuts long headers, because some functions need quadratic time for hostile ones."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER]

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002
        """Return the value as it is, also if it is not ASCII."""
        return value


_PARSER = BytesHeaderParser(policy=_LimitedHeaders())


@dataclass(frozen=True, slots=True)
class _MailPart:
    """A part of a mail without parts of its own: ``data[start:stop]``. It starts on line ``line`` of the file."""

    message: Message
    content_type: str
    data: bytes
    start: int
    stop: int
    line: int

    @property
    def size(self) -> int:
        """The size of the encoded content in bytes."""
        return self.stop - self.start

    @property
    def is_text(self) -> bool:
        """Whether the part belongs to the text of the mail and is no attachment."""
        shown = self.content_type in ("text/plain", "text/html") and not self.message.get_filename()
        return shown and self.message.get_content_disposition() != "attachment"

    @property
    def encoding(self) -> str:
        """The transfer encoding in lower case."""
        return str(self.message.get("content-transfer-encoding", "")).strip().lower()

    def content(self) -> bytes:
        """Return the decoded content."""
        self.message.set_payload(self.data[self.start : self.stop].decode("ascii", "surrogateescape"))
        content = self.message.get_payload(decode=True)
        self.message.set_payload("")
        return content if isinstance(content, bytes) else b""

    def places(self) -> list[int]:
        """Return the line of the file for each line of the decoded content. The last one holds for further lines."""
        if self.encoding in ("base64", "x-uuencode", "uuencode", "uue", "x-uue"):
            return [self.line]
        lines = self.data[self.start : self.stop].split(b"\n")
        soft = self.encoding == "quoted-printable"
        joined = [False, *(soft and line.rstrip().endswith(b"=") for line in lines[:-1])]
        return [self.line + number for number, is_joined in enumerate(joined) if not is_joined]


def parse(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument | Member]:  # noqa: ARG001
    """Read a mail as one document, with its subject as the title. Attachments are members.

    Raises
    ------
    DocumentError
        If the mail has too many parts.
    """
    data = data.replace(b"\r\n", b"\n")
    postmark = _ANY_POSTMARK.match(data)
    yield from _mail(data[postmark.end() :], 2) if postmark else _mail(data, 1)


def parse_mailbox(path: Path, data: bytes, options: ReadOptions) -> Iterator[ParsedDocument | Member]:  # noqa: ARG001
    """Read each mail of a mailbox as a document. A warning counts the mails that cannot be read.

    Raises
    ------
    DocumentError
        If the file is not a mailbox.
    """
    data = data.replace(b"\r\n", b"\n")
    starts = _postmarks(data)
    if not starts:
        raise DocumentError("not a mailbox: no line starts with 'From '")
    if len(starts) > MOST_MAILS:
        options.warn(f"only the first {MOST_MAILS:,} of {len(starts):,} mails are read")
    unread: list[str] = []
    line, position = 1, 0
    for (_, start), (stop, _) in zip(starts[:MOST_MAILS], [*starts[1:], (len(data), 0)], strict=False):
        line += data.count(b"\n", position, start)
        position = start
        try:
            with only_document_errors():
                yield from _mail(_UNQUOTED_FROM.sub(rb"\1", data[start:stop]), line)
        except DocumentError as error:
            unread.append(f"the mail on line {line - 1:,}: {error}")
    if unread:
        options.warn(f"{len(unread):,} mails are not read (first: {unread[0]})")


def _postmarks(data: bytes) -> list[tuple[int, int]]:
    """Return start and end of the lines that start with ``From `` and begin a mail."""
    for pattern in (_POSTMARK, _ANY_POSTMARK):
        found = [match.span() for match in pattern.finditer(data)]
        starts = [span for span in found if span[0] == 0 or data[span[0] - 2 : span[0]] == b"\n\n"]
        if starts:
            return starts
    return []


def _mail(data: bytes, line: int) -> Iterator[ParsedDocument | Member]:
    """Yield a mail that starts on the line ``line`` of the file, and its attachments."""
    found = _PartFinder(data, line)
    message = found.collect(0, len(data))
    subject = one_line(_header_text(message.get("subject"))) or None
    metadata = _metadata(message, subject)
    texts = [(part, *_parsed_text(part)) for part in found.parts if part.is_text]
    # A mail that consists of a quote, such as a forwarded text, is kept.
    builder = _text_of(texts, own_lines)
    builder = builder if builder.blocks else _text_of(texts, without_data)
    if not builder.blocks and subject:
        builder.add_text(subject, line)
    yield ParsedDocument(builder.text, builder.blocks, subject, line_numbers=builder.places, metadata=metadata)
    for part in found.parts:
        if not part.is_text and not part.content_type.startswith(NOT_READ):
            yield _attachment(part, metadata)


_TextPart = tuple[_MailPart, str, Sequence[Block], Sequence[int]]
"""A part with its text, the blocks of the text, and for each line of the text that of the decoded content."""


class _PartFinder:
    """Finds the parts of a mail, in ``parts``. Only offsets are kept, so nested parts are not copied."""

    def __init__(self, data: bytes, line: int) -> None:
        self.parts: list[_MailPart] = []
        self._data = data
        self._line = line
        self._position = 0

    def collect(self, start: int, stop: int, default_type: str = "text/plain", depth: int = 0) -> Message:
        """Add the parts in ``data[start:stop]``, and return the headers at its start."""
        body = _headers_end(self._data, start, stop)
        message = _PARSER.parsebytes(self._data[start : min(body, start + LONGEST_HEADERS)])
        message.set_default_type(default_type)
        body += self._data.startswith(b"\n", body, stop)
        kind, boundary = message.get_content_type(), message.get_boundary()
        inner: list[tuple[int, int]] = []
        if boundary is not None and kind.startswith("multipart/"):
            inner = self._split(body, stop, boundary)
        if not inner:
            kind = "text/plain" if kind.startswith("multipart/") else kind
            self.parts.append(_MailPart(message, kind, self._data, body, stop, self._line_of(body)))
            if len(self.parts) > MOST_PARTS:
                raise DocumentError(f"has more than {MOST_PARTS:,} parts")
            return message
        if depth == DEEPEST_PART:
            raise DocumentError(f"its parts have more than {DEEPEST_PART} levels")
        first, counts = len(self.parts), [len(self.parts)]
        for part_start, part_stop in inner:
            part_type = "message/rfc822" if kind == "multipart/digest" else "text/plain"
            self.collect(part_start, part_stop, part_type, depth + 1)
            counts.append(len(self.parts))
        if kind == "multipart/alternative":
            self.parts[first:] = _best([self.parts[a:b] for a, b in pairwise(counts)])
        return message

    def _line_of(self, position: int) -> int:
        """Return the line of a position, which is not before that of the last call."""
        self._line += self._data.count(b"\n", self._position, position)
        self._position = position
        return self._line

    def _split(self, start: int, stop: int, boundary: str) -> list[tuple[int, int]]:
        """Return the start and end of the parts that ``boundary`` separates, without the text before and after."""
        quoted = re.escape(boundary.encode("utf-8", "surrogateescape"))
        pattern = re.compile(b"^--" + quoted + rb"(--)?[ \t]*$\n?", re.MULTILINE)
        parts: list[tuple[int, int]] = []
        opened: int | None = None
        for match in pattern.finditer(self._data, start, stop):
            if opened is not None:
                parts.append((opened, max(opened, match.start() - 1)))
            opened = None if match[1] else match.end()
            if opened is None or len(parts) > MOST_PARTS:
                break
        return parts if opened is None else [*parts, (opened, stop)]


def _headers_end(data: bytes, start: int, stop: int) -> int:
    match = _HEADERS.match(data, start, stop)
    return match.end() if match else start


def _best(alternatives: list[list[_MailPart]]) -> list[_MailPart]:
    """Return the parts of the alternative with plain text, else of the one with HTML, and all attachments."""

    def rank(parts: list[_MailPart]) -> int:
        kinds = {part.content_type for part in parts if part.is_text and part.content().strip()}
        return 2 if "text/plain" in kinds else len(kinds)

    best = max(alternatives, key=rank)
    return [part for parts in alternatives for part in parts if parts is best or not part.is_text]


def _text_of(texts: Sequence[_TextPart], choose: Callable[[Sequence[str]], list[bool]]) -> TextBuilder:
    """Return the text of a mail: the lines of its parts that ``choose`` selects."""
    builder = TextBuilder()
    for part, text, blocks, lines in texts:
        rows, places = text.split("\n"), part.places()
        starts = [0, *accumulate(len(row) + 1 for row in rows[:-1])]
        kept = choose(rows)
        for block in blocks:
            first, last = (bisect_right(starts, offset) - 1 for offset in (block.start, block.end - 1))
            numbers = [number for number in range(first, last + 1) if kept[number]]
            wanted = [(rows[number], places[min(lines[number], len(places)) - 1]) for number in numbers]
            builder.add(wanted, block.kind, block.headings)
    return builder


def _parsed_text(part: _MailPart) -> tuple[str, Sequence[Block], Sequence[int]]:
    """Return the text of a part, its blocks, and for each line of the text that of the decoded content."""
    content = part.content()
    charset = part.message.get_content_charset() or ""
    if part.content_type == "text/html":
        page = parse_page(declared_text(content, charset) or decode_html(content), keep_quotes=False)
        return page.text, page.blocks, page.lines
    file_text = FileText(declared_text(content, charset) or decode(content).text)
    file_text.add_paragraphs(0, len(file_text.lines))
    return file_text.text, file_text.blocks, range(1, len(file_text.lines) + 1)


def _metadata(message: Message, subject: str | None) -> dict[str, Any]:
    """Return the headers that filters can use. A missing header is left out."""
    values = {
        "subject": subject,
        **{name: _addresses(message.get_all(name, [])) for name in ("from", "to", "cc")},
        "date": _date(message.get("date")),
        "message_id": _header_text(message.get("message-id")).strip().strip("<>"),
    }
    return {name: value for name, value in values.items() if value}


def _addresses(values: Sequence[str]) -> str:
    """Return the addresses of a header in the form ``Name <address>, …``, at most ``MOST_ADDRESSES``."""
    found = getaddresses([*values])[:MOST_ADDRESSES]
    names = [(one_line(_header_text(name)), _header_text(address)) for name, address in found]
    shown = ", ".join(f"{name} <{address}>" if name else address for name, address in names if address)
    return shown or one_line(_header_text(", ".join(values)))


def _date(value: str | None) -> str | None:
    """Return a date in ISO 8601 and UTC, so that dates sort as strings. Return None for an invalid one."""
    try:
        date = parsedate_to_datetime(value or "")
        aware = date.replace(tzinfo=timezone.utc) if date.tzinfo is None else date.astimezone(timezone.utc)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return aware.isoformat().replace("+00:00", "Z")


def _header_text(value: str | None) -> str:
    """Return the text of a header: encoded words and bytes that are not ASCII are decoded."""
    if not value:
        return ""
    if not value.isascii():
        value = decode(value.encode("utf-8", "surrogateescape")).text
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return well_formed(value)
    texts = (
        piece if isinstance(piece, str) else declared_text(piece, charset or "") or decode(piece).text
        for piece, charset in pieces
    )
    return well_formed("".join(texts))


def _attachment(part: _MailPart, metadata: dict[str, Any]) -> Member:
    """Return an attachment under its file name, which may be missing if its type is known."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", _header_text(part.message.get_filename()))
    name = name.replace("\\", "/").rstrip("/").rpartition("/")[2][-LONGEST_NAME:]
    suffix = SUFFIXES.get(part.content_type, ".txt" if part.content_type.startswith("text/") else "")
    if part.content_type == "message/rfc822":
        name = name if name.lower().endswith(suffix) else (name or "message") + suffix
        metadata = {}  # the attached mail has its own
    elif not name:
        name = f"attachment{suffix}"
    return Member(name, part.size, part.content, metadata=metadata)
