"""Passages as HTML: Markdown, source code and plain text, with the words of the query marked.

Everything is made of elements from ranges of the text, so no text can become markup, and the places of the words stay
right. What is not understood is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from ragembed.documents.readers.registry import BY_NAME, SOURCE_SUFFIXES
from ragembed.html_elements import Child, element

_MARKDOWN = (".md", ".markdown", ".mdx", ".qmd", ".rmd", ".ipynb")
_LIKE_MARKDOWN = (".html", ".htm", ".docx", ".odt", ".epub")
"""Suffixes of files whose text is Markdown, and of those whose text is similar, but has no ends of lines to join."""
_CODE = (*SOURCE_SUFFIXES, ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".sql", ".xml", ".dockerfile")
_HASH = re.compile("py|pyi|sh|bash|zsh|fish|ps1|rb|pl|pm|r|jl|exs?|mk|cmake|ya?ml|toml|ini|cfg|tf|python|console|shell")
_DASH = re.compile("lua|hs|sql")
"""Languages, or suffixes of their files, whose comments begin with ``#`` and ``--``."""
_STRINGS = r"'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"
_WORDS = (
    "abstract|and|as|assert|async|await|break|case|catch|class|const|continue|def|default|defer|del|"
    "do|elif|else|enum|except|export|extends|extern|false|finally|fn|for|from|func|function|global|"
    "go|if|impl|implements|import|in|instanceof|interface|is|lambda|let|match|mod|module|mut|"
    "namespace|new|nil|none|nonlocal|not|null|operator|or|package|pass|private|protected|public|raise|"
    "return|self|static|struct|super|switch|template|this|throw|trait|true|try|type|typedef|typename|"
    "union|unless|use|using|var|virtual|void|where|while|with|yield"
)


def _grammar(comment: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<c>{comment})|(?P<s>{_STRINGS})|(?P<n>\b\d[\w.]*)|(?P<k>\b(?:{_WORDS})\b)", re.DOTALL | re.IGNORECASE
    )


_WITH_HASH, _WITH_DASH = _grammar(r"#[^\n]*"), _grammar(r"--[^\n]*")
_WITH_SLASH = _grammar(r"//[^\n]*|/\*.*?(?:\*/|\Z)|<!--.*?(?:-->|\Z)")

_FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})\s*\{?([\w+-]*)")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*$")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_BARE_ROW = re.compile(r"[^|]*\S \| ")
_SEPARATOR = re.compile(r"\s*\|?[\s:|-]*-[\s:|-]*$")
_CELL = re.compile(r"(?:\\.|[^|\\])*")
_INLINE = re.compile(
    r"(?P<code>(`+)(?P<c>.+?)(?<!`)\2(?!`))|(?P<image>!\[(?P<alt>[^\]]*)\]\([^)\s]*[^)]*\))"
    r"|\[(?P<link>[^\]]+)\]\((?P<to>[^)\s]*)[^)]*\)|\*\*(?P<b>\S(?:.*?\S)?)\*\*|(?<!\w)[*_](?P<i>\S(?:.*?\S)?)[*_](?!\w)",
    re.DOTALL,
)
_SESSION = re.compile(r"(?:(?!>>> )[^\n]+\n)*>>> ")
"""A paragraph with a statement of an interactive session of Python."""
_WRAPPED = 60
"""Lines of a paragraph from this length on were broken to fit a width, and are joined again."""


def rendered(text: str, path: str | None, places: Sequence[Sequence[int]] = ()) -> list[Child]:
    """Return a passage of a file; ``places`` are start and end of the words to mark, in order."""
    return list(_Passage(text, places).blocks(path or ""))


