"""Read Outlook's mails (.msg): an OLE file with one stream per property, described in Microsoft's [MS-OXMSG]."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from ragembed.documents.decoding import declared_text, decoded_as
from ragembed.documents.model import Member, ParsedDocument
from ragembed.documents.readers import mail, rtf, source
from ragembed.documents.readers.html import decode_html
from ragembed.documents.readers.mail import MOST_ADDRESSES, base_name, header_metadata, person, utc
from ragembed.documents.readers.mail_text import html_text, is_picture, is_stub, plain_text, text_of_mail
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.structure import OLE_MAGIC, one_line, well_formed
from ragembed.errors import DocumentError
from ragembed.extras import needed_for

if TYPE_CHECKING:
    from olefile import OleFileIO

# The numbers of properties in [MS-OXPROPS]. Numbers in a string are part of the name of a stream.
_SUBJECT, _BODY, _HTML, _RTF, _HEADERS, _MESSAGE_ID = "0037", "1000", "1013", "1009", "007D", "1035"
_SENDER = ("0C1A", "5D01", "0C1F")
_RECIPIENT = ("3001", "39FE", "3003")
_CONTENT, _FILE_NAME, _SHORT_FILE_NAME, _NAME, _TYPE = "3701", "3707", "3704", "3001", "370E"
_SENT, _DELIVERED, _CODE_PAGE, _HTML_CODE_PAGE, _RECIPIENT_KIND = 0x0039, 0x0E06, 0x3FFD, 0x3FDE, 0x0C15
_RECIPIENT_KINDS = {1: "to", 2: "cc"}
_FIXED = struct.Struct("<HH4x8s")
"""Type, number and value of a property of a fixed size, in the stream of these properties."""
_PROPERTIES = "__properties_version1.0"
_RTF_HEADER = struct.Struct("<II4sI")
"""Compressed size, size, kind and checksum of an RTF text; [MS-OXRTFCP]."""
_RTF_WINDOW = 4096
_RTF_BEGINNING = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
"""The text to which the first references of a compressed RTF text can refer."""
_MOST_RECIPIENTS = 1_000
_EPOCH = datetime(1601, 1, 1, tzinfo=timezone.utc)


def parse(file: RawFile) -> Iterator[ParsedDocument | Member]:
    """Read a mail as one document without lines. Attachments are members. Other .msg files are mails or plain text."""
    if not file.data.startswith(OLE_MAGIC):
        yield from (mail.parse if mail.is_mail(file.data) else source.parse_plain)(file)
        return
    with needed_for("reading Outlook mails"):
        import olefile
    try:
        with olefile.OleFileIO(BytesIO(file.data)) as ole:
            inside: dict[tuple[str, ...], list[str]] = {}
            for entry in ole.listdir(streams=True, storages=True):
                inside.setdefault(tuple(entry[:-1]), []).append(entry[-1])
            if _PROPERTIES not in inside.get((), []):
                raise DocumentError("not a mail of Outlook: it has no properties")
            yield from _Storage(ole, inside, ()).mail(file.options)
    except (OSError, ValueError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise DocumentError(f"broken Outlook mail: {error}") from error


class _Storage:
    """A folder of an OLE file: the mail itself, a recipient, an attachment or an attached mail."""

    def __init__(
        self, ole: OleFileIO, inside: Mapping[tuple[str, ...], Sequence[str]], path: tuple[str, ...], code_page: int = 0
    ) -> None:
        self._ole = ole
        self._inside = inside
        self._path = path
        self._names = frozenset(inside.get(path, ()))
        self._fixed = self._fixed_properties()
        self._code_page = self._number(_CODE_PAGE) or code_page

    def mail(self, options: ReadOptions) -> Iterator[ParsedDocument | Member]:
        """Yield the mail as a document, and its attachments."""
        metadata = self._metadata()
        subject = metadata.get("subject")
        builder = text_of_mail([self._body(options)], keep_quotes=True)
        if not builder.blocks and subject:
            builder.add_text(subject, 0)
        yield ParsedDocument(builder.text, builder.blocks, subject, page_numbers=(), metadata=metadata)
        for attachment in self._folders("__attach_version1.0_#"):
            member = attachment._attachment(metadata, options)
            if not is_picture(member.name):
                yield member

    def _body(self, options: ReadOptions) -> ParsedDocument:
        """Return the text, else that of the HTML, else that of the RTF."""
        text, html = self._text(_BODY), self._html()
        if text.strip() and not is_stub(text, html):
            return plain_text(text)
        compressed = self._bytes(_RTF)
        if html.strip() or not compressed:
            return html_text(html, keep_quotes=True)
        documents = rtf.parse(RawFile("body.rtf", _decompressed(compressed), options))
        return plain_text("\n".join(document.text for document in documents))

    def _attachment(self, metadata: Mapping[str, Any], options: ReadOptions) -> Member:
        names = [self._text(number) for number in (_FILE_NAME, _SHORT_FILE_NAME, _NAME)]
        name = base_name(next(filter(None, names), "")) or "attachment"
        inner = f"__substg1.0_{_CONTENT}000D"
        if inner in self._names:
            storage = self._folder(inner)
            size = sum(storage._size(number) for number in (_BODY, _HTML, _RTF))
            return Member(name, size, partial(storage.mail, options))
        if self._text(_TYPE).lower() == "multipart/signed":
            name = "signed.eml"  # the mail as it was sent, in the attachment of a mail without a text
        return Member(name, self._size(_CONTENT), partial(self._bytes, _CONTENT), metadata=metadata)

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata from the headers of the internet, if there are any, else from properties."""
        people: dict[str, list[str]] = {"from": [self._person(_SENDER)], "to": [], "cc": []}
        for recipient in islice(self._folders("__recip_version1.0_#"), _MOST_RECIPIENTS):
            kind = _RECIPIENT_KINDS.get(recipient._number(_RECIPIENT_KIND))
            if kind is not None and len(people[kind]) < MOST_ADDRESSES:
                people[kind].append(recipient._person(_RECIPIENT))
        values = {
            "subject": one_line(self._text(_SUBJECT)),
            **{name: ", ".join(filter(None, found)) for name, found in people.items()},
            "date": self._date(_SENT) or self._date(_DELIVERED),
            "message_id": self._text(_MESSAGE_ID).strip().strip("<>"),
        }
        headers = header_metadata(self._text(_HEADERS).encode("utf-8", "surrogateescape"))
        return {**{name: value for name, value in values.items() if value}, **headers}

    def _person(self, numbers: tuple[str, str, str]) -> str:
        """Return the name and the address of a person. Addresses inside an organisation are left out."""
        name, *addresses = (one_line(self._text(number)) for number in numbers)
        return person(name, next((each for each in addresses if "@" in each), ""))

    def _html(self) -> str:
        data = self._bytes(_HTML)
        declared = declared_text(data, f"cp{self._number(_HTML_CODE_PAGE)}") if data else None
        return (declared or decode_html(data)) if data else self._text(_HTML)

    def _text(self, number: str) -> str:
        """Return a property in Unicode or in the code page of the mail, or an empty string."""
        if f"__substg1.0_{number}001F" in self._names:
            text = self._stream(f"__substg1.0_{number}001F").decode("utf-16-le", "replace")
        elif f"__substg1.0_{number}001E" in self._names:
            text = decoded_as(self._stream(f"__substg1.0_{number}001E"), f"cp{self._code_page}")
        else:
            return ""
        return well_formed(text.replace("\r\n", "\n")).replace("\0", "")

    def _bytes(self, number: str) -> bytes:
        name = f"__substg1.0_{number}0102"
        return self._stream(name) if name in self._names else b""

    def _size(self, number: str) -> int:
        names = (f"__substg1.0_{number}{kind}" for kind in ("001E", "001F", "0102"))
        return sum(self._ole.get_size([*self._path, name]) for name in names if name in self._names)

    def _number(self, number: int) -> int:
        return int.from_bytes(self._fixed.get(number, b"")[:4], "little")

    def _date(self, number: int) -> str | None:
        """Return a date, which is stored in units of 100 ns."""
        value = int.from_bytes(self._fixed.get(number, b""), "little")
        try:
            return utc(_EPOCH + timedelta(microseconds=value // 10)) if value else None
        except OverflowError:
            return None

    def _fixed_properties(self) -> dict[int, bytes]:
        if _PROPERTIES not in self._names:
            return {}
        data = self._stream(_PROPERTIES)
        # The stream starts with a header, whose length depends on the kind of the folder. Entries have 16 bytes.
        start = len(data) % _FIXED.size + (_FIXED.size if len(self._path) != 1 else 0)
        whole = (len(data) - start) // _FIXED.size * _FIXED.size
        return {number: value for _, number, value in _FIXED.iter_unpack(data[start : start + whole])}

    def _folders(self, prefix: str) -> Iterator[_Storage]:
        return (self._folder(name) for name in sorted(self._names) if name.startswith(prefix))

    def _folder(self, name: str) -> _Storage:
        return _Storage(self._ole, self._inside, (*self._path, name), self._code_page)

    def _stream(self, name: str) -> bytes:
        with self._ole.openstream([*self._path, name]) as stream:
            return bytes(stream.read())


def _decompressed(data: bytes) -> bytes:
    """Return an RTF text, which is compressed as in LZ77 with a window of 4,096 bytes; [MS-OXRTFCP]."""
    size, _, kind, _ = _RTF_HEADER.unpack_from(data)
    packed = data[_RTF_HEADER.size : size + 4]
    if kind == b"MELA":
        return packed
    if kind != b"LZFu":
        raise DocumentError(f"broken Outlook mail: unknown compression {kind!r} of its RTF text")
    text = bytearray(_RTF_BEGINNING)
    at = 0
    while at < len(packed):
        flags = packed[at]
        at += 1
        for bit in range(8):
            if not flags >> bit & 1:
                text += packed[at : at + 1]
                at += 1
                continue
            reference = int.from_bytes(packed[at : at + 2], "big")
            at += 2
            back = (len(text) - (reference >> 4)) % _RTF_WINDOW
            if back == 0 or at > len(packed):  # the end of the text
                return bytes(text[len(_RTF_BEGINNING) :])
            for _ in range((reference & 15) + 2):
                text.append(text[-back] if back <= len(text) else 0x20)
    return bytes(text[len(_RTF_BEGINNING) :])
