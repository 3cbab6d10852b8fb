"""Read manual pages, written with the macros of man or mdoc, as plain text. No other file is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from ragembed.documents.model import ParsedDocument
from ragembed.documents.readers import timed
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import Paragraphs, has_too_many, lines_of, one_line

PAGE = re.compile(r"^[.'][ \t]*(?:TH|Dt|SH|Sh)\b", re.MULTILINE)
REQUEST = re.compile(r"[.'][ \t]*(?P<name>[^\s\\\"]{1,12}|\\\"|$)(?P<rest>.*)$")
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s\\])+)')
ESCAPE = re.compile(
    r"""\\(?:
      (?P<comment>["\#].*$)
    | f(?:\[[^\]]{0,99}\]|\(..|.)
    | [FgmMY](?:\[[^\]]{0,99}\]|\(..|.)
    | s(?:[+-]?\[[^\]]{0,99}\]|[+-]?\(..|[+-]?'[^']*'|[+-]?\d\d?)
    | [hvwLlDbxXRSHZoAB](?P<quote>['"^])(?:(?!(?P=quote)).)*(?P=quote)
    | N'(?P<code>\d+)'
    | \[(?P<long>[^\]]{0,99})\]
    | \((?P<pair>..)
    | \*(?:\[(?P<string>[^\]]{0,99})\]|\((?P<two>..)|(?P<one>.))
    | n(?:[+-]?\[[^\]]{0,99}\]|[+-]?\(..|[+-]?.)
    | (?P<sign>.)
    | $)""",
    re.VERBOSE,
)
GLYPHS = {
    "aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "bu": "•", "em": "—", "en": "–", "hy": "-",
    "mi": "-", "co": "©", "rg": "®", "tm": "™", "de": "°", "mu": "×", "di": "÷", "+-": "±", "<=": "≤", ">=": "≥",
    "!=": "≠", "->": "→", "<-": "←", "sc": "§", "rs": "\\", "sl": "/", "ba": "|", "ha": "^", "ti": "~", "ga": "`",
    "at": "@", "sh": "#", "Do": "$", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "la": "<", "ra": ">", "ul": "_",
    "ss": "ß", "ae": "æ", "AE": "Æ", "/o": "ø", "/O": "Ø", "oa": "å", "oA": "Å", "Po": "£", "Eu": "€", "eu": "€",
    "Fo": "«", "Fc": "»", "fo": "‹", "fc": "›", "Bq": "„", "bq": "‚", "no": "¬", "12": "½", "14": "¼", "34": "¾",
    "*m": "µ", "ua": "↑", "da": "↓", "if": "∞", "dg": "†", "ci": "○", "sq": "□", "r?": "¿", "r!": "¡", "cd": "·",
    "pc": "·", "lh": "☞", "eq": "=", "pl": "+", "**": "*", "ff": "ff", "fi": "fi", "fl": "fl",
}  # fmt: skip
MARKS = {":": "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ",": "\u0327"}
SIGNS = {**{sign: sign for sign in "-\\ '`._"}, "e": "\\", "~": " ", "0": " ", "t": "\t"}
STRINGS = {"lq": "“", "rq": "”", "Tm": "™", "R": "®", "L": "“", "C+": "C++", "--": "–", "PI": "π", "q": '"', "Aq": "'"}
ORDINAL = re.compile(r"\(?(?:\d{1,3}|[A-Za-z]|[ivx]+)[.)]")
"""The number of an item of a list."""
UNICODE = re.compile(r"u([0-9A-F]{4,6})(?:_([0-9A-F]{4,6}))?$")

FONTS = frozenset(("B", "I", "SM", "SB", "R"))
ALTERNATING = frozenset(("BR", "BI", "RB", "RI", "IB", "IR", "SY", "OP"))
PARAGRAPHS = frozenset(("PP", "LP", "P", "sp", "Pp", "RS", "RE", "HP", "Lp", "Bd"))
LISTING_STARTS = {"nf": "fi", "EX": "EE", "Vb": "Ve", "CS": "CE", "DS": "DE"}
DEFINITIONS = frozenset(("de", "am", "ig", "de1", "ami", "dei"))
WITHOUT_TEXT = frozenset((
    "TH", "ad", "na", "hy", "nh", "ne", "in", "ti", "ta", "ft", "ps", "ds", "nr", "rr", "rm", "if", "ie", "el", "tr",
    "so", "mso", "PD", "DT", "UC", "AT", "IX", "ll", "cs", "fam", "ss", "vs", "mk", "rt", "bp", "ns", "rs", "cc",
    "ec", "eo", "als", "do", "nop", "pl", "po", "lf", "warn", "hla", "hcode", "hw", "as", "ev", "evc", "ce", "UE", "ME",
    "YS", "Dd", "Os", "Bk", "Ek", "Sm", "Rs", "Re", "Ed", "PE", "SE", "fchar", "char", "tm", "ab", "pso", "pi", "\\\"",
    "TQ", "..", ".", "EE", "fi", "Ve", "CE", "DE", "Bf", "Ef", "Db", "ex", "nx", "it", "fp", "rn", "cu", "c2",
))  # fmt: skip
"""Requests that print no text."""

QUOTES = {
    "Dq": "“”", "Sq": "‘’", "Ql": "‘’", "Pq": "()", "Bq": "[]", "Brq": "{}", "Aq": "<>", "Qq": '""', "Op": "[]",
    "Do": "“", "So": "‘", "Po": "(", "Bo": "[", "Bro": "{", "Ao": "<", "Qo": '"', "Oo": "[", "Dc": "”", "Sc": "’",
    "Pc": ")", "Bc": "]", "Brc": "}", "Ac": ">", "Qc": '"', "Oc": "]",
}  # fmt: skip
"""The marks of mdoc's macros: both for macros that enclose the rest of a line, else the opening or closing one."""
CALLABLE = frozenset((
    "Fl", "Ar", "Nm", "Em", "Sy", "Li", "Pa", "Ev", "Va", "Vt", "Fn", "Fa", "Ft", "Cm", "Ic", "Xr", "Ns", "No", "An",
    "Ad", "Er", "Dv", "Tn", "Ux", "Bx", "Nx", "Fx", "Ox", "Dx", "Cd", "Lk", "Mt", "Ms", "St", "At", "Sx", "Tg", "Ta",
    "Ap", "Xo", "Xc", "In", "Cx", *QUOTES,
))  # fmt: skip
MDOC = CALLABLE | frozenset(("Nd", "Fd", "Lb", "Rv", "Ex", "Pf", "D1", "Dl", "Fo", "Fc")) - {"Ex"}
WRITTEN = {
    "Nd": "–", "Ta": "|", "Ux": "UNIX", "Bx": "BSD", "Nx": "NetBSD", "Fx": "FreeBSD", "Ox": "OpenBSD",
    "Dx": "DragonFly", "At": "AT&T UNIX",
}  # fmt: skip
"""The text of macros that print it."""
DECLARATIONS = frozenset(("Fn", "In", "Fd", "Fc", "Vt", "Cd"))
"""Macros that end a line in a synopsis."""
LONGEST_LINE = 100_000
"""A file with a longer line is no manual page."""
OPENING, CLOSING = frozenset("(["), frozenset(".,:;)]?!")


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a manual page, with its name and section as title. A file without macros of pages is read as a log."""
    text = file.text
    lines = _joined_lines(text) if PAGE.search(text) and not has_too_many('\\"', text) else [""]
    if 0 < max(map(len, lines)) <= LONGEST_LINE:
        yield _Page(lines).read()
    else:
        yield from timed.parse_log(file)


def _joined_lines(text: str) -> list[str]:
    """Return the lines. A line that ends with a backslash is joined with the next, which becomes an empty request."""
    lines = lines_of(text)
    number = 0
    while number < len(lines):
        last = number
        while last + 1 < len(lines) and lines[last].endswith("\\") and not lines[last].endswith("\\\\"):
            last += 1
        if last > number:
            lines[number] = "".join(line[:-1] for line in lines[number:last]) + lines[last]
            lines[number + 1 : last + 1] = ["."] * (last - number)
        number = last + 1
    return lines


class _Page:
    """Reads the lines of a page from first to last."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.title: str | None = None
        self._content = Paragraphs()
        self._name = ""
        self._tag = False
        self._no_space = False
        self._is_synopsis = False
        self._lists: list[str] = []
        self._unclosed: set[str] = set()

    def read(self) -> ParsedDocument:
        number = 0
        while number < len(self.lines):
            line = self.lines[number]
            match = REQUEST.match(line) if line.startswith((".", "'")) else None
            if match is not None:
                number = self._request(match["name"], match["rest"].strip(), number)
            elif not line.startswith("."):
                self._text(_unescaped(line), number)
            self._no_space = line.endswith("\\c")
            number += 1
        return self._content.document(self.title)

    def _text(self, text: str, number: int) -> None:
        """Add a line of text. A blank line ends a paragraph."""
        if not text.strip():
            if not self._tag:
                self._content.end_block()
            return
        self._content.add(("" if self._no_space else " ") + text, number + 1)
        if self._tag:
            self._content.end_line()
            self._tag = False

    def _request(self, name: str, rest: str, number: int) -> int:
        """Handle a request, and return its last line."""
        if name in ("SH", "SS", "Sh", "Ss"):
            return self._heading(2 if name in ("SH", "Sh") else 3, rest, number)
        if name in DEFINITIONS:
            return self._end_of(number, f".{rest}" if name == "ig" and rest else "..")
        if name == "TS":
            return self._table(number)
        if name in LISTING_STARTS:
            return self._listing(number, LISTING_STARTS[name])
        if name == "Bd" and ("-literal" in rest or "-unfilled" in rest):
            return self._listing(number, "Ed")
        if name in ("TH", "Dt"):
            self._page_name(rest, number)
        elif name in PARAGRAPHS:
            self._content.end_block()
            self._tag = False
        elif name in ("TP", "TQ"):
            if name == "TQ":
                self._content.end_line()
            else:
                self._content.end_block()
            self._tag = True
        elif name == "IP":
            self._item(_arguments(rest)[:1], number)
        elif name in ("Bl", "El", "It"):
            self._list(name, rest, number)
        else:
            self._words(name, rest, number)
        return number

    def _page_name(self, rest: str, number: int) -> None:
        """Make the name and section the title, and the heading above all others."""
        parts = [_unescaped(part) for part in _arguments(rest)]
        if len(parts) > 1:
            self.title = f"{parts[0].lower()}({parts[1]})"
            self._content.add_heading(1, self.title, number + 1)

    def _words(self, name: str, rest: str, number: int) -> None:
        """Add the words of a macro that prints its arguments."""
        if name == "br":
            self._content.end_line()
            return
        if name in WITHOUT_TEXT or not (name.isalnum() or name.startswith("%")):
            return
        if name in MDOC:
            text = self._mdoc([name, *_arguments(rest)])
        else:
            text = _plain(rest, "" if name in ALTERNATING - {"SY", "OP"} else " ") + "," * name.startswith("%")
        if text.strip():
            self._text(text, number)
        if self._is_synopsis and name in DECLARATIONS:
            self._content.end_line()

    def _heading(self, level: int, rest: str, number: int) -> int:
        if not rest and number + 1 < len(self.lines):
            number += 1
            rest = self.lines[number]
        title = one_line(_plain(rest))
        self._tag = False
        self._is_synopsis = title == "SYNOPSIS" or (self._is_synopsis and level > 2)
        if title:
            self._content.add_heading(level, title, number + 1)
        return number

    def _item(self, tag: list[str], number: int) -> None:
        self._content.end_block()
        self._tag = False
        text = _unescaped(tag[0]).strip() if tag else ""
        if text in ("•", "*", "-", "o", "·", "–", "—", "+"):
            self._content.prefix = "- "
        elif ORDINAL.fullmatch(text):
            self._content.prefix = f"{text} "
        elif text:
            self._content.add_line(text, number + 1)

    def _list(self, name: str, rest: str, number: int) -> None:
        if name == "Bl":
            self._lists.append(rest.split(" ")[0])
            self._content.end_line()
        elif name == "El":
            del self._lists[-1:]
            self._content.end_block()
        elif self._lists and self._lists[-1] in ("-bullet", "-dash", "-hyphen", "-enum", "-item"):
            self._content.end_line()
            self._content.prefix = "- "
        else:
            self._content.end_block()
            if text := self._mdoc(_arguments(rest)):
                self._content.add_line(text, number + 1)

    def _listing(self, number: int, closing: str) -> int:
        lines: list[tuple[str, int]] = []
        for at in range(number + 1, len(self.lines)):
            line = self.lines[at]
            match = REQUEST.match(line) if line.startswith((".", "'")) else None
            if match is None:
                lines.append((_unescaped(line), at + 1))
            elif match["name"] in (closing, "SH", "Sh", "SS", "Ss"):
                self._content.add_listing(lines)
                return at if match["name"] == closing else at - 1
            elif match["name"] in FONTS | ALTERNATING | MDOC:
                text = self._mdoc([match["name"], *_arguments(match["rest"])]) if match["name"] in MDOC else ""
                lines.append((text or _plain(match["rest"], "" if match["name"] in ALTERNATING else " "), at + 1))
        self._content.add_listing(lines)
        return len(self.lines)

    def _table(self, number: int) -> int:
        """Add a table of the preprocessor tbl. Lines up to one that ends with a full stop describe its columns."""
        tab, stop = "\t", self._end_of(number, ".TE")
        in_format, rows, depth = True, [], 0
        block: list[str] = []
        for at in range(number + 1, stop):
            line = self.lines[at]
            if block and (match := REQUEST.match(line)):
                line = _plain(match["rest"])
            block.append(line)
            depth += line.count("T{") - line.count("T}")
            if depth > 0:
                continue
            line, block, depth = " ".join(block), [], 0
            if in_format:
                if match := re.search(r"tab\s*\((.)\)", line):
                    tab = match[1]
                in_format = not line.rstrip().endswith(".")
            elif line.startswith((".T&", ".TH")):
                in_format = line.startswith(".T&")
            elif not line.startswith((".", "'")) and line.strip("_= \t"):
                cells = [_unescaped(cell).strip() for cell in re.sub(r"T[{}]", "", line).split(tab)]
                rows.append((" | ".join(cells).strip(" |"), at + 1))
            elif (match := REQUEST.match(line)) and match["name"] in FONTS | ALTERNATING:
                rows.append((_plain(match["rest"]), at + 1))
        rows += [(_unescaped(line), stop) for line in block if line.strip("T{} ")]  # of a text without an end
        self._content.add_listing(rows, "table")
        return stop

    def _end_of(self, number: int, closing: str) -> int:
        """Return the line ``closing``, or ``number`` if there is none."""
        if closing not in self._unclosed:
            for at in range(number + 1, len(self.lines)):
                if self.lines[at].rstrip() == closing:
                    return at
            self._unclosed.add(closing)
        return number

    def _mdoc(self, words: list[str]) -> str:
        """Return the text of a line of mdoc, a macro and its arguments, which can contain further macros."""
        stop = len(words)
        while stop > 1 and words[stop - 1] in CLOSING:
            stop -= 1
        line = _MdocLine(words[:stop], self._name)
        self._name = self._name or line.name
        return line.text() + "".join(words[stop:])


class _MdocLine:
    """The text of a line of mdoc. ``name`` is the name of the page, or the first name that the line gives."""

    def __init__(self, words: list[str], name: str) -> None:
        self.name = name
        self._words = words
        self._parts: list[str] = []
        self._closing: list[str] = []
        self._glue = True
        macro = ""
        for index, word in enumerate(words):
            if word in CALLABLE or (not index and word in MDOC):
                macro = word
                self._start(word, index)
            else:
                self._argument(macro, _unescaped(word), index)
                macro = "" if macro == "Pf" else macro

    def text(self) -> str:
        return "".join(self._parts) + "".join(reversed(self._closing))

    def _put(self, text: str, before: bool = True) -> None:
        if self._parts and before and not self._glue:
            self._parts.append(" ")
        self._parts.append(text)
        self._glue = False

    def _start(self, macro: str, index: int) -> None:
        following = self._words[index + 1] if index + 1 < len(self._words) else ""
        alone = not following or following in CALLABLE or following in CLOSING
        marks = QUOTES.get(macro, "")
        if len(marks) == 2:
            self._put(marks[0])
            self._closing.append(marks[1])
            self._glue = True
        elif marks:
            self._put(marks, before=not macro.endswith("c"))
            self._glue = not macro.endswith("c")
        elif macro in WRITTEN:
            self._put(WRITTEN[macro])
        elif macro == "Ap":
            self._put("'", before=False)
            self._glue = True
        elif macro == "Ns":
            self._glue = True
        elif alone and macro in ("Nm", "Fl"):
            self._put(self.name if macro == "Nm" else "-")

    def _argument(self, macro: str, text: str, index: int) -> None:
        if text in CLOSING:
            self._put(text, before=False)
        elif macro == "Xr" and text[:1].isdigit():
            self._put(f"({text})", before=False)
        elif macro == "Fn":
            is_name = self._words[index - 1] == "Fn"
            is_last = index == len(self._words) - 1 or self._words[index + 1] in CLOSING
            self._put(text + ("(" if is_name else "") + (")" if is_last else "" if is_name else ","))
            self._glue = is_name
        else:
            self._put(f"-{text}" if macro == "Fl" and text != "|" else text)
            self._glue = text in OPENING or macro == "Pf"
            self.name = self.name or (text if macro == "Nm" else "")


def _arguments(rest: str) -> list[str]:
    """Return the arguments of a request. Quotation marks keep spaces."""
    return [(match[1] or "").replace('""', '"') if match[2] is None else match[2] for match in ARGUMENT.finditer(rest)]


def _plain(rest: str, separator: str = " ") -> str:
    return separator.join(map(_unescaped, _arguments(rest)))


def _unescaped(text: str) -> str:
    return ESCAPE.sub(_glyph, text) if "\\" in text else text


def _glyph(match: re.Match[str]) -> str:
    if match["code"]:
        return chr(int(match["code"][:3]))
    if match["sign"]:
        return SIGNS.get(match["sign"], "")
    name = match["long"] or match["pair"]
    if name is None:
        return STRINGS.get(match["string"] or match["two"] or match["one"] or "", "")
    if unicode := UNICODE.match(name):
        return "".join(chr(int(code, 16)) for code in unicode.groups() if code and int(code, 16) < 0x110000)
    if name in GLYPHS:
        return GLYPHS[name]
    if len(name) == 2 and name[0] in MARKS and name[1].isalpha():
        return unicodedata.normalize("NFC", name[1] + MARKS[name[0]])
    return GLYPHS.get(name, "")
