"""Read mails (.eml) and mailboxes (.mbox): headers become metadata, and attachments are members.

The standard library parses headers and decodes contents. It has no limits for the parts of a mail and does not say on
which lines they are, so this module finds the parts itself.
"""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import Compat32
from email.utils import getaddresses, parsedate_to_datetime
from functools import partial
from io import BytesIO
from itertools import pairwise
from typing import Any, TypeVar

from ragembed.documents.decoding import declared_text, decode, decoded_as
from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers.html import decode_html, page_title, parse_page
from ragembed.documents.readers.mail_text import (
    MOST_LINES,
    at_lines,
    check_lines,
    html_text,
    is_picture,
    is_stub,
    plain_text,
    text_of_mail,
)
from ragembed.documents.readers.reader import RawFile, only_document_errors
from ragembed.documents.readers.structure import one_line, well_formed
from ragembed.errors import DocumentError

T = TypeVar("T")

MOST_MAILS, SHORTEST_MAIL = 50_000, 1_000
"""A mailbox may have this number of mails, and more if they have this size on average, in bytes."""
SHORTEST_LINE = 8
"""A mailbox with more than ``MOST_LINES`` lines has lines of at least this size on average, in bytes."""
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
"""Starts of the types of attachments that are skipped without a warning: pictures, signatures, reports of servers."""
UU_ENCODINGS = ("uue", "uuencode", "x-uue", "x-uuencode")
CALENDAR = "text/calendar"
SUFFIXES = {
    "application/pdf": ".pdf", "message/rfc822": ".eml", "text/csv": ".csv", "text/html": ".html", CALENDAR: ".ics",
    "application/ics": ".ics", "text/vcard": ".vcf", "text/x-vcard": ".vcf",
}  # fmt: skip
"""The suffixes that choose the reader of parts without a file name. Other types of text are plain text."""
_POSTMARK = re.compile(rb"^From .*\d:\d\d.*\d{4}.*\n", re.MULTILINE)
_ANY_POSTMARK = re.compile(rb"^From .*\n", re.MULTILINE)
_HEADERS = re.compile(rb"(?:[!-9;-~]+[ \t]*:.*(?:\n|\Z)(?:[ \t].*(?:\n|\Z))*)*")
_MESSAGE_ID = re.compile(rb"^message-id:\s*<([^<>\s]{1,500})>", re.MULTILINE | re.IGNORECASE)
_ID = re.compile(r"<([^<>\s]{1,500})>")
_UNQUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


