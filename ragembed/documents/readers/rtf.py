"""Read Rich Text Format files: headings by their style, paragraphs, tables, notes and comments."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, SYMBOL_FONT, scripts, symbols
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import OutlineBuilder, comment_label, one_line, well_formed
from ragembed.errors import DocumentError

MOST_TOKENS = 3_000_000
DEEPEST_GROUP = 1_000
MAGIC = b"{\\rtf"
TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?"
    rb"|(?P<bytes>(?:\\'[0-9a-fA-F]{2}){1,500})"
    rb"|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])"
    rb"|[\r\n\x00]+"
    rb"|(?P<text>[^\\{}\r\n\x00]+)"
)
HEADING_STYLE = re.compile(r"heading (\d)\Z", re.IGNORECASE)
CONTENTS_STYLE = re.compile(r"(toc|contents) \d\Z", re.IGNORECASE)
CHARACTERS = {
    "line": "\n", "tab": "\t", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“",
    "rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "qmspace": " ", "nestcell": "\n",
}  # fmt: skip
SYMBOLS = {"~": "\N{NO-BREAK SPACE}", "_": "-", "\\": "\\", "{": "{", "}": "}"}
SKIPPED = frozenset(
    {
        *("colortbl", "pict", "nonshppict", "xe", "tc", "rxe", "txe", "fldinst", "datafield", "template", "falt"),
        *("filetbl", "revtbl", "rsidtbl", "listtable", "sp", "keycode", "ftncn", "ftnsep", "ftnsepc", "aftnsep"),
        *("author", "operator", "subject", "keywords", "comment", "doccomm", "company", "creatim", "revtim", "printim"),
        *("buptim", "category", "manager", "hlinkbase"),
    }
)
"""Groups without text of the document."""
SCRIPTS = {"super": RAISED, "sub": LOWERED, "nosupersub": "", "up": RAISED, "dn": LOWERED}
LABELS = frozenset({"listtext", "pntext"})
NOTES = LABELS | {
    *("footnote", "annotation", "shptxt", "header", "headerf", "headerl", "headerr"),
    *("footer", "footerf", "footerl", "footerr"),
}
OPENED = SKIPPED | NOTES | {"fonttbl", "stylesheet", "title", "info"}
"""Words that begin a group with text of its own. Unknown ones begin with ``\\*``."""
CHARSETS = {
    2: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gbk", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Group:
    """The state that ends with a group. ``sink`` receives the text; None skips it. ``opens`` ends with this group."""

    sink: list[str] | None
    opens: str = ""
    codec: str = "cp1252"
    skip: int = 1
    hidden: bool = False
    mark: str = ""
    is_symbol: bool = False


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read an RTF file. Notes follow the paragraph that refers to them; page headers and footers are at the end."""
    if not file.data[:100].lstrip(b"\xef\xbb\xbf \r\n").startswith(MAGIC):
        raise DocumentError("corrupt RTF file: expected {\\rtf at its start")
    rtf = _RtfFile(file.data)
    rtf.run()
    yield rtf.builder.paged(rtf.title)


