"""Read LaTeX and BibTeX as plain text. Formulas keep their source, and only macros without arguments are replaced."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from ragembed.documents.model import Block, ParsedDocument
from ragembed.documents.readers import source
from ragembed.documents.readers.formulas import LEVEL, LOWERED, RAISED, scripts
from ragembed.documents.readers.reader import RawFile
from ragembed.documents.readers.structure import Paragraphs, has_too_many, indent, one_line

TOKEN = re.compile(
    r"""\\(?P<edge>begin|end)[ \t]*\{(?P<environment>[A-Za-z]+)\*?\}
    | \\(?P<command>[A-Za-z@]+)\*?
    | \\(?P<sign>.)
    | (?P<comment>%[^\n]*(?:\n(?![ \t]*\n)[ \t]*)?)
    | (?P<paragraph>\n[ \t]*\n\s*)
    | (?P<display>\$\$)
    | (?P<cell>&)
    | [^\\%&\n$]+ | \n | \$""",
    re.VERBOSE | re.DOTALL,
)
INLINE = re.compile(r"\\([A-Za-z@]+)\*?\s*|\\(.)|(\$+)|([{}])|(``|''|---?|~)|[^\\${}`'~-]+|.", re.DOTALL)
COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
ACCENT = re.compile(
    r"""(?<!\\)\\(?:(?P<sign>['`^"~=.])|(?P<letter>[uvHcdbrk])(?![A-Za-z]))[ \t]*
    (?:\{[ \t]*\\?(?P<in>[A-Za-z])[ \t]*\}|\\?(?P<on>[A-Za-z]))""",
    re.VERBOSE,
)
OPTIONAL = re.compile(r"[ \t]*\[[^\[\]\n]{0,300}\]")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BODY = re.compile(r"^[^%\n]*?\\begin[ \t]*\{document\}", re.MULTILINE)
COMBINING = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "d": "\u0323", "b": "\u0331", "r": "\u030a",
    "k": "\u0328",
}  # fmt: skip
LEVELS = {
    "part": 2, "chapter": 3, "section": 4, "subsection": 5, "subsubsection": 6, "paragraph": 7, "subparagraph": 8,
    "frametitle": 7,
}  # fmt: skip
SYMBOLS = {
    "LaTeX": "LaTeX", "LaTeXe": "LaTeX2e", "TeX": "TeX", "BibTeX": "BibTeX", "ldots": "…", "dots": "…",
    "textellipsis": "…", "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "ss": "ß", "o": "ø",
    "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "i": "ı", "j": "ȷ",
    "S": "§", "P": "¶", "copyright": "©", "textcopyright": "©", "textregistered": "®", "texttrademark": "™",
    "pounds": "£", "euro": "€", "texteuro": "€", "textdegree": "°", "textendash": "–", "textemdash": "—", "quad": " ",
    "qquad": " ", "space": " ", "textbar": "|", "textless": "<", "textgreater": ">", "slash": "/", "par": " ",
    "newline": " ", "linebreak": " ", "guillemotleft": "«", "guillemotright": "»", "textquotedbl": '"',
    "textunderscore": "_", "textbullet": "•", "textmu": "µ", "hfill": " ", "and": " and ",
}  # fmt: skip
LENGTHS = frozenset(("kern", "hskip", "vskip", "raise", "lower", "mskip", "hbox", "vbox"))
LENGTH = re.compile(r"\s*(?:to\s*)?-?[\d.]*\s*(?:(?:em|ex|pt|cm|mm|in|bp|pc|mu)\b|\\[a-z]+)?")
ENCLOSED = {
    "footnote": (" (", ")"), "thanks": (" (", ")"), "href": ("", " "), "url": ("", ""),
    "textsuperscript": (RAISED, LEVEL), "textsubscript": (LOWERED, LEVEL),
}  # fmt: skip
"""What stands before and after the first argument of a command."""
CITATIONS = re.compile(r"(?:no|paren|foot|text|auto|full|smart|super)?cite[a-z]*", re.IGNORECASE)
WITHOUT_TEXT = {
    "label": 1, "index": 1, "includegraphics": 1, "vspace": 1, "hspace": 1, "input": 1, "include": 1, "usepackage": 1,
    "RequirePackage": 1, "documentclass": 1, "bibliographystyle": 1, "bibliography": 1, "addbibresource": 1,
    "pagestyle": 1, "thispagestyle": 1, "pagenumbering": 1, "setlength": 2, "addtolength": 2, "setcounter": 2,
    "addtocounter": 2, "newcommand": 2, "renewcommand": 2, "providecommand": 2, "DeclareMathOperator": 2,
    "newenvironment": 3, "renewenvironment": 3, "newtheorem": 2, "definecolor": 3, "color": 1, "textcolor": 1,
    "colorbox": 1, "cmidrule": 1, "cline": 1, "fontsize": 2, "selectlanguage": 1, "hypersetup": 1, "lstset": 1,
    "graphicspath": 1, "multicolumn": 2, "multirow": 2, "addcontentsline": 3, "hypertarget": 1, "hyperlink": 1,
    "phantom": 1, "rule": 2, "resizebox": 2, "scalebox": 1, "usetikzlibrary": 1, "geometry": 1, "foreignlanguage": 1,
    "subimport": 2, "import": 2, "lstinputlisting": 1, "verbatiminput": 1, "includeonly": 1,
}  # fmt: skip
"""Commands with the number of their first arguments that are not text."""
SHOWN = frozenset(("author", "date", "caption", "institute", "affiliation", "keywords", "subtitle"))
"""Commands whose argument is a paragraph."""
MACROS = frozenset(("newcommand", "renewcommand", "providecommand", "DeclareRobustCommand", "def", "gdef"))
MACRO = re.compile(r"\s*\{?\\([A-Za-z@]+)\}?\s*(?=\{)")
LONGEST_MACRO, MOST_MACRO_CHARACTERS = 200, 1_000_000
"""Longest macro without arguments that is replaced by its text, and maximum number of characters that macros add."""
LISTINGS = frozenset(
    ("verbatim", "Verbatim", "lstlisting", "minted", "alltt", "BVerbatim", "LVerbatim", "semiverbatim")
)
FORMULAS = frozenset((
    "equation", "align", "gather", "multline", "eqnarray", "displaymath", "math", "flalign", "alignat", "dmath",
))  # fmt: skip
SKIPPED = frozenset(("comment", "tikzpicture", "pspicture", "picture", "filecontents", "CCSXML"))
TABLES = {"tabular": 1, "longtable": 1, "supertabular": 1, "tabularx": 2, "tabulary": 2, "tabu": 1, "tabbing": 0}
"""Environments for tables, with the number of their arguments."""
LISTS = frozenset(("itemize", "enumerate", "description", "compactitem", "compactenum", "inparaenum"))
WITH_ARGUMENTS = {"minipage": 1, "wrapfigure": 2, "multicols": 1, "thebibliography": 1, "adjustbox": 1, "spacing": 1}
STATEMENTS = frozenset((
    "theorem", "lemma", "proof", "definition", "corollary", "proposition", "remark", "example", "conjecture", "claim",
    "exercise", "solution", "problem", "axiom", "algorithm",
))  # fmt: skip
NAMED = {"abstract": "Abstract", "thebibliography": "References", "acknowledgements": "Acknowledgements"}
LONGEST_ARGUMENT = 20_000
MOST_FAILURES = 100
"""Number of arguments without a closing brace after which arguments are read as text, because the search is slow."""
ESCAPES = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "{": "\\{", "}": "\\}", "$": "\\$", "%": "\\%", "`": "{`}",
    "'": "{'}", "-": "{-}",
}  # fmt: skip


def parse(file: RawFile) -> Iterator[ParsedDocument]:
    r"""Read a LaTeX file. Its title is ``\title``. A file without text outside of macros is read as plain text."""
    text = file.text
    document = None
    if has_too_many("\\{$~'`&%-", text):
        file.options.warn("more LaTeX commands than can be read: read as plain text")
    else:
        document = _Latex(text).read()
    if document is not None and document.blocks:
        yield document
    else:
        yield from source.parse_plain(file)


class Macros:
    """The macros without arguments that a file defines, with their plain text, and how much text they may still add."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._room = MOST_MACRO_CHARACTERS

    def define(self, name: str, body: str) -> None:
        """Define a macro, if it is short and has no arguments."""
        if len(body) <= LONGEST_MACRO and "#" not in body:
            self._texts.setdefault(name, plain(body))

    def text(self, name: str) -> str | None:
        """Return the text of a macro, or None if it is unknown or the macros of the file add too much text."""
        text = self._texts.get(name)
        if text is None or len(text) > self._room:
            return None
        self._room -= len(text)
        return text


def plain(text: str, macros: Macros | None = None) -> str:
    """Return a piece of LaTeX as one line of plain text. Formulas keep their source."""
    text = ACCENT.sub(_accented, COMMENT.sub("", text))
    plain_text = _PlainText(macros or Macros())
    done = 0
    while match := INLINE.match(text, done):
        done = plain_text.add(text, match)
    return one_line(scripts("".join(plain_text.parts)))


def _after_options(text: str, at: int) -> int:
    """Return the position after the optional arguments at ``at``."""
    while option := OPTIONAL.match(text, at):
        at = option.end()
    return at


def _accented(match: re.Match[str]) -> str:
    letter = match["in"] or match["on"]
    return unicodedata.normalize("NFC", letter + COMBINING[match["sign"] or match["letter"]])


class _PlainText:
    """Collects plain text. The stack has the text to add, and the arguments to skip, at each closing brace."""

    def __init__(self, macros: Macros) -> None:
        self.parts: list[str] = []
        self._macros = macros
        self._closing: list[tuple[str, int]] = []
        self._skipped = 0
        self._formula = False

    def add(self, text: str, match: re.Match[str]) -> int:
        """Add one token, and return the position after it."""
        command, sign, dollars, brace, mark = match.groups()
        if dollars or sign in ("(", ")"):
            self._formula = not self._formula
            self._put(match[0])
        elif self._formula:
            self._put(match[0])
        elif command:
            return self._command(text, command, match.end())
        elif sign:
            self._put(" " if sign in "\\ ,;:!/\n\t" else "" if sign in "-@" else sign)
        elif brace == "{":
            self._closing.append(("", 0))
        elif brace:
            return self._close(text, match.end())
        else:
            self._put({"``": "“", "''": "”", "--": "–", "---": "—", "~": " "}.get(mark or "", match[0]))
        return match.end()

    def _put(self, text: str) -> None:
        if not self._skipped:
            self.parts.append(text)

    def _command(self, text: str, command: str, done: int) -> int:
        if command in SYMBOLS:
            self._put(SYMBOLS[command])
            return done
        if command in LENGTHS:
            length = LENGTH.match(text, done)
            return length.end() if length else done
        if (written := self._macros.text(command)) is not None:
            self._put(written + (" " if text[done - 1].isspace() else ""))
            return done
        after = _after_options(text, done)
        if text[after : after + 1] != "{":
            return done
        if command in WITHOUT_TEXT:
            return self._skip(after, WITHOUT_TEXT[command])
        before, behind = ENCLOSED.get(command, ("[", "]") if CITATIONS.fullmatch(command) else ("", ""))
        self._put(before)
        self._closing.append((behind, 0))
        return after + 1

    def _skip(self, brace: int, number: int) -> int:
        self._skipped += 1
        self._closing.append(("", number))
        return brace + 1

    def _close(self, text: str, done: int) -> int:
        behind, skipping = self._closing.pop() if self._closing else ("", 0)
        if skipping:
            self._skipped -= 1
            after = _after_options(text, done)
            if skipping > 1 and text[after : after + 1] == "{":
                return self._skip(after, skipping - 1)
        self._put(behind)
        return done


class _Latex:
    """Reads a file once from start to end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.title: str | None = None
        self._content = Paragraphs()
        self._raw: list[str] = []
        self._raw_line = 1
        self._counted = 0
        self._line = 1
        self._lists = 0
        self._tables = 0
        self._unclosed: set[str] = set()
        self._failures = 0
        self._macros = Macros()

    def read(self) -> ParsedDocument:
        body = BODY.search(self.text)
        in_preamble, done = body is not None, 0
        while match := TOKEN.match(self.text, done):
            done = match.end()
            if in_preamble and body and match.start() < body.end():
                if match["command"] in ("title", "author") or match["command"] in MACROS:
                    done = self._command(match)
                continue
            in_preamble = False
            if match["edge"] == "end" and match["environment"] == "document":
                break
            done = self._token(match)
        self._end_paragraph()
        return self._content.document(self.title)

    def _token(self, match: re.Match[str]) -> int:
        """Handle one token, and return the position after it."""
        if match["comment"]:
            return match.end()
        if match["edge"]:
            return self._edge(match["edge"] == "begin", match["environment"], match)
        if match["command"]:
            return self._command(match)
        if match["paragraph"]:
            self._break()
        elif match["display"]:
            return self._formula(match, "$$")
        elif match["sign"] == "[":
            return self._formula(match, "\\]")
        elif self._tables and match["sign"] == "\\":
            self._end_line()
        elif self._tables and match["cell"]:
            self._keep(" | ", match.start())
        else:
            self._keep(match[0], match.start())
        return match.end()

    def _argument(self, start: int) -> tuple[str, int] | None:
        """Return the argument in braces that starts at ``start``, after white space, and the position after it."""
        while start < len(self.text) and self.text[start].isspace():
            start += 1
        if self.text[start : start + 1] != "{" or self._failures == MOST_FAILURES:
            return None
        depth = 0
        for match in BRACE.finditer(self.text, start, start + LONGEST_ARGUMENT):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if not depth:
                return self.text[start + 1 : match.start()], match.end()
        self._failures += 1
        return None

    def _skip_arguments(self, start: int, number: int) -> int:
        """Return the position after the optional arguments at ``start`` and ``number`` arguments in braces."""
        for left in range(number, -1, -1):
            start = _after_options(self.text, start)
            argument = self._argument(start) if left else None
            if argument is None:
                break
            start = argument[1]
        return start

    def _line_of(self, position: int) -> int:
        self._line += self.text.count("\n", self._counted, position)
        self._counted = max(self._counted, position)
        return self._line

    def _keep(self, text: str, position: int) -> None:
        if not self._raw:
            if not text.strip():
                return
            self._raw_line = self._line_of(position + len(text) - len(text.lstrip()))
        self._raw.append(text)

    def _end_line(self) -> None:
        raw, self._raw = "".join(self._raw), []
        text = plain(raw, self._macros)
        if self._tables:
            text = text.strip(" |")
        if text:
            self._content.add(text, self._raw_line)
            self._content.end_line()

    def _end_paragraph(self) -> None:
        self._end_line()
        self._content.end_block("table" if self._tables else "text")

    def _break(self) -> None:
        """End a line in a list or table, otherwise a paragraph."""
        if self._lists or self._tables:
            self._end_line()
        else:
            self._end_paragraph()

    def _edge(self, begins: bool, name: str, match: re.Match[str]) -> int:
        if not begins:
            return self._end(name, match.end())
        if name in LISTINGS or name in FORMULAS or name in SKIPPED:
            return self._unchanged(name, match)
        if name in LISTS:
            self._end_line()
            self._lists += 1
            return self._skip_arguments(match.end(), 0)
        self._break()
        line = self._line_of(match.start())
        if name in NAMED:
            self._content.add_heading(LEVELS["section"], NAMED[name], line)
        if name in STATEMENTS:
            option = OPTIONAL.match(self.text, match.end())
            label = f" ({option[0].strip()[1:-1]})" if option else ""
            self._keep(f"{name.capitalize()}{label}. ", match.start())
        self._tables += name in TABLES
        done = self._skip_arguments(match.end(), TABLES.get(name, WITH_ARGUMENTS.get(name, 0)))
        if name == "frame" and (title := self._argument(done)):
            self._content.add_heading(LEVELS["frametitle"], plain(title[0], self._macros), line)
            return title[1]
        return done

    def _end(self, name: str, done: int) -> int:
        if name in LISTS:
            self._end_line()
            self._lists = max(0, self._lists - 1)
            if not self._lists and not self._tables:
                self._end_paragraph()
        elif self._lists:
            self._end_line()
        elif name in TABLES:
            self._end_paragraph()
        else:
            self._break()
        self._tables -= name in TABLES and self._tables > 0
        if name in NAMED:
            self._content.path.leave(LEVELS["section"])
        return done

    def _unchanged(self, name: str, match: re.Match[str]) -> int:
        """Add a listing or a formula with its source, or skip a picture or comment."""
        starred = match[0].rstrip("}").endswith("*")
        closing = f"\\end{{{name}{'*' if starred else ''}}}"
        stop = self.text.find(closing, match.end())
        stop = stop if stop >= 0 else len(self.text)
        if name not in SKIPPED:
            start = self._skip_arguments(match.end(), int(name in ("minted", "alignat")))
            self._add_source(start, max(start, stop))
        return stop + len(closing)

    def _formula(self, match: re.Match[str], closing: str) -> int:
        stop = -1 if closing in self._unclosed else self.text.find(closing, match.end())
        if stop < 0:
            self._unclosed.add(closing)
            self._keep(match[0], match.start())
            return match.end()
        self._add_source(match.end(), stop)
        return stop + len(closing)

    def _add_source(self, start: int, stop: int) -> None:
        self._break()
        first = self._line_of(start)
        lines = [(line, first + number) for number, line in enumerate(self.text[start:stop].split("\n"))]
        if self._lists or self._tables:
            for line, place in lines:
                if line.strip():
                    self._content.add_line(line, place)
        else:
            self._content.add_listing(lines)

    def _command(self, match: re.Match[str]) -> int:
        command, done = match["command"], match.end()
        if command in LEVELS or command == "title":
            return self._heading(command, match)
        if command == "item":
            return self._listed(match)
        if command == "bibitem":
            return self._bibitem(match)
        if command in SHOWN and (argument := self._argument(self._skip_arguments(done, 0))):
            self._break()
            self._keep(argument[0], match.start())
            self._break()
            return argument[1]
        if command in ("verb", "lstinline") and (quote := self.text[done : done + 1]):
            stop = self.text.find(quote, done + 1, done + LONGEST_ARGUMENT)
            if stop > 0 and not quote.isspace():
                self._keep(_escaped(self.text[done + 1 : stop]), done)
                return stop + 1
        macro = MACRO.match(self.text, done) if command in MACROS else None
        if macro and (body := self._argument(macro.end())):
            self._macros.define(macro[1], body[0])
            return body[1]
        if command in WITHOUT_TEXT:
            return self._skip_arguments(done, WITHOUT_TEXT[command])
        self._keep(match[0], match.start())
        return done

    def _listed(self, match: re.Match[str]) -> int:
        """Start a list item."""
        self._end_line()
        option = OPTIONAL.match(self.text, match.end())
        self._content.prefix = indent(self._lists - 1) + "- "
        if option:
            self._keep(option[0].strip()[1:-1] + ": ", match.start())
        return option.end() if option else match.end()

    def _heading(self, command: str, match: re.Match[str]) -> int:
        done = self._skip_arguments(match.end(), 0)
        argument = self._argument(done)
        title = plain(argument[0], self._macros) if argument else ""
        if not argument or not title:
            return done
        line = self._line_of(match.start())
        self._end_paragraph()
        self._content.add_heading(LEVELS.get(command, 1), title, line)
        if command == "title":
            self.title = self.title or title
        return argument[1]

    def _bibitem(self, match: re.Match[str]) -> int:
        done = self._skip_arguments(match.end(), 0)
        argument = self._argument(done)
        self._end_paragraph()
        if argument is None:
            return done
        self._keep(f"[{_escaped(argument[0])}] ", match.start())
        return argument[1]


def _escaped(text: str) -> str:
    """Return ``text`` with its special characters escaped, so that :func:`plain` returns it unchanged."""
    return re.sub(r"[\\{}$~`'%-]", lambda match: ESCAPES[match[0]], text)


ENTRY = re.compile(r"^[ \t]*@[ \t]*(?P<type>[A-Za-z]+)[ \t\n]*[{(]", re.MULTILINE)
KEY = re.compile(r"\s*(?P<key>[^\s,{}=]+)\s*,")
FIELD = re.compile(r"[\s,]*(?P<name>[A-Za-z][\w.:+-]*)\s*=\s*")
PART = re.compile(r"\s*(?:\#\s*)?(?:(?P<quote>\")|(?P<brace>\{)|(?P<word>[^\s,#{}\"=()]+))")
EDGE = re.compile(r"\\.|[{}\"]", re.DOTALL)
JOINED = re.compile(r"\s*#")


def parse_bibtex(file: RawFile) -> Iterator[ParsedDocument]:
    """Read a BibTeX file. A file without entries, or with too many fields, is read as plain text."""
    text = file.text
    strings = Macros()
    line, counted, found = 1, 0, False
    entries = [] if has_too_many("@=\\{$~'`&%", text) else [*ENTRY.finditer(text)]
    for entry, end in zip(entries, [*(entry.start() for entry in entries[1:]), len(text)], strict=False):
        line += text.count("\n", counted, entry.start())
        counted = entry.start()
        kind = entry["type"].lower()
        if kind == "string":
            fields = _fields(text[entry.start() : end], entry.end() - entry.start(), line, strings)
            for name, value, _ in fields:
                strings.define(name.lower(), value)
        elif kind not in ("comment", "preamble"):
            found = True
            yield _document(kind, text[entry.start() : end], entry.end() - entry.start(), line, strings)
    if not found:
        yield from source.parse_plain(file)


def _document(kind: str, text: str, done: int, line: int, strings: Macros) -> ParsedDocument:
    """Return the document of the entry ``text``, which starts at ``line``. Its key starts at position ``done``."""
    key = KEY.match(text, done)
    lines = [(f"{kind} {key['key']}" if key else kind, line)]
    title = None
    for name, value, at in _fields(text, key.end() if key else done, line, strings):
        if written := plain(value):
            lines.append((f"{name.lower()}: {written}", at))
            title = written if name.lower() == "title" else title
    written = "\n".join(text for text, _ in lines)
    metadata = {"entry": key["key"], "type": kind} if key else {"type": kind}
    return ParsedDocument(written, [Block(0, len(written))], title, [at for _, at in lines], metadata=metadata)


def _fields(text: str, done: int, line: int, strings: Macros) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the value and the line of each field of the entry ``text`` from position ``done`` on."""
    counted = 0
    while match := FIELD.match(text, done):
        line += text.count("\n", counted, match.start("name"))
        counted = match.start("name")
        parts: list[str] = []
        done = match.end()
        while part := PART.match(text, done):
            if part["word"]:
                parts.append(strings.text(part["word"].lower()) or part["word"])
                done = part.end()
            else:
                stop = _value_end(text, part.end(), '"' if part["quote"] else "}")
                parts.append(text[part.end() : stop])
                done = stop + 1
            if not JOINED.match(text, done):
                break
        yield match["name"], "".join(parts), line


def _value_end(text: str, start: int, closing: str) -> int:
    """Return the position of the mark that closes the value that starts at ``start``."""
    depth = 0
    for match in EDGE.finditer(text, start):
        if match[0] == closing and not depth:
            return match.start()
        depth += {"{": 1, "}": -1}.get(match[0], 0)
    return len(text)
