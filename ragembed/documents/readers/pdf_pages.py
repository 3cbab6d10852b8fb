"""Extract the text of a PDF file with PDFium, as a program that :mod:`.pdf` runs for each file, with limits.

A hostile file can make PDFium run forever, use all memory or crash. The script reads the PDF from standard input, and
writes one line of JSON about the document, and two per page: properties, and lines, or the pixels of a page for OCR. It
imports only the standard library and pypdfium2, so it starts in a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, BinaryIO

PROPERTIES = {
    "title": "Title",
    "author": "Author",
    "subject": "Subject",
    "keywords": "Keywords",
    "created": "CreationDate",
    "modified": "ModDate",
}
GAP = 1.1
"""A gap between two words that is wider than this, in font sizes, separates two segments of a line."""
TAB = 0.2
"""The least gap between two cells of a table, in font sizes."""
NEAR_LINES = 1
INDENT = 72
"""Text that starts less than this many points from the left side of the page's text is not in a second column."""
PUNCTUATION = ",.;:!?)]}"
PROSE_GAPS = 4
LINE_BREAKS, TAB_CODE = (10, 13), 9
TEX_LIGATURES = {code + n: text for code in (11, 27) for n, text in enumerate(("ff", "fi", "fl", "ffi", "ffl"))}
"""Codes of ligatures in TeX's bitmap fonts (OT1 and T1), which do not say which characters their glyphs are."""
TEX_FONT = re.compile(r"\A(?:[A-Z]{6}\+)?(?:(?:cm|ec|tc|sf|lm|pl|vn|la|cs)[a-z]{1,5}\d|\Z)", re.IGNORECASE)
"""Names of TeX's fonts. Bitmap fonts have no name."""
WORD_GAP = 0.12
"""The least gap where a glyph without a character is a space, in font sizes."""
LETTER_BITS = {chr(97 + at): int(digit, 36) / 2 for at, digit in enumerate("7cb96dbc7db9a88bj888abfidd")}
"""How rare a letter is in European languages: 2 to the power of -bits is its share of all letters."""
OTHER_LETTER_BITS, MOST_BITS = 7, 4.9
"""Bits of other Latin letters, and most bits on average in a text. Letters that stand for others have more."""
LEAST_CHARACTERS, LEAST_LETTERS = 10, 40
USUAL_SHARE, WORD_SHARE = 0.8, 0.6
"""Numbers of characters and letters from which a text is judged, and its least shares of usual ones and of words."""
MOST_ANNOTATIONS, LONGEST_ANNOTATION = 2_000, 20_000
PASSWORD_FIELD, HIDDEN = 1 << 13, 2
RAISED, LOWERED, LEVEL = "\x0e", "\x0f", "\x10"
"""Marks before raised or lowered text, and after it, as in :mod:`.formulas`."""
FIRST_RIGHT_TO_LEFT = "\u0590"
RIGHT_TO_LEFT = re.compile("[\u05d0-\u05ea\u0620-\u064a\u066e-\u06d3\ufb1d-\ufdcf\ufe70-\ufefc]")
MIRRORED, NUMBER = str.maketrans("()[]{}<>«»", ")(][}{><»«"), re.compile(r"\d+(?:[.,]\d+)*")
LINE_HYPHENS = (2, 0xFFFE)
"""PDFium's codes for a hyphen at the end of a line. No line break follows it."""
BOLD = re.compile(r"bold|black|heavy|[-,]bd|cmbx|sfbx|medi\b|demi", re.IGNORECASE)
MONOSPACED = re.compile(r"mono|courier|typewriter|cmtt|sftt|cmsltt|consol|fixed", re.IGNORECASE)
FIXED_PITCH, FORCE_BOLD = 1, 1 << 18
OCR_DOTS, OCR_PIXELS = 300, 25_000_000
"""Resolution in dots per inch, and largest number of pixels, of a page for OCR."""
LONGEST_OUTLINE = 5_000
OUT_OF_MEMORY = 3
"""Exit status if Python runs out of memory."""
IS_BOLD, IS_MONOSPACED, IS_UNMAPPED = 1, 2, 4
STYLES = (IS_BOLD, IS_MONOSPACED, IS_UNMAPPED)
"""Styles of text. The font of unmapped text does not say which characters its glyphs are, so PDFium guesses."""


