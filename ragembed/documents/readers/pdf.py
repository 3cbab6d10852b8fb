"""Read PDF files: text in reading order with headings, tables, code and page numbers, and scanned pages by OCR."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import pdf_layout
from ragembed.documents.readers.pdf_layout import PdfCell, PdfLine
from ragembed.documents.readers.pdf_pages import GAP, OUT_OF_MEMORY
from ragembed.documents.readers.pdf_running import without_running_lines
from ragembed.documents.readers.properties import OF_PROGRAMS, with_properties
from ragembed.documents.readers.reader import RawFile, ReadOptions
from ragembed.documents.readers.structure import TextBuilder, one_line, well_formed
from ragembed.errors import DocumentError
from ragembed.extras import is_installed
from ragembed.version import install_command

SECONDS = 10.0
"""Time for a file. Each ``CHARACTERS_PER_SECOND`` characters of text add a second."""
CHARACTERS_PER_SECOND = 5000
MEMORY = 500_000_000
"""Bytes of memory for the extraction of a file."""
LONGEST_OUTPUT = 20_000_000
"""Bytes of extracted lines with their positions. A manual has about 4 kB per page."""
MOST_PAGES = 10_000
OCR_SECONDS = 60
LEAST_OUTLINE = 2
"""Number of entries of an outline whose titles must be on their pages. Else fonts decide what a heading is."""
PASSWORD_ERROR = 4
"""PDFium's code for a file that needs a password."""
FILE_NAME_TITLE = re.compile(r"\.(?:dvi|docx?|indd|od[pst]|pdf|pptx?|ps|qxd|rtf|tex|xlsx?)\Z", re.IGNORECASE)
PDF_DATE = re.compile(r"^D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(Z|[+-]\d\d(?:'?\d\d)?)?.*")
NO_TITLE = re.compile(r"(?:microsoft (?:word|powerpoint) - .*|untitled.*|title|document\d*)\Z", re.IGNORECASE)


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a PDF file. Scanned pages are read with OCR if it is installed, else reported."""
    pdf = _extract(file.data, file.options)
    pages = pdf.ordered_pages()
    body, pitch = pdf_layout.body_font(pages)
    pages = without_running_lines(pages, body)
    headings = pdf_layout.outline_headings(pages, pdf.outline)
    if sum(heading.lines > 0 for found in headings.values() for heading in found) < LEAST_OUTLINE:
        headings = pdf_layout.font_headings(pages, body, pitch)
    builder = TextBuilder()
    pdf_layout.add_pages(builder, pages, headings, body, pitch)
    if not builder.blocks:
        raise DocumentError("contains no text")
    title = pdf.title or pdf_layout.largest_heading(pages[0], body, pitch)
    document = ParsedDocument(builder.text, builder.blocks, title, page_numbers=builder.places)
    yield with_properties(document, {**pdf.properties, "title": pdf.title})


@dataclass(slots=True)
class _PdfFile:
    """The properties, the outline, and the lines of each page: JSON of :mod:`.pdf_pages`, or from OCR."""

    title: str | None
    properties: dict[str, str]
    outline: Sequence[pdf_layout.OutlineEntry]
    pages: list[bytes | list[PdfLine]] = field(default_factory=list)

    def ordered_pages(self) -> list[list[PdfLine]]:
        """Return the lines of each page in reading order."""
        return [
            pdf_layout.in_reading_order(
                [pdf_layout.make_line(line, number) for line in json.loads(page)] if isinstance(page, bytes) else page
            )
            for number, page in enumerate(self.pages, 1)
        ]


def _extract(data: bytes, options: ReadOptions) -> _PdfFile:
    """Return the text of a file, within limits of time and memory. Reports pages that cannot be read."""
    ocr = _Ocr()
    numbers: dict[str, list[int]] = {"broken": [], "scanned": [], "unreadable": []}
    with _Extraction(data, ocr.available) as extraction:
        head = json.loads(extraction.read_line())
        if "error" in head:
            if head["error"] == PASSWORD_ERROR:
                raise DocumentError("encrypted with a password: save a copy without the password and index it")
            raise DocumentError("corrupt PDF: it has no readable structure")
        if head["pages"] > MOST_PAGES:
            raise DocumentError(f"has {head['pages']:,} pages: the limit is {MOST_PAGES:,}; split it")
        given = {name: value for name, value in head["properties"].items() if not OF_PROGRAMS.fullmatch(value)}
        properties = {name: PDF_DATE.sub(_iso_date, value) for name, value in given.items()}
        file = _PdfFile(_title(properties.get("title", "")), properties, [tuple(entry) for entry in head["outline"]])
        empty = 0
        for number in range(1, head["pages"] + 1):
            page = json.loads(extraction.read_line())
            extraction.allow(page["characters"])
            if image := page["image"]:
                file.pages.append(ocr.read(image, extraction.read_pixels(image[0] * image[1]), number))
            else:
                file.pages.append(extraction.read_line())
            is_empty = file.pages[-1] in ([], b"[]\n")
            empty += is_empty
            if page["problem"] and (is_empty or (page["problem"] == "unreadable" and not image)):
                numbers[page["problem"]].append(number)
    _report(numbers, empty == len(file.pages), ocr.remedy, options)
    return file


def _report(numbers: Mapping[str, Sequence[int]], is_empty: bool, remedy: str, options: ReadOptions) -> None:
    """Report the pages that are broken, scanned or unreadable; raise :class:`DocumentError` if no page has text."""
    broken, scanned, unreadable = numbers["broken"], numbers["scanned"], numbers["unreadable"]
    if is_empty and (scanned or unreadable):
        reason = "its fonts do not say which letters they show" if unreadable else "its pages are scans"
        raise DocumentError(f"contains no text, because {reason}; {remedy}")
    if is_empty and broken:
        raise DocumentError("corrupt PDF: none of its pages can be read")
    if broken:
        options.warn(f"pages that cannot be read: {_ranges(broken)}")
    if scanned:
        options.warn(f"scanned pages without text: {_ranges(scanned)}; {remedy}")
    if unreadable:
        options.warn(f"pages whose fonts do not say which letters they show: {_ranges(unreadable)}; {remedy}")


class _Extraction:
    """The process that extracts the text of one file. It is killed if it exceeds its time."""

    def __init__(self, data: bytes, with_ocr: bool) -> None:
        script = Path(__file__).with_name("pdf_pages.py")
        packages = str(distribution("pypdfium2").locate_file(""))
        command = [sys.executable, "-I", "-S", str(script), packages, str(MEMORY), str(int(with_ocr))]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._input, self._output = cast("tuple[IO[bytes], IO[bytes]]", (self._process.stdin, self._process.stdout))
        self._seconds, self._late = SECONDS, False
        self._bytes = LONGEST_OUTPUT
        with suppress(OSError), self._input:  # reading reports why the process ended already
            self._input.write(data)

    def __enter__(self) -> _Extraction:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()

    def read_line(self) -> bytes:
        """Return the next line of the output; raise :class:`DocumentError` if the process ends or takes too long."""
        line = self._within_time(lambda: self._output.readline(self._bytes))
        self._bytes -= len(line)
        if not line.endswith(b"\n"):
            raise self._failure()
        return line

    def read_pixels(self, size: int) -> bytes:
        """Return the ``size`` grey values that follow a line."""
        values = self._within_time(lambda: self._output.read(size))
        if len(values) < size:
            raise self._failure()
        return values

    def allow(self, characters: int) -> None:
        """Add the time that ``characters`` of text may take."""
        self._seconds += characters / CHARACTERS_PER_SECOND

    def _within_time(self, read: Callable[[], bytes]) -> bytes:
        started = time.monotonic()
        timer = threading.Timer(self._seconds, self._kill)
        timer.start()
        try:
            return read()
        finally:
            timer.cancel()
            self._seconds -= time.monotonic() - started

    def _kill(self) -> None:
        self._late = True
        self._process.kill()

    def _failure(self) -> DocumentError:
        if self._bytes == 0:
            return DocumentError(
                f"contains too much text: its lines have more than {LONGEST_OUTPUT / 1e6:.0f} MB; split it"
            )
        code = self._process.wait()
        if self._late:
            return DocumentError(f"takes too long to read: no more text after {SECONDS:g} seconds")
        if code == OUT_OF_MEMORY or code < 0:
            return DocumentError(f"corrupt PDF, or one that needs more than {MEMORY / 1e6:.0f} MB of memory")
        return DocumentError(f"corrupt PDF: PDFium ended with status {code}")


def _iso_date(found: re.Match[str]) -> str:
    year, month, day, hour, minute, second, offset = found.groups()
    clock = f"T{hour}:{minute or '00'}:{second or '00'}" if hour else ""
    offset = (
        f"{offset[:3]}:{offset[-2:] if len(offset) > 4 else '00'}"
        if clock and offset and set(offset) - set("Z+-'0")
        else ""
    )
    return f"{year}-{month or '01'}-{day or '01'}{clock}{offset or ('Z' if clock else '')}"


def _title(text: str) -> str | None:
    """Return the title in the document properties, or None if it is only a file name or a default of a program."""
    title = one_line(well_formed(text))
    return None if not title or FILE_NAME_TITLE.search(title) or NO_TITLE.match(title) else title


def _ranges(numbers: Sequence[int]) -> str:
    """Return page numbers as text, for example ``2, 4–6``. At most ten ranges are named."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    named = [str(first) if first == last else f"{first}–{last}" for first, last in ranges[:10]]
    return ", ".join(named) + (f" and {len(ranges) - 10} more" if len(ranges) > 10 else "")