class _LimitedHeaders(Compat32):
    """The policy that cuts long headers, because some functions need quadratic time for hostile ones."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER]

    def header_fetch_parse(self, _name: str, value: str) -> str:
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
        shown = self.content_type in ("text/plain", "text/html") and not self.file_name
        return shown and self.message.get_content_disposition() != "attachment"

    @property
    def file_name(self) -> str | None:
        """The file name of an attachment, as it is in the headers."""
        return _tolerant(self.message.get_filename)

    @property
    def encoding(self) -> str:
        """The transfer encoding in lower case."""
        return str(self.message.get("content-transfer-encoding", "")).strip().lower()

    def content(self) -> bytes:
        """Return the decoded content."""
        body = self.data[self.start : self.stop]
        if self.encoding == "base64":
            return _decode_base64(body)
        if self.encoding == "quoted-printable":
            return binascii.a2b_qp(body)
        return _decode_uu(body) if self.encoding in UU_ENCODINGS else body

    def text(self) -> str:
        """Return the decoded text, in the declared character set if it is right."""
        content = self.content()
        declared = declared_text(content, _tolerant(lambda: self.message.get_content_charset("")) or "")
        if declared is not None:
            return declared
        return decode(content) if self.content_type == "text/plain" else decode_html(content)

    def places(self) -> list[int]:
        """Return the line of the file for each line of the decoded content. The last one holds for further lines."""
        if self.encoding in ("base64", *UU_ENCODINGS):
            return [self.line]
        lines = self.data[self.start : self.stop].split(b"\n")
        soft = self.encoding == "quoted-printable"
        joined = [False, *(soft and line.rstrip().endswith(b"=") for line in lines[:-1])]
        return [self.line + number for number, is_joined in enumerate(joined) if not is_joined]


def parse(file: RawFile) -> Iterator[ParsedDocument | Member]:
    """Read a mail as one document, with its subject as the title. Attachments are members."""
    data = file.data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    postmark = _ANY_POSTMARK.match(data)
    others = None if file.suffix != ".eml" else frozenset[str]()
    yield from _mail(data[postmark.end() :], 2, others) if postmark else _mail(data, 1, others)


def parse_web_archive(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a web page that a browser saved with its pictures (MHTML): its first HTML part with text."""
    data = file.data.replace(b"\r\n", b"\n")
    found = _PartFinder(data, 1)
    subject = _header_text(found.collect(0, len(data)).get("subject"))
    pages = [part for part in found.parts if part.content_type in ("text/html", "application/xhtml+xml")]
    if not pages:
        raise DocumentError("has no HTML part: expected a web page that was saved as MHTML")
    for part in pages:
        page = at_lines(parse_page(part.text()), part.places())
        if page.blocks or part is pages[-1]:
            yield replace(page, title=page_title(page) or one_line(subject), metadata={})
            return


def is_mail(data: bytes) -> bool:
    """Return whether ``data`` starts with the headers of a mail: the sender and at least one header of a server."""
    headers = data[: _headers_end(data, 0, len(data))].lower()
    names = set(re.findall(rb"^([!-9;-~]+):", headers, re.MULTILINE))
    return b"from" in names and not names.isdisjoint((b"date", b"message-id", b"received"))