class _RtfFile:
    """The state of reading one file."""

    def __init__(self, data: bytes) -> None:
        self.builder = OutlineBuilder()
        self.title = ""
        self._data = data
        self._body: list[str] = []
        self._group = _Group(self._body)
        self._stack: list[_Group] = []
        self._bytes = bytearray()
        self._to_skip = 0
        self._starred = False
        self._author = ""
        self._codec = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font_table: list[str] = []
        self._symbol_fonts: set[int] = set()
        self._font = 0
        self._style_sheet: list[str] = []
        self._styles: dict[int, str] = {}
        self._style = 0
        self._outline = -1
        self._label = ""
        self._in_table = False
        self._cells: list[str] = []
        self._furniture: dict[str, None] = {}

    def run(self) -> None:
        """Read the whole file."""
        at = 0
        for _ in range(MOST_TOKENS):
            match = TOKEN.match(self._data, at)
            if match is None:
                break
            at = match.end()
            kind = match.lastgroup
            if kind == "text":
                self._add_bytes(match.group())
            elif kind == "bytes":
                self._add_bytes(bytes.fromhex(match.group().decode().replace("\\'", "")))
            elif kind == "brace":
                self._flush()
                if match.group() == b"{":
                    self._begin()
                else:
                    self._end()
            elif kind == "symbol":
                self._symbol(match["symbol"].decode("latin-1"))
            elif kind is not None:
                number = match["number"]
                word = match["word"].decode()
                if word == "bin":
                    at += max(0, int(number or 0))
                self._word(word, None if number is None else int(number))
        else:
            raise DocumentError(f"more than {MOST_TOKENS:,} RTF tokens")
        self._flush()
        self._end_paragraph()
        self._end_row()
        self.builder.finish()
        for text in self._furniture:
            self.builder.headings.leave(0)
            self.builder.add_paragraph(text)

    def _add_bytes(self, data: bytes) -> None:
        """Add text in the encoding of its font. A character can have several bytes, written in different ways."""
        skipped = min(self._to_skip, len(data))
        self._to_skip -= skipped
        self._starred = False
        if self._group.sink is not None and not self._group.hidden:
            self._bytes += data[skipped:]

    def _add(self, text: str) -> None:
        self._flush()
        if not self._group.hidden:
            self._append(text)

    def _flush(self) -> None:
        if self._bytes:
            self._append(self._bytes.decode(self._group.codec, "replace"))
        self._bytes.clear()

    def _append(self, text: str) -> None:
        mark = self._group.mark
        if self._group.sink is self._font_table and text.strip().startswith(SYMBOL_FONT):
            self._symbol_fonts.add(self._font)
        if self._group.is_symbol:
            text = symbols(text)
        if self._group.sink is not None:
            self._group.sink.append(f"{mark}{text}{LEVEL}" if mark else text)

    def _begin(self) -> None:
        if len(self._stack) >= DEEPEST_GROUP:
            raise DocumentError(f"nested too deeply: more than {DEEPEST_GROUP:,} RTF groups")
        self._to_skip = 0
        self._stack.append(self._group)
        self._group = replace(self._group, opens="")

    def _end(self) -> None:
        self._to_skip = 0
        ended = self._group
        if not self._stack:
            return
        self._group = self._stack.pop()
        if not ended.opens or ended.sink is None:
            return
        text = scripts(well_formed("".join(ended.sink))).strip()
        if ended.opens in LABELS and self._group.sink is self._body:
            self._label = f"{text} " if any(map(str.isalnum, text)) else "- "
        elif ended.opens in NOTES:
            self._add_note(ended.opens, text)
        elif ended.opens == "title":
            self.title = one_line(text)
        elif ended.opens == "atnauthor":
            self._author = text
        elif ended.opens == "stylesheet":
            for line in text.split("\0"):
                number, _, name = line.partition("\1")
                if number.isdecimal():
                    self._styles[int(number)] = one_line(name.split(";")[0])

    def _add_note(self, kind: str, text: str) -> None:
        if kind == "annotation":
            self.builder.add_note(text, comment_label(self._author))
            self._author = ""
        elif kind in ("footnote", "shptxt"):
            self.builder.add_note(text, "Note" if kind == "footnote" else "")
        elif kind not in LABELS and any(letter.isalpha() for letter in text):
            self._furniture[text] = None

    def _symbol(self, symbol: str) -> None:
        self._flush()
        if symbol == "*":
            self._starred = True
        elif symbol in SYMBOLS:
            if self._to_skip:
                self._to_skip -= 1
            else:
                self._add(SYMBOLS[symbol])
        elif symbol in "\r\n":
            self._end_of("par")

    def _word(self, word: str, number: int | None) -> None:
        self._flush()
        starred, self._starred = self._starred, False
        if self._to_skip:
            self._to_skip -= 1
        elif word == "u" and number is not None:
            self._add(chr(number & 0xFFFF))
            self._to_skip = self._group.skip
        elif word in CHARACTERS:
            self._add(CHARACTERS[word])
        elif word in ("par", "sect", "page", "cell", "row", "nestrow"):
            self._end_of(word)
        elif starred or word in OPENED:
            self._open(word)
        else:
            self._property(word, number)

    def _open(self, word: str) -> None:
        """Begin a destination: a group whose text is not part of the paragraph."""
        group = self._group
        if group.sink is None and word != "shptxt":
            return
        if word == "stylesheet":
            self._group = replace(group, sink=self._style_sheet, opens=word)
        elif word in NOTES or word in ("title", "atnauthor"):
            self._group = replace(group, sink=[], opens=word, hidden=False)
        elif word in ("info", "fonttbl"):
            self._group = replace(group, sink=self._font_table if word == "fonttbl" else [])
        else:
            self._group = replace(group, sink=None)

    def _property(self, word: str, number: int | None) -> None:
        group = self._group
        value = 1 if number is None else number
        if word == "ansicpg":
            self._codec = _codec(f"cp{value}", self._codec)
            self._group = replace(group, codec=self._codec)
        elif word in ("mac", "pc", "pca"):
            self._codec = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}[word]
            self._group = replace(group, codec=self._codec)
        elif word == "uc":
            self._group = replace(group, skip=max(0, value))
        elif word == "f":
            self._font = value
            codec = self._fonts.get(value, self._codec)
            self._group = replace(group, codec=codec, is_symbol=value in self._symbol_fonts)
        elif word == "fcharset" and value in CHARSETS:
            self._fonts[self._font] = CHARSETS[value]
        elif word in ("v", "deleted"):
            self._group = replace(group, hidden=number != 0)
        elif word == "plain":
            self._group = replace(group, hidden=False, codec=self._codec, mark="", is_symbol=False)
        elif word in SCRIPTS:
            self._group = replace(group, mark=SCRIPTS[word] if number != 0 else "")
        elif word == "s" and group.sink is self._style_sheet:
            group.sink.append(f"\0{value}\1")
        elif group.sink is self._body:
            self._paragraph_property(word, value)

    def _paragraph_property(self, word: str, value: int) -> None:
        if word == "pard":
            self._style, self._outline, self._in_table = 0, -1, False
        elif word == "s":
            self._style = value
        elif word == "outlinelevel":
            self._outline = value
        elif word == "intbl":
            self._in_table = True

    def _end_of(self, word: str) -> None:
        """End a paragraph, cell or row. In notes, all of them are line breaks."""
        if self._group.sink is not self._body:
            self._add("\n")
        elif word == "cell":
            self._cells.append(self._take())
        elif word in ("row", "nestrow"):
            self._end_row()
        elif self._in_table:
            self._add("\n")
        else:
            self._end_paragraph()

    def _take(self) -> str:
        """Return the text of a paragraph or cell, with the number or dash of its list."""
        text = scripts(well_formed("".join(self._body))).strip()
        label, self._label = self._label, ""
        self._body.clear()
        return label + text if text else ""

    def _end_row(self) -> None:
        if self._cells:
            self.builder.add_row(self._cells)
            self._cells = []

    def _end_paragraph(self) -> None:
        self._end_row()
        text = self._take()
        name = self._styles.get(self._style, "")
        if CONTENTS_STYLE.match(name):
            return
        heading = HEADING_STYLE.match(name)
        level = int(heading[1]) if heading else 0 if name == "Title" else self._outline + 1
        if text and (name == "Title" or 0 < level < 10):
            self.builder.add_heading(level, text.removeprefix("- "))
        else:
            self.builder.add_paragraph(text)


def _codec(name: str, default: str) -> str:
    try:
        return codecs.lookup({"cp65001": "utf-8", "cp0": default, "cp10000": "mac_roman"}.get(name, name)).name
    except LookupError:
        return default
