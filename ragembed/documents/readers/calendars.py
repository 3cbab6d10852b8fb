"""Read calendars (.ics) and contacts (.vcf): each event, task, note or contact is a document, with a line per property.

The format is that of RFC 5545 and RFC 6350, and of their predecessors vCalendar 1.0 and vCard 2.1.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from ragembed.documents.decoding import decoded_as
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import TextBuilder, one_line, well_formed

COMPONENTS = ("VEVENT", "VTODO", "VJOURNAL", "VCARD")
NAMES = {
    "SUMMARY": "", "FN": "", "DTSTART": "start", "DTEND": "end", "DUE": "due", "DURATION": "duration",
    "RRULE": "repeats", "LOCATION": "place", "ORGANIZER": "organizer", "ATTENDEE": "attendee", "CONTACT": "contact",
    "CONFERENCE": "conference", "STATUS": "status", "CATEGORIES": "categories", "RESOURCES": "resources", "URL": "url",
    "DESCRIPTION": "", "COMMENT": "comment", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "phone",
    "EMAIL": "email", "ADR": "address", "BDAY": "birthday", "NICKNAME": "nickname", "NOTE": "note",
}  # fmt: skip
"""The properties that are read, with their names in the text. The others are for programs."""
LISTS = ("ORG", "ADR")
_PROPERTY = re.compile(r'([\w.-]+)((?:;[^":;]*(?:"[^"]*"[^":;]*)*)*):(.*)', re.DOTALL)
_PARAMETER = re.compile(r';([\w-]+)=("[^"]*"|[^";]*)')
_DATE = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)[\d:]*(Z?))?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class _Property(NamedTuple):
    name: str
    parameters: dict[str, str]
    value: str
    line: int


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a calendar or contacts. The title of a document is its summary or name. Other files are plain text."""
    calendar: tuple[str, ...] = ()
    component: list[_Property] | None = None
    inner, is_empty = 0, True
    for entry in _properties(file.text):
        if entry.name == "X-WR-CALNAME" and component is None:
            calendar = (one_line(_text(entry.value)),)
        elif entry.name == "BEGIN":
            inner += component is not None
            if component is None and entry.value.strip().upper() in COMPONENTS:
                component, is_empty = [], False
        elif entry.name == "END" and inner:
            inner -= 1  # an alarm of the component
        elif entry.name == "END" and component is not None:
            yield _document(component, calendar, entry.line)
            component = None
        elif component is not None and not inner and entry.name in NAMES:
            component.append(entry)
    if is_empty:
        yield from source.parse_plain(file)
    elif component:
        yield _document(component, calendar, component[-1].line)


def _properties(text: str) -> Iterator[_Property]:
    """Yield the properties of a file, whose values can continue on the next lines."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first, parts = at, [lines[at]]
        at += 1
        is_quoted = ";ENCODING=QUOTED-PRINTABLE" in lines[first].upper()
        while at < len(lines) and (lines[at][:1] in (" ", "\t") or (is_quoted and parts[-1].endswith("="))):
            folded = lines[at][:1] in (" ", "\t")
            parts.append(lines[at][1:] if folded else f"\n{lines[at]}")
            at += 1
        if match := _PROPERTY.match("".join(parts)):
            parameters = {name.upper(): value.strip('"') for name, value in _PARAMETER.findall(match[2])}
            value = _unquoted(match[3], parameters.get("CHARSET", "")) if is_quoted else match[3]
            yield _Property(match[1].rpartition(".")[2].upper(), parameters, value, first + 1)


def _unquoted(value: str, charset: str) -> str:
    return decoded_as(binascii.a2b_qp(value.encode("utf-8", "surrogateescape")), charset)


def _document(component: list[_Property], calendar: tuple[str, ...], last_line: int) -> ParsedDocument:
    title = start = None
    lines: list[tuple[str, int]] = []
    for entry in sorted(component, key=lambda entry: list(NAMES).index(entry.name)):
        first, *more = _shown(entry).strip().split("\n")
        if not first:
            continue
        name = NAMES[entry.name]
        title = title or (one_line(first) if entry.name in ("SUMMARY", "FN") else None)
        start = start or (first if entry.name == "DTSTART" else None)
        lines += [(f"{name}: {first}" if name else first, entry.line), *((line, entry.line) for line in more)]
    builder = TextBuilder()
    builder.add(lines, "text", calendar, last_line)
    return builder.document(title, {"start": start} if start else None)


def _shown(entry: _Property) -> str:
    """Return the value of a property as text: dates in ISO form, and people as ``Name <address>``."""
    if match := _DATE.fullmatch(entry.value.strip()):
        year, month, day, hour, minute, utc = match.groups()
        time = f" {hour}:{minute}" if hour else ""
        zone = " UTC" if utc else f" ({entry.parameters['TZID']})" if "TZID" in entry.parameters else ""
        return f"{year}-{month}-{day}{time}{zone}"
    text = _text(entry.value)
    if entry.name in LISTS:
        return ", ".join(filter(None, map(one_line, text.split(";"))))
    if entry.name in ("ORGANIZER", "ATTENDEE"):
        name, address = entry.parameters.get("CN", ""), re.sub(r"\Amailto:", "", text.strip(), flags=re.IGNORECASE)
        return f"{name} <{address}>" if name and name != address else address
    return text


def _text(value: str) -> str:
    text = _ESCAPED.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)
    return well_formed(text.replace("\r", ""))