def parse_mailbox(file: RawFile) -> Iterator[ParsedDocument | Member]:
    """Read each mail of a mailbox as a document. A warning counts the mails that cannot be read."""
    data = file.data.replace(b"\r\n", b"\n")
    starts = _postmarks(data)
    if not starts:
        raise DocumentError("not a mailbox: no line starts with 'From '")
    if data.count(b"\n") > max(MOST_LINES, len(data) // SHORTEST_LINE):
        raise DocumentError(f"its lines have fewer than {SHORTEST_LINE} bytes on average: expected the texts of mails")
    limit = max(MOST_MAILS, len(data) // SHORTEST_MAIL)
    if len(starts) > limit:
        file.options.warn(f"only the first {limit:,} of {len(starts):,} mails are read: most are empty")
    others = frozenset(found.decode("ascii", "replace") for found in _MESSAGE_ID.findall(data))
    unread: list[str] = []
    line, position = 1, 0
    for (_, start), (stop, _) in zip(starts[:limit], [*starts[1:], (len(data), 0)], strict=False):
        line += data.count(b"\n", position, start)
        position = start
        try:
            with only_document_errors():
                yield from _mail(_UNQUOTED_FROM.sub(rb"\1", data[start:stop]), line, others)
        except DocumentError as error:
            unread.append(f"the mail on line {line - 1:,}: {error}")
    if unread:
        file.options.warn(f"{len(unread):,} mails are not read (first: {unread[0]})")


def _postmarks(data: bytes) -> list[tuple[int, int]]:
    """Return start and end of the lines that start with ``From `` and begin a mail."""
    for pattern in (_POSTMARK, _ANY_POSTMARK):
        found = [match.span() for match in pattern.finditer(data)]
        starts = [span for span in found if span[0] == 0 or data[span[0] - 2 : span[0]] == b"\n\n"]
        if starts:
            return starts
    return []


def _mail(data: bytes, line: int, others: frozenset[str] | None) -> Iterator[ParsedDocument | Member]:
    """Yield a mail that starts at ``line``, without quotes of the mails ``others`` (None: all), and its attachments."""
    found = _PartFinder(data, line)
    message = found.collect(0, len(data))
    metadata = header_metadata(message)
    subject = metadata.get("subject")
    texts = [part for part in found.parts if part.is_text]
    check_lines(sum(data.count(b"\n", part.start, part.stop) for part in texts))
    answered = _ID.findall(_header_text(message.get("in-reply-to") or message.get("references")))[-1:]
    keep_quotes = others is not None and others.isdisjoint(answered)
    builder = text_of_mail([_mail_text(part, keep_quotes) for part in texts], keep_quotes=keep_quotes)
    if not builder.blocks and subject:
        builder.add_text(subject, line)
    yield builder.document(subject, metadata)
    for part in found.parts:
        if not part.is_text and not part.content_type.startswith(NOT_READ):
            member = _attachment(part, metadata)
            if not is_picture(member.name):
                yield member


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
        message = _PARSER.parsebytes(self._data[start:body])
        message.set_default_type(default_type)
        body += self._data.startswith(b"\n", body, stop)
        kind, boundary = message.get_content_type(), _tolerant(message.get_boundary)
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
        delimiter = b"\n--" + boundary.encode("utf-8", "surrogateescape")
        parts: list[tuple[int, int]] = []
        opened: int | None = None
        # The line break before the first delimiter may end the headers.
        found = self._data.find(delimiter, start - 1, stop)
        while found >= 0 and len(parts) <= MOST_PARTS:
            after = found + len(delimiter)
            line_end = self._data.find(b"\n", after, stop)
            line_end = stop if line_end < 0 else line_end
            rest = self._data[after : min(line_end, after + 3)].rstrip(b" \t")
            if rest in (b"", b"--"):
                if opened is not None:
                    parts.append((opened, max(opened, found)))
                opened = min(line_end + 1, stop)
                if rest:
                    return parts
            found = self._data.find(delimiter, line_end, stop)
        return parts if opened is None else [*parts, (opened, stop)]


def _tolerant(parse: Callable[[], T]) -> T | None:
    """Return the result of ``parse``, or None for a header that the standard library cannot parse."""
    try:
        return parse()
    except (ArithmeticError, LookupError, MessageError, TypeError, ValueError):
        return None


def _decode_base64(body: bytes) -> bytes:
    try:
        return binascii.a2b_base64(body + b"===")
    except binascii.Error:
        valid = re.sub(rb"[^A-Za-z0-9+/]+", b"", body)
        return binascii.a2b_base64(valid[: len(valid) // 4 * 4])


def _decode_uu(body: bytes) -> bytes:
    decoded = []
    for line in BytesIO(body[body.find(b"begin ") :]):
        if line.startswith((b"begin ", b"end")):
            continue
        try:
            decoded.append(binascii.a2b_uu(line))
        except binascii.Error:  # many programs write too long lines
            length = ((line[0] - 32 & 63) * 4 + 5) // 3
            decoded.append(binascii.a2b_uu(line[:length]))
    return b"".join(decoded)


def _headers_end(data: bytes, start: int, stop: int) -> int:
    """Return the end of the headers at the start of ``data[start:stop]``."""
    match = _HEADERS.match(data, start, min(stop, start + LONGEST_HEADERS))
    end = match.end() if match else start
    if end - start == LONGEST_HEADERS:
        raise DocumentError(f"its headers have more than {LONGEST_HEADERS:,} bytes")
    return end


def _best(alternatives: list[list[_MailPart]]) -> list[_MailPart]:
    """Return the parts with plain text, unless it is a stub, or with HTML, or both; and all attachments."""
    shown: dict[str, tuple[list[_MailPart], str]] = {}
    for parts in alternatives:
        for part in parts:
            if part.is_text and part.content_type not in shown and (text := part.text()).strip():
                shown[part.content_type] = parts, text
    html_parts, html = shown.get("text/html", (alternatives[0], ""))
    best, plain = shown.get("text/plain", (html_parts, html))
    stub = is_stub(plain, html)
    chosen = [html_parts] if stub and len(html) > len(plain) else [best, html_parts] if stub else [best]
    return [
        part
        for parts in alternatives
        for part in parts
        if any(parts is each for each in chosen) or part.file_name or part.content_type == CALENDAR
    ]


def _mail_text(part: _MailPart, keep_quotes: bool) -> ParsedDocument:
    """Return the text of a part. A line of the content that is several lines of the file has the place of the first."""
    is_html = part.content_type == "text/html"
    text = part.text()
    return at_lines(html_text(text, keep_quotes=keep_quotes) if is_html else plain_text(text), part.places())


def header_metadata(headers: bytes | Message) -> dict[str, Any]:
    """Return the headers that filters can use. A missing header is left out."""
    message = _PARSER.parsebytes(headers) if isinstance(headers, bytes) else headers
    values = {
        "subject": one_line(_header_text(message.get("subject"))),
        **{name: _addresses(message.get_all(name, [])) for name in ("from", "to", "cc")},
        "date": _date(message.get("date")),
        "message_id": _header_text(message.get("message-id")).strip().strip("<>"),
    }
    return {name: value for name, value in values.items() if value}


def _addresses(values: Sequence[str]) -> str:
    """Return the addresses of a header in the form ``Name <address>, …``, at most ``MOST_ADDRESSES``."""
    found = (_tolerant(partial(getaddresses, [*values])) or [])[:MOST_ADDRESSES]
    names = [(one_line(_header_text(name)), _header_text(address)) for name, address in found]
    shown = ", ".join(person(name, address) for name, address in names if address)
    return shown or one_line(_header_text(", ".join(values)))


def person(name: str, address: str) -> str:
    """Return ``Name <address>``, or one of the two if the other is missing or the same."""
    return f"{name} <{address}>" if name and address and name != address else name or address


def _date(value: str | None) -> str | None:
    """Return a date in ISO 8601 and UTC, so that dates sort as strings. Return None for an invalid one."""
    return _tolerant(lambda: utc(parsedate_to_datetime(value or "")))


def utc(date: datetime) -> str:
    """Return a date in ISO 8601. A date without a time zone is in UTC."""
    aware = date.replace(tzinfo=timezone.utc) if date.tzinfo is None else date.astimezone(timezone.utc)
    return aware.isoformat(timespec="seconds").replace("+00:00", "Z")


def _header_text(value: str | None) -> str:
    """Return the text of a header: encoded words and bytes that are not ASCII are decoded."""
    if not value:
        return ""
    if not value.isascii():
        value = decode(value.encode("utf-8", "surrogateescape"))
    pieces = _tolerant(partial(decode_header, value))
    if pieces is None:
        return well_formed(value)
    texts = (piece if isinstance(piece, str) else decoded_as(piece, charset or "") for piece, charset in pieces)
    return well_formed("".join(texts))


def _attachment(part: _MailPart, metadata: dict[str, Any]) -> Member:
    """Return an attachment under its file name, which may be missing if its type is known."""
    name = base_name(_header_text(part.file_name))
    suffix = SUFFIXES.get(part.content_type, ".txt" if part.content_type.startswith("text/") else "")
    if part.content_type == "message/rfc822":
        name = name if name.lower().endswith(suffix) else (name or "message") + suffix
        metadata = {}  # the attached mail has its own
    elif not name:
        name = f"attachment{suffix}"
    return Member(name, part.size, part.content, metadata=metadata)


def base_name(name: str) -> str:
    """Return the last part of a path, without control characters and shortened from its start."""
    printable = re.sub(r"[\x00-\x1f\x7f]", "", name)
    return printable.replace("\\", "/").rstrip("/").rpartition("/")[2][-LONGEST_NAME:]