class _Passage:
    """The text of a passage; its parts are ranges of it."""

    def __init__(self, text: str, places: Sequence[Sequence[int]]) -> None:
        self._text = text
        self._places = places
        self._keeps_lines = False

    def blocks(self, path: str) -> Iterator[Child]:
        name = PurePosixPath(path.lower())
        if name.suffix in _CODE or (name.name in BY_NAME and BY_NAME[name.name].name != "text"):
            yield self._code(0, len(self._text), name.suffix[1:])
        elif name.suffix in (*_MARKDOWN, *_LIKE_MARKDOWN):
            self._keeps_lines = name.suffix in _LIKE_MARKDOWN
            lines = self._lines(0, len(self._text))
            fences = [i for i, line in enumerate(lines) if _FENCE.match(self._text[slice(*line)])]
            if len(fences) % 2 and not _FENCE.match(self._text[slice(*lines[fences[0]])])[2]:  # type: ignore[index]
                # The passage begins in a block of code.
                if fences[0]:
                    yield self._code(0, lines[fences[0] - 1][1], "")
                lines = lines[fences[0] + 1 :]
            yield from self._markdown(lines)
        else:
            yield from self._plain()

    def _lines(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return start and end of each line."""
        lines = []
        for line in self._text[start:end].split("\n"):
            lines.append((start, start + len(line)))
            start += len(line) + 1
        return lines

    def _marked(self, start: int, end: int) -> Iterator[Child]:
        """Yield a range with the words of the query marked."""
        for first, last in self._places:
            first, last = max(first, start), min(last, end)
            if first < last:
                yield self._text[start:first]
                yield element("mark", self._text[first:last])
                start = last
        yield self._text[start:end]

    def _code(self, start: int, end: int, language: str) -> Child:
        grammar, text = _WITH_SLASH, self._text[start:end]
        if _HASH.fullmatch(language):
            grammar = _WITH_HASH
        elif _DASH.fullmatch(language):
            grammar = _WITH_DASH
        children: list[Child] = []
        for match in grammar.finditer(self._text, start, end):
            children += self._marked(start, match.start())
            children.append(element("span", *self._marked(*match.span()), class_=match.lastgroup))
            start = match.end()
        indent = min((len(line) - len(line.lstrip()) for line in text.split("\n") if line.strip()), default=0) // 4
        code = element("span", *children, *self._marked(start, end), class_=f"i{min(indent, 6)}" if indent else None)
        return element("pre", code, tabindex="0")

    def _plain(self) -> Iterator[Child]:
        """Yield paragraphs; lines that look broken to fit a width are joined again."""
        for match in re.finditer(r"(?:[^\n]*\S[^\n]*(?:\n|\Z))+", self._text):
            lines = match[0].rstrip("\n").split("\n")
            is_wrapped = len(lines) > 1 and all(len(line) >= _WRAPPED and "  " not in line for line in lines[:-1])
            kind = None if is_wrapped else "lines"
            yield element("p", *self._marked(match.start(), match.start() + len(match[0].rstrip("\n"))), class_=kind)

    # Markdown

    def _markdown(self, lines: Sequence[tuple[int, int]]) -> Iterator[Child]:
        at = 0
        while at < len(lines):
            start, end = lines[at]
            line = self._text[start:end]
            if not line.strip() or _RULE.match(line):
                at += 1
            elif fence := _FENCE.match(line):
                stop = self._until(lines, at + 1, fence[1])
                if stop > at + 1:
                    yield self._fenced(lines[at + 1 : stop], fence)
                at = stop + 1
            elif heading := _HEADING.match(line):
                yield element("p", *self._inline(start + heading.start(2), start + heading.end(2)), class_="heading")
                at += 1
            elif rows := self._rows(lines, at):
                stop = at + rows
                yield self._table(lines[at:stop])
                at = stop
            elif _ITEM.match(line):
                stop = self._while(lines, at + 1, lambda later: bool(later.strip()) and not _FENCE.match(later))
                yield self._list(lines[at:stop])
                at = stop
            elif _SESSION.match(self._text, start):
                stop = self._while(lines, at + 1, lambda later: bool(later.strip()))
                yield self._code(start, lines[stop - 1][1], "python")
                at = stop
            else:
                stop = self._while(lines, at + 1, self._is_text)
                kind = "blockquote" if line.lstrip().startswith(">") else "p"
                skipped = len(line) - len(line.lstrip("> ")) if kind == "blockquote" else 0
                shape = "lines" if self._keeps_lines and stop > at + 1 else None
                yield element(kind, *self._inline(start + skipped, lines[stop - 1][1]), class_=shape)
                at = stop

    def _until(self, lines: Sequence[tuple[int, int]], at: int, mark: str) -> int:
        return self._while(lines, at, lambda line: not line.strip().startswith(mark))

    def _rows(self, lines: Sequence[tuple[int, int]], at: int) -> int:
        """Return the number of lines of the table that begins here; without bars at both ends, it has two or more."""
        if (end := self._while(lines, at, lambda line: bool(_ROW.match(line)))) > at:
            return end - at
        is_row = _BARE_ROW.match
        count = self._while(lines, at, lambda line: bool(is_row(line) or ("|" in line and _SEPARATOR.match(line)))) - at
        return count if count > 1 else 0

    def _while(self, lines: Sequence[tuple[int, int]], at: int, wanted: Callable[[str], bool]) -> int:
        while at < len(lines) and wanted(self._text[slice(*lines[at])]):
            at += 1
        return at

    def _is_text(self, line: str) -> bool:
        return bool(line.strip()) and not any(pattern.match(line) for pattern in (_FENCE, _HEADING, _ROW, _ITEM, _RULE))

    def _fenced(self, lines: Sequence[tuple[int, int]], fence: re.Match[str]) -> Child:
        if fence[1][0] == ":" or fence[2] in ("note", "tip", "warning", "important", "admonition"):
            return element("div", *self._markdown(lines), class_="note-box")
        return self._code(lines[0][0], lines[-1][1], fence[2].lower())

    def _list(self, lines: Sequence[tuple[int, int]]) -> Child:
        """Return the items with their depth as a class; a line that begins no item continues the last one."""
        items: list[tuple[int, int, int]] = []
        for start, end in lines:
            if item := _ITEM.match(self._text[start:end]):
                depth = min(3, (len(item[0]) - len(item[0].lstrip())) // 2)
                items.append((depth, start + item.end(), end))
            else:
                items[-1] = (*items[-1][:2], end)
        rows = (element("li", *self._inline(begin, end), class_=f"d{depth}") for depth, begin, end in items)
        number = re.match(r"\s*(\d+)", self._text[slice(*lines[0])])
        return element("ul", *rows) if number is None else element("ol", *rows, start=number[1])

    def _table(self, lines: Sequence[tuple[int, int]]) -> Child:
        has_head = len(lines) > 1 and bool(_SEPARATOR.match(self._text[slice(*lines[1])]))
        rows = []
        for number, (start, end) in enumerate(lines):
            if _SEPARATOR.match(self._text[start:end]):
                continue
            kind = "th" if has_head and number == 0 else "td"
            line = self._text[start:end]
            first = start + line.index("|") + 1 if line.lstrip().startswith("|") else start
            last = start + line.rindex("|") if line.rstrip().endswith("|") else end
            cells = []
            while first <= last:
                match = _CELL.match(self._text, first, last)
                stop = match.end() if match else last
                cells.append(element(kind, *self._inline(*self._stripped(first, stop))))
                first = stop + 1
            rows.append(element("tr", *cells))
        return element("div", element("table", *rows), class_="wide", tabindex="0")

    def _stripped(self, start: int, end: int) -> tuple[int, int]:
        text = self._text[start:end]
        return start + len(text) - len(text.lstrip()), max(start, end - len(text) + len(text.rstrip()))

    def _inline(self, start: int, end: int) -> Iterable[Child]:
        """Yield a range with code, emphasis and links; only links to web pages and mail addresses are active."""
        for match in _INLINE.finditer(self._text, start, end):
            yield from self._marked(start, match.start())
            start = match.end()
            if match["code"]:
                yield element("code", *self._marked(*match.span("c")))
            elif match["image"]:
                yield element("span", *self._marked(*match.span("alt")), class_="image")
            elif match["link"]:
                inside = self._inline(*match.span("link"))
                if re.match(r"https?://|mailto:", match["to"], re.IGNORECASE):
                    yield element("a", *inside, href=match["to"], rel="noreferrer noopener", target="_blank")
                else:
                    yield element("span", *inside, class_="link", title=match["to"])
            else:
                kind = "b" if match["b"] else "i"
                yield element("strong" if kind == "b" else "em", *self._inline(*match.span(kind)))
        yield from self._marked(start, end)