class _Ocr:
    """Reads the text of scanned pages with Tesseract, in all languages that are installed for it."""

    def __init__(self) -> None:
        self.available = is_installed("pytesseract") and shutil.which("tesseract") is not None
        self.failure = ""

    @property
    def remedy(self) -> str:
        """What to do about pages without text."""
        if not self.available:
            return f"to read them, install the program Tesseract, and run {install_command('documents')}"
        return f"OCR failed: {self.failure}" if self.failure else "OCR found no text on them"

    def read(self, image: Sequence[Any], values: bytes, page: int) -> list[PdfLine]:
        """Return the lines of a page from its grey values, and its width, height and pixels per point in ``image``."""
        import pytesseract
        from PIL import Image

        width, height, scale = image
        try:
            languages = "+".join(name for name in pytesseract.get_languages() if name != "osd")
            words = pytesseract.image_to_data(
                Image.frombytes("L", (width, height), values),
                lang=languages,
                timeout=OCR_SECONDS,
                output_type=pytesseract.Output.DICT,
            )
        except (pytesseract.TesseractError, RuntimeError) as error:  # a timeout is a RuntimeError
            self.failure = one_line(str(error))
            return []
        return _lines_of_words(words, scale, page)


def _lines_of_words(words: Mapping[str, Sequence[Any]], scale: float, page: int) -> list[PdfLine]:
    """Return lines from Tesseract's table of words. All get one font size, because the heights of words vary."""
    numbers = [number for number, word in enumerate(words["text"]) if word.strip()]
    size = max(1.0, median(words["height"][number] / scale for number in numbers)) if numbers else 1.0
    lines: dict[tuple[int, ...], list[PdfCell]] = {}
    for number in numbers:
        left, top, width, height = (words[side][number] / scale for side in ("left", "top", "width", "height"))
        cell = PdfCell(one_line(words["text"][number]), left, top, left + width, top + height, size)
        cells = lines.setdefault(tuple(words[part][number] for part in ("block_num", "par_num", "line_num")), [])
        if cells and max(left - cells[-1].right, cells[-1].left - cell.right) < GAP * size:
            cells[-1] = pdf_layout.joined(cells[-1], cell)
        else:
            cells.append(cell)
    return [PdfLine(cells, page) for cells in lines.values()]
