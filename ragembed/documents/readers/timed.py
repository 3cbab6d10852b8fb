"""Read text in the order of time: subtitles (SRT and WebVTT) and logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from ragembed.documents.decoding import is_binary
from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import FileText, Paragraphs, lines_of, one_line, runs, text_of

CUE = re.compile(r"\s*(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2})[.,]\d{1,3}\s*-->")
VOICE = re.compile(r"<v(?:\.[^\s>]{0,100})?[ \t]{1,9}([^<>\n]{0,200})>")
TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,100}>|<[\d:.]+>|\{\\[^{}\n]*\}")
VTT_SETTINGS = re.compile(r"(?:WEBVTT|STYLE|REGION)\b")

STAMP = re.compile(
    r"""[^\n]{0,60}?(?P<minute>
      \d{4}[-/.]\d\d[-/.]\d\d[T\x20]\d\d:\d\d(?=:\d\d)
    | \d\d?/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d(?=:\d\d)
    | (?:[A-Z][a-z]{2}\x20)?[A-Z][a-z]{2}\x20[ \d]\d\x20\d\d:\d\d(?=:\d\d)
    | \d\d-\d\d\x20\d\d:\d\d(?=:\d\d)
    | (?<![\d:.])\d\d:\d\d(?=:\d\d(?![\d:]))
    )""",
    re.VERBOSE,
)
SAMPLED_LINES = 200
LEAST_SHARE = 0.3
"""Minimum share of the first lines of a log that have a time."""
PIECE_BYTES = 4_000_000
"""A log is read in pieces of this size, so a large one does not need several times its size in memory."""


def parse_subtitles(file: RawFile) -> Iterator[ParsedDocument]:
    """Read the cues of subtitles, below a heading for each minute. A file without times is plain text."""
    lines = lines_of(file.text)
    content = Paragraphs()
    minute: str | None = None
    for first, stop in runs(lines, 0, len(lines)):
        cue = next((number for number in range(first, min(first + 2, stop)) if CUE.match(lines[number])), None)
        if cue is None:
            if minute is not None and not VTT_SETTINGS.match(lines[first]):
                _add_cue(content, lines, first, stop)
            continue
        now = _minute(lines[cue])
        if now != minute:
            content.add_heading(1, now, first + 1)
            minute = now
        _add_cue(content, lines, cue + 1, stop)
    if minute is None:
        yield from source.parse_plain(file)
    else:
        yield content.document(None)


def parse_log(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a log: lines of the same minute make a block below their time. Other files are read as plain text."""
    if is_binary(file.data) or b"\0" in file.data[:PIECE_BYTES] or not _is_log(file.data):
        yield from source.parse_plain(file)
        return
    start, line, minute = 0, 1, ""
    while start < len(file.data):
        stop = min(start + PIECE_BYTES, len(file.data))
        if stop < len(file.data):
            stop = file.data.rfind(b"\n", start, stop) + 1 or stop
        file_text = FileText(text_of(file.data[start:stop]))
        minute = _add_minutes(file_text, minute)
        lines = range(line, line + len(file_text.lines))
        yield ParsedDocument(file_text.text, file_text.blocks, line_numbers=lines)
        start, line = stop, line + file.data.count(b"\n", start, stop)


def _minute(line: str) -> str:
    match = CUE.match(line)
    minutes = int(match["minutes"]) + 60 * int(match["hours"] or 0) if match else 0
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _add_cue(content: Paragraphs, lines: list[str], first: int, stop: int) -> None:
    for number in range(first, stop):
        text = one_line(unescape(TAG.sub("", VOICE.sub(r"\1: ", lines[number]))))
        if text:
            content.add_line(text, number + 1)


def _is_log(data: bytes) -> bool:
    lines = data[: SAMPLED_LINES * 200].decode("utf-8", "replace").split("\n")[:SAMPLED_LINES]
    full = [line for line in lines if line.strip()]
    return sum(bool(STAMP.match(line)) for line in full) >= max(2, LEAST_SHARE * len(full))


def _add_minutes(file_text: FileText, minute: str) -> str:
    """Add a block for the lines of each minute. Lines without a time belong to the minute above. Return the last."""
    start = 0
    for number, line in enumerate(file_text.lines):
        match = STAMP.match(line)
        if match and match["minute"] != minute:
            file_text.add(start, number, "code", (minute,) if minute else ())
            start, minute = number, match["minute"]
    file_text.add(start, len(file_text.lines), "code", (minute,) if minute else ())
    return minute