@dataclass(slots=True)
class Word:
    """A word: its characters, its box with ``top`` < ``bottom``, font size, style, and the direction of its line.

    The direction is the number of quarter turns to the left: 0 for text that is read to the right, 1 for upwards.
    ``rightwards`` is positive if most letters of a right-to-left word are on the right of the letter before.
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    style: int
    direction: int = 0
    rightwards: int = 0


def page_lines(raw: Any, text_page: Any, height: float, fonts: _Fonts) -> Iterator[list[Word]]:
    """Yield the words of each line of a page, in the order of the file."""
    box = raw.FS_RECTF()
    line: list[Word] = []
    starts_word, skipped = True, False
    base, script, left = (0.0, 0.0), "", 0.0
    for index in range(raw.FPDFText_CountChars(text_page)):
        character = _character(raw, text_page, index, fonts)
        if character and not character.isspace() and raw.FPDFText_GetLooseCharBox(text_page, index, box):
            top, bottom = height - box.top, height - box.bottom
            if skipped and line:  # the glyph that was skipped can be a space
                starts_word |= max(box.left - line[-1].right, line[-1].left - box.right) > WORD_GAP * line[-1].size
            if starts_word:
                line.append(Word("", box.left, top, box.right, bottom, *fonts.at(index)))
                base, script = (top, bottom), ""
            word = line[-1]
            if word.direction == 0 and (mark := _script(*base, top, bottom)) != script:
                word.text = _marked(word.text, mark, character)
                script = mark
            if character >= FIRST_RIGHT_TO_LEFT and word.text and RIGHT_TO_LEFT.match(character):
                word.rightwards += 1 if box.left > left else -1
            left = box.left
            word.text += character.removesuffix("\n")
            word.left, word.right = min(word.left, box.left), max(word.right, box.right)
            word.top, word.bottom = min(word.top, top), max(word.bottom, bottom)
            starts_word = skipped = False
        if not character:
            skipped = True
            fonts.skipped += 1
        starts_word |= character.isspace()
        if character.endswith("\n"):
            yield [_finished(word) for word in line]
            line, starts_word = [], True
    yield [_finished(word) for word in line]


def _script(above: float, below: float, top: float, bottom: float) -> str:
    """Return the mark of a character that is raised or lowered, and smaller than the first one of its word."""
    height = below - above
    if not 0.45 * height < bottom - top < 0.85 * height:
        return ""
    return RAISED if below - bottom > 0.15 * height else LOWERED if top - above > 0.3 * height else ""


def _marked(text: str, mark: str, character: str) -> str:
    """Add a mark before a character. Letters between letters are those of a logo, and lose their mark."""
    start = max(text.rfind(RAISED), text.rfind(LOWERED))
    if not mark and character.isalpha() and text[start + 1 :].isalpha():
        return text[:start] + text[start + 1 :]
    return text + (mark or LEVEL)


def _finished(word: Word) -> Word:
    """End raised text, and turn round a right-to-left word that PDFium has read to the right, but not its numbers."""
    if max(word.text.rfind(RAISED), word.text.rfind(LOWERED)) > word.text.rfind(LEVEL):
        word.text += LEVEL
    if word.rightwards > 0:
        turned = word.text[::-1].translate(MIRRORED)
        word.text = NUMBER.sub(lambda number: number[0][::-1], turned)
    return word


def without_glyph_codes(lines: Sequence[Sequence[Word]], skipped: int) -> list[list[Word]]:
    """Return the words without codes of glyphs of fonts without a map. Half of the ``skipped`` glyphs may be spaces."""
    unmapped = "".join(word.text for line in lines for word in line if word.style & IS_UNMAPPED)
    words = sum(map(str.isalnum, unmapped))
    usual = words + sum(character in ".,;:!?()-'\"/%" for character in unmapped)
    letters = [character for character in unmapped.lower() if character.isalpha() and character < "\u0250"]
    bits = sum(LETTER_BITS.get(letter, OTHER_LETTER_BITS) for letter in letters)
    count = len(unmapped) + skipped // 2
    is_usual = usual >= USUAL_SHARE * count and words >= WORD_SHARE * count
    are_words = len(letters) < LEAST_LETTERS or bits < MOST_BITS * len(letters)
    if (is_usual and are_words) or count < LEAST_CHARACTERS:
        return [list(line) for line in lines if line]
    mapped = ([word for word in line if not word.style & IS_UNMAPPED] for line in lines)
    return [line for line in mapped if line]


def add_annotations(raw: Any, page: Any, form: Any, lines: list[list[Word]], height: float) -> None:
    """Add the values of form fields to the lines of a page at their places, and the comments of readers at its end."""
    sizes = Counter(word.size for line in lines for word in line)
    size = sizes.most_common(1)[0][0] if sizes else 10.0
    box = raw.FS_RECTF()
    comments = []
    for index in range(min(raw.FPDFPage_GetAnnotCount(page), MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if raw.FPDFAnnot_GetFlags(annotation) & HIDDEN or not raw.FPDFAnnot_GetRect(annotation, box):
            text, is_comment = "", False
        else:
            text, is_comment = _annotation(raw, annotation, form)
        raw.FPDFPage_CloseAnnot(annotation)
        if is_comment:
            comments.append(text)
        elif any(map(str.isalnum, text)):
            _add_field(lines, text.splitlines(), (box.left, height - box.top, height - box.bottom), size)
    bottom = max((word.bottom for line in lines for word in line), default=0.0)
    for number, text in enumerate(filter(str.strip, comments), 1):
        top = bottom + 3 * number * size
        lines.append([Word(" ".join(text.split()), 0.0, top, 1.0, top + size, size, 0)])


def _annotation(raw: Any, annotation: Any, form: Any) -> tuple[str, bool]:
    """Return the text of an annotation, and whether it is a comment of a reader."""
    subtype = raw.FPDFAnnot_GetSubtype(annotation)
    if subtype == raw.FPDF_ANNOT_WIDGET:
        if form is None or raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD_FIELD:
            return "", False
        kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
        if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
            return "[x]" if raw.FPDFAnnot_IsChecked(form, annotation) else "", False
        is_text = kind in (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
        return _string(raw, raw.FPDFAnnot_GetFormFieldValue, form, annotation) if is_text else "", False
    if subtype in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
        return "", False
    text = _string(raw, raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    if subtype == raw.FPDF_ANNOT_FREETEXT or not text.strip():
        return text, False
    author = _string(raw, raw.FPDFAnnot_GetStringValue, annotation, b"T").strip()
    return f"Comment by {author}: {text}" if author else f"Comment: {text}", True


def _string(raw: Any, read: Any, *arguments: Any) -> str:
    size = min(read(*arguments, None, 0), 2 * LONGEST_ANNOTATION)
    buffer = (raw.FPDF_WCHAR * (size // 2 + 1))()
    read(*arguments, buffer, size)
    return bytes(buffer)[:size].decode("utf-16-le", "replace").rstrip("\0")


def _add_field(lines: list[list[Word]], texts: Sequence[str], place: tuple[float, float, float], size: float) -> None:
    """Add the text of a field with the given left, upper and lower side to the line on its height, or below another."""
    left, upper, lower = place
    step = (lower - upper) / max(1, len(texts))
    at = len(lines) - 1
    for number, text in enumerate(filter(str.strip, texts)):
        middle = upper + (number + 0.5) * step
        word = Word(text.strip(), left, middle - size / 2, left + len(text) * size / 2, middle + size / 2, size, 0)
        beside = [line for line in lines if line[0].top <= middle <= line[0].bottom] if number == 0 else []
        if beside:
            line = beside[-1]
            line.insert(next((i for i, other in enumerate(line) if other.left > left), len(line)), word)
            at = next(i for i, other in enumerate(lines) if other is line)
        else:
            if number == 0:
                above = [(line[0].bottom, i) for i, line in enumerate(lines) if line[0].bottom <= middle]
                at = max(above)[1] if above else -1
            at += 1
            lines.insert(at, [word])


def upright(lines: list[list[Word]], width: float, height: float) -> None:
    """Turn a page on which most words are not read to the right. PDFium's order of its lines is not reliable."""
    directions = Counter(word.direction for line in lines for word in line)
    direction = directions.most_common(1)[0][0] if directions else 0
    if direction == 0:
        return
    for line in lines:
        for word in line:
            across, down = (word.left, word.right), (word.top, word.bottom)
            if direction != 3:
                down = height - down[1], height - down[0]
            if direction != 1:
                across = width - across[1], width - across[0]
            if direction != 2:
                across, down = down, across
            (word.left, word.right), (word.top, word.bottom) = across, down
        line.sort(key=lambda word: word.left)
    lines.sort(key=lambda line: (round(line[0].top), line[0].left))


def segments(lines: Sequence[Sequence[Word]]) -> list[list[list[object]]]:
    """Split lines at wide gaps, and at narrower ones above or below the start of a part, as in tables."""
    measured = [_gaps(line) for line in lines]
    whole = [_split(line, [gap > least for gap in gaps]) for line, (gaps, least) in zip(lines, measured, strict=True)]
    indent = min((line[0].left for line in lines), default=0.0) + INDENT
    starts = [{round(part[0].left) for part in parts if part[0].left > indent} for parts in whole]
    found = []
    for at, (line, (gaps, least)) in enumerate(zip(lines, measured, strict=True)):
        near = set[int]().union(*starts[max(at - NEAR_LINES, 0) : at + NEAR_LINES + 1])
        wide = [
            gap > least or (gap > TAB * word.size and round(word.left) in near)
            for gap, word in zip(gaps, line[1:], strict=True)
        ]
        found.append([_segment(part) for part in _split(line, wide)])
    return found


def _split(words: Sequence[Word], wide: Sequence[bool]) -> list[list[Word]]:
    parts = [[words[0]]]
    for word, apart in zip(words[1:], wide, strict=True):
        if apart and word.text[0] not in PUNCTUATION:
            parts.append([])
        parts[-1].append(word)
    return parts


def _gaps(words: Sequence[Word]) -> tuple[list[float], float]:
    """Return the gaps between words, and the least one that separates parts. Stretched spaces in prose do not."""
    gaps = [max(word.left - above.right, above.left - word.right) for above, word in pairwise(words)]
    least = GAP * max((word.size for word in words), default=0.0)
    wide, narrow = [gap for gap in gaps if gap > least], sorted(gap for gap in gaps if gap <= least)
    text = "".join(word.text for word in words)
    if not wide or len(gaps) < PROSE_GAPS or sum(map(str.isalpha, text)) < 0.6 * len(text):
        return gaps, least
    if len(wide) > 2 and max(wide) < 1.25 * min(wide):
        return gaps, max(wide)
    return gaps, max(least, 1.8 * narrow[len(narrow) // 2]) if narrow else least


def _segment(words: Sequence[Word]) -> list[object]:
    sizes: Counter[float] = Counter()
    styles: Counter[int] = Counter()
    for word in words:
        sizes[word.size] += len(word.text)
        styles.update({style: len(word.text) for style in STYLES if word.style & style})
    sides = (
        min(word.left for word in words),
        min(word.top for word in words),
        max(word.right for word in words),
        max(word.bottom for word in words),
    )
    style = sum(style for style, count in styles.items() if count > 0.9 * sizes.total())
    text = " ".join(word.text for word in words)
    return [text, *(round(side, 1) for side in sides), sizes.most_common(1)[0][0], style]


class _Fonts:
    """Size, style and direction of a character."""

    def __init__(self, raw: Any, text_page: Any) -> None:
        self._raw, self._page = raw, text_page
        self.skipped = 0
        """Number of glyphs without a character."""
        self._matrix, self._flags, self._name = raw.FS_MATRIX(), ctypes.c_int(), ctypes.create_string_buffer(128)

    def at(self, index: int) -> tuple[float, int, int]:
        size, direction = self._raw.FPDFText_GetFontSize(self._page, index), 0
        if self._raw.FPDFText_GetMatrix(self._page, index, self._matrix):
            m = self._matrix
            size *= abs(m.a * m.d - m.b * m.c) ** 0.5
            direction = (1 if m.b > 0 else 3) if abs(m.b) > abs(m.a) else (0 if m.a >= 0 else 2)
        name, flags = self.name_at(index), self._flags.value
        style = IS_BOLD * bool(flags & FORCE_BOLD or BOLD.search(name))
        style |= IS_MONOSPACED * bool(flags & FIXED_PITCH or MONOSPACED.search(name))
        style |= IS_UNMAPPED * (self._raw.FPDFText_HasUnicodeMapError(self._page, index) == 1)
        return round(size, 1), style, direction

    def name_at(self, index: int) -> str:
        """Return the name of the font, and keep its flags."""
        self._name.value = b""
        self._raw.FPDFText_GetFontInfo(self._page, index, self._name, 128, self._flags)
        return self._name.value.decode("utf-8", "replace")


def _character(raw: Any, text_page: Any, index: int, fonts: _Fonts) -> str:
    """Return a character, with a line break if it ends a line, for the first of its codes; "" for other codes."""
    code = raw.FPDFText_GetUnicode(text_page, index)
    if code in LINE_HYPHENS and raw.FPDFText_IsHyphen(text_page, index) == 1:
        return "-\n"
    if code in TEX_LIGATURES and raw.FPDFText_HasUnicodeMapError(text_page, index) == 1:
        return TEX_LIGATURES[code] if TEX_FONT.match(fonts.name_at(index)) else ""
    if code in LINE_BREAKS:
        return "\n"
    if code == TAB_CODE:
        return " "
    if 0xD800 <= code < 0xDC00:
        low = raw.FPDFText_GetUnicode(text_page, index + 1)
        return chr(0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00) if 0xDC00 <= low < 0xE000 else ""
    if code < 32 or 0x7F <= code < 0xA0 or 0xDC00 <= code < 0xE000 or code in (0xFFFE, 0xFFFF) or code > 0x10FFFF:
        return ""
    return chr(code)


def outline(raw: Any, document: Any, error: type[Exception]) -> list[tuple[int, str, int, float | None]]:
    """Return the outline: level from 1, title, page from 0, and the distance from the top of the page, if given."""
    height_at = {raw.PDFDEST_VIEW_XYZ: 1, raw.PDFDEST_VIEW_FITH: 0, raw.PDFDEST_VIEW_FITBH: 0, raw.PDFDEST_VIEW_FITR: 3}
    found: list[tuple[int, str, int, float | None]] = []
    for mark in islice(document.get_toc(), LONGEST_OUTLINE):
        try:
            title, target = mark.get_title(), mark.get_dest()
            page = None if target is None else target.get_index()
            if target is None or page is None:
                continue
            mode, position = target.get_view()
            at = height_at.get(mode)
            given = at is not None and at < len(position)
            top = document.get_page_size(page)[1] - position[at] if given else None
        except (error, UnicodeError):  # a broken entry; the others can be right
            continue
        found.append((mark.level + 1, title, page, top))
    return found


def pixels(page: Any) -> tuple[tuple[int, int, float], bytes]:
    """Return width, height and pixels per point of a page's image, and its grey values, one byte per pixel."""
    width, height = page.get_size()
    scale = min(OCR_DOTS / 72, (OCR_PIXELS / max(width * height, 1)) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    values, stride = bytes(bitmap.buffer), bitmap.stride
    rows = (values[at : at + bitmap.width] for at in range(0, stride * bitmap.height, stride))
    return (bitmap.width, bitmap.height, scale), b"".join(rows)


def main() -> None:
    """Write the pages of the PDF in standard input. Arguments: folder of pypdfium2, bytes of memory, 1 for OCR."""
    folder, memory, with_ocr = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
    _limit_memory(memory)
    sys.path.append(folder)
    try:
        write_pages(sys.stdin.buffer.read(), sys.stdout.buffer, with_ocr)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)


def _limit_memory(memory: int) -> None:
    """Limit the memory of this process, which only Linux enforces."""
    if sys.platform != "linux":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most), most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_pages(data: bytes, out: BinaryIO, with_ocr: bool) -> None:
    """Write one line of JSON about the document, and one about each page with its lines or pixels after it."""
    import pypdfium2 as pdfium
    import pypdfium2.raw as raw

    def write(value: object, content: bytes = b"") -> None:
        out.write(json.dumps(value).encode() + b"\n" + content)
        out.flush()

    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        write({"error": error.err_code})
        return
    properties = {}
    for key, name in PROPERTIES.items():
        with suppress(UnicodeError):
            properties[key] = document.get_metadata_value(name)
    with suppress(pdfium.PdfiumError):
        document.init_forms()
    form = document.formenv and document.formenv.raw
    entries = outline(raw, document, pdfium.PdfiumError)
    write({"pages": len(document), "properties": properties, "outline": entries})
    for number in range(len(document)):
        try:
            page = document[number]
            text_page = page.get_textpage()
        except pdfium.PdfiumError:
            write({"problem": "broken", "characters": 0, "image": None}, b"[]\n")
            continue
        fonts = _Fonts(raw, text_page.raw)
        found = list(page_lines(raw, text_page.raw, page.get_height(), fonts))
        words = without_glyph_codes(found, fonts.skipped)
        problem = None
        glyphs = _characters(found) + fonts.skipped // 2
        if glyphs >= LEAST_CHARACTERS and 2 * _characters(words) < glyphs:
            problem = "unreadable"
            if not any(character.isalnum() for line in words for word in line for character in word.text):
                words = []
        elif not words and next(page.get_objects([raw.FPDF_PAGEOBJ_IMAGE], max_depth=3), None) is not None:
            problem = "scanned"
        add_annotations(raw, page.raw, form, words, page.get_height())
        upright(words, *page.get_size())
        lines = segments(words)
        image, content = pixels(page) if problem and with_ocr else (None, json.dumps(lines).encode() + b"\n")
        write({"problem": problem, "characters": _characters(words), "image": image}, content)
        text_page.close()
        page.close()


def _characters(lines: Sequence[Sequence[Word]]) -> int:
    return sum(len(word.text) for line in lines for word in line)


if __name__ == "__main__":
    main()
